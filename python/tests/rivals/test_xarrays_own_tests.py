"""xarray's own tests of ``curvefit``, with the accessor in the place of the method."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from conftest import required

#: Number of these tests, with and without dask; none is left out.
COUNT = 9


def test_curvefit(tmp_path: pathlib.Path) -> None:
    required("dask")
    tests = pathlib.Path(required("xarray").__file__).parent / "tests"
    text, replaced = re.subn(r"\bda\.curvefit\(", "da.popfit.curvefit(", (tests / "test_dataarray.py").read_text())
    assert replaced >= 8
    (tmp_path / "test_dataarray.py").write_text(text)
    (tmp_path / "conftest.py").write_text("import popfit.xarray\nfrom xarray.tests.conftest import *\n")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "curvefit", "test_dataarray.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0 and f"{COUNT} passed" in process.stdout, process.stdout
