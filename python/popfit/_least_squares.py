"""`least_squares` as scipy has it, for one problem or any number of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit._arrays import split_mask, warn_caller
from popfit._checks import check_real_array, is_number
from popfit._curve_data import prepare_curves
from popfit._curve_fit import LOSSES, MAX_CALLS, ROUNDS_PER_CALL
from popfit._curve_models import ProblemArguments, Xdata, agrees_at_results, model_of_function
from popfit._errors import InputError
from popfit._rival import rival_function
from popfit._tracing import NotTraceableError, Traced
from popfit.curves import CurveFits, CurveFitter, Options

Array = npt.NDArray[Any]

#: Arguments that popfit has no answer to.
DELEGATED = ("callback", "jac_sparsity")
#: Arguments that steer scipy's steps and differences; popfit chooses its own steps, and has derivatives.
STEERING = ("diff_step", "tr_options", "tr_solver", "verbose", "workers", "x_scale")
#: scipy's tolerances. Unless the user changes them the solver has its own, or those of many problems, as tight.
TOLERANCE = 1e-8
TOLERANCES_OF_MANY = {"ftol": 1e-15, "xtol": 1e-12, "gtol": 1e-12}
#: Parameters that a fit may have.
MAX_PARAMETERS = 32
#: scipy's messages by status.
MESSAGES = {
    0: "The maximum number of function evaluations is exceeded.",
    1: "`gtol` termination condition is satisfied.",
    2: "`ftol` termination condition is satisfied.",
    3: "`xtol` termination condition is satisfied.",
    4: "Both `ftol` and `xtol` termination conditions are satisfied.",
}
#: What a function gets of many problems.
ARGUMENTS_OF_MANY = (
    "Of many problems, fun gets a row of each array with two or more dimensions and a row for each problem; all other "
    "arguments are shared. Numbers of each problem are an array (problems, 1)."
)
#: Losses under which far points hardly count, and costs have several minima.
REDESCENDING = ("cauchy", "arctan")
#: Status of a problem that scipy refuses.
REFUSED = -1
#: Statuses of fits that have come to no end.
UNFINISHED = (-3, -5)


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = "2-point",
    bounds: Any = (-np.inf, np.inf),
    method: str = "trf",
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: str | None = None,
    tr_options: Any = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Any = None,
    workers: Any = None,
) -> Any:
    """Solve a least-squares problem, as scipy's ``least_squares`` does, or any number of problems at once.

    With `x0` of the shape (P) the call, the result and the exceptions are scipy's. With (N, P) every row is the start
    of a problem of its own, and all are solved together.

    Parameters
    ----------
    fun : callable
        The residuals, ``fun(x, *args, **kwargs)``, (m) for x of (P). A function of numpy becomes a formula with exact
        derivatives. Where this is impossible scipy solves the problems, one by one; a warning says why.
    x0 : array, (P) or (N, P)
        Starts.
    jac : {"2-point", "3-point", "cs"} or callable
        Derivatives for scipy, where the function is no formula.
    bounds : pair of arrays or ``scipy.optimize.Bounds``
        Lower and upper bounds, numbers, (P) or (N, P).
    method : {"trf", "dogbox", "lm"}
        Chooses scipy's checks; the solver is popfit's.
    ftol, xtol, gtol : float or None
        Tolerances. Unless given they are those of popfit, which are tighter than scipy's.
    loss, f_scale : str or callable, float
        Robust losses, as in scipy.
    max_nfev : int, optional
        Largest number of calls of the function, for each of which popfit makes up to four linearisations.
    x_scale, diff_step, tr_solver, tr_options, verbose, workers : optional
        Steer scipy, and have no effect where popfit solves the problems, which a warning says.
    jac_sparsity, callback : optional
        Leave the problems to scipy.
    args, kwargs : tuple and dict, optional
        More arguments of `fun`. For `x0` of the shape (N, P) an array of numpy with two or more dimensions, the first
        of which has N elements, holds the arguments of each problem: `fun` gets a row of it. Numbers of each problem
        are an array (N, 1). All other arguments are shared: arrays of one dimension always are, whatever their
        size. Residuals of points that masked arrays mask are 0.

    Returns
    -------
    OptimizeResult
        ``x`` (P), ``cost``, ``fun`` (m), ``jac`` (m, P), ``grad`` (P), ``optimality``, ``active_mask`` (P), ``nfev``,
        ``njev``, ``status``, ``message``, ``success``, as in scipy; of N problems each with the problems as first
        axis, and ``message`` a list. A problem that cannot be solved is a row with a status below 0.

    Raises
    ------
    ValueError, TypeError
        For arguments that scipy refuses, too; `InputError` is a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from popfit.scipy import least_squares
    >>> t = np.linspace(0.0, 4.0, 40)
    >>> y = 3.0 * np.exp(-np.outer([0.5, 1.0, 2.0], t))
    >>> solved = least_squares(lambda x, y: x[0] * np.exp(-x[1] * t) - y, np.ones((3, 2)), args=(y,))
    >>> solved.x.round(3)
    array([[3. , 0.5],
           [3. , 1. ],
           [3. , 2. ]])
    """
    request = _Request(**locals())
    return _solve_many(request) if np.ndim(x0) > 1 else _solve_one(request)


#: Defaults of the arguments.
_DEFAULTS = {name: one.default for name, one in inspect.signature(least_squares).parameters.items()}


@dataclasses.dataclass
class _Request:
    """What is to be solved, as the user gives it; scipy's arguments."""

    fun: Any
    x0: Any
    jac: Any
    bounds: Any
    method: str
    ftol: float | None
    xtol: float | None
    gtol: float | None
    x_scale: Any
    loss: Any
    f_scale: Any
    diff_step: Any
    tr_solver: Any
    tr_options: Any
    jac_sparsity: Any
    max_nfev: Any
    verbose: Any
    args: Any
    kwargs: Any
    callback: Any
    workers: Any

    def changed(self, names: Sequence[str]) -> dict[str, Any]:
        """Return those of several arguments that do not have their default, which an older scipy may not know."""
        values = {name: getattr(self, name) for name in names}
        return {
            name: value
            for name, value in values.items()
            if not (isinstance(value, str | float | int | None) and value == _DEFAULTS[name])
        }

    def settings(self) -> dict[str, Any]:
        """Return the arguments for scipy beside the function, its start, bounds and arguments."""
        others = ("fun", "x0", "jac", "bounds", "args", "kwargs")
        return self.changed([field.name for field in dataclasses.fields(self) if field.name not in others])

    def missing_answer(self) -> str | None:
        """Return the argument that popfit has no answer to, if there is one."""
        delegated = self.changed(DELEGATED)
        if delegated:
            return next(f"{name}={value!r}" for name, value in delegated.items())
        if callable(self.loss):
            return "loss=a function"
        return None if is_number(self.f_scale) and self.f_scale > 0 else f"f_scale={self.f_scale!r}"

    def check(self, fun: Callable[..., Any], x0: Array, jac: Any, bounds: Any) -> Any:
        """Return scipy's result at the start, by one call of the function, after all of its checks."""
        settings = {**self.settings(), "max_nfev": 1}
        if self.max_nfev is not None and self.max_nfev <= 0:
            settings["max_nfev"] = self.max_nfev
        silent = ("verbose", "workers") if self.verbose in (0, 1, 2) else ("workers",)
        settings = {name: value for name, value in settings.items() if name not in silent}
        return _scipy().least_squares(fun, x0, jac, bounds, **settings)

    def fitter(self, residuals: Callable[..., Any], parameters: int, problems: int) -> CurveFitter:
        """Return the fitter of these settings."""
        settings: dict[str, Any] = {}
        for name, tolerance in TOLERANCES_OF_MANY.items():
            own = None if problems == 1 else tolerance
            settings[name] = own if getattr(self, name) == TOLERANCE else getattr(self, name) or 0.0
        if self.max_nfev is not None:
            settings["max_rounds"] = ROUNDS_PER_CALL * min(int(self.max_nfev), MAX_CALLS)
        if self.loss != "linear":
            settings |= {"estimator": (LOSSES[self.loss], float(self.f_scale)), "sandwich_errors": False}
        return CurveFitter(residuals, parameters=[f"p{k + 1}" for k in range(parameters)], **settings)

    def limits(self, problems: int, parameters: int) -> tuple[Array, Array]:
        """Return lower and upper bounds, (problems, P)."""
        is_of_scipy = hasattr(self.bounds, "lb") and hasattr(self.bounds, "ub")
        bounds = (self.bounds.lb, self.bounds.ub) if is_of_scipy else self.bounds
        names = [f"p{k + 1}" for k in range(parameters)]
        start = np.zeros(parameters)
        arrays = prepare_curves(names, None, np.zeros((problems, 1)), start, None, None, bounds, False).arrays
        return arrays["lower"], arrays["upper"]


class _Residuals:
    """A user's function, as one of the arguments with a row for each problem and of one number for each parameter.

    Parameters
    ----------
    request : _Request
        What is to be solved.
    problems : int, optional
        Number of problems; None if there is one, whose arguments have no axis of problems.
    """

    def __init__(self, request: _Request, problems: int | None) -> None:
        self.fun = request.fun
        self._names = tuple(request.kwargs or {})
        labels = [f"args[{k}]" for k in range(len(request.args))] + [f"kwargs[{name!r}]" for name in self._names]
        given = [split_mask(value) for value in (*request.args, *(request.kwargs or {}).values())]
        self._values = [_as_array(value) for value, _ in given]
        self._own = [
            k
            for k, value in enumerate(self._values)
            if problems is not None and isinstance(value, np.ndarray) and value.ndim > 1 and len(value) == problems
        ]
        #: Masks of the arguments by their names: with a row for each problem, or shared.
        self.masks: dict[str, Array] = {}
        for k, (_, mask) in enumerate(given):
            if mask is not None and mask.any():
                axes = tuple(range(int(k in self._own), mask.ndim - 1))
                self.masks[labels[k]] = np.asarray(mask.any(axis=axes))

    def rows(self) -> tuple[Array, ...]:
        """Return the arrays with a row for each problem; the last one is the mask if one of them has a mask."""
        masks = [mask for mask in self.masks.values() if mask.ndim > 1]
        return (*(np.asarray(self._values[k]) for k in self._own), *masks)

    def arguments(self, rows: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the function's arguments beside the parameters, for the rows of a problem."""
        values = list(self._values)
        for k, row in zip(self._own, rows, strict=False):
            values[k] = row
        count = len(values) - len(self._names)
        return values[:count], dict(zip(self._names, values[count:], strict=True))

    def __call__(self, rows: Sequence[Any], *parameters: Any) -> Any:
        """Return the residuals; those of masked points are 0."""
        x = np.array(parameters, dtype=object if any(isinstance(one, Traced) for one in parameters) else None)
        args, kwargs = self.arguments(rows)
        values = self.fun(x, *args, **kwargs)
        own = iter(rows[len(self._own) :])
        for label, shared in self.masks.items():
            mask = next(own) if shared.ndim > 1 else shared
            if isinstance(values, np.ndarray) and shared.shape[-1] not in (1, values.shape[-1]):
                raise InputError(
                    f"{label}: a mask of the shape {shared.shape} for {values.shape[-1]} residuals", argument=label
                )
            values = np.where(mask, 0.0, values)
        return values

    def mask(self, x: Xdata) -> Array | None:
        """Return the points that do not count, (m) or (problems, m), or None if all do."""
        if not self.masks:
            return None
        mask = functools.reduce(np.logical_or, self.masks.values())
        return np.broadcast_to(mask, (x.curves, x.points) if mask.ndim > 1 else (x.points,))

    def of_x(self, rows: Sequence[Any]) -> Callable[..., Any]:
        """Return the residuals of a problem as a function of an array."""
        return lambda x, *_, **__: self(rows, *x)


def _as_array(value: Any) -> Any:
    """Return rows of numbers, such as lists of lists or a table of pandas, as an array of numpy; others as they are."""
    if isinstance(value, np.ndarray) or not (isinstance(value, list | tuple) or hasattr(value, "__array__")):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return value
    return array if array.ndim > 1 and array.dtype.kind in "biuf" else value


class _Problems(NamedTuple):
    """Problems to be solved: one or many."""

    request: _Request
    residuals: _Residuals
    #: Arguments of each problem.
    x: Xdata
    #: Starts and bounds, (N, P).
    starts: Array
    lower: Array
    upper: Array


def _scipy() -> Any:
    """Return scipy's package of optimizers, whose checks and results these are."""
    try:
        return importlib.import_module("scipy.optimize")
    except ImportError as error:
        raise NotImplementedError(f"least_squares needs scipy, which cannot be imported: {error}") from error


def _solve_one(request: _Request) -> Any:
    """Solve one problem."""
    residuals = _Residuals(request, None)
    reason = request.missing_answer()
    if reason is not None:
        return _call_scipy(request, residuals, (), request.x0, request.bounds, _rival(reason))
    # 1. All of scipy's checks, which end with its result at the start.
    args, kwargs = residuals.arguments(())
    jac = (lambda x: request.jac(x, *args, **kwargs)) if callable(request.jac) else request.jac
    begun = request.check(residuals.of_x(()), request.x0, jac, request.bounds)
    if request.max_nfev == 1 and request.method != "lm":
        return begun
    x0 = np.atleast_1d(request.x0).astype(np.float64)
    if begun.fun.size < x0.size:
        reason = "fewer residuals than parameters"
    elif np.iscomplexobj(begun.fun):
        reason = "complex residuals"
    elif not isinstance(begun.jac, np.ndarray):
        reason = "jac returns no dense array"
    if reason is not None:
        return _call_scipy(request, residuals, (), request.x0, request.bounds, _rival(reason))
    # 2. The fit.
    x = Xdata((), False, 1, begun.fun.size)
    fields = _solve(_Problems(request, residuals, x, x0[np.newaxis], *request.limits(1, x0.size)))
    if isinstance(fields, str):
        return _call_scipy(request, residuals, (), request.x0, request.bounds, _rival(fields))
    # 3. The answer, with the residuals that the function itself returns.
    one = {
        name: values[0].item() if isinstance(values[0], np.integer | np.bool_) else values[0]
        for name, values in fields.items()
    }
    one["fun"] = np.atleast_1d(np.asarray(residuals((), *fields["x"][0]), dtype=np.float64))
    if request.method == "lm" and not callable(request.jac):
        one["njev"] = None
    return _scipy().OptimizeResult(one)


def _solve_many(request: _Request) -> Any:
    """Solve many problems."""
    # 1. The arrays.
    x0, mask = split_mask(request.x0)
    x0 = np.asarray(check_real_array("x0", "x0", x0), dtype=np.float64)
    if not is_number(request.f_scale):
        raise InputError(f"f_scale: {request.f_scale!r}; give a number", argument="f_scale")
    if x0.ndim != 2 or x0.shape[1] == 0:
        raise InputError(f"x0 has the shape {x0.shape}; give (P) or (problems, P)", argument="x0")
    if mask is not None and mask.any():
        raise InputError("x0: values are masked; give a start of each parameter", argument="x0")
    problems, parameters = x0.shape
    lower, upper = request.limits(problems, parameters)
    residuals = _Residuals(request, problems)
    rows = residuals.rows()
    first = _call_first(residuals, [row[0] for row in rows], x0[0]) if problems else np.zeros(0)
    points = first.size
    x = ProblemArguments(rows, True, problems, points) if rows else Xdata((), False, problems, points)
    given = _Problems(request, residuals, x, x0, lower, upper)
    # 2. scipy's checks of the settings.
    reason = request.missing_answer()
    if reason is None:
        jac = "2-point" if callable(request.jac) else request.jac
        limit = 1.0 if np.isfinite([lower, upper]).any() else np.inf
        size = points if problems else parameters
        request.check(lambda _: np.zeros(size), np.zeros(parameters), jac, (-limit, limit))
    # 3. The fits.
    if reason is None and points < parameters:
        reason = "fewer residuals than parameters"
    fields = _empty_fields(0, points, parameters) if problems == 0 else reason
    if fields is None:
        fields = _solve(given)
    if isinstance(fields, str):
        fields = _loop_scipy(given, range(problems), _rival(fields))
    return _scipy().OptimizeResult(fields)


def _call_first(residuals: _Residuals, rows: Sequence[Any], x0: Array) -> Array:
    """Return the residuals of the first problem at its start, which say how many there are.

    Raises
    ------
    InputError
        If they have two dimensions, or are complex.
    """
    try:
        with np.errstate(all="ignore"):
            first = np.atleast_1d(np.asarray(residuals(rows, *x0)))
    except Exception as error:
        error.add_note(ARGUMENTS_OF_MANY)
        raise
    if first.ndim != 1:
        raise InputError(
            f"fun returns the shape {first.shape}; give residuals of one dimension. {ARGUMENTS_OF_MANY}", argument="fun"
        )
    if np.iscomplexobj(first):
        raise InputError("fun returns complex numbers; give real and imaginary parts", argument="fun")
    return first


def _rival(reason: str) -> Any:
    """Return scipy's function, with a warning that says why it is called."""
    return rival_function("scipy.optimize", "least_squares", reason)


def _call_scipy(request: _Request, residuals: _Residuals, rows: Any, x0: Any, bounds: Any, solve: Any) -> Any:
    """Return scipy's result of one problem."""
    args, kwargs = residuals.arguments(rows)
    fun, jac = request.fun, request.jac
    if residuals.masks:
        fun = residuals.of_x(rows)
        if callable(jac):
            warn_caller("jac: no effect where arguments are masked")
            jac = "2-point"
    return solve(fun, x0, jac, bounds, args=tuple(args), kwargs=kwargs, **request.settings())


def _loop_scipy(given: _Problems, rows: Sequence[int], solve: Any) -> dict[str, Any]:
    """Return the fields of scipy's results of some problems, which it solves one by one."""
    points, parameters = given.x.points, given.starts.shape[1]
    fields = _empty_fields(len(rows), points, parameters)
    for k, row in enumerate(rows):
        bounds = given.lower[row], given.upper[row]
        try:
            one = _call_scipy(given.request, given.residuals, given.x.of_curve(row), given.starts[row], bounds, solve)
        except (ValueError, ArithmeticError) as error:
            fields["message"][k] = str(error)
            continue
        if one.fun.size != points:
            raise InputError(
                f"fun returns {one.fun.size} residuals for problem {row}, and {points} for problem 0", argument="fun"
            )
        one.jac = one.jac.toarray() if hasattr(one.jac, "toarray") else one.jac @ np.eye(parameters)
        one.njev = one.njev or 0
        _replace_rows(fields, [k], {name: [one[name]] for name in fields}, [0])
    return fields


def _replace_rows(fields: dict[str, Any], rows: Sequence[int], others: dict[str, Any], rows_of_others: Any) -> None:
    """Replace rows of fields by rows of others."""
    for name, values in fields.items():
        for row, other in zip(rows, rows_of_others, strict=True):
            values[row] = others[name][other]


def _empty_fields(problems: int, points: int, parameters: int) -> dict[str, Any]:
    """Return the fields of the results of problems that are not solved."""
    of_parameters, of_residuals = (problems, parameters), (problems, points)
    return {
        "x": np.full(of_parameters, np.nan),
        "cost": np.full(problems, np.nan),
        "fun": np.full(of_residuals, np.nan),
        "jac": np.full((*of_residuals, parameters), np.nan),
        "grad": np.full(of_parameters, np.nan),
        "optimality": np.full(problems, np.nan),
        "active_mask": np.zeros(of_parameters, dtype=int),
        "nfev": np.zeros(problems, dtype=int),
        "njev": np.zeros(problems, dtype=int),
        "status": np.full(problems, REFUSED),
        "message": [""] * problems,
        "success": np.zeros(problems, dtype=bool),
    }


def _solve(given: _Problems) -> dict[str, Any] | str:
    """Return the fields of the results of problems, or why popfit has none."""
    request, residuals, x, starts, lower, upper = given
    # 1. The function as a formula.
    if starts.shape[1] > MAX_PARAMETERS:
        return f"more than {MAX_PARAMETERS} parameters"
    fitter = request.fitter(residuals, starts.shape[1], x.curves)
    bounds = (lower, upper) if np.isfinite([lower, upper]).any() else None
    y, mask = np.zeros((x.curves, x.points)), residuals.mask(x)
    curves = prepare_curves(fitter.parameters, None, y, starts, None, mask, bounds, False)._replace(x=x)
    try:
        model = model_of_function(residuals, fitter.parameters, x, starts)
    except NotTraceableError as error:
        return f"the function is no formula: {error}"
    # 2. The fits.
    options = Options(covariance=False, exact=x.curves == 1)
    watch = {"progress": False, "timeout": None, "threads": None}
    fits = fitter.run(model, curves, options, watch)
    if not agrees_at_results(model, x, fits.parameters, nearby=True):
        return "the function is no formula: at some results its values are not those of its formula"
    fields = _complete(given, fits)
    steering = request.changed(STEERING)
    if steering:
        warn_caller(f"{', '.join(steering)}: no effect; popfit chooses its own steps")
    # 3. A second start from the fits under a loss of fewer minima: the lower cost counts.
    if request.loss in REDESCENDING and not request.max_nfev:
        guide = dataclasses.replace(request, loss="soft_l1").fitter(residuals, starts.shape[1], x.curves)
        ends = guide.run(model, curves, options, watch).parameters
        own = curves._replace(arrays={**curves.arrays, "starts": np.where(np.isfinite(ends), ends, starts)})
        others = _complete(given, fitter.run(model, own, options, watch))
        rows = np.flatnonzero((others["cost"] < fields["cost"]) & others["success"]).tolist()
        _replace_rows(fields, rows, others, rows)
    # 4. What popfit has not solved scipy may solve.
    rows = _find_lost_problems(given, fields["status"])
    if rows:
        solve = _rival(f"fits of {len(rows)} of {x.curves} problems failed ({fields['message'][rows[0]]})")
        _replace_rows(fields, rows, _loop_scipy(given, rows, solve), range(len(rows)))
    return fields


def _find_lost_problems(given: _Problems, status: Array) -> list[int]:
    """Return the problems that popfit has not solved, and whose starts and bounds scipy does not refuse."""
    request, residuals, x, starts, lower, upper = given
    is_unsolved = status < 0 if request.max_nfev else status <= 0
    mask = residuals.mask(x)
    if mask is not None:
        is_unsolved = is_unsolved & ~mask.all(axis=-1)
    is_feasible = ((lower < upper) & (lower <= starts) & (starts <= upper)).all(axis=1)
    rows = np.flatnonzero(is_unsolved & is_feasible).tolist()
    with np.errstate(all="ignore"):
        return [row for row in rows if np.isfinite(residuals(x.of_curve(row), *starts[row])).all()]


def _complete(given: _Problems, fits: CurveFits) -> dict[str, Any]:
    """Return the fields of scipy's results, from those of popfit."""
    request, lower, upper = given.request, given.lower, given.upper
    x, (fun, jac) = fits.parameters, _linearise(fits)
    with np.errstate(all="ignore"):
        # Cost F = ½C² Σ ρ(f²/C²), gradient Jᵀ(ρ′f), and scipy's J √(ρ′ + 2ρ″f²/C²).
        if request.loss == "linear":
            cost, gradient = 0.5 * np.einsum("nm,nm->n", fun, fun), np.einsum("nmp,nm->np", jac, fun)
        else:
            z = (fun / request.f_scale) ** 2
            rho, slope, curvature = _loss(request.loss, z)
            cost = 0.5 * request.f_scale**2 * rho.sum(axis=1)
            gradient = np.einsum("nmp,nm->np", jac, slope * fun)
            jac *= np.sqrt(np.maximum(slope + 2.0 * curvature * z, np.finfo(float).eps))[:, :, np.newaxis]
        # Coleman and Li's distances, by which scipy multiplies: those to the bounds that the gradient points to.
        below, above = x - lower, upper - x
        distance = np.where((gradient > 0.0) & np.isfinite(lower), below, np.ones_like(x))
        distance = np.where((gradient < 0.0) & np.isfinite(upper), above, distance)
        if request.method == "dogbox":
            distance = np.where(distance > 0.0, 1.0, 0.0)
        optimality = np.abs(gradient * distance).max(axis=1)
        rtol = request.xtol or 0.0
        at_lower = below <= np.minimum(above, rtol * np.maximum(1.0, np.abs(lower)))
        at_upper = above <= np.minimum(below, rtol * np.maximum(1.0, np.abs(upper)))
    # scipy's first criterion comes first here, too
    status = fits.status.astype(int)
    has_end = (status >= 0) | np.isin(status, UNFINISHED)
    status[has_end & (optimality < (request.gtol or 0.0))] = 1
    return {
        "x": x,
        "cost": cost,
        "fun": fun,
        "jac": jac,
        "grad": gradient,
        "optimality": optimality,
        "active_mask": np.where(at_upper & np.isfinite(upper), 1, np.where(at_lower & np.isfinite(lower), -1, 0)),
        "nfev": fits.evaluations.astype(int),
        "njev": fits.rounds.astype(int),
        "status": status,
        "message": [MESSAGES.get(code, text) for code, text in zip(status.tolist(), fits.messages, strict=True)],
        "success": status > 0,
    }


def _linearise(fits: CurveFits) -> tuple[Array, Array]:
    """Return the residuals, (N, m), and their derivatives, (N, m, P), at the results."""
    model, given = fits._model_and_data()
    linearised = np.empty((len(fits), 1 + len(fits.names), given.x.points))
    columns = model.x.reshape(len(fits), -1) if given.x.x_per_curve else [model.x.ravel()] * len(fits)
    for both, own, parameters in zip(linearised, columns, fits.parameters, strict=True):
        both[:] = model.model.linearise(own, parameters)
    return np.ascontiguousarray(linearised[:, 0]), np.moveaxis(linearised[:, 1:], 1, 2)


def _loss(name: str, z: Array) -> tuple[Array, Array, Array]:
    """Return ρ(z), ρ′(z) and ρ″(z) of one of scipy's robust losses."""
    if name == "huber":
        root = np.sqrt(np.maximum(z, 1.0))
        return np.where(z <= 1.0, z, 2.0 * root - 1.0), 1.0 / root, np.where(z <= 1.0, 0.0, -0.5 / root**3)
    if name == "soft_l1":
        root = np.sqrt(1.0 + z)
        return 2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3
    if name == "cauchy":
        return np.log1p(z), 1.0 / (1.0 + z), -1.0 / (1.0 + z) ** 2
    return np.arctan(z), 1.0 / (1.0 + z**2), -2.0 * z / (1.0 + z**2) ** 2
