"""The demonstration: synthetic spectra, their fits, and what they were drawn from."""

from __future__ import annotations

import contextlib
import io
import os

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
        Folder to which model, network, spectra and truth are written, to begin with, and a page about the fits,
        ``index.html``. Existing files stay, but for the page.

    Returns
    -------
    FitTable
        One row for each spectrum.

    Examples
    --------
    >>> import popfit
    >>> table = popfit.demo()  # doctest: +ELLIPSIS
    parameter ...
    """
    files = _popfit.demo_files()
    if folder is not None:
        _write_missing(files, folder)
    table = fit(*demo_data())
    with np.load(io.BytesIO(files["truth.npz"])) as truth:
        print(_comparison(table, dict(zip(truth["names"].tolist(), truth["parameters"].T, strict=True))))
    summary = table.summary
    print(
        f"{summary['spectra']} spectra: {summary['converged']} converged; {summary['seconds']:.2f} s, "
        f"{summary['spectra'] / summary['seconds']:.0f} spectra/s, {summary['device']}"
    )
    if folder is not None:
        page = table.report(folder, overwrite=True)
        model, spectra, network = (
            os.path.join(os.fspath(folder), name) for name in ("model.toml", "spectra.npz", "emulator.safetensors")
        )
        print(f"wrote {page}: open it in a browser")
        print("\nnext, fit the same spectra by yourself, and look at the network:")
        print(f"  table = popfit.fit({model!r}, {spectra!r})")
        print(f"  network = popfit.Emulator.open({network!r})")
    else:
        print(
            "\nnext, fit the same spectra by yourself, or have them, the model and a page about the fits in a folder:"
        )
        print("  model, spectra = popfit.demo_data()")
        print("  table = popfit.fit(model, spectra)")
        print('  popfit.demo("popfit-demo")')
    return table


def _write_missing(files: dict[str, bytes], folder: Path) -> None:
    """Write those of these files that a folder does not have."""
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with contextlib.suppress(FileExistsError), open(os.path.join(folder, name), "xb") as file:
            file.write(data)


def _comparison(table: FitTable, truth: dict[str, npt.NDArray[np.float64]]) -> str:
    """Return a text with the median error and the pulls, (found − true)/error, of each parameter, as the command does.

    Only fits that converged count, with an error above 0. The median of an even number is the upper middle one.
    """
    lines = ["parameter  median error  pull: mean  pull: sd"]
    for name in table.parameters:
        counts = table.converged & (table[f"{name}_err"] > 0)
        if not counts.any():
            lines.append(f"{name:9} no fit converged")
            continue
        errors = table[f"{name}_err"][counts]
        pulls = (table[name] - truth[name])[counts] / errors
        median, mean, deviation = np.sort(errors)[len(errors) // 2], pulls.mean(), pulls.std(ddof=1)
        lines.append(f"{name:9} {median:13.4f} {mean:11.2f} {deviation:9.2f}")
    return "\n".join([*lines, "A pull is (found − true)/error; its mean should be 0 and its sd 1."])
