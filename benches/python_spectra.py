#!/usr/bin/env python3
"""Rates of the Python package on spectra, beside the command's in the same run.

    benches/python_spectra.py [--rows 10000] [--rounds 5]

It needs the package (`pip install .`) and numpy. Spectra are those of the demo, many times over with new noise. Each
round measures the command and the package in turn; medians are printed.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import popfit


def noisy_spectra(rows: int) -> dict[str, np.ndarray]:
    """Return the arrays of `rows` spectra: the demo's, with half of their errors added as noise."""
    with tempfile.TemporaryDirectory() as folder:
        popfit.main(["demo", "--out", f"{folder}/demo", "--device", "cpu"])
        with np.load(f"{folder}/demo/spectra.npz") as file:
            wavelength, flux, ivar = file["wavelength"], file["flux"], file["ivar"]
    picked = np.arange(rows) % len(flux)
    sigma = np.where(ivar[picked] > 0, 1 / np.sqrt(np.maximum(ivar[picked], 1e-30)), 0)
    noise = 0.5 * sigma * np.random.default_rng(1).normal(size=sigma.shape)
    return {"wavelength": wavelength, "flux": (flux[picked] + noise).astype(np.float32), "ivar": ivar[picked] / 1.25}


def command_rate(model: pathlib.Path, spectra: pathlib.Path, folder: str) -> float:
    """Return the spectra per second that the command prints."""
    output = f"{folder}/table.parquet"
    command = [sys.executable, "-m", "popfit", "fit", model, spectra, "-o", output, "--device", "cpu", "--overwrite"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return float(re.findall(r"([\d.]+) spectra/s", printed)[-1])


def seconds(function: object, *arguments: object, **keywords: object) -> float:
    """Return the time that a call takes."""
    begin = time.perf_counter()
    function(*arguments, **keywords)  # type: ignore[operator]
    return time.perf_counter() - begin


def import_seconds(statement: str) -> float:
    """Return the time of an import in a process of its own, the process's start left out."""
    text = f"import time; begin = time.perf_counter(); {statement}; print(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model, one = popfit.demo_data()
    arrays = noisy_spectra(arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        popfit.demo(folder)
        file = pathlib.Path(folder) / "many.npz"
        np.savez(file, **arrays)
        rates: dict[str, list[float]] = {"command": [], "fit, arrays": [], "fit, file": []}
        for _ in range(arguments.rounds):
            rates["command"].append(command_rate(pathlib.Path(folder) / "model.toml", file, folder))
            rates["fit, arrays"].append(arguments.rows / seconds(popfit.fit, model, arrays, device="cpu"))
            rates["fit, file"].append(arguments.rows / seconds(popfit.fit, model, file, device="cpu"))
    base = statistics.median(rates["command"])
    for name, found in rates.items():
        print(f"{name:12} {statistics.median(found):8.0f} spectra/s  {statistics.median(found) / base:5.2f}")
    popfit.fit(model, one[:1], device="cpu")
    single = statistics.median(seconds(popfit.fit, model, one[k : k + 1], device="cpu") for k in range(20))
    print(f"one spectrum, model known: {1e3 * single:.1f} ms")
    imports = {
        statement: statistics.median(import_seconds(statement) for _ in range(9))
        for statement in ("import numpy", "import numpy, popfit")
    }
    print(
        f"import: numpy {1e3 * imports['import numpy']:.0f} ms, with popfit "
        f"{1e3 * (imports['import numpy, popfit'] - imports['import numpy']):.0f} ms more"
    )


if __name__ == "__main__":
    main()
