"""Arrays of curves that users give, checked and made ready for Rust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit._arrays import lendable, split_mask, unit_of
from popfit._checks import check_switch, close_name
from popfit._curve_models import ModelAtPoints, Xdata
from popfit._errors import InputError

Array = npt.NDArray[Any]


class Prepared(NamedTuple):
    """Curves as a user gives them, checked."""

    x: Xdata
    #: ``y``, ``starts`` and perhaps ``sigma``, ``mask``, ``lower`` and ``upper``, for Rust.
    arrays: dict[str, Array]
    #: True if y had one axis.
    is_single: bool

    def for_rust(self, model: ModelAtPoints, starts: Array | None = None) -> dict[str, Any]:
        """Return the curves with a model's predictors, and perhaps other starts, for Rust."""
        arrays = {**self.arrays, "x": model.x}
        if starts is not None:
            arrays["starts"] = np.ascontiguousarray(starts)
        return {"arrays": arrays, "x_per_curve": self.x.is_own, "points": self.x.points}

    def used_points(self) -> npt.NDArray[np.int64]:
        """Return the number of points of each curve that are not masked."""
        masked = self.arrays.get("mask", np.zeros(1, dtype=bool))
        if "sigma" in self.arrays:
            masked = masked | np.isinf(self.arrays["sigma"])
        if masked.ndim == 2:
            return np.asarray(np.count_nonzero(~masked, axis=1))
        used = self.x.points - (np.count_nonzero(masked) if masked.size > 1 else self.x.points * int(masked[0]))
        return np.full(self.x.curves, used)


def prepared(
    names: Sequence[str],
    x: Any,
    y: Any,
    p0: Any,
    sigma: Any,
    mask: Any,
    bounds: tuple[Any, Any] | None,
    x_per_curve: bool,
) -> Prepared:
    """Return the curves of a fit, checked.

    Raises
    ------
    InputError
        If an array is none of real numbers, or does not fit to the others.
    """
    y, own_mask = split_mask(y)
    numbers = _floats("y", y)
    if numbers.ndim not in (1, 2):
        raise InputError(f"y has the shape {numbers.shape}; give (points) or (curves, points)", argument="y")
    is_single = numbers.ndim == 1
    count, points = (1, numbers.size) if is_single else numbers.shape
    arrays = {"y": numbers.reshape(count, points)}
    arrays["starts"] = _starts(names, p0, count)
    shapes = ((points,), (count, points))
    if sigma is not None:
        sigma, sigma_mask = split_mask(sigma)
        if sigma_mask is not None and sigma_mask.any():
            raise InputError("sigma: values are masked; mask y instead", argument="sigma")
        arrays["sigma"] = _shaped("sigma", np.atleast_1d(_floats("sigma", sigma)), ((1,), *shapes))
    masks = []
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != np.bool_:
            raise InputError(
                f"mask: {given.dtype}; give truth values, True for points that do not count", argument="mask"
            )
        masks.append(_shaped("mask", given, shapes))
    if own_mask is not None and own_mask.any():
        masks.append(own_mask.reshape(count, points))
    if masks:
        joined = masks[0] if len(masks) == 1 else masks[0] | masks[1]
        arrays["mask"] = np.ascontiguousarray(joined)
    if bounds is not None:
        arrays["lower"], arrays["upper"] = _bounds(bounds, len(names), count)
    return Prepared(_xdata(x, check_switch("x_per_curve", x_per_curve), count, points), arrays, is_single)


def _xdata(x: Any, is_own: bool, count: int, points: int) -> Xdata:
    """Return the points of curves, of which numbers are checked."""
    if isinstance(x, list | tuple | np.ndarray):
        values = np.asarray(_floats("x", split_mask(x)[0] if isinstance(x, np.ndarray) else x), dtype=np.float64)
        if is_own and (values.ndim not in (2, 3) or values.shape[0] != count or values.shape[-1] != points):
            raise InputError(
                f"x has the shape {values.shape}; with x_per_curve give ({count}, {points}) or "
                f"({count}, predictors, {points})",
                argument="x",
            )
        if not is_own and points and values.size % points:
            raise InputError(
                f"x has the shape {values.shape}, for {points} points of y; give ({points},) or (predictors, {points})",
                argument="x",
            )
        return Xdata(values, is_own, count, points)
    if is_own:
        raise InputError(f"x: {type(x).__name__}; with x_per_curve give an array", argument="x")
    return Xdata(x, is_own, count, points)


def _floats(argument: str, values: Any) -> Array:
    """Return an array of float32 or float64 in C order."""
    if unit_of(values) is not None:
        raise InputError(f"{argument} has the unit {unit_of(values)}; give plain numbers", argument=argument)
    array = lendable(argument, values)
    if isinstance(array, tuple):
        raise InputError(f"{argument}: texts; give real numbers", argument=argument)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _shaped(argument: str, array: Array, shapes: Sequence[tuple[int, ...]]) -> Array:
    """Return an array of one of several shapes."""
    if array.shape in shapes:
        return np.ascontiguousarray(array)
    wanted = " or ".join(map(str, dict.fromkeys(shapes)))
    raise InputError(f"{argument} has the shape {array.shape}; give {wanted}", argument=argument)


def _starts(names: Sequence[str], p0: Any, count: int) -> Array:
    """Return starts, (P) or (curves, P)."""
    if isinstance(p0, Mapping):
        for name in p0:
            if name not in names:
                raise InputError(
                    f"p0: no parameter {name!r}{close_name(name, names)} (the model has {', '.join(names)})",
                    argument="p0",
                )
        missing = [name for name in names if name not in p0]
        if missing:
            raise InputError(f"p0: no start of {', '.join(missing)}", argument="p0")
        columns = np.broadcast_arrays(*(_floats("p0", p0[name]) for name in names))
        p0 = np.stack(columns, axis=-1)
    starts = np.asarray(np.atleast_1d(_floats("p0", p0)), dtype=np.float64)
    return _shaped("p0", starts, ((len(names),), (count, len(names))))


def _bounds(bounds: tuple[Any, Any], parameters: int, count: int) -> tuple[Array, Array]:
    """Return lower and upper bounds, (curves, P)."""
    try:
        lower, upper = bounds
    except (TypeError, ValueError) as error:
        raise InputError("bounds: give a pair of lower and upper bounds", argument="bounds") from error
    limits = []
    for side in (lower, upper):
        array = np.asarray(_floats("bounds", side), dtype=np.float64)
        if (array.ndim < 2 and array.shape not in ((), (parameters,))) or (
            array.ndim == 2
            and array.shape
            != (
                count,
                parameters,
            )
        ):
            raise InputError(
                f"bounds have the shape {array.shape}; give ({parameters},) or ({count}, {parameters})",
                argument="bounds",
            )
        limits.append(np.ascontiguousarray(np.broadcast_to(array, (count, parameters))))
    return limits[0], limits[1]
