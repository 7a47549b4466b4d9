"""Arrays of the spectra of other libraries: specutils' spectra and rvspecfit's SpecData."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit._arrays import Array, Lendable, named_arrays, split_mask, unit_of, without_unit
from popfit._errors import InputError

#: Distance of added pixels, in pixels.
PADDING_STEP = 1e-6

#: Power of the flux's unit in which specutils' kinds of uncertainty are.
UNIT_POWERS = {"std": 1, "var": 2, "ivar": -2}


class _Block(NamedTuple):
    """Spectra (rows, pixels) with the same number of pixels.

    The wavelengths are of the same shape, or (pixels,); weights are standard errors or inverse variances; the mask is
    true where a pixel is bad.
    """

    wavelength: Array
    flux: Array
    weights: Array
    mask: Array


def is_specutils(value: object) -> bool:
    """Return true for a spectrum or a collection of specutils, and for what has its attributes."""
    return hasattr(value, "spectral_axis") and hasattr(value, "flux")


def is_spec_data(value: object) -> bool:
    """Return true for a SpecData of rvspecfit, and for what has its attributes."""
    return all(hasattr(value, name) for name in ("name", "lam", "spec", "espec"))


def arrays_of_specutils(members: Sequence[Any]) -> dict[str, Lendable]:
    """Return the arrays of specutils' objects: each has rows of flux on one spectral axis.

    Standard deviations stay what they are if all have them; else weights are inverse variances.

    Raises
    ------
    InputError
        If an object has more than two dimensions, or no uncertainty that χ² can use.
    """
    kind = "sigma" if all(_uncertainty(one).uncertainty_type == "std" for one in members) else "ivar"
    wavelength, flux, weights, mask = _stack_blocks([_block_of_specutils(one, kind) for one in members])
    return named_arrays({"wavelength": wavelength, "flux": flux, kind: weights, "mask": mask})


def split_exposures(stars: Sequence[Sequence[Any]]) -> tuple[list[list[Any]], list[int]]:
    """Return the exposures of stars, each a list with one SpecData of each arm it has, and the numbers of each star's.

    Exposure k of a star has the SpecData that are number k of their arms. A star without any has one, without data.
    """
    exposures: list[list[Any]] = []
    counts = []
    for star in stars:
        of_star: list[list[Any]] = [[]]
        places: dict[str, int] = {}
        for one in star:
            place = places.get(one.name, 0)
            places[one.name] = place + 1
            if place == len(of_star):
                of_star.append([])
            of_star[place].append(one)
        exposures += of_star
        counts.append(len(of_star))
    return exposures, counts


def refuse_exposures(stars: Sequence[Sequence[Any]]) -> None:
    """Fail if a star has two SpecData of one arm.

    Raises
    ------
    InputError
        If there is such a star.
    """
    for row, star in enumerate(stars):
        names = [one.name for one in star]
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    f"star {row}: two SpecData of the arm {name!r}; popfit.fit fits such exposures together, with a "
                    'popfit.SpectralModel of exposures="shared"',
                    argument="specdata",
                    row=row,
                )


def arrays_of_spec_data(stars: Sequence[Sequence[Any]], mask: bool) -> dict[str, Lendable]:
    """Return the arrays of rvspecfit's SpecData: for each star, or exposure, a list with one of each arm it has.

    An arm that a star lacks is masked. Pixels of ``badmask`` are masked if `mask` is true.

    Raises
    ------
    InputError
        If no star has a spectrum.
    """
    names = list(dict.fromkeys(one.name for star in stars for one in star))
    if not names:
        raise InputError("no spectra: an empty list has no wavelengths", argument="specdata")
    arrays: dict[str, Lendable] = {}
    for name in names:
        found = [next((one for one in star if one.name == name), None) for star in stars]
        arrays |= {f"{name}_{key}": array for key, array in _arrays_of_arm(found, mask).items()}
    return arrays


class SpectrumCells(NamedTuple):
    """A spectrum of one arm in the cells of a table's row, each an array (pixels,)."""

    wavelength: Array
    flux: Array
    #: Standard errors or inverse variances.
    weights: Array
    #: True for bad pixels; None without any.
    mask: Array | None


def stack_cells(rows: Sequence[SpectrumCells | None], kind: str, grid: Array) -> dict[str, Lendable]:
    """Return the arrays of one arm of the spectra in a table's rows.

    Pixels whose flux or weight is not finite are masked, and so are all pixels of rows without a spectrum (None).

    Parameters
    ----------
    rows : sequence of SpectrumCells or None
        The spectrum of each row.
    kind : {"sigma", "ivar"}
        Kind of their weights.
    grid : array, (pixels,)
        Wavelengths where no row has a spectrum.
    """
    first = next((one for one in rows if one is not None), None)
    stand_in = grid if first is None else first.wavelength
    ones = np.ones((1, len(stand_in)))
    absent = _Block(stand_in, np.zeros_like(ones), ones, np.ones_like(ones, dtype=bool))
    blocks = [absent if one is None else _block_of_cells(one) for one in rows]
    if not blocks:
        blocks = [_Block(stand_in, *(part[:0] for part in absent[1:]))]
    wavelength, flux, weights, mask = _stack_blocks(blocks)
    return {"wavelength": wavelength, "flux": flux, kind: weights, "mask": mask}


def _block_of_cells(one: SpectrumCells) -> _Block:
    """Return the spectrum of a table's row."""
    missing = ~(np.isfinite(one.flux) & np.isfinite(one.weights))
    bad = missing if one.mask is None else missing | one.mask
    flux, weights = np.where(missing, 0.0, one.flux), np.where(missing, 1.0, one.weights)
    return _Block(one.wavelength, flux[np.newaxis], weights[np.newaxis], bad[np.newaxis])


def _arrays_of_arm(found: Sequence[Any], mask: bool) -> dict[str, Lendable]:
    """Return the arrays of one arm, with masked rows for the stars that lack it (None)."""
    first = next(one for one in found if one is not None)
    absent = _block_of_spec_data(first, mask)
    absent = absent._replace(flux=np.zeros_like(absent.flux), mask=np.ones_like(absent.mask))
    blocks = [absent if one is None else _block_of_spec_data(one, mask) for one in found]
    wavelength, flux, sigma, bad = _stack_blocks(blocks)
    sigma[bad] = np.inf
    arrays: dict[str, Lendable] = {"wavelength": wavelength, "flux": flux, "sigma": sigma}
    if any(getattr(one, "resolution", None) is not None for one in found):
        arrays["resolution"] = _stack_resolution(found, flux.shape[1])
    return arrays


def _block_of_spec_data(one: Any, mask: bool) -> _Block:
    """Return the spectrum of a SpecData."""
    wavelength, flux, sigma = (np.asarray(part, dtype=np.float64) for part in (one.lam, one.spec, one.espec))
    bad = getattr(one, "badmask", None)
    masked = np.zeros(len(flux), dtype=bool) if bad is None or not mask else np.asarray(bad, dtype=bool)
    return _Block(wavelength, flux[np.newaxis], sigma[np.newaxis], masked[np.newaxis])


def _block_of_specutils(one: Any, kind: str) -> _Block:
    """Return the spectra of an object of specutils, with increasing wavelengths."""
    axis = without_unit(getattr(one, "wavelength", one.spectral_axis), "Angstrom")
    wavelength = np.asarray(axis, dtype=np.float64)
    plain, hidden = split_mask(one.flux)
    flux = np.asarray(without_unit(plain))
    spectral = getattr(one, "spectral_axis_index", flux.ndim - 1)
    if flux.ndim > 2 or spectral not in (flux.ndim - 1, None):
        raise InputError(
            f"flux has the shape {flux.shape}, with wavelengths along axis {spectral}; reshape it to (n, pixels)",
            argument="flux",
        )
    flux = np.atleast_2d(flux)
    mask = np.zeros(flux.shape, dtype=bool)
    for bad in (hidden, getattr(one, "mask", None)):
        if bad is not None:
            mask |= np.asarray(bad, dtype=bool).reshape(flux.shape)
    block = _Block(wavelength, flux, np.atleast_2d(_weights(one, kind)), mask)
    increases = wavelength.size == 0 or wavelength.flat[0] <= wavelength.flat[wavelength.shape[-1] - 1]
    return block if increases else _Block(*(part[..., ::-1] for part in block))


def _uncertainty(spectrum: Any) -> Any:
    """Return the uncertainty of a spectrum of specutils."""
    uncertainty = getattr(spectrum, "uncertainty", None)
    if uncertainty is None:
        raise InputError("the spectrum has no uncertainty, and χ² needs one", argument="uncertainty")
    if uncertainty.uncertainty_type not in UNIT_POWERS:
        raise InputError(
            f"the spectrum has a {type(uncertainty).__name__}; give a StdDevUncertainty, VarianceUncertainty or "
            "InverseVariance",
            argument="uncertainty",
        )
    return uncertainty


def _weights(spectrum: Any, kind: str) -> Array:
    """Return the standard errors ("sigma") or inverse variances ("ivar") of a spectrum, in the unit of its flux.

    Numbers that are of this kind and unit are returned as they are.
    """
    uncertainty = _uncertainty(spectrum)
    given = uncertainty.uncertainty_type
    values = np.asarray(uncertainty.array)
    unit, flux_unit = uncertainty.unit, unit_of(spectrum.flux)
    if unit is not None and flux_unit is not None:
        wanted = flux_unit ** UNIT_POWERS[given]
        values = values if unit == wanted else np.asarray(unit.to(wanted, values))
    if kind == "sigma" or given == "ivar":
        return values
    variance = values.astype(np.float64) ** (2 if given == "std" else 1)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / variance)


def _stack_blocks(blocks: Sequence[_Block]) -> _Block:
    """Return one block of the rows of several, in which shorter spectra are padded with masked pixels.

    Its wavelengths are (pixels,) if all rows have the same.
    """
    rows = sum(len(block.flux) for block in blocks)
    pixels = max(block.flux.shape[1] for block in blocks)
    wavelength = np.empty((rows, pixels))
    flux = np.zeros((rows, pixels), dtype=np.result_type(*(block.flux for block in blocks)))
    weights = np.ones((rows, pixels), dtype=np.result_type(*(block.weights for block in blocks)))
    mask = np.ones((rows, pixels), dtype=bool)
    begin = 0
    for block in blocks:
        end, count = begin + len(block.flux), block.flux.shape[1]
        wavelength[begin:end] = _padded_grid(block.wavelength, pixels)
        flux[begin:end, :count] = block.flux
        weights[begin:end, :count] = block.weights
        mask[begin:end, :count] = block.mask
        begin = end
    if rows and (wavelength == wavelength[0]).all():
        wavelength = wavelength[0].copy()
    return _Block(wavelength, flux, weights, mask)


def _padded_grid(grid: Array, pixels: int) -> npt.NDArray[np.float64]:
    """Return grids (pixels,) or (rows, pixels) with added pixels after their ends, to a number of pixels.

    The first one is a step away, so that the last pixel keeps its width. The others are close behind it, so that the
    range of the continuum stays nearly what it is.
    """
    added = pixels - grid.shape[-1]
    if not added:
        return grid
    last = grid[..., -1:]
    step = last - grid[..., -2:-1] if grid.shape[-1] > 1 else 1.0
    return np.concatenate([grid, last + step * (1.0 + PADDING_STEP * np.arange(added))], axis=-1)


def _stack_resolution(found: Sequence[Any], pixels: int) -> Array:
    """Return resolution matrices (n, diagonals, pixels) of rvspecfit's sparse ones; the identity without one."""
    bands = []
    for one in found:
        matrix = getattr(one, "resolution", None)
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
