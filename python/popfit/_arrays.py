"""Arrays of users, made ready to be lent to Rust.

Native float32, float64, int64, uint64 and bool in C order are lent as they are. Everything else is converted once: to
float64, to 64-bit integers, or to text.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Container, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError, PopfitWarning

_logger = logging.getLogger("popfit")

Array: TypeAlias = npt.NDArray[Any]
#: An array that Rust can be lent, or shape and elements of an array of texts.
Lendable: TypeAlias = "Array | tuple[tuple[int, ...], list[str]]"

#: Arrays of an arm with one value for each pixel of each spectrum.
PIXEL_ARRAYS = ("flux", "ivar", "sigma", "mask")

#: All arrays of an arm; in a population of several arms the name of the arm and an underscore precede them.
ARM_ARRAYS = ("wavelength", *PIXEL_ARRAYS, "resolution", "covariance", "medium")

#: Powers of the unit of the flux in which arrays that say how large its noise is are taken.
WEIGHT_POWERS = {"ivar": -2, "sigma": 1, "covariance": 2}

#: Bytes above which a conversion is warned of.
LARGE_CONVERSION_BYTES = 100_000_000

#: Types that are lent without a conversion.
LENT_TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.int64, np.uint64, np.bool_))


def lendable(name: str, values: object) -> Lendable:
    """Return an array that Rust can be lent: `values` itself if it can, else a copy of another type or order.

    Masks of masked arrays and units of quantities are not looked at: see `split_mask` and `without_unit`.

    Raises
    ------
    InputError
        If `values` has no numbers, truth values or texts as elements.
    """
    array = _as_array(name, values)
    if array.dtype.kind in "SU":
        return array.shape, [_text(element) for element in array.ravel().tolist()]
    if array.dtype in LENT_TYPES and array.dtype.isnative:
        wanted = array.dtype
    elif array.dtype.kind == "f":
        wanted = np.dtype(np.float64)
    elif array.dtype.kind == "i":
        wanted = np.dtype(np.int64)
    elif array.dtype.kind == "u":
        wanted = np.dtype(np.uint64)
    else:
        raise InputError(f"{name}: {array.dtype}; give real numbers", argument=name)
    if array.dtype == wanted and array.flags.c_contiguous and array.flags.aligned:
        return array
    if array.size * wanted.itemsize > LARGE_CONVERSION_BYTES:
        megabytes = math.ceil(array.size * wanted.itemsize / 1e6)
        reason = f"{array.dtype.str}" if array.dtype != wanted else "an array that is not in C order"
        warn_caller(f"{name}: {reason} is copied, {megabytes} MB; native float32 or float64 in C order is not")
    return np.require(array, dtype=wanted, requirements=["C", "ALIGNED"])


def warn_caller(message: str, category: type[Warning] = PopfitWarning, packages: Container[str] = ("popfit",)) -> None:
    """Warn at the line outside of this package, or of several packages, that called it."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def stem(name: str) -> str:
    """Return the last part of a name, which says what an array of an arm holds: ``flux`` of ``b_flux``."""
    return name.rsplit("_", 1)[-1]


def sibling(name: str, part: str) -> str:
    """Return the name of another array of the same arm: ``b_mask`` of ``b_flux``."""
    return name[: len(name) - len(stem(name))] + part


def part_of_arm(name: str, names: Container[str]) -> str:
    """Return what an array holds, one of `ARM_ARRAYS`; the whole name if it is no array of an arm.

    A name with an underscore is one of an arm if the arm has a flux among `names`: ``central_wavelength`` is a column
    unless there is a ``central_flux``.
    """
    part = stem(name)
    return part if part in ARM_ARRAYS and sibling(name, "flux") in names else name


def split_mask(values: object) -> tuple[object, Array | None]:
    """Return the data and the mask of a masked array; other values as they are, without a mask."""
    if isinstance(values, np.ma.MaskedArray):
        mask = None if values.mask is np.ma.nomask else np.ascontiguousarray(np.ma.getmaskarray(values))
        return values.data, mask
    mask = getattr(values, "mask", None)
    if mask is not None and hasattr(values, "unmasked"):  # astropy's Masked
        masked: Any = values
        return masked.unmasked, np.ascontiguousarray(np.broadcast_to(mask, masked.shape))
    return values, None


def unit_of(values: object) -> Any:
    """Return the unit of a quantity or a column of astropy, or None without one."""
    kind = type(values)
    is_of_astropy = hasattr(kind, "to_value") or hasattr(kind, "quantity")
    return getattr(values, "unit", None) if is_of_astropy else None


def without_unit(values: object, unit: str | None = None) -> object:
    """Return the numbers of a quantity or column of astropy, in `unit` if one is given; other values as they are.

    Raises
    ------
    astropy.units.UnitConversionError
        If the values cannot be converted.
    """
    own = unit_of(values)
    if own is None:
        return values
    numbers = np.asarray(values)
    return numbers if unit is None else _convert(numbers, own, unit)


def named_arrays(values: Mapping[str, object]) -> dict[str, Lendable]:
    """Return the arrays of a mapping of names, ready to be lent.

    Masked values of flux, ivar and sigma join the array ``mask``; those of columns become NaN, or empty texts.
    Wavelengths are converted to Å, sigma, ivar and covariance to the unit of the arm's flux. ``ids`` is another name of
    ``id``.

    Raises
    ------
    InputError
        If an array has no numbers, truth values or texts as elements, masked values that cannot be left out, or a unit
        that popfit cannot take into account.
    astropy.units.UnitConversionError
        If a wavelength, sigma, ivar or covariance cannot be converted.
    """
    given = {name: _split(array) for name, array in _with_id(values).items()}
    arrays: dict[str, Lendable] = {}
    masks: dict[str, Array] = {}
    for name, array in given.items():
        part = part_of_arm(name, given)
        numbers = _converted(name, part, given)
        if array.mask is not None and array.mask.any():
            if part in ("flux", "ivar", "sigma"):
                key = sibling(name, "mask")
                masks[key] = array.mask | masks[key] if key in masks else array.mask
            else:
                numbers = _filled(name, part, numbers, array.mask)
        if part == "mask":
            numbers = _bits(np.asarray(numbers))
        arrays[name] = lendable(name, numbers)
    for key, mask in masks.items():
        joined = arrays.get(key)
        arrays[key] = mask if joined is None else _join_masks(key, joined, mask)
    return arrays


class _Given(NamedTuple):
    """An array of the user: its numbers, the mask of a masked array, and astropy's unit."""

    numbers: object
    mask: Array | None
    unit: Any


def _split(values: object) -> _Given:
    """Return the numbers, mask and unit of an array of the user."""
    plain, mask = split_mask(values)
    unit = unit_of(values)
    return _Given(without_unit(plain), mask, unit_of(plain) if unit is None else unit)


def _with_id(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values that are there, with ``id`` for ``ids``."""
    given = {name: value for name in values if (value := values[name]) is not None}
    if "ids" in given:
        if "id" in given:
            raise InputError("id and ids are two names of the same array; leave one of them out", argument="ids")
        given["id"] = given.pop("ids")
    return given


def _converted(name: str, part: str, given: Mapping[str, _Given]) -> object:
    """Return the numbers of an array in the unit that popfit takes them in."""
    numbers, _, unit = given[name]
    if unit is None or part in ("flux", "mask", "resolution", "medium", "id"):
        return numbers
    if part == "wavelength":
        if _is_unrecognized(unit):
            raise InputError(
                f"{name} has the unit {unit}, which astropy does not know; give plain numbers in Å", argument=name
            )
        return _convert(np.asarray(numbers), unit, "Angstrom")
    flux = given.get(sibling(name, "flux"))
    if part in WEIGHT_POWERS and flux is not None:
        return _convert_weights(name, numbers, unit, flux.unit)
    _check_column_unit(name, unit)
    return numbers


def _convert_weights(name: str, numbers: object, unit: Any, flux_unit: Any) -> object:
    """Return sigma in the unit of the flux, covariance in its square, or ivar in its power -2."""
    from astropy import units  # type: ignore[import-untyped,unused-ignore]

    if _is_unrecognized(flux_unit) or _is_unrecognized(unit):
        if stem(name) == "sigma" and unit == flux_unit:
            return numbers
        raise InputError(
            f"{name} has the unit {unit}, flux {flux_unit}, which astropy cannot convert; give plain numbers",
            argument=name,
        )
    if flux_unit is None:
        if not unit.is_equivalent(units.dimensionless_unscaled):
            raise InputError(
                f"{name} has the unit {unit}, but flux has none; give flux its unit, or {name} plain numbers",
                argument=name,
            )
        flux_unit = units.dimensionless_unscaled
    return _convert(np.asarray(numbers), unit, flux_unit ** WEIGHT_POWERS[stem(name)])


def _is_unrecognized(unit: Any) -> bool:
    """Return true for a unit that astropy has read and does not know."""
    return type(unit).__name__ == "UnrecognizedUnit"


def _check_column_unit(name: str, unit: Any) -> None:
    """Refuse a column in another unit than those of models' parameters: K, km/s, dex or none.

    A unit that converts to none of these, such as degrees of coordinates, is noted and passes: which columns the model
    asks for, and in which unit, is not known here.
    """
    from astropy import units

    usual = (units.K, units.km / units.s, units.dimensionless_unscaled)
    if unit in usual or units.dex in (unit, getattr(unit, "function_unit", None)):
        return
    if any(unit.is_equivalent(one) for one in usual):
        raise InputError(f"{name} has the unit {unit}; give plain numbers in the model's unit", argument=name)
    _logger.info("%s has the unit %s; its numbers are taken to be in the model's unit", name, unit)


def _convert(numbers: Array, unit: Any, wanted: Any) -> Array:
    """Return numbers in another unit; the array itself if the unit is the same."""
    from astropy import units

    wanted = units.Unit(wanted)
    equivalencies = units.spectral() if wanted == units.AA else []
    return numbers if unit == wanted else np.asarray(unit.to(wanted, numbers, equivalencies=equivalencies))


def _filled(name: str, part: str, numbers: object, mask: Array) -> object:
    """Return the values of a column with NaN, or an empty text, where they are masked."""
    if part in ARM_ARRAYS or part == "id":
        advice = "mask the flux instead" if part in ARM_ARRAYS else "each spectrum needs one"
        raise InputError(f"{name}: {int(mask.sum())} values are masked; {advice}", argument=name)
    array = _as_array(name, numbers)
    if array.dtype.kind in "SU":
        return np.where(mask, array.dtype.type(), array)
    if array.dtype.kind not in "biuf":
        return array
    return np.where(mask, np.nan, array)


def _bits(mask: Array) -> Array:
    """Return a mask of signed integers as one of unsigned ones of the same size, so that the sign is one bit."""
    if mask.dtype.kind != "i":
        return mask
    return mask.astype(mask.dtype.newbyteorder("=")).view(f"u{mask.dtype.itemsize}")


def _join_masks(name: str, given: Lendable, mask: Array) -> Array:
    """Return a given mask with the pixels of another one masked, too."""
    if isinstance(given, tuple) or given.shape != mask.shape:
        shape = given[0] if isinstance(given, tuple) else given.shape
        raise InputError(f"{name} has the shape {shape}, the masked array {mask.shape}", argument=name)
    if given.dtype == np.bool_:
        return given | mask
    return np.where(mask, ~np.zeros((), given.dtype), given)


def _as_array(name: str, values: object) -> Array:
    """Return `values` as an array of numpy, without the Python objects that some libraries hold numbers in."""
    if type(values).__module__.partition(".")[0] in ("cupy", "cupyx") or getattr(values, "is_cuda", False):
        raise TypeError(f"{name}: an array on a GPU; copy it to the host first (cupy.asnumpy, tensor.cpu())")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: {error}; give rows of equal length", argument=name) from error
    if array.dtype.kind == "O":
        flat = array.ravel().tolist()
        if flat and all(isinstance(element, str | bytes) for element in flat):
            return array.astype(np.str_)
        raise InputError(f"{name}: Python objects; give real numbers", argument=name)
    return array


def _text(element: str | bytes) -> str:
    """Return a text of numpy as Python's."""
    return element.decode("utf-8", "replace").rstrip() if isinstance(element, bytes) else element
