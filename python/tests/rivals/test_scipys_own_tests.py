"""scipy's own tests of `curve_fit` and `least_squares`, with the import line changed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from conftest import required


class OwnTests(NamedTuple):
    """A file of scipy's tests, and what is changed in it."""

    file: str
    #: Import lines, and those in their place.
    imports: dict[str, str]
    #: Tests that are run; a text for pytest's option -k.
    selected: str
    #: Tests that are left out, and why. This list may only shrink.
    left_out: dict[str, str]
    #: Lines with references that popfit's exact derivatives or own steps miss, and looser ones.
    looser: dict[str, str]
    #: Number of tests that pass.
    count: int


CURVE_FIT = OwnTests(
    file="test_minpack.py",
    imports={
        "from scipy.optimize._minpack_py import leastsq, curve_fit, fixed_point": (
            "from scipy.optimize._minpack_py import leastsq, fixed_point\nfrom popfit.scipy import curve_fit"
        ),
        "optimize.curve_fit(": "curve_fit(",
    },
    selected="TestCurveFit",
    left_out={
        "test_gh13670": "asserts that a function is never called twice with the same parameters; tracing checks it so",
    },
    # the references hold scipy's finite differences to 2e-7
    looser={
        "assert_allclose(res, ref, 2e-7)": "assert_allclose(res, ref, 1e-5)",
        "assert_allclose(pcov1, pcov2, rtol=1.4e-7, atol=1e-14)": (
            "assert_allclose(pcov1, pcov2, rtol=1e-5, atol=1e-14)"
        ),
    },
    count=45,
)
LEAST_SQUARES = OwnTests(
    file="test_least_squares.py",
    imports={
        "from scipy.optimize import least_squares, Bounds, minimize": (
            "from scipy.optimize import Bounds, minimize\nfrom popfit.scipy import least_squares"
        ),
    },
    selected="test_",
    left_out={
        "test_nfev and not test_nfev_options": "counts calls of a function of Python; a formula is evaluated instead",
        "test_x0_multidimensional": "x0 of two dimensions are the starts of many problems",
    },
    # scipy's first step ends, by the radius of its trust region, at a minimum of exactly 0 where the Jacobian vanishes
    looser={
        "assert_allclose(res.x, 0)\n": "assert_allclose(res.x, 0, atol=1e-10)\n",
        "assert_allclose(res.x, 0, atol=1e-15)": "assert_allclose(res.x, 0, atol=1e-6)",
        "assert_allclose(res.x, [0.0, 0.0])\n": "assert_allclose(res.x, [0.0, 0.0], atol=1e-100)\n",
        "assert_(res.nfev < 10)\n            assert_(res.njev < 10)": "assert_(res.njev < res.nfev < 200)",
    },
    count=120,
)


@pytest.mark.parametrize("own", [CURVE_FIT, LEAST_SQUARES], ids=lambda own: own.file)
def test_scipys_own_tests(own: OwnTests, tmp_path: pathlib.Path) -> None:
    text = (pathlib.Path(required("scipy.optimize").__file__).parent / "tests" / own.file).read_text()
    for given, wanted in (own.imports | own.looser).items():
        assert given in text, given
        text = text.replace(given, wanted)
    (tmp_path / own.file).write_text(text)
    markers = "\n    ".join(("thread_unsafe", "parallel_threads_limit", "fail_slow"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n    {markers}\n")
    left_out = " and ".join(f"not ({name})" for name in own.left_out)
    process = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-k", f"{own.selected} and {left_out}", own.file),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    passed = re.search(r"(\d+) passed", process.stdout)
    assert passed is not None and int(passed[1]) >= own.count, process.stdout
