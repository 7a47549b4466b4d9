"""Spectra: read from files, or made of arrays that popfit is lent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import Array, Lendable, lendable, named_arrays, split_mask, without_unit
from popfit._errors import InputError

#: Path of a file.
Path: TypeAlias = "str | os.PathLike[str]"

#: Arrays that all spectra may share, by the last part of their names.
SHARED_ARRAYS = ("wavelength", "medium")

#: Distance of added pixels, in pixels.
PADDING_STEP = 1e-6


class Spectra:
    """Spectra of a population, of one or more arms.

    `open` reads a file; `from_arrays` and `from_arms` take arrays, which are lent and not copied if they are native
    float32 or float64 in C order. An array must not change while a fit reads it: its numbers would be undefined.

    Examples
    --------
    >>> import numpy as np, popfit
    >>> wavelength = np.linspace(4000.0, 4100.0, 200)
    >>> spectra = popfit.Spectra.from_arrays(wavelength, np.ones((3, 200)), np.full((3, 200), 400.0))
    >>> len(spectra), spectra.arms
    (3, {'': 200})
    """

    _source: _popfit.FileSpectra | dict[str, Lendable]
    _recipe: tuple[str, int, int] | None
    _length: int

    def __init__(self) -> None:
        raise TypeError("use Spectra.open, Spectra.from_arrays or Spectra.from_arms")

    @classmethod
    def _of_arrays(cls, arrays: dict[str, Lendable]) -> Spectra:
        spectra = cls.__new__(cls)
        spectra._source, spectra._recipe = arrays, None
        spectra._length = _count_rows(arrays)
        return spectra

    @classmethod
    def _of_file(cls, source: _popfit.FileSpectra, recipe: tuple[str, int, int]) -> Spectra:
        spectra = cls.__new__(cls)
        spectra._source, spectra._recipe = source, recipe
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
        return cls._of_file(source, (os.path.abspath(text), 0, len(source)))

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
            Inverse variance, or standard error, of the flux. One of the two must be given.
        mask : array_like, as flux, optional
            True, or an integer that is not 0, where a pixel is bad. The mask of a masked array is added to it.
        resolution : array_like, (n, diagonals, pixels), optional
            Banded resolution matrices as DESI stores them.
        ids : array_like, (n,), optional
            Integers or texts; row numbers without it.
        medium : {"vacuum", "air"}
            Medium of the wavelengths.
        columns : mapping of str to array_like, (n,), optional
            Columns that the model asks for, such as starts and priors of a label.

        Raises
        ------
        InputError
            If an array has a wrong shape or type. What only a fit can see is an error there.
        """
        arrays = {
            "wavelength": wavelength,
            "flux": flux,
            "ivar": ivar,
            "sigma": sigma,
            "mask": mask,
            "resolution": resolution,
            "id": ids,
            "medium": medium,
            **_checked_columns(columns),
        }
        return cls._of_arrays(_of_one_spectrum(named_arrays(arrays)))

    @classmethod
    def from_arms(
        cls,
        arms: Mapping[str, Mapping[str, npt.ArrayLike | None]],
        *,
        ids: npt.ArrayLike | None = None,
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> Spectra:
        """Make spectra of several arms: a mapping of the arms' names to their arrays.

        The arrays of an arm are those of `from_arrays`: wavelength, flux, ivar or sigma, mask, resolution, medium.

        Raises
        ------
        InputError
            If an array has a wrong name, shape or type.
        """
        arrays: dict[str, object] = {"id": ids, **_checked_columns(columns)}
        known = ("wavelength", "flux", "ivar", "sigma", "mask", "resolution", "medium")
        for arm, values in arms.items():
            for name, value in values.items():
                if name not in known:
                    raise InputError(f"arm {arm}: unknown array {name!r} (known: {', '.join(known)})", argument=name)
                arrays[f"{arm}_{name}"] = value
        return cls._of_arrays(_of_one_spectrum(named_arrays(arrays)))

    def __len__(self) -> int:
        """Return the number of spectra."""
        return self._length

    def __getitem__(self, rows: slice) -> Spectra:
        """Return the spectra of a range of rows. Arrays are not copied, spectra of files are."""
        if not isinstance(rows, slice):
            raise TypeError(f"rows of spectra are taken by slices, such as spectra[{rows!r}:], not by {rows!r}")
        begin, end, step = rows.indices(self._length)
        if step != 1:
            raise ValueError("rows of spectra are taken without a step")
        end = max(begin, end)
        if isinstance(self._source, dict):
            return self._of_arrays({name: _slice_rows(name, a, begin, end) for name, a in self._source.items()})
        assert self._recipe is not None
        path, first, _ = self._recipe
        return self._of_file(self._source.slice(begin, end), (path, first + begin, first + end))

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
    def _in_air(self) -> bool:
        """Whether wavelengths of arrays are in air."""
        if not isinstance(self._source, dict):
            return False
        media = (array for name, array in self._source.items() if name.rsplit("_", 1)[-1] == "medium")
        return any(isinstance(medium, tuple) and "air" in medium[1] for medium in media)

    @property
    def ids(self) -> Array:
        """Identifiers (n,): integers or texts."""
        if not isinstance(self._source, dict):
            return np.asarray(self._source.ids())
        ids = self._source.get("id")
        if ids is None:
            return np.arange(self._length)
        return np.asarray(ids[1], dtype=np.str_) if isinstance(ids, tuple) else ids

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle arrays by their numbers, and spectra of a file by its path."""
        if self._recipe is not None:
            return _reopen, self._recipe
        return Spectra._of_arrays, (self._source,)

    def __repr__(self) -> str:
        """Return the number of spectra and the arms."""
        arms = ", ".join(f"{name or 'one arm'} of {pixels} pixels" for name, pixels in self.arms.items())
        return f"<popfit.Spectra: {self._length} spectra, {arms}>"


def as_spectra(spectra: object) -> Spectra:
    """Return spectra of what users have them in.

    That is a `Spectra`; a mapping of arrays named as in NPZ files (a dict, an open NPZ file, a table of astropy);
    specutils' ``Spectrum``, ``SpectrumCollection`` or ``SpectrumList``; astropy's ``NDData``-like objects with a
    spectral axis; rvspecfit's ``SpecData``, a list of those of one star, or a list of such lists.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if isinstance(spectra, Spectra):
        return spectra
    if isinstance(spectra, str | os.PathLike):
        return Spectra.open(spectra)
    names = getattr(spectra, "colnames", None)
    if names is not None:  # a table of astropy
        table = cast(Any, spectra)
        arrays: dict[str, object] = {name: table[name] for name in names}
        shared = {name: value for name, value in table.meta.items() if name.lower().endswith(SHARED_ARRAYS)}
        return Spectra._of_arrays(_of_one_spectrum(named_arrays(arrays | shared)))
    if isinstance(spectra, Mapping):
        return Spectra._of_arrays(_of_one_spectrum(named_arrays(spectra)))
    if hasattr(spectra, "spectral_axis") and hasattr(spectra, "flux"):
        return _of_specutils([spectra])
    if isinstance(spectra, Iterable):
        members = list(spectra)
        if members and all(hasattr(one, "spectral_axis") and hasattr(one, "flux") for one in members):
            return _of_specutils(members)
        if members and all(_is_spec_data(one) for one in members):
            return spectra_of_spec_data([members])
        if members and all(isinstance(one, Sequence) and all(map(_is_spec_data, one)) for one in members):
            return spectra_of_spec_data(members)
    if _is_spec_data(spectra):
        return spectra_of_spec_data([[spectra]])
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
    """Make spectra of rvspecfit's SpecData: for each star a list with one of each arm it has.

    An arm that a star lacks is masked. Grids may differ from star to star; shorter ones are padded with masked pixels.

    Parameters
    ----------
    stars : sequence of sequences of SpecData
        One inner sequence for each star.
    mask : bool
        Whether pixels of ``badmask`` are masked. In rvspecfit's likelihood they are not.
    columns : mapping of str to array_like, (n,), optional
        Columns that the model asks for, such as starts and priors of a label.
    ids : array_like, (n,), optional
        Integers or texts; row numbers without it.

    Raises
    ------
    InputError
        If a star has two spectra of one arm.
    """
    names = list(dict.fromkeys(one.name for star in stars for one in star))
    arrays: dict[str, Lendable] = {}
    for name in names:
        of_arm = [[one for one in star if one.name == name] for star in stars]
        for row, several in enumerate(of_arm):
            if len(several) > 1:
                raise InputError(
                    f"star {row}: two SpecData of the arm {name!r}; popfit fits one", argument="specdata", row=row
                )
        found = [several[0] if several else None for several in of_arm]
        arrays |= {f"{name}_{key}": array for key, array in _stack_spec_data(found, mask).items()}
    arrays |= named_arrays({"id": ids, **_checked_columns(columns)})
    return Spectra._of_arrays(arrays)


def _stack_spec_data(found: list[Any], mask: bool) -> dict[str, Lendable]:
    """Return the arrays of one arm, with masked rows for the stars that lack it."""
    present = [one for one in found if one is not None]
    pixels = max(len(one.lam) for one in present)
    shared = all(len(one.lam) == pixels and np.array_equal(one.lam, present[0].lam) for one in present)
    flux = np.zeros((len(found), pixels))
    sigma = np.full((len(found), pixels), np.inf)
    wavelength = np.empty((len(found), pixels))
    for row, one in enumerate(found):
        wavelength[row] = _padded_grid((one or present[0]).lam, pixels)
        if one is None:
            continue
        count = len(one.lam)
        flux[row, :count] = one.spec
        sigma[row, :count] = one.espec
        bad = getattr(one, "badmask", None)
        if mask and bad is not None:
            sigma[row, :count][np.asarray(bad, dtype=bool)] = np.inf
    arrays: dict[str, Lendable] = {
        "wavelength": wavelength[0].copy() if shared else wavelength,
        "flux": flux,
        "sigma": sigma,
    }
    matrices = [getattr(one, "resolution", None) for one in present]
    if any(matrix is not None for matrix in matrices):
        arrays["resolution"] = _stack_resolution(found, pixels)
    return arrays


def _stack_resolution(found: list[Any], pixels: int) -> Array:
    """Return resolution matrices (n, diagonals, pixels) of rvspecfit's sparse ones; the identity without one."""
    bands = []
    for one in found:
        matrix = getattr(one, "resolution", None) if one is not None else None
        matrix = getattr(matrix, "mat", matrix)
        if matrix is None:
            bands.append((np.zeros(1, dtype=int), np.ones((1, pixels))))
        else:
            diagonal = matrix.todia()
            bands.append((np.asarray(diagonal.offsets), np.asarray(diagonal.data)))
    half = max(int(np.abs(offsets).max()) for offsets, _ in bands)
    stacked = np.zeros((len(found), 2 * half + 1, pixels))
    for row, (offsets, data) in enumerate(bands):
        for offset, diagonal in zip(offsets, data, strict=True):
            stacked[row, half - offset, : len(diagonal)] = diagonal
    return stacked


def _of_specutils(members: list[Any]) -> Spectra:
    """Make spectra of specutils' objects: each has rows of flux on one spectral axis.

    Standard deviations stay what they are if all have them; else weights are inverse variances.
    """
    kind = "sigma" if all(_uncertainty(one).uncertainty_type == "std" for one in members) else "ivar"
    rows = []
    for one in members:
        grid = np.asarray(without_unit(getattr(one, "wavelength", one.spectral_axis), "Angstrom"), dtype=np.float64)
        plain, hidden = split_mask(one.flux)
        flux = np.atleast_2d(np.asarray(without_unit(plain)))
        weights = np.atleast_2d(_weights(one, kind))
        mask = np.zeros(flux.shape, dtype=bool)
        for bad in (hidden, getattr(one, "mask", None)):
            if bad is not None:
                mask |= np.asarray(bad, dtype=bool).reshape(flux.shape)
        grids = np.broadcast_to(np.atleast_2d(grid), flux.shape)
        upwards = slice(None, None, -1) if grids[0, 0] > grids[0, -1] else slice(None)
        rows.append(tuple(part[:, upwards] for part in (grids, flux, weights, mask)))
    pixels = max(row[0].shape[1] for row in rows)
    padded = [_padded(row, pixels) for row in rows]
    wavelength, flux, weights, mask = (np.concatenate(parts) for parts in zip(*padded, strict=True))
    if (wavelength == wavelength[:1]).all():
        wavelength = wavelength[0]
    if kind == "sigma":
        return Spectra.from_arrays(wavelength, flux, sigma=weights, mask=mask)
    return Spectra.from_arrays(wavelength, flux, weights, mask=mask)


def _padded(row: tuple[Array, ...], pixels: int) -> tuple[Array, ...]:
    """Return wavelength, flux, weights and mask with this number of pixels, of which the added ones are masked."""
    grids, flux, weights, mask = row
    added = ((0, 0), (0, pixels - grids.shape[1]))
    if not added[1][1]:
        return row
    wavelength = np.stack([_padded_grid(grid, pixels) for grid in grids])
    return (
        wavelength,
        np.pad(flux, added),
        np.pad(weights, added, constant_values=1.0),
        np.pad(mask, added, constant_values=True),
    )


def _padded_grid(grid: npt.ArrayLike, pixels: int) -> npt.NDArray[np.float64]:
    """Return a grid with added pixels after its end, to a number of pixels.

    The first one is a step away, so that the last pixel keeps its width. The others are close behind it, so that the
    range of the continuum stays nearly what it is.
    """
    wavelength = np.asarray(grid, dtype=np.float64)
    added = pixels - len(wavelength)
    step = wavelength[-1] - wavelength[-2] if len(wavelength) > 1 else 1.0
    return np.concatenate([wavelength, wavelength[-1] + step * (1.0 + PADDING_STEP * np.arange(added))])


def _uncertainty(spectrum: Any) -> Any:
    """Return the uncertainty of a spectrum of specutils."""
    uncertainty = getattr(spectrum, "uncertainty", None)
    if uncertainty is None:
        raise InputError("the spectrum has no uncertainty, and χ² needs one", argument="uncertainty")
    return uncertainty


def _weights(spectrum: Any, kind: str) -> Array:
    """Return the standard errors ("sigma") or inverse variances ("ivar") of a spectrum, in the unit of its flux."""
    from astropy.nddata import InverseVariance, StdDevUncertainty  # type: ignore[import-untyped,unused-ignore]

    uncertainty = _uncertainty(spectrum).represent_as(StdDevUncertainty if kind == "sigma" else InverseVariance)
    unit = getattr(spectrum.flux, "unit", None)
    if uncertainty.unit is None or unit is None:
        return np.asarray(uncertainty.array)
    return np.asarray((uncertainty.array * uncertainty.unit).to_value(unit if kind == "sigma" else unit**-2))


def _is_spec_data(value: object) -> bool:
    """Return whether `value` is a SpecData of rvspecfit, or has its attributes."""
    return all(hasattr(value, name) for name in ("name", "lam", "spec", "espec"))


def _checked_columns(columns: Mapping[str, npt.ArrayLike] | None) -> dict[str, npt.ArrayLike]:
    """Return the columns of a call, none of which has the name of an array of spectra."""
    columns = {} if columns is None else dict(columns)
    for name in columns:
        if name in ("id", "medium") or name.rsplit("_", 1)[-1] in (
            "wavelength",
            "flux",
            "ivar",
            "sigma",
            "mask",
            "resolution",
        ):
            raise InputError(f"columns: {name!r} is an array of the spectra, not a column", argument="columns")
    return columns


def _of_one_spectrum(arrays: dict[str, Lendable]) -> dict[str, Lendable]:
    """Return arrays in which one spectrum of (pixels) is a population of one."""
    is_one = [
        not isinstance(a, tuple) and a.ndim == 1 for name, a in arrays.items() if name.rsplit("_", 1)[-1] == "flux"
    ]
    if not is_one or not all(is_one):
        return arrays
    deepened: dict[str, Lendable] = {}
    for name, array in arrays.items():
        stem = name.rsplit("_", 1)[-1]
        per_pixel = stem in ("flux", "ivar", "sigma", "mask") and not isinstance(array, tuple) and array.ndim == 1
        matrix = stem == "resolution" and not isinstance(array, tuple) and array.ndim == 2
        if not isinstance(array, tuple) and (per_pixel or matrix):
            deepened[name] = array[np.newaxis]
        elif not isinstance(array, tuple) and array.ndim == 0:
            deepened[name] = array[np.newaxis]
        elif isinstance(array, tuple) and array[0] == () and stem not in SHARED_ARRAYS:
            deepened[name] = ((1,), array[1])
        else:
            deepened[name] = array
    return deepened


def _count_rows(arrays: Mapping[str, Lendable]) -> int:
    """Return the number of spectra in arrays."""
    for name, array in arrays.items():
        if not isinstance(array, tuple) and name.rsplit("_", 1)[-1] == "flux" and array.ndim == 2:
            return int(array.shape[0])
    raise InputError(
        "no array flux of the shape (n, pixels): give wavelength, flux, and ivar or sigma, or for several arms "
        "b_wavelength, b_flux and so on",
        argument="flux",
    )


def _slice_rows(name: str, array: Lendable, begin: int, end: int) -> Lendable:
    """Return the rows of an array, or the whole of one that all spectra share."""
    stem = name.rsplit("_", 1)[-1]
    if isinstance(array, tuple):
        return array if stem == "medium" else ((end - begin,), array[1][begin:end])
    if stem in SHARED_ARRAYS and array.ndim < 2:
        return array
    return array[begin:end]


def _reopen(path: str, begin: int, end: int) -> Spectra:
    """Return rows of a file again, for pickles."""
    spectra = Spectra.open(path)
    return spectra if (begin, end) == (0, len(spectra)) else spectra[begin:end]


__all__ = ["Spectra", "as_spectra", "lendable", "spectra_of_spec_data"]
