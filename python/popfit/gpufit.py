"""A drop-in replacement for ``pygpufit.gpufit``: ``import popfit.gpufit as gf``.

It needs no CUDA: fits run on the CPU, or on any GPU with `popfit.gpufit.device`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit._compiled import CompiledModel
from popfit._curve_data import prepare_curves
from popfit._rival import Difference
from popfit.curves import CurveFitter, Options
from popfit.formula import Formula, parameter_names
from popfit.spline import Spline

Array: TypeAlias = npt.NDArray[Any]
#: Parameters, states, χ², iterations and seconds.
Results: TypeAlias = tuple[Array, Array, Array, Array, float]

#: Fits that are made together: what they need beside data and results stays small.
CHUNK = 1 << 18
#: Linearisations that stand for one of Gpufit's iterations. popfit's first steps are shorter, which keeps fits that
#: start far away from running off; with as many of them as Gpufit has, a few fits of a thousand would not end in time.
LINEARISATIONS = 2
#: Default tolerance and number of iterations.
TOLERANCE, MAX_ITERATIONS = 1e-4, 25
#: Device of all fits of this module, as `CurveFitter` takes it.
device = "auto"


class ModelID:
    """Models by Gpufit's numbers."""

    GAUSS_1D = 0
    GAUSS_2D = 1
    GAUSS_2D_ELLIPTIC = 2
    GAUSS_2D_ROTATED = 3
    CAUCHY_2D_ELLIPTIC = 4
    LINEAR_1D = 5
    FLETCHER_POWELL = 6
    BROWN_DENNIS = 7
    SPLINE_1D = 8
    SPLINE_2D = 9
    SPLINE_3D = 10
    SPLINE_3D_MULTICHANNEL = 11
    SPLINE_3D_PHASE_MULTICHANNEL = 12


class EstimatorID:
    """Estimators by Gpufit's numbers: least squares, and maximum likelihood of counts."""

    LSE = 0
    MLE = 1


class ConstraintType:
    """Constraints of a parameter by Gpufit's numbers."""

    FREE = 0
    LOWER = 1
    UPPER = 2
    LOWER_UPPER = 3


class Status:
    """Status of a call."""

    Ok = 0
    Error = 1


#: popfit's names of Gpufit's models.
_BUILTINS = {
    ModelID.GAUSS_1D: "gauss1d",
    ModelID.GAUSS_2D: "gauss2d",
    ModelID.GAUSS_2D_ELLIPTIC: "gauss2d_elliptic",
    ModelID.GAUSS_2D_ROTATED: "gauss2d_rotated",
    ModelID.CAUCHY_2D_ELLIPTIC: "cauchy2d_elliptic",
    ModelID.LINEAR_1D: "linear1d",
    ModelID.FLETCHER_POWELL: "fletcher_powell_helix",
    ModelID.BROWN_DENNIS: "brown_dennis",
}
#: Numbers of dimensions of the splines.
_SPLINES = {ModelID.SPLINE_1D: 1, ModelID.SPLINE_2D: 2, ModelID.SPLINE_3D: 3}
#: Largest difference between given coefficients and those of a natural spline, in units of the largest value.
_SPLINE_TOLERANCE = 1e-4
#: Models whose x is `user_info`, if it is given; the others take the numbers of points.
_WITH_X = (ModelID.GAUSS_1D, ModelID.LINEAR_1D)
#: Gpufit's states for popfit's statuses; success is 0.
_OUT_OF_ITERATIONS = 1
_STATES = {"max_rounds": 1, "interrupted": 1, "singular": 2, "not_finite": 3, "stalled": 1, "bad_input": 5}

#: Differences from Gpufit.
DIFFERENCES = (
    Difference("hardware", "an NVIDIA card with CUDA", "the CPU, or any GPU; `cuda_available()` is True"),
    Difference("number of fits", "as many as the card's memory holds", "any; chunks of 2¹⁸"),
    Difference("`data`", "float32", "float32 or float64"),
    Difference("`model_id`", "a number", "a number, a `Formula`, its text, a `Spline` or a function of numpy"),
    Difference(
        "`user_info` of a formula or function",
        "",
        "its x: (points) or (fits, points); of several predictors (fits, predictors, points), and of formulas also "
        "(predictors, points)",
    ),
    Difference("iterations", "one linearisation", "two, in `max_number_iterations` as in `number_iterations`"),
    Difference("`states`", "0 to 4", "0 to 3; 5 where data or start cannot be fitted, with parameters of NaN"),
    Difference("splines beyond their table", "the last interval's polynomial", "a straight line"),
    Difference("splines of several channels", "`SPLINE_3D_MULTICHANNEL` and with phases", "NotImplementedError"),
)


def fit(
    data: Array,
    weights: Array | None,
    model_id: int | CompiledModel | str | Callable[..., Any],
    initial_parameters: Array,
    tolerance: float | None = None,
    max_number_iterations: int | None = None,
    parameters_to_fit: Array | None = None,
    estimator_id: int | None = None,
    user_info: Array | None = None,
) -> Results:
    """Fit a model to many data sets, as ``pygpufit.gpufit.fit`` does.

    Parameters
    ----------
    data : array, (fits, points)
        Data, float32 or float64 in C order.
    weights : array, (fits, points), or None
        1/σ² of the data.
    model_id : int, Formula, Spline, str or callable
        One of `ModelID`; or a formula, its text, a spline or a function of numpy, whose x is `user_info`.
    initial_parameters : array, (fits, parameters)
        Starts.
    tolerance : float, optional
        Relative change of χ² at which a fit has converged; 1e-4 unless given.
    max_number_iterations : int, optional
        Limit of iterations; 25 unless given.
    parameters_to_fit : array of int32, (parameters), optional
        0 for parameters that keep their starts.
    estimator_id : int, optional
        One of `EstimatorID`; least squares unless given.
    user_info : array, optional
        x of the one-dimensional models, (points) or (fits, points); by default 0, 1, …. Of splines the numbers of data
        points and of intervals along each axis, and the coefficients, as Gpuspline returns them.

    Returns
    -------
    parameters, states, chi_squares, number_iterations, execution_time
        (fits, parameters) and (fits); float32, int32, float32, int32, and seconds.

    Raises
    ------
    RuntimeError
        For arrays of a wrong shape, order or type, as in Gpufit.

    Examples
    --------
    >>> import numpy as np, popfit.gpufit as gf
    >>> x = np.arange(20, dtype=np.float32)
    >>> truth = np.float32([[4.0, 9.5, 2.0, 1.0]] * 1000)
    >>> data = np.repeat(4.0 * np.exp(-((x - 9.5) ** 2) / 8.0)[np.newaxis] + 1.0, 1000, axis=0).astype(np.float32)
    >>> parameters, states, *_ = gf.fit(data, None, gf.ModelID.GAUSS_1D, 0.9 * truth)
    >>> parameters[0].round(3), int((states == 0).sum())
    (array([4. , 9.5, 2. , 1. ], dtype=float32), 1000)
    """
    return fit_constrained(
        data,
        weights,
        model_id,
        initial_parameters,
        tolerance=tolerance,
        max_number_iterations=max_number_iterations,
        parameters_to_fit=parameters_to_fit,
        estimator_id=estimator_id,
        user_info=user_info,
    )


def fit_constrained(
    data: Array,
    weights: Array | None,
    model_id: int | CompiledModel | str | Callable[..., Any],
    initial_parameters: Array,
    constraints: Array | None = None,
    constraint_types: Array | None = None,
    tolerance: float | None = None,
    max_number_iterations: int | None = None,
    parameters_to_fit: Array | None = None,
    estimator_id: int | None = None,
    user_info: Array | None = None,
) -> Results:
    """Fit a model to many data sets within bounds, as ``pygpufit.gpufit.fit_constrained`` does.

    Parameters
    ----------
    constraints : array, (fits, 2·parameters), optional
        Lower and upper bound of each parameter of each fit.
    constraint_types : array of int32, (parameters), optional
        Which of these count: values of `ConstraintType`.

    Returns
    -------
    parameters, states, chi_squares, number_iterations, execution_time
        As `fit` returns them; its docstring has the other parameters.
    """
    estimator_id = EstimatorID.LSE if estimator_id is None else estimator_id
    _check_arrays(data, weights, initial_parameters, constraints)
    fits, points = data.shape
    count = initial_parameters.shape[1]
    _check_types(count, constraint_types, parameters_to_fit)
    if estimator_id not in (EstimatorID.LSE, EstimatorID.MLE):
        raise RuntimeError("Invalid estimator ID, use an attribute of EstimatorID")
    is_spline = isinstance(model_id, int | np.integer) and model_id in _SPLINES
    model = _spline(_SPLINES[int(model_id)], user_info) if is_spline else _model(model_id)  # type: ignore[arg-type]
    if not isinstance(model, CompiledModel):
        _check_count(model, count)
    if is_spline:
        x, is_own = _lattice(len(model.predictors), user_info, points), False  # type: ignore[union-attr]
    else:
        x, is_own = _points(model_id, model, user_info, fits, points)
    tolerance = TOLERANCE if tolerance is None else float(tolerance)
    if not tolerance >= 0.0:
        raise RuntimeError(f"tolerance is {tolerance}")
    fitter = CurveFitter(
        model,
        parameters=None if isinstance(model, CompiledModel) else tuple(f"p{k}" for k in range(count)),
        estimator="least_squares" if estimator_id == EstimatorID.LSE else "poisson",
        ftol=tolerance,
        max_rounds=LINEARISATIONS * max(1, MAX_ITERATIONS if max_number_iterations is None else max_number_iterations),
        device=device,
        fixed=_fixed(model, count, parameters_to_fit),
    )
    if len(fitter.parameters) != count:
        raise RuntimeError(
            f"dimension mismatch: the model has {len(fitter.parameters)} parameters, initial_parameters {count}"
        )
    begin = time.perf_counter()
    results = (
        np.empty((fits, count), np.float32),
        np.empty(fits, np.int32),
        np.empty(fits, np.float32),
        np.empty(fits, np.int32),
    )
    states = _states()
    for first in range(0, fits, CHUNK):
        rows = slice(first, min(first + CHUNK, fits))
        limits = None if constraints is None else _limits(constraints[rows], constraint_types)
        starts = initial_parameters[rows]
        if limits is not None:  # Gpufit moves starts to their bounds
            starts = np.clip(starts, *limits)
        sigma = None
        if weights is not None and estimator_id == EstimatorID.LSE:
            with np.errstate(divide="ignore", invalid="ignore"):
                sigma = 1.0 / np.sqrt(weights[rows])
        given = prepare_curves(
            fitter.parameters, x[rows] if is_own else x, data[rows], starts, sigma, None, limits, is_own
        )
        options = Options(covariance=False, exact=False)
        found = fitter.fit_data(given, options, {"progress": False, "timeout": None, "threads": None})
        ended = states[found.status.astype(np.int32) + 128]
        # for Gpufit a change of χ² below the tolerance is none where χ² is below 1
        ended[(ended == _OUT_OF_ITERATIONS) & (found.chi2 < tolerance)] = 0
        iterations = -(-found.rounds.astype(np.int32) // LINEARISATIONS)
        columns: tuple[Array, ...] = (found.parameters, ended, found.chi2, iterations)
        for result, column in zip(results, columns, strict=True):
            result[rows] = column
    return *results, time.perf_counter() - begin


def get_last_error() -> str:
    """Return the last error of CUDA: there is none."""
    return ""


def cuda_available() -> bool:
    """Return True: a device for fits is always there."""
    return True


def get_cuda_version() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the versions of CUDA's runtime and driver: zeros, since none is needed."""
    return (0, 0), (0, 0)


def _check_arrays(data: Array, weights: Array | None, initial_parameters: Array, constraints: Array | None) -> None:
    """Raise Gpufit's exceptions for arrays of a wrong order, shape or type."""
    given = {"data": data, "weights": weights, "initial_parameters": initial_parameters, "constraints": constraints}
    arrays = {name: array for name, array in given.items() if array is not None}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise RuntimeError(f"{name} is not an array of numpy")
        if not array.flags.c_contiguous:
            raise RuntimeError(f"Memory layout of {name} array mismatch.")
        if array.ndim != 2:
            raise RuntimeError(f"{name} is not two-dimensional")
    if weights is not None and data.shape != weights.shape:
        raise RuntimeError("dimension mismatch between data and weights")
    if initial_parameters.shape[0] != data.shape[0]:
        raise RuntimeError("dimension mismatch in number of fits between data and initial_parameters")
    if constraints is not None and constraints.shape != (data.shape[0], 2 * initial_parameters.shape[1]):
        raise RuntimeError("constraints array has invalid shape")
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64):
            raise RuntimeError(f"type of {name} is not np.float32")


def _check_types(count: int, constraint_types: Array | None, parameters_to_fit: Array | None) -> None:
    """Raise Gpufit's exceptions for wrong arrays of one integer for each parameter."""
    for name, array in (("constraint_types", constraint_types), ("parameters_to_fit", parameters_to_fit)):
        if array is None:
            continue
        if array.shape != (count,):
            raise RuntimeError(f"{name} should have length of number of parameters")
        if array.dtype != np.int32:
            raise RuntimeError(f"type of {name} is not np.int32")
    if constraint_types is not None and not np.isin(constraint_types, range(4)).all():
        raise RuntimeError("Invalid constraint type, use an attribute of ConstraintType")


def _check_count(function: Callable[..., Any], count: int) -> None:
    """Raise RuntimeError if a function of a known number of parameters has another one."""
    try:
        known = len(parameter_names(function))
    except (TypeError, ValueError):  # any number of parameters
        return
    if known != count:
        raise RuntimeError(f"dimension mismatch: the model has {known} parameters, initial_parameters {count}")


def _model(model_id: int | CompiledModel | str | Callable[..., Any]) -> CompiledModel | Callable[..., Any]:
    """Return the model of a number, a formula or a function."""
    if isinstance(model_id, str):
        return Formula(model_id)
    if isinstance(model_id, CompiledModel) or callable(model_id):
        return model_id
    if model_id in _BUILTINS:
        return Formula.builtin(_BUILTINS[model_id])
    names = [name for name, number in vars(ModelID).items() if number == model_id and not name.startswith("_")]
    if names:
        raise NotImplementedError(f"{names[0]}: popfit has no splines of several channels")
    raise RuntimeError("Invalid model ID, use an attribute of ModelID")


def _spline_header(axes: int, user_info: Array | None) -> tuple[list[int], list[int], Array]:
    """Return the numbers of data points and of intervals along each axis, and the coefficients.

    Gpufit's own function for one axis reads them without the number of data points, which its documentation has.
    """
    if user_info is None:
        raise RuntimeError("user_info is missing: a spline needs its coefficients")
    given = np.asarray(user_info)
    numbers = np.frombuffer(given.tobytes(), np.float32) if given.dtype.kind in "SV" else given.ravel()
    layouts = [(axes, 2 * axes)] + ([(0, 1)] if axes == 1 else [])
    for first, begin in layouts:
        counts = numbers[:begin]
        intervals = [int(count) for count in counts[first:] if count >= 1 and float(count).is_integer()]
        if len(intervals) == axes and numbers.size - begin == 4**axes * math.prod(intervals):
            return [int(count) for count in counts[:first]], intervals, numbers[begin:].astype(np.float64)
    raise RuntimeError(f"user_info has {numbers.size} values, which are no header and coefficients of a spline")


def _spline(axes: int, user_info: Array | None) -> Spline:
    """Return the natural spline of Gpuspline's coefficients, which its values at the knots determine."""
    _, intervals, numbers = _spline_header(axes, user_info)
    coefficients = numbers.reshape(*intervals, *(4,) * axes)
    values = _at_knots(coefficients, axes)
    model = Spline(values)
    scale = np.abs(values).max()
    # in the middle of each interval
    middles = np.meshgrid(*(np.arange(count) + 0.5 for count in intervals), indexing="ij")
    wanted = coefficients
    for _ in range(axes):
        wanted = wanted @ 0.5 ** np.arange(4)
    found = model(np.array([middle.ravel() for middle in middles]), 1.0, *(0.0,) * axes, 0.0)
    if not np.all(np.abs(found - wanted.ravel()) <= _SPLINE_TOLERANCE * scale):
        raise RuntimeError("user_info has coefficients that are not those of a natural cubic spline")
    return model


def _at_knots(coefficients: Array, axes: int) -> Array:
    """Return a spline's values at its knots from its coefficients, (intervals …, 4 …)."""
    if axes == 0:
        return coefficients
    # the order along the first axis has as many axes before it
    first = np.moveaxis(coefficients, axes, -1)
    beginnings, end = first[..., 0], first[-1:].sum(axis=-1)
    return np.stack([_at_knots(one, axes - 1) for one in np.concatenate([beginnings, end])])


def _lattice(axes: int, user_info: Array | None, points: int) -> Array:
    """Return the points 0, 1, … along each axis of a spline's data, of which the first runs fastest."""
    counts, _, _ = _spline_header(axes, user_info)
    counts = counts or [points]
    if math.prod(counts) != points:
        raise RuntimeError(f"user_info says {' × '.join(map(str, counts))} data points, data have {points}")
    grids = np.meshgrid(*(np.arange(count, dtype=np.float64) for count in reversed(counts)), indexing="ij")
    return np.array([grid.ravel() for grid in reversed(grids)])


def _points(
    model_id: Any, model: CompiledModel | Callable[..., Any], user_info: Array | None, fits: int, points: int
) -> tuple[Array, bool]:
    """Return the points of all fits, or of each, and whether it is the latter."""
    if isinstance(model_id, int | np.integer) and model_id not in _WITH_X:
        if not isinstance(model, CompiledModel) or len(model.predictors) == 1:
            return np.arange(points, dtype=np.float64), False
        width = math.isqrt(points)
        if width * width != points:
            raise RuntimeError(f"{points} points are no square image")
        return np.array([np.arange(points) % width, np.arange(points) // width], dtype=np.float64), False
    if user_info is None:
        return np.arange(points, dtype=np.float64), False
    x = np.asarray(user_info)
    if not isinstance(model, CompiledModel):  # how many predictors it takes is not known
        layouts = {(points,): False, (fits, points): True}
        is_own = layouts.get(x.shape, x.ndim == 3 and x.shape[0] == fits)
        if x.shape[-1:] != (points,) or (x.ndim == 2 and x.shape[0] != fits) or x.ndim > 3:
            raise RuntimeError(
                f"user_info has the shape {x.shape}; give ({points},), ({fits}, {points}), or ({fits}, predictors, "
                f"{points}) for several predictors"
            )
        return x, is_own
    if x.ndim > 1 and x.shape[-1] != points:
        raise RuntimeError(f"user_info has the shape {x.shape}, for {points} points and {fits} fits")
    if isinstance(model_id, int | np.integer) and x.dtype.kind in "SV":  # bytes of floats
        x = np.frombuffer(x.tobytes(), dtype=np.float32)
    predictors = len(model.predictors) if isinstance(model, CompiledModel) else 1
    if x.size == predictors * points:
        return x.reshape((points,) if predictors == 1 else (predictors, points)), False
    if x.size == fits * predictors * points:
        return x.reshape((fits, points) if predictors == 1 else (fits, predictors, points)), True
    raise RuntimeError(f"user_info has {x.size} values, for {points} points and {fits} fits")


def _fixed(model: CompiledModel | Callable[..., Any], count: int, parameters_to_fit: Array | None) -> list[str]:
    """Return the names of the parameters that keep their starts."""
    if parameters_to_fit is None:
        return []
    names = model.parameters if isinstance(model, CompiledModel) else tuple(f"p{k}" for k in range(count))
    return [name for name, is_fitted in zip(names, parameters_to_fit, strict=False) if not is_fitted]


def _limits(constraints: Array, types: Array | None) -> tuple[Array, Array]:
    """Return lower and upper bounds, (fits, parameters), infinite where a constraint does not count."""
    count = constraints.shape[1] // 2
    kinds = np.full(count, ConstraintType.FREE) if types is None else types
    pairs = constraints.reshape(len(constraints), count, 2).astype(np.float64)
    has_lower = (kinds == ConstraintType.LOWER) | (kinds == ConstraintType.LOWER_UPPER)
    has_upper = (kinds == ConstraintType.UPPER) | (kinds == ConstraintType.LOWER_UPPER)
    return np.where(has_lower, pairs[..., 0], -np.inf), np.where(has_upper, pairs[..., 1], np.inf)


def _states() -> Array:
    """Return Gpufit's states by popfit's codes, of which the first is -128."""
    from popfit import _popfit

    states = np.zeros(256, np.int32)
    for code, name in _popfit.status_names().items():
        states[code + 128] = _STATES.get(name, 0)
    return states


def __getattr__(name: str) -> Any:
    """Refuse what pygpufit has and popfit does not."""
    if name in ("fit_gpu", "fit_constrained_gpu"):
        raise NotImplementedError(f"{name}: copy arrays of cupy to the host, and call {name.removesuffix('_gpu')}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
