"""The demonstration: synthetic spectra, their fits, and what they were drawn from."""

from __future__ import annotations

import io
import os
from pathlib import Path as FilePath

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit.fitting import fit
from popfit.model import Emulator, SpectralModel
from popfit.spectra import Path, Spectra, as_spectra
from popfit.table import FitTable


def demo_data() -> tuple[SpectralModel, Spectra]:
    """Return the model and the 64 synthetic spectra of the demonstration.

    Examples
    --------
    >>> import popfit
    >>> model, spectra = popfit.demo_data()
    >>> model.parameters, len(spectra)
    (['velocity', 'teff', 'logg', 'feh', 'alpha'], 64)
    """
    files = _popfit.demo_files()
    name = "emulator.safetensors"
    network = Emulator._of(_popfit.Emulator.from_bytes(name, files[name]))
    model = SpectralModel.from_toml(files["model.toml"].decode(), emulators={"b": network})
    with np.load(io.BytesIO(files["spectra.npz"])) as arrays:
        return model, as_spectra(dict(arrays))


def demo(folder: Path | None = None) -> FitTable:
    """Fit 64 synthetic spectra, print how far the results are from the truth, and return the table.

    Parameters
    ----------
    folder : path, optional
        Folder to which model, network, spectra and truth are written, to begin with. Existing files stay.

    Examples
    --------
    >>> import popfit
    >>> table = popfit.demo()  # doctest: +ELLIPSIS
    parameter ...
    """
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        for name, data in _popfit.demo_files().items():
            path = FilePath(folder) / name
            if not path.exists():
                path.write_bytes(data)
    table = fit(*demo_data())
    with np.load(io.BytesIO(_popfit.demo_files()["truth.npz"])) as truth:
        print(_comparison(table, dict(zip(truth["names"].tolist(), truth["parameters"].T, strict=True))))
    summary = table.summary
    print(
        f"{summary['spectra']} spectra: {summary['converged']} converged; {summary['seconds']:.2f} s, "
        f"{summary['spectra'] / summary['seconds']:.0f} spectra/s, {summary['device']}"
    )
    return table


def _comparison(table: FitTable, truth: dict[str, npt.NDArray[np.float64]]) -> str:
    """Return a text with the median error and the pulls, (found − true)/error, of each parameter."""
    lines = ["parameter  median error  pull: mean  pull: sd"]
    for name in table.parameters:
        errors = table[f"{name}_err"]
        pulls = (table[name] - truth[name]) / errors
        median, mean, deviation = np.nanmedian(errors), np.nanmean(pulls), np.nanstd(pulls, ddof=1)
        lines.append(f"{name:9} {median:13.4f} {mean:11.2f} {deviation:9.2f}")
    return "\n".join([*lines, "A pull is (found − true)/error; its mean should be 0 and its sd 1."])
