"""astropy's own tests of its fitters, with the import lines changed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import required

#: Tests that are left out, and why. This list may only shrink.
LEFT_OUT: dict[str, str] = {}
#: Files of tests, and the least number of tests of each that pass with astropy 8.0.2.
FILES = {
    "test_fitters": 167,
    "test_fitting_parallel": 54,
    "test_constraints": 50,
    "test_quantities_fitting": 36,
    "test_models": 528,
    "test_functional_models": 63,
}
#: Import lines, and those in their place.
IMPORTS = {
    r"from astropy\.modeling\.fitting import": "from popfit.astropy import",
    r"from astropy\.modeling import (.*?)fitting, ": r"from popfit import astropy as fitting\n"
    r"from astropy.modeling import \1",
    # files of tests that lie in astropy's folder
    r"from \. import": "from astropy.modeling.tests import",
    r"from \.(\w+) import": r"from astropy.modeling.tests.\1 import",
    r'get_pkg_data_filename\((os.path.join\("data", ".*?"\))\)': r"get_pkg_data_filename(\1, 'astropy.modeling.tests')",
}


def passed_tests(folder: pathlib.Path, file: str, imports: dict[str, str]) -> tuple[int, str]:
    """Return the number of tests of a file that pass, or −1 if one fails, and pytest's report."""
    text = (pathlib.Path(required("astropy.modeling.tests").__file__).parent / f"{file}.py").read_text()
    for pattern, line in imports.items():
        text = re.sub(pattern, line, text)
    assert "popfit" in text
    (folder / f"{file}.py").write_text(text)
    left_out = ["-k", " and ".join(f"not {name}" for name in LEFT_OUT)] if LEFT_OUT else []
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *left_out, f"{file}.py"],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    passed = re.search(r"(\d+) passed", process.stdout)
    return -1 if process.returncode or passed is None else int(passed[1]), process.stdout


@pytest.mark.parametrize("file", FILES)
def test_with_the_imports_changed(file: str, tmp_path: pathlib.Path) -> None:
    required("dask")
    passed, report = passed_tests(tmp_path, file, IMPORTS)
    assert passed >= FILES[file], report


def test_cubes_by_popfits_fitter(tmp_path: pathlib.Path) -> None:
    # most tests of cubes use LevMarLSQFitter, which is left to astropy: popfit's LMLSQFitter is in its place here
    required("dask")
    imports = {r"    LevMarLSQFitter,\n": "    LMLSQFitter as LevMarLSQFitter,\n", **IMPORTS}
    passed, report = passed_tests(tmp_path, "test_fitting_parallel", imports)
    assert passed >= FILES["test_fitting_parallel"], report
    # diagnostics and fit_info are left to astropy
    warned = re.findall(r"PopfitWarning: (\w+)", report)
    assert set(warned) <= {"diagnostics", "fit_info"}, report
