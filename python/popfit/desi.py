"""Fits of DESI's files as a step of a pipeline: names of files in, tables in memory out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit import fitting
from popfit._checks import check_switch
from popfit.devices import Device
from popfit.model import SpectralModel
from popfit.spectra import Path

__all__ = ["proc"]


def proc(
    files: Path | Sequence[Path],
    model: SpectralModel | Path | Mapping[str, Any],
    *,
    threads: int | None = None,
    device: str | Device = "auto",
    models: bool = False,
    output: Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Fit the coadds or spectra of DESI, and return rvspecfit's tables by the names of their HDUs.

    Nothing is written unless `output` is given, but for a temporary folder. astropy must be installed.

    Parameters
    ----------
    files : path or sequence of paths
        Coadd or spectra files of DESI, fitted one after another into one table.
    model : SpectralModel, path or mapping
        The model, as in `popfit.fit`. Its arms are those of DESI: b, r and z, or some of them.
    threads : int, optional
        Threads of this run; by default those of `popfit.get_threads`.
    device : str or Device
        Device of this run, as in `popfit.fit`.
    models : bool
        True for the best-fit spectra, too.
    output : path, optional
        File for the tables, whose name ends in .fits. The best-fit spectra are beside it, in ``rvmod_X.fits`` for
        ``rvtab_X.fits`` and in ``X_rvmod.fits`` for another name.
    overwrite : bool
        True to replace files that exist.
    **settings
        Further settings of `popfit.fit_files`, such as ``select``, ``starts``, ``timeout`` and ``progress``.

    Returns
    -------
    dict of str to structured array
        One row for each fitted fibre: ``"RVTAB"`` (velocities, labels, χ² and warnings, as rvspecfit names them), and
        the rows of ``"FIBERMAP"`` and ``"SCORES"``, with the columns that all files have. ``"METADATA"`` has settings
        and device of the run. With `models` also images (fibres, pixels) ``"B_MODEL"`` and wavelengths (pixels,) in Å
        ``"B_WAVELENGTH"``, and so for each arm. Numbers are in the byte order of this machine.

    Raises
    ------
    InputError
        If files, model or settings are wrong, or if no fibre of the files is selected.
    FileNotFoundError, PermissionError
        If a file cannot be opened.
    FileExistsError
        If `output` exists, and `overwrite` is False.
    DeviceError
        If the device is missing or fails.

    Examples
    --------
    >>> import popfit.desi
    >>> def fit_healpix(coadd, model, nproc):
    ...     tables = popfit.desi.proc(coadd, model, threads=nproc, select={"objtype": "TGT"})
    ...     return tables["RVTAB"]["TARGETID"], tables["RVTAB"]["VRAD"]
    >>> popfit.desi.proc([], {})
    Traceback (most recent call last):
    popfit._errors.InputError: files: an empty list; did a pattern match no file?
    """
    for argument in ("format", "report", "resume"):
        if argument in settings:
            raise TypeError(f"proc has no argument {argument!r}: give it to popfit.fit_files")
    paths = fitting._paths_of_files(files)
    with_models = check_switch("models", models)
    with tempfile.TemporaryDirectory(prefix="popfit-") as folder:
        table = os.path.join(folder, "rvtab.fits") if output is None else os.fspath(output)
        with fitting.without_result_warnings():  # RVS_WARN has them, fibre by fibre
            fitting.fit_files(
                model,
                paths,
                table,
                format="rvtab",
                overwrite=overwrite and output is not None,
                device=device,
                threads=threads,
                **settings,
            )
        tables = _read_hdus(table)
        if with_models:
            tables |= {name: one for name, one in _read_hdus(_path_of_models(table)).items() if name not in tables}
    return tables


def _path_of_models(table: str) -> str:
    """Return the path of the best-fit spectra that belong to a table."""
    folder, name = os.path.split(table)
    if name.startswith("rvtab"):
        return os.path.join(folder, "rvmod" + name.removeprefix("rvtab"))
    return os.path.join(folder, f"{os.path.splitext(name)[0]}_rvmod.fits")


def _read_hdus(path: str) -> dict[str, Any]:
    """Return the tables and images of a FITS file by their names, as arrays of numpy in native byte order."""
    from astropy.io import fits  # type: ignore[import-untyped,unused-ignore]

    with fits.open(path, memmap=False) as file:
        return {hdu.name: _native_array(hdu.data) for hdu in file if hdu.data is not None}


def _native_array(data: Any) -> npt.NDArray[Any]:
    """Return the rows of a table, or an image, as an array of numpy; texts are of Python's kind, truth values bool."""
    if data.dtype.names is None:
        return np.array(data, dtype=data.dtype.newbyteorder("="))
    columns = {name: np.asarray(data[name]) for name in data.dtype.names}
    kinds = [(name, one.dtype.newbyteorder("="), one.shape[1:]) for name, one in columns.items()]
    array = np.empty(len(data), dtype=kinds)
    for name, one in columns.items():
        array[name] = one
    return array
