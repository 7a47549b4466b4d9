"""Models of curves for Rust: formulas, and functions that are traced or called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import warn_caller
from popfit._compiled import CompiledModel, predictor_rows
from popfit._errors import InputError
from popfit._tracing import NotTraceableError, Trace, distinct_names, trace
from popfit.formula import Formula

Array = npt.NDArray[Any]

#: Largest difference between a formula and its function before a fit, relative to the curve's largest value.
START_TOLERANCE = 1e-12
#: Largest such difference at the results of a fit.
RESULT_TOLERANCE = 1e-9
#: Curves whose results are compared.
CHECKED_RESULTS = 100
#: Points beside the start at which formula and function are compared.
JITTERED_POINTS = 3
#: Relative size of their distance from the start.
JITTER = 0.1


class Xdata(NamedTuple):
    """The x that a user's function gets."""

    #: The user's x: of all curves, or with the curves as its first axis.
    values: Any
    #: True if each curve has its own.
    x_per_curve: bool
    #: Numbers of curves and of points.
    curves: int
    points: int

    def of_curve(self, curve: int) -> Any:
        """Return the x of a curve."""
        return self.values[curve] if self.x_per_curve else self.values

    def joined(self) -> list[Any]:
        """Return the x of all curves as if they were one, (curves·points) or (predictors, curves·points)."""
        if not self.x_per_curve or self.values.ndim == 2:
            return [self.values.ravel() if self.x_per_curve else self.values]
        return [np.moveaxis(self.values, 1, 0).reshape(self.values.shape[1], -1)]


class ProblemArguments(Xdata):
    """Arguments that a user's function of residuals gets beside the parameters, of problems in place of curves.

    `values` is a tuple of arrays with the problems as their first axis.
    """

    def of_curve(self, curve: int) -> Any:
        """Return the arguments of a problem."""
        return tuple(array[curve] for array in self.values)

    def joined(self) -> list[Any]:
        """Return two ways to take the arguments of all problems at once, for residuals of the shape (problems, m).

        Arrays become (…, problems, m), if their last axis may be that of the points, or (…, problems, 1).
        """
        of_points = [np.moveaxis(array, 0, -2) for array in self.values]
        of_numbers = [np.moveaxis(array, 0, -1)[..., np.newaxis] for array in self.values]
        has_points = [array.shape[-1] == self.points > 1 for array in self.values]
        mixed = [one if has else other for one, other, has in zip(of_points, of_numbers, has_points, strict=True)]
        return [mixed, of_numbers] if any(has_points) else [of_numbers]


class ModelAtPoints(NamedTuple):
    """A model in Rust, and its predictors at the points of the curves."""

    model: _popfit.CurveModel
    #: (predictors, points), or (curves, predictors, points) if each curve has its own.
    x: Array
    #: The user's function, if there is one.
    function: Callable[..., Any] | None
    #: True if the function is a formula here.
    is_traced: bool
    #: True if the function is called once for many curves.
    broadcasts: bool = False


def place_model(compiled: CompiledModel, x: Xdata) -> ModelAtPoints:
    """Return a formula or spline at the points of curves.

    Raises
    ------
    InputError
        If x has another shape than the model's predictors at these points.
    """
    rows = np.asarray(x.values)
    shape: tuple[int, ...] = (len(compiled.predictors), x.points)
    if x.x_per_curve:
        rows = rows[:, np.newaxis] if rows.ndim == 2 else rows
        shape = (x.curves, *shape)
    else:
        rows = predictor_rows(rows, len(compiled.predictors))
    if rows.shape != shape:
        hint = "; give x_per_curve=True if each curve has points of its own" if rows.shape[0] == x.curves > 1 else ""
        raise InputError(
            f"x has the shape {np.shape(x.values)}, for {x.points} points and the predictors "
            f"{', '.join(compiled.predictors)}{hint}",
            argument="x",
        )
    return ModelAtPoints(compiled._model, rows, None, False)


def model_of_function(
    function: Callable[..., Any], names: Sequence[str], x: Xdata, starts: Array, *, warns_of_branches: bool = True
) -> ModelAtPoints:
    """Return a function of numpy as a formula, if it is one at the points of these curves.

    Parameters
    ----------
    function : callable
        Called with the x of a curve and one number per parameter.
    names : sequence of str
        Names of the parameters.
    x : Xdata
        The points.
    starts : array
        Parameters of each curve, (curves, P), or of all, (P).
    warns_of_branches : bool
        True to warn of a function with branches.

    Raises
    ------
    NotTraceableError
        If it is none, or if formula and function differ near the starts.
    """
    traced, columns = _trace_at_points(function, x, names, starts)
    found = _model_of_trace(traced, columns, function)
    if not all(agrees_near(found, x, k, _row(starts, k), START_TOLERANCE) for k in {0, x.curves // 2, x.curves - 1}):
        raise NotTraceableError("its values are not those of its formula")
    if traced.has_branches and warns_of_branches:
        warn_caller(_branches_of(traced))
    return found


def _model_of_trace(traced: Trace, columns: Array, function: Callable[..., Any]) -> ModelAtPoints:
    """Return a trace as a model in Rust."""
    try:
        model = Formula(traced.text, traced.predictors, traced.parameters)._model
    except InputError as error:  # such as a constant that overflows
        raise NotTraceableError(str(error.args[0]).partition("\n")[0]) from error
    return ModelAtPoints(model, columns, function, True)


def _row(starts: Array, curve: int) -> Array:
    """Return the start of a curve, of starts (curves, P) or (P)."""
    return np.asarray(starts[curve] if starts.ndim == 2 else starts)


def _trace_at_points(
    function: Callable[..., Any], x: Xdata, names: Sequence[str], starts: Array
) -> tuple[Trace, Array]:
    """Return a function as a formula, and its predictors at the points: (predictors, points), or of each curve.

    The points of all curves are traced as if they were those of one, if the function treats each by itself; else curve
    by curve.
    """
    if not x.x_per_curve:
        traced = trace(function, x.values, names, x.points)
        return traced, np.array(traced.columns)
    shape = (x.curves, x.points) if isinstance(x, ProblemArguments) else x.points * x.curves
    for joined in x.joined():
        try:
            traced = trace(function, joined, names, shape)
            columns = np.ascontiguousarray(np.moveaxis(np.array(traced.columns).reshape(-1, x.curves, x.points), 0, 1))
            if all(_has_same_trace(function, x, k, names, starts, traced, columns) for k in _telling_curves(x)):
                return traced, columns
        except NotTraceableError:
            pass  # of each curve it may be a formula
    each: list[Trace] = []
    for k in range(x.curves):
        each.append(trace(function, x.of_curve(k), names, x.points))
        if each[k].text != each[0].text:
            raise NotTraceableError("it is another formula for other points")
    return each[0], np.array([one.columns for one in each])


def _has_same_trace(
    function: Callable[..., Any],
    x: Xdata,
    curve: int,
    names: Sequence[str],
    starts: Array,
    traced: Trace,
    columns: Array,
) -> bool:
    """Return True if a curve's points alone are traced to this formula and these predictors.

    Arguments of a problem may be numbers, which become constants where it is traced alone: its values are compared.
    """
    if isinstance(x, ProblemArguments):
        found = _model_of_trace(traced, columns, function)
        return agrees_near(found, x, curve, _row(starts, curve), START_TOLERANCE)
    own = trace(function, x.of_curve(curve), names, x.points)
    return own.text == traced.text and np.array_equal(np.array(own.columns), columns[curve], equal_nan=True)


def _telling_curves(x: Xdata) -> list[int]:
    """Return the curves that tell whether a function takes points together, as ``x.min()``, ``x[0]`` and ``x.mean()``.

    If any curve has another smallest, largest, first, last or mean x than all together, one of these has.
    """
    extremes: set[int] = set()
    for array in x.values if isinstance(x, ProblemArguments) else (x.values,):
        if array.dtype.kind in "biuf":
            points = array.reshape(x.curves, -1)
            numbers = (points.min(axis=1), points.max(axis=1), points[:, 0], points[:, -1], points.mean(axis=1))
            extremes |= {int(find(number)) for number in numbers for find in (np.argmin, np.argmax)}
    return sorted(extremes | {0, x.curves // 2, x.curves - 1})


def _branches_of(traced: Trace) -> str:
    """Return the warning of a function with branches."""
    return (
        "the function branches on its parameters, and its derivatives may jump where they change sides; "
        f"it is fitted as {traced.text}"
    )


@functools.cache
def _jitter(parameters: int) -> Array:
    """Return the relative steps from a start to the points beside it, (points, P)."""
    return np.random.default_rng(0).uniform(-JITTER, JITTER, (JITTERED_POINTS, parameters))


def agrees(found: ModelAtPoints, x: Xdata, curve: int, parameters: Array, tolerance: float) -> bool:
    """Return True if formula and function have the same values on a curve."""
    sizes, differences = _compare(found, x, curve, parameters[np.newaxis])
    return bool(differences[0] <= tolerance * sizes[0])


def agrees_near(found: ModelAtPoints, x: Xdata, curve: int, parameters: Array, tolerance: float) -> bool:
    """Return True if formula and function have the same values on a curve, at parameters and at three points nearby.

    Residuals may vanish at the parameters themselves. Differences are therefore relative to the largest value there, or
    to the smallest of the largest values nearby.
    """
    if not np.isfinite(parameters).all():
        return True
    nearby = parameters + _jitter(parameters.size) * np.where(parameters == 0.0, 1.0, parameters)
    sizes, differences = _compare(found, x, curve, np.vstack([parameters, nearby]))
    return bool(np.all(differences <= tolerance * np.maximum(sizes, sizes[1:].min())))


def _compare(found: ModelAtPoints, x: Xdata, curve: int, parameters: Array) -> tuple[Array, Array]:
    """Return the function's largest values on a curve, (n), and the largest differences of the formula from it, (n).

    The parameters are (n, P). Differences are infinite where the function has another shape, or is finite elsewhere.
    """
    assert found.function is not None
    points = x.of_curve(curve)
    with np.errstate(all="ignore"):
        results = [np.asarray(found.function(points, *row), dtype=np.float64) for row in parameters]
    if any(one.ndim and one.size != x.points for one in results):
        return np.zeros(len(parameters)), np.full(len(parameters), np.inf)
    columns = (found.x[curve] if x.x_per_curve else found.x).ravel()
    wanted = np.array([one.ravel() if one.ndim else np.full(x.points, one) for one in results])
    values = np.array([found.model.values(columns, row) for row in np.ascontiguousarray(parameters, dtype=np.float64)])
    finite = np.isfinite(wanted)
    if finite.all():
        differences = np.abs(values - wanted).max(axis=1)
        return np.abs(wanted).max(axis=1), np.where(np.isnan(differences), np.inf, differences)
    is_elsewhere = (finite != np.isfinite(values)).any(axis=1)
    wanted, values = np.where(finite, wanted, 0.0), np.where(finite, values, 0.0)
    return np.abs(wanted).max(axis=1), np.where(is_elsewhere, np.inf, np.abs(values - wanted).max(axis=1))


def agrees_at_results(found: ModelAtPoints, x: Xdata, parameters: Array, *, nearby: bool = False) -> bool:
    """Return True if formula and function have the same values at the results of up to a hundred curves.

    With `nearby` differences may be relative to values near the results, as residuals need it.
    """
    return all(
        agrees(found, x, curve, parameters[curve], RESULT_TOLERANCE)
        or (nearby and agrees_near(found, x, curve, parameters[curve], RESULT_TOLERANCE))
        for curve in _checked_curves(x.curves)
        if np.isfinite(parameters[curve]).all()
    )


def _checked_curves(curves: int) -> list[int]:
    """Return the first, the last and up to 98 curves between them."""
    gaps = max(min(curves, CHECKED_RESULTS) - 1, 1)
    return sorted({(curves - 1) * k // gaps for k in range(gaps + 1)})


def model_of_calls(
    function: Callable[..., Any],
    names: Sequence[str],
    x: Xdata,
    starts: Array,
    derivatives: Callable[..., Any] | None = None,
    *,
    singly: bool = False,
) -> ModelAtPoints:
    """Return a model that calls a function of Python: once for many curves if it broadcasts, else for each evaluation.

    Parameters
    ----------
    function, names, x, starts
        As `model_of_function` takes them.
    singly : bool
        True to call it for each evaluation in any case.
    derivatives : callable, optional
        Derivatives by the parameters, (points, P), of the function's first argument and parameters.
    """
    if x.x_per_curve:
        shape = x.values.shape[1:]
        rows = np.ascontiguousarray(x.values, dtype=np.float64).reshape(x.curves, -1, x.points)

        def given(flat: Array) -> Any:
            return flat.reshape(shape)
    else:
        # numbers of the points stand for an x that may be anything
        rows = np.arange(x.points, dtype=np.float64)[np.newaxis]

        def given(flat: Array) -> Any:
            return x.values

    def values(flat: Array, parameters: Array) -> Array:
        returned = np.asarray(function(given(flat), *parameters), dtype=np.float64)
        returned = returned if returned.ndim else np.full(x.points, returned)
        if returned.size != x.points:
            raise InputError(f"the function returns the shape {returned.shape}, for {x.points} points", argument="f")
        return np.ascontiguousarray(returned.ravel())

    def slopes(flat: Array, parameters: Array) -> Array:
        assert derivatives is not None
        rows_of_points = np.asarray(derivatives(given(flat), *parameters), dtype=np.float64)
        if rows_of_points.shape != (x.points, len(parameters)):
            raise InputError(
                f"jac returns the shape {rows_of_points.shape}, not {(x.points, len(parameters))}", argument="jac"
            )
        return np.ascontiguousarray(rows_of_points.T).ravel()

    def one_by_one(flat: Array, parameters: Array) -> Array:
        return np.concatenate([values(flat, row) for row in parameters])

    def at_once(_: Array, parameters: Array) -> Array:
        returned = np.asarray(function(x.values, *parameters.T[:, :, np.newaxis]), dtype=np.float64)
        shape = (len(parameters), x.points)
        return (returned if returned.shape == shape else np.broadcast_to(returned, shape)).ravel()

    may_broadcast = not (singly or x.x_per_curve or x.curves < 2 or derivatives is not None)
    broadcasts = may_broadcast and _broadcasts(function, x, starts)
    predictors = distinct_names([f"x{k}" for k in range(rows.shape[-2])], names)
    model = _popfit.CurveModel.function(
        predictors, list(names), values, slopes if derivatives else None, at_once if broadcasts else one_by_one
    )
    return ModelAtPoints(model, rows, function, False, broadcasts)


def check_size(function: Callable[..., Any], x: Xdata, starts: Array) -> None:
    """Raise `InputError` if a function returns another number of values than the curves have points."""
    if x.curves == 0:
        return
    try:
        with np.errstate(all="ignore"):
            returned = np.asarray(function(x.of_curve(0), *np.atleast_2d(starts)[0]))
    except Exception:  # the fit of this curve fails, and says why
        return
    if returned.ndim and returned.size != x.points:
        raise InputError(
            f"the function returns the shape {returned.shape}, for {x.points} points of y; give x_per_curve=True if "
            "each curve has points of its own",
            argument="x",
        )


def rows_are_single_calls(found: ModelAtPoints, x: Xdata, parameters: Array) -> bool:
    """Return True if a function that is called for many curves gives each, at up to a hundred results, its own row."""
    assert found.function is not None
    results = parameters[_checked_curves(x.curves)]
    return _rows_agree(found.function, x, results[np.isfinite(results).all(axis=1)])


def _broadcasts(function: Callable[..., Any], x: Xdata, starts: Array) -> bool:
    """Return True if a function of parameters of the shape (n, 1) returns n rows, those of single calls."""
    start = np.atleast_2d(starts)[0]
    steps = _jitter(start.size)
    return _rows_agree(function, x, np.vstack([start, start + steps * np.where(start == 0.0, 1.0, start)]))


def _rows_agree(function: Callable[..., Any], x: Xdata, parameters: Array) -> bool:
    """Return True if one call with parameters (n, P) has the rows of n calls."""
    try:
        with np.errstate(all="ignore"):
            rows = np.asarray(function(x.values, *parameters.T[:, :, np.newaxis]), dtype=np.float64)
            singly = np.array([np.broadcast_to(function(x.values, *one), (x.points,)) for one in parameters])
    except Exception:  # the user's function may do anything with arrays that it does not expect
        return False
    return rows.shape == singly.shape and np.allclose(rows, singly, rtol=START_TOLERANCE, atol=0.0, equal_nan=True)
