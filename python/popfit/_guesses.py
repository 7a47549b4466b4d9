"""Starts of parameters that a user does not give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._compiled import CompiledModel
from popfit._curve_data import CurveData
from popfit._curve_models import ModelAtPoints, place_model
from popfit.devices import thread_count

Array = npt.NDArray[Any]

#: Points whose sigma is so many times the median are left out of a guess, which knows no weights.
LARGE_SIGMA = 10.0
#: Share of the range between two bounds by which guesses lie inside of them.
MARGIN = 0.1
#: Smallest value of a model of counts at a guess, as a share of the largest count.
LEAST_COUNT = 1e-2


class Wanted(NamedTuple):
    """Guesses that a fit needs."""

    #: Names of the parameters.
    names: Sequence[str]
    #: Bounds of all parameters in curves that bring none, by their names.
    limits: Mapping[str, tuple[float, float]]
    #: True if y are counts, so that the model must be positive.
    has_counts: bool
    threads: int | None


def lacks_starts(model: Any, p0: Any) -> bool:
    """Return True if a model that Rust evaluates alone has parameters without starts."""
    if not isinstance(model, CompiledModel):
        return False
    return p0 is None or (isinstance(p0, Mapping) and any(name not in p0 for name in model.parameters))


def complete_starts(model: CompiledModel, given: CurveData, wanted: Wanted) -> CurveData:
    """Return curves with guesses for some of the parameters' starts, inside their bounds.

    Raises
    ------
    InputError
        If the model is not the formula of a built-in one.
    """
    placed = place_model(model, given.x)
    # 1. Guess from the points that count.
    y = np.array(given.arrays["y"].reshape(given.x.curves, given.x.points), dtype=np.float64)
    y[np.broadcast_to(_find_points_to_leave_out(given), y.shape)] = np.nan
    guesses = np.ones((given.x.curves, len(model.parameters)))
    if np.isfinite(y).any():
        guesses = placed.model.guess(
            np.ascontiguousarray(placed.x).ravel(), y.ravel(), given.x.points, thread_count(wanted.threads)
        )
        guesses[np.isnan(guesses)] = 1.0  # of curves without data, which are refused later
    # 2. Move them inside their bounds.
    starts = np.array(np.broadcast_to(given.arrays["starts"], guesses.shape), order="C")
    for p, name in enumerate(model.parameters):
        lower: Any
        upper: Any
        lower, upper = wanted.limits.get(name, (-np.inf, np.inf))
        if "lower" in given.arrays:
            lower, upper = given.arrays["lower"][:, p], given.arrays["upper"][:, p]
        if name in wanted.names:
            starts[:, p] = _move_inside(guesses[:, p], lower, upper)
    # 3. Lift models of counts above 0.
    if wanted.has_counts:
        _lift(placed, given, wanted, starts, y)
    return given._replace(arrays={**given.arrays, "starts": starts})


def _find_points_to_leave_out(given: CurveData) -> Array:
    """Return which points are masked, or far less certain than most, of all curves or of each."""
    sigma = given.arrays.get("sigma")
    if "covariance" in given.arrays:
        sigma = np.sqrt(np.abs(given.arrays["covariance"][:, :: given.x.points + 1]))
    if sigma is None:
        return given.masked()
    return np.asarray(given.masked() | (sigma > LARGE_SIGMA * np.median(sigma, axis=-1, keepdims=True)))


def _move_inside(guesses: Array, lower: Any, upper: Any) -> Array:
    """Return guesses inside bounds: mirrored at the bound that they are beyond, as widths may be, or near it."""
    moved = np.where(guesses < lower, 2.0 * lower - guesses, np.where(guesses > upper, 2.0 * upper - guesses, guesses))
    with np.errstate(invalid="ignore"):
        margin = np.where(np.isfinite(lower) & np.isfinite(upper), MARGIN * (upper - lower), 0.0)
    is_inside = (lower < guesses) & (guesses < upper)
    return np.where(is_inside, guesses, np.clip(moved, lower + margin, upper - margin))


def _lift(placed: ModelAtPoints, given: CurveData, wanted: Wanted, starts: Array, y: Array) -> None:
    """Raise the offset, if the model has one that is guessed, where its values are not positive."""
    x = placed.x[0] if given.x.x_per_curve else placed.x
    slopes = placed.model.linearise(np.ascontiguousarray(x).ravel(), starts[0].copy())[1:]
    names = list(placed.model.parameters)
    offsets = [p for p, row in enumerate(slopes) if names[p] in wanted.names and (row == 1.0).all()]
    if not offsets:
        return
    values = _popfit.predict_curves(placed.model, given.for_rust(placed, starts), None, thread_count(wanted.threads))
    lowest = np.where(np.isnan(y), np.inf, values).min(axis=1)
    least = LEAST_COUNT * np.fmax(np.nanmax(np.where(np.isnan(y), 0.0, y), axis=1), 1.0)
    is_low = lowest < least
    starts[is_low, offsets[0]] += (least - lowest)[is_low]
