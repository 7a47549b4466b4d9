"""What tests of the package share."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import popfit

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYNB = ROOT / "tests" / "data" / "synb"


@pytest.fixture(scope="session")
def demo_arrays() -> dict[str, Any]:
    """Arrays of the demonstration's spectra, by their names in the NPZ file."""
    with np.load(ROOT / "data" / "spectra.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="session")
def demo_model() -> popfit.SpectralModel:
    """Model of the demonstration."""
    return popfit.SpectralModel.from_file(ROOT / "data" / "model.toml")


@pytest.fixture(scope="session")
def command_table(tmp_path_factory: pytest.TempPathFactory) -> popfit.FitTable:
    """Table that the command writes of the demonstration's files."""
    output = tmp_path_factory.mktemp("command") / "table.parquet"
    run_python(
        "-m",
        "popfit",
        "fit",
        ROOT / "data" / "model.toml",
        ROOT / "data" / "spectra.npz",
        "-o",
        output,
        "--device",
        "cpu",
    )
    return popfit.FitTable.read(output)


def required(module: str) -> Any:
    """Return a module that a test needs; without it skip the test, or fail where CI is set."""
    try:
        return importlib.import_module(module)
    except ImportError:
        if os.environ.get("CI"):
            pytest.fail(f"{module} is not installed")
        pytest.skip(f"{module} is not installed")


def run_python(*arguments: object, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, without an exit code other than 0."""
    process = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process


def assert_same_rows(table: popfit.FitTable, other: popfit.FitTable, without: tuple[str, ...] = ()) -> None:
    """Assert that two tables have the same columns, to the bit."""
    assert table.columns == other.columns
    for name in table.columns:
        if name in without:
            continue
        one, two = table[name], other[name]
        assert one.dtype == two.dtype, name
        if one.dtype == object:
            assert one.tolist() == two.tolist(), name
        else:
            assert one.tobytes() == two.tobytes(), name


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Template library for `popfit.rvspecfit`, with the demo's network as setup b, and DESI's three."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "b.safetensors").symlink_to(ROOT / "data" / "emulator.safetensors")
    for arm in "brz":
        network = ROOT / "tests" / "data" / "desi" / f"{arm}.safetensors"
        (folder / f"desi_{arm}.safetensors").symlink_to(network)
    return folder


@pytest.fixture(scope="session")
def config(library: pathlib.Path) -> Any:
    """Configuration of that library."""
    from popfit.rvspecfit import utils

    path = library / "config.yaml"
    path.write_text(f"template_lib: {library}\nmin_vel: -1000\nmax_vel: 1000\nvel_step0: 5\nmax_vsini: 500\n")
    return utils.read_config(path)
