"""Spectra: read from files, or made of arrays that popfit is lent."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import ARM_ARRAYS, PIXEL_ARRAYS, Array, Lendable, lendable, named_arrays, part_of_arm, stem
from popfit._errors import InputError
from popfit._foreign import arrays_of_spec_data, arrays_of_specutils, is_spec_data, is_specutils, split_exposures

#: Path of a file.
Path: TypeAlias = "str | os.PathLike[str]"

#: Arrays that all spectra may share.
SHARED_ARRAYS = ("wavelength", "medium")


class Spectra:
    """Spectra of a population, of one or more arms.

    `open` reads a file; `from_arrays` and `from_arms` take arrays, which are lent and not copied if they are native
    float32 or float64 in C order. An array must not change while a fit reads it: its numbers would be undefined.
    `join_exposures` makes objects of them that were exposed several times.

    Examples
    --------
    >>> import numpy as np, popfit
    >>> wavelength = np.linspace(4000.0, 4100.0, 200)
    >>> spectra = popfit.Spectra.from_arrays(wavelength, np.ones((3, 200)), np.full((3, 200), 400.0))
    >>> len(spectra), spectra.arms
    (3, {'': 200})
    """

    _source: _popfit.FileSpectra | dict[str, Lendable]
    _recipe: _Recipe | None
    _length: int
    #: Number of exposures of each object, which are adjacent rows; None if they are not joined.
    _exposures: npt.NDArray[np.int64] | None

    def __init__(self) -> None:
        raise TypeError("use Spectra.open, Spectra.from_arrays or Spectra.from_arms")

    @classmethod
    def _of_arrays(cls, arrays: dict[str, Lendable], exposures: npt.NDArray[np.int64] | None = None) -> Spectra:
        spectra = cls.__new__(cls)
        spectra._source, spectra._recipe = arrays, None
        spectra._exposures = exposures
        spectra._length = _count_rows(arrays) if exposures is None else len(exposures)
        return spectra

    @classmethod
    def _of_file(cls, source: _popfit.FileSpectra, recipe: _Recipe) -> Spectra:
        spectra = cls.__new__(cls)
        spectra._source, spectra._recipe = source, recipe
        spectra._exposures = source.exposures()
        spectra._length = len(source)
        return spectra

    @classmethod
    def open(cls, path: Path) -> Spectra:
        """Read all spectra of a file in one of the formats that the command reads.

        Raises
        ------
        FileNotFoundError, PermissionError
            If the file cannot be opened.
        InputError
            If the file is damaged, or not of a format that popfit reads.
        """
        text = os.fspath(path)
        source = _popfit.FileSpectra.open(text)
        return cls._of_file(source, _Recipe(os.path.abspath(text), 0, len(source)))

    @classmethod
    def from_arrays(
        cls,
        wavelength: npt.ArrayLike,
        flux: npt.ArrayLike,
        ivar: npt.ArrayLike | None = None,
        *,
        sigma: npt.ArrayLike | None = None,
        mask: npt.ArrayLike | None = None,
        resolution: npt.ArrayLike | None = None,
        covariance: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        medium: str = "vacuum",
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> Spectra:
        """Make spectra of one arm.

        Parameters
        ----------
        wavelength : array_like, (pixels,) or (n, pixels)
            Wavelengths in Å, increasing. A quantity of astropy is converted.
        flux : array_like, (n, pixels) or (pixels,)
            Flux in any unit; of one spectrum, (pixels,).
        ivar, sigma : array_like, as flux
            Inverse variance, or standard error, of the flux. One of the two must be given unless `covariance` is.
            Quantities of astropy are converted to the unit of the flux; plain numbers are in it.
        mask : array_like, as flux, optional
            True, or an integer that is not 0, where a pixel is bad. The mask of a masked array is added to it.
        resolution : array_like, (n, diagonals, pixels), optional
            Banded resolution matrices as DESI stores them.
        covariance : array_like, (n, diagonals, pixels), optional
            Banded covariance matrices of the noise, in the lower form of `scipy.linalg.solveh_banded`:
            ``covariance[k, d, j]`` is that of the pixels ``j + d`` and ``j`` of spectrum k, in flux units squared. A
            fit then minimises r.T @ inv(C) @ r. A given `ivar` or `sigma` masks pixels by ivar 0, and must else agree
            with the variances ``covariance[:, 0]``.
        ids : array_like, (n,), optional
            Integers or texts; row numbers without it.
        medium : {"vacuum", "air"}
            Medium of the wavelengths.
        columns : mapping of str to array_like, (n,), optional
            Columns that the model asks for, such as starts and priors of a label, in the model's units. Masked values
            become NaN, which means that the spectrum has none.

        Raises
        ------
        InputError
            If an array has a wrong shape, type or unit. What only a fit can see is an error there.
        astropy.units.UnitConversionError
            If wavelengths or errors cannot be converted.
        """
        arrays = {
            "wavelength": wavelength,
            "flux": flux,
            "ivar": ivar,
            "sigma": sigma,
            "mask": mask,
            "resolution": resolution,
            "covariance": covariance,
            "id": ids,
            "medium": medium,
            **_checked_columns(columns),
        }
        return cls._of_arrays(_checked_arrays(named_arrays(arrays)))

    @classmethod
    def from_arms(
        cls,
        arms: Mapping[str, Mapping[str, npt.ArrayLike | None]],
        *,
        ids: npt.ArrayLike | None = None,
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> Spectra:
        """Make spectra of several arms: a mapping of the arms' names to their arrays.

        The arrays of an arm are those of `from_arrays`: wavelength, flux, ivar or sigma, mask, resolution,
        covariance, medium.

        Raises
        ------
        InputError
            If an array has a wrong name, shape or type.
        """
        arrays: dict[str, object] = {"id": ids, **_checked_columns(columns)}
        for arm, values in arms.items():
            for name, value in values.items():
                if name not in ARM_ARRAYS:
                    known = ", ".join(ARM_ARRAYS)
                    raise InputError(f"arm {arm}: unknown array {name!r} (known: {known})", argument=name)
                arrays[f"{arm}_{name}"] = value
        return cls._of_arrays(_checked_arrays(named_arrays(arrays)))

    def join_exposures(self) -> Spectra:
        """Join the spectra of each id to one object, whose exposures they are.

        A model with `exposures` fits them together. Objects and their exposures keep the order in which they first
        come. Columns of an object are those of its first exposure. Arrays are copied only if the exposures of an object
        do not follow each other.

        Returns
        -------
        Spectra
            The objects; these spectra themselves if they are joined already.

        Examples
        --------
        >>> import numpy as np, popfit
        >>> wavelength = np.linspace(4000.0, 4100.0, 200)
        >>> flux, ivar = np.ones((3, 200)), np.full((3, 200), 400.0)
        >>> spectra = popfit.Spectra.from_arrays(wavelength, flux, ivar, ids=[7, 8, 7]).join_exposures()
        >>> spectra.ids.tolist(), spectra.exposures.tolist()
        ([7, 8], [2, 1])
        """
        if self._exposures is not None:
            return self
        if not isinstance(self._source, dict):
            assert self._recipe is not None
            source = self._source.join_exposures()
            return self._of_file(source, self._recipe._replace(objects=(0, len(source))))
        _, first, inverse, counts = np.unique(self.ids, return_index=True, return_inverse=True, return_counts=True)
        order_of_ids = np.argsort(first)
        objects = np.argsort(order_of_ids)[inverse]
        rows = np.argsort(objects, kind="stable")
        is_in_order = bool((np.diff(rows) == 1).all())
        arrays = self._source if is_in_order else _take_all_rows(self._source, rows, self._length)
        return self._of_arrays(arrays, counts[order_of_ids].astype(np.int64))

    def __len__(self) -> int:
        """Return the number of spectra; of objects, if their exposures are joined."""
        return self._length

    def __getitem__(self, rows: int | slice | npt.ArrayLike) -> Spectra:
        """Return the spectra of a row, of a slice, of indices or of a mask; identifiers stay those of the rows.

        If exposures are joined, rows are those of objects. Arrays of rows that follow each other are not copied, those
        of other rows and spectra of files are.

        Raises
        ------
        IndexError
            If there is no such row, or a mask has another length.
        TypeError
            If `rows` is of another type, or if they are rows of a file that do not follow each other.
        """
        chosen = _as_rows(rows, self._length)
        if isinstance(self._source, dict):
            if self._exposures is None:
                return self._of_arrays(_take_all_rows(self._source, chosen, self._length))
            taken = _rows_of_objects(self._exposures, chosen)
            arrays = _take_all_rows(self._source, taken, int(self._exposures.sum()))
            return self._of_arrays(arrays, self._exposures[chosen])
        if not isinstance(chosen, slice):
            raise TypeError("spectra of a file are taken by rows that follow each other, such as spectra[3:4]")
        assert self._recipe is not None
        source = self._source.slice(chosen.start, chosen.stop)
        return self._of_file(source, self._recipe.part(chosen))

    @property
    def arms(self) -> dict[str, int]:
        """Names of the arms, and numbers of their pixels. A single arm may have the name ``""``."""
        if not isinstance(self._source, dict):
            return dict(self._source.arms())
        arms = {}
        for name, array in self._source.items():
            if not isinstance(array, tuple) and (name == "flux" or name.endswith("_flux")):
                arms[name[: -len("flux")].removesuffix("_")] = array.shape[-1]
        return arms

    @property
    def exposures(self) -> npt.NDArray[np.int64] | None:
        """Number of exposures of each object (n,); None if exposures are not joined."""
        return self._exposures

    @property
    def _lent(self) -> Any:
        """What Rust takes: spectra of a file, arrays, or arrays with the number of each object's exposures."""
        if self._exposures is None or not isinstance(self._source, dict):
            return self._source
        return self._source, self._exposures.tolist()

    def _index_of(self, row: int) -> int | None:
        """Return the index of the spectrum to which tables give this row; None if there is none."""
        if not isinstance(self._source, dict):
            rows = self._source.rows()
        elif self._exposures is None:
            rows = np.arange(self._length)
        else:
            rows = np.cumsum(self._exposures) - self._exposures
        found = np.flatnonzero(rows == row)
        return int(found[0]) if len(found) else None

    @property
    def _resolutions(self) -> dict[str, bool]:
        """For each arm of arrays, True if it has resolution matrices."""
        if not isinstance(self._source, dict):
            return {}
        return {arm: f"{arm}_resolution".removeprefix("_") in self._source for arm in self.arms}

    @property
    def _in_air(self) -> bool:
        """True for arrays of which some have wavelengths in air."""
        if not isinstance(self._source, dict):
            return False
        arrays = self._source
        media = (array for name, array in arrays.items() if part_of_arm(name, arrays) == "medium")
        texts = (text for medium in media if isinstance(medium, tuple) for text in medium[1])
        return any(text.strip().lower() == "air" for text in texts)

    @property
    def ids(self) -> Array:
        """Identifiers (n,): integers or texts."""
        if not isinstance(self._source, dict):
            return np.asarray(self._source.ids())
        ids = self._source.get("id")
        if ids is None:
            return np.arange(self._length)
        array: Array = np.asarray(ids[1], dtype=np.str_) if isinstance(ids, tuple) else ids
        return array if self._exposures is None else array[np.cumsum(self._exposures) - self._exposures]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle arrays by their numbers, and spectra of a file by its path."""
        if self._recipe is not None:
            return _reopen, tuple(self._recipe)
        return Spectra._of_arrays, (self._source, self._exposures)

    def __repr__(self) -> str:
        """Return the number of spectra and the arms."""
        arms = ", ".join(f"{name or 'one arm'} of {pixels} pixels" for name, pixels in self.arms.items())
        exposures = "" if self._exposures is None else f"{self._length} objects of "
        spectra = self._length if self._exposures is None else int(self._exposures.sum())
        return f"<popfit.Spectra: {exposures}{spectra} spectra, {arms}>"


class _Recipe(NamedTuple):
    """How spectra of a file are made again: their rows, and the objects of these if their exposures are joined."""

    path: str
    begin: int
    end: int
    objects: tuple[int, int] | None = None

    def part(self, rows: slice) -> _Recipe:
        """Return how those of a range of rows, or of objects, are made again."""
        if self.objects is None:
            return self._replace(begin=self.begin + rows.start, end=self.begin + rows.stop)
        first = self.objects[0]
        return self._replace(objects=(first + rows.start, first + rows.stop))


def as_spectra(spectra: object) -> Spectra:
    """Return spectra of what users have them in.

    That is a `Spectra`; the path of a file; a mapping of arrays named as in NPZ files (a dict, an open NPZ file, a
    table of astropy, whose ``meta`` may hold wavelength and medium), with ``ids`` for ``id`` if wanted; specutils'
    ``Spectrum``, ``SpectrumCollection`` or ``SpectrumList``; astropy's ``NDData``-like objects with a spectral axis;
    rvspecfit's ``SpecData``, a list of those of one star, or a list of such lists. Several of one star and one arm are
    exposures, which are joined.

    Raises
    ------
    TypeError
        If it is none of these.
    InputError
        If it is one of these with something wrong, or an empty list.
    """
    if isinstance(spectra, Spectra):
        return spectra
    if isinstance(spectra, str | os.PathLike):
        return Spectra.open(spectra)
    if hasattr(spectra, "colnames"):
        spectra = _columns_of_table(spectra)
    if isinstance(spectra, Mapping):
        return Spectra._of_arrays(_checked_arrays(named_arrays(spectra)))
    if is_specutils(spectra):
        return Spectra._of_arrays(arrays_of_specutils([spectra]))
    if is_spec_data(spectra):
        return spectra_of_spec_data([[spectra]])
    if isinstance(spectra, Iterable):
        members = list(spectra)
        if not members:
            raise InputError("no spectra: an empty list has no wavelengths", argument="spectra")
        if all(map(is_specutils, members)):
            return Spectra._of_arrays(arrays_of_specutils(members))
        if all(map(is_spec_data, members)):
            return spectra_of_spec_data([members])
        if all(isinstance(one, Sequence) and all(map(is_spec_data, one)) for one in members):
            return spectra_of_spec_data(members)
    raise TypeError(
        f"spectra: {type(spectra).__name__}; give a path, a popfit.Spectra, a mapping of arrays, a spectrum of "
        "specutils, or a list of rvspecfit's SpecData"
    )


def spectra_of_spec_data(
    stars: Sequence[Sequence[Any]],
    *,
    mask: bool = True,
    columns: Mapping[str, npt.ArrayLike] | None = None,
    ids: npt.ArrayLike | None = None,
) -> Spectra:
    """Make spectra of rvspecfit's SpecData: for each star a list of those of its arms and exposures.

    Several of one arm are exposures: if any star has such, stars are objects with joined exposures, the first of which
    has the first of each arm. An arm that a star or an exposure lacks is masked. Grids may differ from one to the next;
    shorter ones are padded with masked pixels.

    Parameters
    ----------
    stars : sequence of sequences of SpecData
        One inner sequence for each star. Exposures may come in any order.
    mask : bool
        True masks the pixels of ``badmask``. In rvspecfit's likelihood they are not masked.
    columns : mapping of str to array_like, (n,), optional
        Columns that the model asks for, such as starts and priors of a label.
    ids : array_like, (n,), optional
        Integers or texts; row numbers without it.

    Raises
    ------
    InputError
        If no star has a spectrum.
    """
    exposures, counts = split_exposures(stars)
    arrays = arrays_of_spec_data(exposures, mask)
    of_stars = {"id": ids, **_checked_columns(columns)}
    if len(exposures) == len(stars):
        return Spectra._of_arrays(arrays | named_arrays(of_stars))
    of_stars["id"] = np.arange(len(stars)) if ids is None else ids
    star_of_row = np.repeat(np.arange(len(stars)), counts)
    repeated = {name: _take_rows(array, star_of_row) for name, array in named_arrays(of_stars).items()}
    return Spectra._of_arrays(arrays | repeated, np.array(counts, dtype=np.int64))


def _columns_of_table(table: Any) -> dict[str, object]:
    """Return the columns of a table of astropy, and the arrays of its ``meta`` that all spectra share.

    Raises
    ------
    InputError
        If such an array of ``meta`` is written in capital letters, as keywords of FITS are.
    """
    columns: dict[str, object] = {name: table[name] for name in table.colnames}
    for name, value in table.meta.items():
        if stem(name) in SHARED_ARRAYS:
            columns[name] = value
        elif stem(name.lower()) in SHARED_ARRAYS and name.lower() not in table.meta:
            raise InputError(f"meta: {name!r} is no array that popfit reads; did you mean {name.lower()!r}?")
    return columns


def _checked_columns(columns: Mapping[str, npt.ArrayLike] | None) -> dict[str, npt.ArrayLike]:
    """Return the columns of a call, none of which has the name of an array of spectra."""
    columns = {} if columns is None else dict(columns)
    for name in columns:
        if name in ("id", "ids") or stem(name) in ARM_ARRAYS:
            raise InputError(f"columns: {name!r} is an array of the spectra, not a column", argument="columns")
    return columns


def _checked_arrays(arrays: dict[str, Lendable]) -> dict[str, Lendable]:
    """Return the arrays of a population, whose names and shapes Rust has looked at.

    Raises
    ------
    InputError
        If arrays are missing, misspelt, or of a wrong shape or type.
    """
    population = _of_one_spectrum(arrays)
    _popfit.check_arrays(population)
    return population


def _of_one_spectrum(arrays: dict[str, Lendable]) -> dict[str, Lendable]:
    """Return arrays in which one spectrum of (pixels) is a population of one."""
    parts = {name: part_of_arm(name, arrays) for name in arrays}
    fluxes = [array for name, array in arrays.items() if parts[name] == "flux"]
    if not fluxes or not all(not isinstance(flux, tuple) and flux.ndim == 1 for flux in fluxes):
        return arrays
    dimensions = {
        "wavelength": None,
        "medium": None,
        "resolution": 2,
        "covariance": 2,
        **dict.fromkeys(PIXEL_ARRAYS, 1),
    }
    deepened: dict[str, Lendable] = {}
    for name, array in arrays.items():
        shape = array[0] if isinstance(array, tuple) else array.shape
        if len(shape) != dimensions.get(parts[name], 0):
            deepened[name] = array
        elif isinstance(array, tuple):
            deepened[name] = ((1, *shape), array[1])
        else:
            deepened[name] = array[np.newaxis]
    return deepened


def _count_rows(arrays: Mapping[str, Lendable]) -> int:
    """Return the number of spectra in arrays."""
    for name, array in arrays.items():
        if isinstance(array, tuple) or part_of_arm(name, arrays) != "flux":
            continue
        if array.ndim != 2:
            raise InputError(f"{name} has the shape {array.shape}; reshape it to (n, pixels)", argument=name)
        return int(array.shape[0])
    raise InputError(
        "no array flux of the shape (n, pixels): give wavelength, flux, and ivar or sigma, or for several arms "
        "b_wavelength, b_flux and so on",
        argument="flux",
    )


def _as_rows(rows: Any, length: int) -> slice | npt.NDArray[np.intp]:
    """Return rows as a slice from a first row to an end, or as indices if they do not follow each other."""
    if isinstance(rows, slice):
        begin, end, step = rows.indices(length)
        if step == 1:
            return slice(begin, max(begin, end))
        return np.arange(begin, end, step)
    if not isinstance(rows, bool | np.bool_) and hasattr(rows, "__index__") and np.ndim(rows) == 0:
        row = range(length)[operator.index(rows)]
        return slice(row, row + 1)
    chosen = np.asarray(rows)
    if chosen.ndim == 1 and chosen.dtype.kind == "b":
        if len(chosen) != length:
            raise IndexError(f"a mask of {len(chosen)} rows for {length} spectra")
        chosen = np.flatnonzero(chosen)
    elif chosen.ndim == 1 and (chosen.dtype.kind in "iu" or not len(chosen)):
        chosen = np.arange(length)[chosen.astype(np.intp)]
    else:
        raise TypeError(
            f"rows of spectra are taken by an index, a slice, indices or a mask, not by {type(rows).__name__} of "
            f"{chosen.dtype} with the shape {chosen.shape}"
        )
    if (np.diff(chosen) == 1).all():
        begin = int(chosen[0]) if len(chosen) else 0
        return slice(begin, begin + len(chosen))
    return chosen


def _is_shared(name: str, arrays: Mapping[str, Lendable], length: int) -> bool:
    """Return true for an array that all spectra share, and for one that has not as many rows as there are spectra."""
    array = arrays[name]
    shape = array[0] if isinstance(array, tuple) else array.shape
    part = part_of_arm(name, arrays)
    return part == "medium" or (part == "wavelength" and len(shape) < 2) or shape[:1] != (length,)


def _take_all_rows(
    given: Mapping[str, Lendable], rows: slice | npt.NDArray[np.intp], length: int
) -> dict[str, Lendable]:
    """Return rows of all arrays of `length` spectra, whose identifiers stay those of the rows."""
    arrays: dict[str, Lendable] = {"id": np.arange(length), **given}
    own = [name for name in arrays if not _is_shared(name, arrays, length)]
    return arrays | {name: _take_rows(arrays[name], rows) for name in own}


def _rows_of_objects(
    exposures: npt.NDArray[np.int64], objects: slice | npt.NDArray[np.intp]
) -> slice | npt.NDArray[np.intp]:
    """Return the rows of the exposures of objects: a slice if the objects are one."""
    begins = np.concatenate([[0], np.cumsum(exposures)])
    if isinstance(objects, slice):
        return slice(int(begins[objects.start]), int(begins[objects.stop]))
    ranges = [np.arange(begins[one], begins[one + 1]) for one in objects]
    return np.concatenate(ranges) if ranges else np.empty(0, dtype=np.intp)


def _take_rows(array: Lendable, rows: slice | npt.NDArray[np.intp]) -> Lendable:
    """Return rows of an array."""
    if not isinstance(array, tuple):
        return array[rows]
    texts = array[1][rows] if isinstance(rows, slice) else [array[1][row] for row in rows]
    return (len(texts),), texts


def _reopen(path: str, begin: int, end: int, objects: tuple[int, int] | None = None) -> Spectra:
    """Return rows of a file again, or objects of these, for pickles."""
    spectra = Spectra.open(path)
    if (begin, end) != (0, len(spectra)):
        spectra = spectra[begin:end]
    return spectra if objects is None else spectra.join_exposures()[slice(*objects)]


__all__ = ["Spectra", "as_spectra", "lendable", "spectra_of_spec_data"]
