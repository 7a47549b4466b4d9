"""Arrays of users, made ready to be lent to Rust.

Native float32, float64, int64, uint64 and bool in C order are lent as they are. Everything else is converted once: to
float64, to 64-bit integers, or to text.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError, PopfitWarning

Array: TypeAlias = npt.NDArray[Any]
#: An array that Rust can be lent, or shape and elements of an array of texts.
Lendable: TypeAlias = "Array | tuple[tuple[int, ...], list[str]]"

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
        warnings.warn(
            f"{name}: {reason} is copied, {megabytes} MB; native float32 or float64 in C order is not",
            PopfitWarning,
            stacklevel=4,
        )
    return np.require(array, dtype=wanted, requirements=["C", "ALIGNED"])


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


def without_unit(values: object, unit: str | None = None) -> object:
    """Return the numbers of a quantity of astropy, converted to `unit` if one is given; other values as they are.

    Raises
    ------
    astropy.units.UnitConversionError
        If the quantity cannot be converted.
    """
    to_value = getattr(values, "to_value", None)
    if to_value is None or not hasattr(values, "unit"):
        return values
    if unit is None:
        return to_value()
    if unit == "Angstrom":
        from astropy import units  # type: ignore[import-untyped,unused-ignore]

        return to_value(unit, equivalencies=units.spectral())
    return to_value(unit)


def named_arrays(values: Mapping[str, object]) -> dict[str, Lendable]:
    """Return the arrays of a mapping of names, ready to be lent; a masked array's mask joins the array ``mask``.

    Raises
    ------
    InputError
        If an array has no numbers, truth values or texts as elements.
    """
    arrays: dict[str, Lendable] = {}
    masks: dict[str, Array] = {}
    for name in values:
        element = values[name]
        if element is None:
            continue
        element, mask = split_mask(element)
        stem = name.rsplit("_", 1)[-1]
        if mask is not None and mask.any() and stem in ("flux", "ivar", "sigma", "error"):
            key = name[: len(name) - len(stem)] + "mask"
            masks[key] = mask | masks[key] if key in masks else mask
        element = without_unit(element, "Angstrom" if stem == "wavelength" else None)
        if stem == "mask":
            element = _bits(np.asarray(element))
        arrays[name] = lendable(name, element)
    for key, mask in masks.items():
        given = arrays.get(key)
        arrays[key] = mask if given is None else _join_masks(key, given, mask)
    return arrays


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
    array = np.asarray(values)
    if array.dtype.kind == "O":
        flat = array.ravel().tolist()
        if flat and all(isinstance(element, str | bytes) for element in flat):
            return array.astype(np.str_)
        raise InputError(f"{name}: Python objects; give real numbers", argument=name)
    return array


def _text(element: str | bytes) -> str:
    """Return a text of numpy as Python's."""
    return element.decode("utf-8", "replace").rstrip() if isinstance(element, bytes) else element
