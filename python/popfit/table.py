"""Tables of results: one row for each spectrum."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import Array
from popfit._errors import ColumnError, InputError
from popfit.devices import get_threads
from popfit.spectra import Path, Spectra, as_spectra

if TYPE_CHECKING:
    from popfit.model import SpectralModel

#: A column as Rust has it: name, unit, meaning, and an array or a list of texts.
Column: TypeAlias = tuple[str, str, str, Any]

#: Codes of the statuses of fits that converged.
CONVERGED_CODES = (1, 2, 3, 4)
#: Rows of the head that notebooks show.
SHOWN_ROWS = 8
#: Messages of rows without a fit that the summary has.
SHOWN_CAUSES = 5
#: Bars of the histograms that notebooks show.
SPARKLINE_BARS = 24


class FitTable:
    """Results of a run: columns by name, and one row for each spectrum.

    ``table["teff"]`` is a column, ``table[5]`` a row as a dict, and ``table[table.converged]``, ``table[10:20]`` are
    tables of some rows. The book's page on results says what the columns mean.

    Examples
    --------
    >>> import popfit
    >>> table = popfit.fit(*popfit.demo_data(), device="cpu")
    >>> table.units["teff"], table.meanings["chi2"]
    ('K', 'chi-square of the pixels')
    >>> bright = table[table["teff_err"] < 30.0]
    >>> covariance = table.covariance(0)
    """

    _columns: dict[str, Array]
    _units: dict[str, str]
    _meanings: dict[str, str]
    #: Model file, networks, settings and device of the run, as text.
    metadata: dict[str, Any]
    #: What is wrong with each spectrum that could not be fitted; empty texts otherwise.
    messages: list[str]

    def __init__(self) -> None:
        raise TypeError("popfit.fit and FitTable.read make tables")

    @classmethod
    def _of(cls, columns: list[Column], messages: list[str], metadata: dict[str, Any]) -> FitTable:
        table = cls.__new__(cls)
        table._columns, table._units, table._meanings = {}, {}, {}
        for name, unit, meaning, values in columns:
            table._columns[name] = _object_array(values) if isinstance(values, list) else values
            table._units[name], table._meanings[name] = unit, meaning
        table.messages, table.metadata = messages, metadata
        table._model, table._spectra, table._flags, table._seconds = None, None, [], None
        return table

    _model: SpectralModel | None
    _spectra: Spectra | list[str] | None
    _flags: list[str]
    _seconds: float | None

    def _remember(
        self, model: SpectralModel, spectra: Spectra | list[str] | None, flags: list[str], seconds: float
    ) -> None:
        """Keep what `plot` and `report` need of the run that made this table."""
        self._model, self._spectra, self._flags, self._seconds = model, spectra, flags, seconds

    @classmethod
    def read(cls, path: Path) -> FitTable:
        """Read a table that popfit has written.

        Raises
        ------
        FileNotFoundError, PermissionError
            If the file cannot be opened.
        InputError
            If it is damaged, or not a table of popfit's.
        """
        columns, messages, metadata = _popfit.read_table(os.fspath(path))
        return cls._of(columns, messages, metadata)

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the table; the name ends in .parquet, .fits or .csv.

        Raises
        ------
        FileExistsError
            If the file exists, and `overwrite` is false.
        """
        _popfit.write_table(self._rust_columns(), self.metadata, os.fspath(path), overwrite)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order of files."""
        return list(self._columns)

    @property
    def units(self) -> dict[str, str]:
        """Units of the columns, empty texts without one."""
        return dict(self._units)

    @property
    def meanings(self) -> dict[str, str]:
        """Meanings of the columns."""
        return dict(self._meanings)

    @property
    def parameters(self) -> list[str]:
        """Names of the free parameters."""
        return list(self.metadata["parameters"])

    @property
    def converged(self) -> npt.NDArray[np.bool_]:
        """True for each fit that converged."""
        return np.isin(self._columns["status"], CONVERGED_CODES)

    @property
    def summary(self) -> dict[str, Any]:
        """Numbers of spectra and of fits that converged, statuses by name, the device, and sentences on flags.

        ``causes`` are the first five messages of rows without a fit; tables that were read have none.
        """
        statuses = Counter(self._columns["status_text"].tolist())
        return {
            "spectra": len(self),
            "converged": int(self.converged.sum()),
            "statuses": dict(statuses.most_common()),
            "flags": list(self._flags),
            "causes": list(itertools.islice(filter(None, self.messages), SHOWN_CAUSES)),
            "device": self.metadata.get("device", ""),
            "seconds": self._seconds,
        }

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._columns["status"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over the rows, as dicts."""
        return (self[row] for row in range(len(self)))

    def __contains__(self, name: object) -> bool:
        """Return whether there is a column of this name."""
        return name in self._columns

    @overload
    def __getitem__(self, key: str) -> Array: ...

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice | npt.NDArray[Any] | list[int]) -> FitTable: ...

    def __getitem__(self, key: Any) -> Any:
        """Return a column by its name, a row by its index, or a table of the rows of a slice, mask or indices."""
        if isinstance(key, str):
            return self._column(key)
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"row {key} of a table of {len(self)}")
            row = range(len(self))[int(key)]
            return {name: values[row] for name, values in self._columns.items()}
        if isinstance(key, list) and any(isinstance(one, str) for one in key):
            raise TypeError("table[names]: take columns one by one, or table.to_pandas()[names]")
        rows = np.arange(len(self))[key]
        table = FitTable.__new__(FitTable)
        table._columns = {name: values[rows] for name, values in self._columns.items()}
        table._units, table._meanings, table.metadata = self._units, self._meanings, self.metadata
        table.messages = [self.messages[row] for row in rows]
        table._model, table._spectra, table._flags, table._seconds = self._model, self._spectra, [], None
        return table

    def _column(self, name: str) -> Array:
        if name in self._columns:
            return self._columns[name]
        import difflib

        near = difflib.get_close_matches(name, self._columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f" (columns: {', '.join(self._columns)})"
        raise ColumnError(f"no column {name!r}{hint}", argument=name)

    def covariance(self, row: int) -> npt.NDArray[np.float64]:
        """Return the covariance (P, P) of a row's free parameters, NaN where it is not determined."""
        names = self.parameters
        errors = np.array([self._columns[f"{name}_err"][row] for name in names])
        correlation = np.eye(len(names))
        for a, first in enumerate(names):
            for b in range(a + 1, len(names)):
                value = self._columns[f"correlation_{first}_{names[b]}"][row]
                correlation[a, b] = correlation[b, a] = value
        covariance: npt.NDArray[np.float64] = correlation * np.outer(errors, errors)
        return covariance

    def to_numpy(self) -> Array:
        """Return a structured array with one field for each column; texts are fields of fixed width."""
        plain = {name: _fixed_width(values) for name, values in self._columns.items()}
        array = np.empty(len(self), dtype=[(name, values.dtype) for name, values in plain.items()])
        for name, values in plain.items():
            array[name] = values
        return array

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame(dict(self._columns))

    def to_astropy(self) -> Any:
        """Return an ``astropy.table.QTable`` whose columns have their units, and the run's metadata."""
        from astropy.table import QTable  # type: ignore[import-untyped,unused-ignore]

        table = QTable({name: _fixed_width(values) for name, values in self._columns.items()})
        for name in self._columns:
            table[name].info.description = self._meanings[name]
            if self._units[name]:
                table[name].unit = self._units[name]
        table.meta.update(self.metadata)
        return table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as a stream of Arrow, for pyarrow, polars, pandas, duckdb and others."""
        return _popfit.arrow_stream(self._rust_columns(), self.metadata)

    def report(
        self, folder: Path, *, model: SpectralModel | None = None, spectra: object = None, overwrite: bool = False
    ) -> str:
        """Write an HTML page about the table, ``index.html`` in `folder`, and return its path.

        The page of a table that `popfit.fit` has made shows spectra with their fits. For a part of one, or one that was
        read from a file, `model` and `spectra` do that.

        Parameters
        ----------
        folder : path
            Folder of the page; it is made if it does not exist.
        model : SpectralModel, optional
            Model of the fits.
        spectra : optional
            The spectra, as `popfit.fit` takes them.
        overwrite : bool
            True to replace an existing page.
        """
        model = self._model if model is None else model
        given = self._spectra if spectra is None else spectra
        sources = [] if given is None else [held._lent for held in _opened(given, model)]
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(os.fspath(folder), "index.html")
        shown = None if model is None else model._model
        page = {"path": path, "overwrite": overwrite, "seconds": self._seconds, "threads": get_threads()}
        _popfit.write_report(self._rust_columns(), self.metadata, page, shown, sources)
        return path

    def plot(self, row: int, *, model: SpectralModel | None = None, spectra: object = None, ax: Any = None) -> Any:
        """Draw a spectrum and its fit with matplotlib, and return the axes, one for each arm.

        Parameters
        ----------
        row : int
            Row of the table.
        model : SpectralModel, optional
            Model of the fit, for tables that were read from a file or a pickle.
        spectra : optional
            Spectra of the table, for those.
        ax : matplotlib axes or sequence of axes, optional
            Axes to draw on, one for each arm.
        """
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f'{error}: pip install matplotlib, or popfit with "[notebook]"') from error

        model = self._model if model is None else model
        if model is None:
            raise InputError("plot: this table has no model with it: give model and spectra", argument="model")
        row = range(len(self))[row]
        arms = model.fitted(self._spectrum(row, model, spectra), self[row : row + 1])
        axes = [ax] if ax is not None and not isinstance(ax, list | tuple | np.ndarray) else ax
        if axes is None:
            _, grid = plt.subplots(len(arms), 1, figsize=(10, 3 * len(arms)), layout="constrained", squeeze=False)
            axes = grid[:, 0]
        for one, (name, arm) in zip(axes, arms.items(), strict=True):
            good = ~arm["mask"][0]
            wavelength = arm["wavelength"][0]
            one.plot(wavelength, np.where(good, arm["flux"][0], np.nan), color="black", lw=1.0, label="data")
            one.plot(wavelength, arm["model"][0], color="C3", lw=0.6, label="model")
            one.set(ylabel=f"flux{f' ({name})' if name else ''}")
            if not good.any():
                text = self.messages[row] or "no fit, or no data in this arm"
                one.text(0.5, 0.5, text, transform=one.transAxes, ha="center", va="center", wrap=True)
        axes[-1].set(xlabel="wavelength (Å)")
        axes[0].set_title(self._title(row))
        axes[0].legend(frameon=False)
        return axes

    def _spectrum(self, row: int, model: SpectralModel, spectra: object) -> Spectra:
        """Return the spectrum of a row, as one of one spectrum, from the spectra given or remembered."""
        given = self._spectra if spectra is None else spectra
        if given is None:
            raise InputError("plot: this table has no spectra with it: give model and spectra", argument="spectra")
        file, place = self._columns["file"][row], int(self._columns["row"][row])
        for held in _opened(given, model, file):
            index = held._index_of(place)
            if index is not None:
                return held[index : index + 1]
        raise InputError(f"spectra: row {place} of {file or 'the arrays'} is not among them", argument="spectra")

    def _title(self, row: int) -> str:
        """Return the id, parameters and χ²/dof of a row."""
        values = ", ".join(
            f"{name} {_rounded(self._columns[name][row], self._columns[f'{name}_err'][row])}"
            for name in self.parameters
        )
        reduced = self._columns["chi2"][row] / max(self._columns["dof"][row], 1)
        return f"{self._columns['id'][row]}: {values}; χ²/dof {reduced:.2f}"

    def _rust_columns(self) -> list[Column]:
        """Return the columns for Rust."""
        return [
            (
                name,
                self._units[name],
                self._meanings[name],
                values.tolist() if values.dtype == object else np.ascontiguousarray(values),
            )
            for name, values in self._columns.items()
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle columns, messages and metadata."""
        return _table_of, (self._rust_columns(), self.messages, self.metadata, self._flags, self._seconds)

    def __repr__(self) -> str:
        """Return the numbers of rows and of fits that converged."""
        return (
            f"<popfit.FitTable: {len(self)} rows, {int(self.converged.sum())} converged; {', '.join(self.parameters)}>"
        )

    def _repr_html_(self) -> str:
        """Return the summary, a histogram of each parameter and the first rows, for notebooks."""
        summary = self.summary
        converged = set(self._columns["status_text"][self.converged].tolist())
        others = {name: count for name, count in summary["statuses"].items() if name not in converged}
        counts = ", ".join(f"{count} {escape(str(name))}" for name, count in others.items())
        lines = [
            f"<p><b>{len(self)}</b> spectra, <b>{summary['converged']}</b> converged{counts and f'; {counts}'}</p>"
        ]
        lines += [f"<p>{escape(text)}</p>" for text in [*summary["causes"], *summary["flags"]]]
        names = self.parameters
        heads = "".join(f"<th>{escape(name)}<br><small>{escape(self._units[name])}</small></th>" for name in names)
        sparks = "".join(f"<td>{_sparkline(self._columns[name][self.converged])}</td>" for name in names)
        rows = "".join(self._html_row(row) for row in range(min(SHOWN_ROWS, len(self))))
        more = f"<p>… and {len(self) - SHOWN_ROWS} more rows</p>" if len(self) > SHOWN_ROWS else ""
        table = f"<tr><th>id</th><th>status</th>{heads}<th>χ²/dof</th></tr><tr><td></td><td></td>{sparks}<td></td></tr>"
        return f"{''.join(lines)}<table>{table}{rows}</table>{more}"

    def _html_row(self, row: int) -> str:
        """Return a row of the head that notebooks show."""
        values = "".join(
            f"<td>{_rounded(self._columns[name][row], self._columns[f'{name}_err'][row])}</td>"
            for name in self.parameters
        )
        reduced = self._columns["chi2"][row] / max(self._columns["dof"][row], 1)
        status = "converged" if self.converged[row] else str(self._columns["status_text"][row])
        head = f"<td>{escape(str(self._columns['id'][row]))}</td><td>{escape(status)}</td>"
        return f"<tr>{head}{values}<td>{reduced:.3f}</td></tr>"


def _table_of(
    columns: list[Column],
    messages: list[str],
    metadata: dict[str, Any],
    flags: list[str],
    seconds: float | None,
) -> FitTable:
    """Return a pickled table."""
    table = FitTable._of(columns, messages, metadata)
    table._flags, table._seconds = flags, seconds
    return table


def _opened(spectra: Any, model: SpectralModel | None, file: str = "") -> Iterator[Spectra]:
    """Yield spectra in memory, or those of each path; only those of `file` if it is given and among the paths.

    Exposures in files are joined if the model fits them together.
    """
    paths = [spectra] if isinstance(spectra, str | os.PathLike) else spectra
    if not isinstance(paths, list) or not all(isinstance(one, str | os.PathLike) for one in paths):
        yield as_spectra(spectra)
        return
    named = [path for path in paths if os.fspath(path) == file]
    for path in named or paths:
        held = Spectra.open(path)
        yield held if model is None or model.exposures is None else held.join_exposures()


def _object_array(texts: list[str]) -> Array:
    """Return texts as an array of Python's texts, of which equal neighbours are one object."""
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def _fixed_width(values: Array) -> Array:
    """Return texts as an array of fixed width, and other values as they are."""
    return values.astype(np.str_) if values.dtype == object else values


def _rounded(value: float, error: float) -> str:
    """Return a value with the digits that its error leaves, and the error with two digits."""
    if not np.isfinite(value):
        return "–"
    if not np.isfinite(error) or error <= 0.0:
        return f"{value:.6g}"
    digits = max(0, 1 - int(np.floor(np.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _sparkline(values: Array) -> str:
    """Return a histogram of finite values as a small SVG in the colour of the text."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return ""
    counts, _ = np.histogram(finite, bins=SPARKLINE_BARS)
    heights = 24.0 * counts / counts.max()
    bars = "".join(
        f'<rect x="{4 * k}" y="{24 - height:.1f}" width="3" height="{height:.1f}"/>' for k, height in enumerate(heights)
    )
    return f'<svg width="{4 * SPARKLINE_BARS}" height="24" fill="currentColor" role="img">{bars}</svg>'
