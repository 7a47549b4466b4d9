"""Fits of catalogues of LSDB, whose rows have spectra as nested frames: one partition at a time.

`fit` takes a catalogue and returns one of results. `fit_partition` is what it does with each partition: a frame of
pandas in, a frame of pandas out, for ``map_partitions`` of LSDB, of Dask and of others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit import fitting
from popfit._arrays import Array, Lendable
from popfit._checks import close_name
from popfit._errors import InputError
from popfit._foreign import SpectrumCells, stack_cells
from popfit.model import SpectralModel, as_model
from popfit.spectra import Path, Spectra

__all__ = ["fit", "fit_partition"]

#: Where a frame has spectra: a nested column or a prefix, one of each arm if the model has several, or None.
Place: TypeAlias = "str | Mapping[str, str] | None"


def fit(
    catalog: Any,
    model: SpectralModel | Path | Mapping[str, Any],
    spectrum: Place = "spectrum",
    *,
    keep: Sequence[str] | None = None,
    **settings: Any,
) -> Any:
    """Fit the spectra of a catalogue of LSDB, lazily: the results are a catalogue, too.

    Parameters
    ----------
    catalog : lsdb.Catalog
        Catalogue with nested columns of spectra, or what else has ``map_partitions``.
    model : SpectralModel, path or mapping
        The model, or its file, which all workers see: a model travels with each partition, and a path is short.
    spectrum : str, mapping of str to str, or None
        As in `fit_partition`.
    keep : sequence of str, optional
        Columns of the catalogue that the results have, too; by default those of the position, which LSDB needs.
    **settings
        Further arguments of `fit_partition`, such as ``sigma``, ``ids`` and ``device``.

    Returns
    -------
    lsdb.Catalog
        One row for each row of the catalogue, in its partitions.

    Raises
    ------
    InputError
        If columns are missing, or model or settings are wrong.

    Examples
    --------
    >>> import popfit.lsdb
    >>> def fit_catalog(folder, model):
    ...     import lsdb
    ...     catalog = lsdb.open_catalog(folder, columns=["ra", "dec", "spectrum"])
    ...     return popfit.lsdb.fit(catalog, model, sigma="flux_err").compute()
    """
    if not hasattr(catalog, "map_partitions"):
        raise InputError(
            f"catalog: {type(catalog).__name__}; give a catalogue of LSDB, or a frame to fit_partition",
            argument="catalog",
        )
    if keep is None:
        keep = _position_columns(catalog)
    if isinstance(model, str | os.PathLike):
        model = os.path.abspath(model)
    # LSDB calls the function with an empty partition first, for the columns of the results, and so shows what is wrong
    return catalog.map_partitions(fit_partition, model, spectrum, keep=tuple(keep), **settings)


def fit_partition(
    frame: Any,
    model: SpectralModel | Path | Mapping[str, Any],
    spectrum: Place = "spectrum",
    *,
    wavelength: str | npt.ArrayLike = "wavelength",
    flux: str = "flux",
    ivar: str = "ivar",
    sigma: str | None = None,
    mask: str | None = None,
    medium: str = "vacuum",
    ids: str | None = None,
    columns: Sequence[str] = (),
    keep: Sequence[str] = (),
    device: str = "auto",
    threads: int | None = None,
    **settings: Any,
) -> Any:
    """Fit the spectra of a frame of pandas, whose cells hold them, and return the table as a frame.

    Spectra may have different lengths and grids: shorter ones are padded with masked pixels. Pixels whose flux or error
    is not finite do not count. A row without pixels is a row with a status.

    Parameters
    ----------
    frame : pandas.DataFrame or nested_pandas.NestedFrame, of n rows
        The partition.
    model : SpectralModel, path or mapping
        The model, as in `popfit.fit`.
    spectrum : str, mapping of str to str, or None
        Name of the nested column, whose fields are `wavelength`, `flux` and so on. A name that is no nested column is a
        prefix: columns ``NAME_flux`` and so on have lists or arrays in their cells. None stands for such columns
        without a prefix. For several arms a mapping of the arms' names to these names.
    wavelength : str or array_like, (pixels,)
        Field or column of the wavelengths in Å, increasing, or one grid of all spectra.
    flux, ivar : str
        Fields or columns of the flux and of its inverse variance.
    sigma : str, optional
        Field or column of the flux's standard error, in place of `ivar`.
    mask : str, optional
        Field or column that is true, or not 0, for bad pixels.
    medium : {"vacuum", "air"}
        Medium of the wavelengths.
    ids : str, optional
        Column of the identifiers; the frame's index without it.
    columns : sequence of str
        Columns of the frame that the model asks for, such as starts and priors of a label.
    keep : sequence of str
        Columns of the frame that the result has before its own.
    device, threads
        As in `popfit.fit`. An empty partition is not looked at by a device.
    **settings
        Further settings of `popfit.fit`, but for ``select``.

    Returns
    -------
    pandas.DataFrame, of n rows
        The columns of `popfit.FitTable` but for ``file`` and ``row``, with the frame's index.

    Raises
    ------
    InputError
        If columns or fields are missing, arrays of a row have different lengths, or model or settings are wrong.

    Examples
    --------
    >>> import pandas, popfit, popfit.lsdb
    >>> model, spectra = popfit.demo_data()
    >>> import pathlib, tempfile, numpy
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> table = popfit.demo(folder)  # doctest: +ELLIPSIS
    parameter ...
    >>> with numpy.load(folder / "spectra.npz") as arrays:
    ...     frame = pandas.DataFrame({"flux": list(arrays["flux"]), "ivar": list(arrays["ivar"])})
    ...     results = popfit.lsdb.fit_partition(frame[:8], model, None, wavelength=arrays["wavelength"], device="cpu")
    >>> results["velocity"].shape
    (8,)
    """
    for argument in ("select", "exposures"):
        if settings.get(argument) is not None:
            raise InputError(
                f"{argument}: each row of a partition is one spectrum; select or join rows before", argument=argument
            )
    model = as_model(model)
    arms = dict(spectrum) if isinstance(spectrum, Mapping) else {next(iter(model.arms)): spectrum}
    fields = {"flux": flux, "ivar" if sigma is None else "sigma": ivar if sigma is None else sigma}
    if isinstance(wavelength, str):
        fields["wavelength"] = wavelength
    if mask is not None:
        fields["mask"] = mask
    shared = None if isinstance(wavelength, str) else np.asarray(wavelength, dtype=np.float64)
    arrays: dict[str, Any] = {}
    for arm, name in arms.items():
        cells = {part: _cells_of(frame, name, field) for part, field in fields.items()}
        if arm not in model.arms:
            raise InputError(
                f"spectrum: the model has no arm {arm!r} (its arms are {', '.join(model.arms)})", argument="spectrum"
            )
        grid = model.arms[arm].wavelength
        arrays[arm] = {**_stacked_arm(len(frame), cells, shared, grid), "medium": medium}
    spectra = Spectra.from_arms(
        arrays,
        ids=np.asarray(frame.index if ids is None else _column_of(frame, ids)),
        columns={name: np.asarray(_column_of(frame, name)) for name in columns},
    )
    # a device has nothing to do for the empty partitions from which engines take the columns of the results
    device = device if len(frame) else "cpu"
    table = fitting.fit(model, spectra, device=device, threads=threads, **settings)
    return _frame_of(table.to_pandas().drop(columns=list(_PLACES)), frame, keep)


def _position_columns(catalog: Any) -> list[str]:
    """Return the names of a catalogue's columns of the position; none if it is no catalogue of LSDB."""
    known = getattr(getattr(catalog, "hc_structure", None), "catalog_info", None)
    names = (getattr(known, name, None) for name in ("ra_column", "dec_column"))
    return [name for name in names if name is not None and name in catalog.columns]


def _column_of(frame: Any, name: str) -> Any:
    """Return a column of a frame."""
    if name not in frame.columns:
        raise InputError(
            f"no column {name!r}{close_name(name, map(str, frame.columns))} "
            f"(the frame has {', '.join(map(str, frame.columns))})",
            argument=name,
        )
    return frame[name]


def _cells_of(frame: Any, place: str | None, field: str) -> list[Array | None]:
    """Return the arrays of a field in all rows, None where there is none."""
    if place is None:
        return list(_arrays_in(_column_of(frame, field)))
    if place in frame.columns and hasattr(frame[place], "nest"):
        lists = frame[place].nest.to_lists()
        if field not in lists.columns:
            raise InputError(
                f"no field {field!r} in the column {place!r}{close_name(field, lists.columns)} "
                f"(it has {', '.join(lists.columns)})",
                argument=field,
            )
        return list(_arrays_in(lists[field]))
    if place in frame.columns and not len(frame):  # margins of LSDB without a row have lost the type of the column
        return []
    if f"{place}_{field}" not in frame.columns:
        raise InputError(
            f"spectrum: there is neither a nested column {place!r} nor a column {f'{place}_{field}'!r} (the frame has "
            f"{', '.join(map(str, frame.columns))})",
            argument="spectrum",
        )
    return list(_arrays_in(frame[f"{place}_{field}"]))


def _arrays_in(column: Any) -> Iterator[Array | None]:
    """Yield the arrays in the cells of a column of pandas; lists of Arrow are not made lists of Python."""
    if hasattr(column.dtype, "pyarrow_dtype"):
        for chunk in column.array.__arrow_array__().iterchunks():
            offsets, values = chunk.offsets.to_numpy(), chunk.values.to_numpy(zero_copy_only=False)
            is_missing = chunk.is_null().to_numpy(zero_copy_only=False)
            for begin, end, missing in zip(offsets[:-1], offsets[1:], is_missing, strict=True):
                yield None if missing else values[begin:end]
        return
    for cell in column:
        is_missing = cell is None or (np.ndim(cell) == 0 and cell != cell)
        yield None if is_missing else np.asarray(cell if isinstance(cell, np.ndarray) else list(cell))


def _stacked_arm(
    rows: int, cells: Mapping[str, Sequence[Array | None]], shared: Array | None, grid: Array
) -> dict[str, Lendable]:
    """Return the arrays of one arm: those of its rows, of which shorter ones are padded with masked pixels.

    Parameters
    ----------
    rows : int
        Number of rows.
    cells : mapping of str to sequence of array or None
        ``flux``, ``ivar`` or ``sigma``, and ``wavelength`` and ``mask`` if there are any, of each row.
    shared : array, (pixels,), or None
        Wavelengths of all rows.
    grid : array
        Wavelengths for arms without any spectrum.
    """
    kind = "sigma" if "sigma" in cells else "ivar"
    given: list[SpectrumCells | None] = []
    for row in range(rows):
        of_row = {part: arrays[row] for part, arrays in cells.items()}
        if shared is not None:
            of_row["wavelength"] = shared
        if any(values is None or len(values) == 0 for values in of_row.values()):
            given.append(None)
            continue
        sizes = {part: len(values) for part, values in of_row.items() if values is not None}
        if len(set(sizes.values())) > 1:
            lengths = ", ".join(f"{part} {size}" for part, size in sizes.items())
            raise InputError(f"row {row}: arrays of different lengths: {lengths}", argument="spectrum", row=row)
        bad = of_row.get("mask")
        given.append(
            SpectrumCells(
                np.asarray(of_row["wavelength"], dtype=np.float64),
                np.asarray(of_row["flux"], dtype=np.float64),
                np.asarray(of_row[kind], dtype=np.float64),
                None if bad is None else np.asarray(bad) != 0,
            )
        )
    return stack_cells(given, kind, grid[:2])


def _frame_of(results: Any, frame: Any, keep: Sequence[str]) -> Any:
    """Return the results with the index of a frame, after the columns of it that are kept."""
    kept = {name: _column_of(frame, name) for name in keep}
    for name in kept:
        if name in results.columns:
            raise InputError(f"keep: the results have a column {name!r} of their own", argument="keep")
    results.index = frame.index
    for name in results.columns:
        if results[name].dtype == object and name in _TEXTS:
            results[name] = results[name].astype(str)
    for place, (name, values) in enumerate(kept.items()):
        results.insert(place, name, values)
    return results


#: Columns of a table that say where a spectrum is in a file.
_PLACES = ("file", "row")
#: Columns of texts.
_TEXTS = ("id", "status_text")
