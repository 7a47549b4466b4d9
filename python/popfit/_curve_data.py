"""Arrays of curves that users give, checked and made ready for Rust."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit._arrays import lendable, split_mask, unit_of, warn_caller
from popfit._checks import check_switch, close_name
from popfit._curve_models import ModelAtPoints, Xdata
from popfit._errors import InputError

Array = npt.NDArray[Any]


class CurveData(NamedTuple):
    """Curves as a user gives them, checked."""

    x: Xdata
    #: ``y``, ``starts`` and perhaps ``sigma``, ``covariance``, ``mask``, ``lower`` and ``upper``, for Rust.
    arrays: dict[str, Array]
    #: True if y had one axis.
    is_single: bool

    def for_rust(self, model: ModelAtPoints, starts: Array | None = None) -> dict[str, Any]:
        """Return the curves with a model's predictors, and perhaps other starts, for Rust."""
        arrays = {**self.arrays, "x": model.x}
        if starts is not None:
            arrays["starts"] = np.ascontiguousarray(starts)
        return {"arrays": arrays, "x_per_curve": self.x.x_per_curve, "points": self.x.points}

    def masked(self) -> npt.NDArray[np.bool_]:
        """Return which points do not count, of all curves or of each: masked ones, and those of infinite sigma."""
        masked = self.arrays.get("mask", np.zeros(1, dtype=bool))
        return np.asarray(masked | np.isinf(self.arrays["sigma"])) if "sigma" in self.arrays else masked

    def used_points(self) -> npt.NDArray[np.int64]:
        """Return the number of points of each curve that are not masked."""
        masked = self.masked()
        if masked.ndim == 2:
            return np.asarray(np.count_nonzero(~masked, axis=1))
        used = self.x.points - (np.count_nonzero(masked) if masked.size > 1 else self.x.points * int(masked[0]))
        return np.full(self.x.curves, used)


def prepare_curves(
    names: Sequence[str],
    x: Any,
    y: Any,
    p0: Any,
    sigma: Any,
    mask: Any,
    bounds: tuple[Any, Any] | None,
    x_per_curve: bool,
) -> CurveData:
    """Return the curves of a fit, checked.

    Raises
    ------
    InputError
        If an array is none of real numbers, or does not fit to the others.
    """
    y, own_mask = split_mask(y)
    numbers = plain_numbers("y", y)
    if numbers.ndim not in (1, 2):
        raise InputError(f"y has the shape {numbers.shape}; give (points) or (curves, points)", argument="y")
    is_single = numbers.ndim == 1
    count, points = (1, numbers.size) if is_single else numbers.shape
    if points == 0:
        raise InputError("y has no points", argument="y")
    if is_single and x_per_curve:
        raise InputError(
            "x_per_curve: y is one curve; give y as (curves, points), or leave x_per_curve out", argument="x_per_curve"
        )
    arrays = {"y": numbers.reshape(count, points)}
    arrays["starts"] = _starts(names, p0, count)
    shapes = ((points,), (count, points))
    if sigma is not None:
        sigma, sigma_mask = split_mask(sigma)
        if sigma_mask is not None and sigma_mask.any():
            raise InputError("sigma: values are masked; mask y instead", argument="sigma")
        deviations = np.atleast_1d(plain_numbers("sigma", sigma))
        if deviations.ndim == 3 or (is_single and deviations.ndim == 2 and len(deviations) > 1):
            matrices = deviations if deviations.ndim == 3 else deviations[np.newaxis]
            _shaped("sigma", matrices, ((1, points, points), (count, points, points)))
            arrays["covariance"] = np.ascontiguousarray(matrices.reshape(len(matrices), points**2))
        elif deviations.shape == (points, points) != (count, points):
            raise InputError(
                f"sigma has the shape {deviations.shape}; give ({count}, {points}) or, for a covariance matrix of all "
                f"curves, (1, {points}, {points})",
                argument="sigma",
            )
        else:
            deviations = deviations[0] if deviations.shape == (1, points) else deviations
            arrays["sigma"] = _shaped("sigma", deviations, ((1,), *shapes))
            if deviations.shape == (points, points) and _may_be_covariance(deviations):
                warn_caller(
                    "sigma is symmetric, and is taken for standard deviations of as many curves as points: give "
                    "sigma[np.newaxis] if it is a covariance matrix of all curves"
                )
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
    there, x_mask = _xdata(x, check_switch("x_per_curve", x_per_curve), count, points)
    masks += [] if x_mask is None else [x_mask]
    if masks:
        joined = functools.reduce(np.logical_or, masks)
        arrays["mask"] = np.ascontiguousarray(joined)
    if bounds is not None:
        arrays["lower"], arrays["upper"] = _bounds(bounds, len(names), count)
    return CurveData(there, arrays, is_single)


def _may_be_covariance(sigma: Array) -> bool:
    """Return True for a symmetric matrix whose rows differ."""
    return bool(len(sigma) > 1 and np.array_equal(sigma, sigma.T) and (sigma != sigma[0]).any())


def plain_x(x: Any) -> tuple[Any, Array | None]:
    """Return a copy of an x of numbers, and the mask of a masked array; what is no array stays as it is."""
    if not isinstance(x, list | tuple | np.ndarray):
        return x, None
    numbers, mask = split_mask(x) if isinstance(x, np.ndarray) else (x, None)
    return np.array(plain_numbers("x", numbers), dtype=np.float64), mask


def _xdata(x: Any, x_per_curve: bool, count: int, points: int) -> tuple[Xdata, Array | None]:
    """Return the points of curves, and which of them are masked."""
    values, mask = plain_x(x)
    if isinstance(values, np.ndarray):
        if x_per_curve and (values.ndim not in (2, 3) or values.shape[0] != count or values.shape[-1] != points):
            raise InputError(
                f"x has the shape {values.shape}; with x_per_curve give ({count}, {points}) or "
                f"({count}, predictors, {points})",
                argument="x",
            )
        if mask is not None and mask.any():
            if mask.shape[-1] != points:
                raise InputError(f"x: masked values, of the shape {mask.shape}; mask y instead", argument="x")
            of_points = mask.reshape((count, -1, points) if x_per_curve else (-1, points))
            return Xdata(values, x_per_curve, count, points), np.asarray(of_points.any(axis=-2))
        return Xdata(values, x_per_curve, count, points), None
    if x_per_curve:
        raise InputError(f"x: {type(x).__name__}; with x_per_curve give an array", argument="x")
    return Xdata(values, x_per_curve, count, points), None


def plain_numbers(argument: str, values: Any) -> Array:
    """Return an array of float32 or float64 in C order."""
    unit = unit_of(values)
    if unit is not None:
        if str(unit):
            raise InputError(f"{argument} has the unit {unit}; give plain numbers", argument=argument)
        values = np.asarray(values)
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
        columns = [plain_numbers("p0", p0[name]) for name in names]
        for name, column in zip(names, columns, strict=True):
            if column.shape not in ((), (1,), (count,)):
                raise InputError(f"p0: {name} has the shape {column.shape}; give () or ({count},)", argument="p0")
        p0 = np.stack(np.broadcast_arrays(*columns), axis=-1)
    p0, mask = split_mask(p0)
    if mask is not None and mask.any():
        raise InputError("p0: values are masked; give a start of each parameter", argument="p0")
    starts = np.asarray(np.atleast_1d(plain_numbers("p0", p0)), dtype=np.float64)
    return _shaped("p0", starts, ((len(names),), (count, len(names))))


def _bounds(bounds: tuple[Any, Any], parameters: int, count: int) -> tuple[Array, Array]:
    """Return lower and upper bounds, (curves, P)."""
    try:
        lower, upper = bounds
    except (TypeError, ValueError) as error:
        raise InputError("bounds: give a pair of lower and upper bounds", argument="bounds") from error
    limits = []
    for side in (lower, upper):
        array = np.asarray(plain_numbers("bounds", side), dtype=np.float64)
        if array.shape not in ((), (parameters,), (count, parameters)):
            raise InputError(
                f"bounds have the shape {array.shape}; give ({parameters},) or ({count}, {parameters})",
                argument="bounds",
            )
        limits.append(np.ascontiguousarray(np.broadcast_to(array, (count, parameters))))
    return limits[0], limits[1]
