"""lmfit's own tests, with the import lines changed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest
from conftest import required

#: Parts of the names of tests that are left out, and why. This list may only shrink.
LEFT_OUT = {
    "ampgo": "a method of lmfit's own, which popfit hands on; these tests take minutes",
    "brute": "likewise",
}
#: Tests that pass at least.
COUNT = 600
#: Import lines of lmfit's tests, and what is imported in their place.
IMPORTS = {
    r"^(\s*)from lmfit import": r"\1from popfit.lmfit import",
    r"^(\s*)from lmfit\.(models?) import": r"\1from popfit.lmfit.\2 import",
    r"^(\s*)import lmfit$": r"\1import popfit.lmfit as lmfit",
}


def sources(folder: pathlib.Path, version: str) -> pathlib.Path:
    """Return lmfit's sources, which have its tests; the wheel has none."""
    download = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", f"lmfit=={version}"]
    process = subprocess.run(
        [*download, "-d", folder], capture_output=True, text=True, timeout=300, check=False, cwd=folder
    )
    archives = list(folder.glob("lmfit-*.tar.gz"))
    if process.returncode != 0 or not archives:
        message = f"the sources of lmfit {version} cannot be downloaded: {process.stderr[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return folder / archives[0].name.removesuffix(".tar.gz")


def test_lmfits_own_tests(tmp_path: pathlib.Path) -> None:
    folder = sources(tmp_path, required("lmfit").__version__)
    replaced = 0
    for file in (folder / "tests").glob("*.py"):
        text = file.read_text()
        for line, ours in IMPORTS.items():
            text, count = re.subn(line, ours, text, flags=re.MULTILINE)
            replaced += count
        file.write_text(text)
    assert replaced >= 50
    selected = " and ".join(f"not {name}" for name in LEFT_OUT)
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "-k", selected, "tests"],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-10_000:]
    passed = re.search(r"(\d+) passed", process.stdout)
    assert passed is not None and int(passed[1]) >= COUNT, process.stdout[-2_000:]
