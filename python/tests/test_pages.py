"""The code of the book's Python pages runs as it stands."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest
from conftest import ROOT, required

import popfit
from popfit._rival import markdown_table

PAGES = ROOT / "docs" / "src" / "python"
#: Files that a page's reader has in the folder.
FILES = {"desi.md": sorted((ROOT / "tests" / "data" / "desi").glob("*"))}


@pytest.mark.parametrize("page", ["notebook.md", "curves.md", "cube.md", "spots.md", "desi.md", "survey.md"])
def test_pages_run(page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = required("matplotlib")
    required("pandas")
    matplotlib.use("Agg")
    for file in FILES.get(page, []):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    matplotlib.pyplot.close("all")
    if page == "desi.md":
        table, good = names["table"], names["good"]
        assert isinstance(table, popfit.FitTable) and isinstance(good, popfit.FitTable)
        assert table.summary["flags"] == [] and len(good) >= 23
    wanted = re.findall(r'savefig\("(.*?)"\)', "".join(blocks))
    assert all((tmp_path / name).stat().st_size > 10_000 for name in wanted)


@pytest.mark.parametrize(("module", "rival"), [("scipy", "scipy"), ("gpufit", "Gpufit"), ("xarray", "xarray")])
def test_the_book_has_the_tables_of_differences(module: str, rival: str) -> None:
    differences = required(f"popfit.{module}").DIFFERENCES
    page = (PAGES / f"from-{module}.md").read_text(encoding="utf-8")
    assert markdown_table(rival, differences) in page
