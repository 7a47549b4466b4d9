"""`curve_fit` as scipy has it, for one curve or a million."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import split_mask, unit_of, warn_caller
from popfit._checks import check_choice, check_integer
from popfit._compiled import CompiledModel
from popfit._curve_data import CurveData, prepare_curves
from popfit._curve_models import ModelAtPoints, agrees_at_results
from popfit._errors import InputError, PopfitWarning
from popfit._progress import Progress
from popfit._rival import rival_function
from popfit.curves import CurveFits, CurveFitter, Options
from popfit.devices import Device
from popfit.formula import Formula, parameter_names

Array = npt.NDArray[Any]

#: Methods of scipy, which choose its checks here.
METHODS = ("lm", "trf", "dogbox")
#: Keyword arguments of scipy's solvers that steer their steps, which popfit chooses itself.
STEERING = ("col_deriv", "diag", "diff_step", "epsfcn", "factor", "tr_options", "tr_solver", "verbose", "x_scale")
#: Keyword arguments of scipy's solvers that popfit has no answer to.
DELEGATED = ("callback", "jac_sparsity", "workers")
#: scipy's robust losses by popfit's names.
LOSSES = {"linear": "least_squares", "soft_l1": "soft_l1", "huber": "huber", "cauchy": "cauchy", "arctan": "arctan"}
#: Largest number of calls that ``maxfev`` may allow.
MAX_CALLS = 2**29
#: Linearisations for each call of a function that ``maxfev`` allows: popfit counts those of every precision.
ROUNDS_PER_CALL = 4
#: Codes of scipy's leastsq for those of popfit, which are those of its least_squares.
LEASTSQ_CODES = {1: 4, 2: 1, 3: 2, 4: 3}


def curve_fit(
    f: Callable[..., Any] | CompiledModel,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    x_per_curve: bool = False,
    exact: bool = False,
    errors: str | None = None,
    estimator: str | tuple[str, float] = "least_squares",
    device: str | Device = "auto",
    threads: int | None = None,
    timeout: float | None = None,
    progress: bool | Progress = False,
    **kwargs: Any,
) -> Any:
    """Fit a function to one curve, as scipy's ``curve_fit`` does, or to any number of curves at once.

    With `ydata` of the shape (points) the call, the result and the exceptions are scipy's. With (curves, points) every
    row is a curve of its own, and all are fitted together.

    Parameters
    ----------
    f : callable, Formula or Spline
        The model, ``f(x, a, b, …)``. A function of numpy becomes a formula with exact derivatives. Where this is
        impossible scipy fits one curve, and fits of many call the function itself; a warning says why.
    xdata : array or object
        What `f` gets as its first argument; with `x_per_curve` (curves, points) or (curves, predictors, points).
    ydata : array, (points) or (curves, points)
        Data.
    p0 : array, (P) or (curves, P), optional
        Starts; 1 unless given, or between the bounds. Those of built-in formulas are guessed for each curve.
    sigma : number or array, (points) or (curves, points), optional
        Standard deviations. For one curve also a covariance matrix (points, points), as in scipy; for many
        (curves, points, points), or (1, points, points) of all.
    absolute_sigma : bool
        True if sigma is known in absolute terms; else covariances are multiplied by χ²/dof.
    check_finite : bool, optional
        For one curve: True, the default without `nan_policy`, to raise ValueError at a NaN or infinity.
    bounds : pair of arrays or ``scipy.optimize.Bounds``
        Lower and upper bounds, numbers, (P) or (curves, P).
    method : {"lm", "trf", "dogbox"}, optional
        Chooses scipy's checks; the solver is popfit's.
    jac : callable or str, optional
        Derivatives ``jac(x, a, b, …)``, (points, P), for functions that are no formulas.
    full_output : bool
        True to return infodict, message and a status code, too; of many curves infodict has the `CurveFits`.
    nan_policy : {"raise", "omit"}, optional
        What to do with a NaN in the data.
    x_per_curve : bool
        True if each curve has points of its own.
    exact : bool
        True to fit many curves to the solver's tolerances, as one is; else to 0.001 of their errors.
    errors : {"raise", "nan"}, optional
        Of a fit that fails: an exception, the default of one curve, or NaN with one warning, that of many.
    estimator : str or pair of str and float
        As `CurveFitter` takes it.
    device, threads, timeout, progress : optional
        As `CurveFitter.fit` takes them.
    **kwargs
        ``maxfev`` or ``max_nfev``, ``ftol``, ``xtol``, ``gtol``, ``loss`` and ``f_scale`` as in scipy. What steers
        scipy's steps has no effect, which a warning says.

    Returns
    -------
    popt : array, (P) or (curves, P)
        Best-fit parameters.
    pcov : array, (P, P) or (curves, P, P)
        Their covariances; infinite where the data do not determine all parameters.

    Raises
    ------
    RuntimeError
        If a fit fails, and `errors` is "raise".
    ValueError, TypeError
        For arguments that scipy refuses, too; `InputError` is a ValueError.

    Examples
    --------
    >>> import numpy as np, popfit
    >>> x = np.linspace(0.0, 4.0, 40)
    >>> y = 3.0 * np.exp(-np.outer([0.5, 1.0, 2.0], x))
    >>> popt, pcov = popfit.curve_fit(lambda x, a, k: a * np.exp(-k * x), x, y, p0=[1.0, 1.0])
    >>> popt.round(3)
    array([[3. , 0.5],
           [3. , 1. ],
           [3. , 2. ]])
    """
    request = _Request(f, xdata, ydata, p0, sigma, absolute_sigma, bounds, method, jac, nan_policy, estimator, kwargs)
    watch = {"threads": threads, "timeout": timeout, "progress": progress}
    given: Any = split_mask(ydata)[0]
    if np.ndim(given) != 2:
        return _fit_one(request, check_finite, _errors(errors, "raise"), full_output, device, watch)
    if check_finite:
        np.asarray_chkfinite(given, float)
    return _fit_many(
        request, _errors(errors, "nan"), full_output, {"exact": exact, "x_per_curve": x_per_curve}, device, watch
    )


@dataclasses.dataclass
class _Request:
    """What is to be fitted, as the user gives it."""

    f: Any
    xdata: Any
    ydata: Any
    p0: Any
    sigma: Any
    absolute_sigma: bool
    bounds: Any
    method: str | None
    jac: Any
    nan_policy: str | None
    estimator: Any
    kwargs: dict[str, Any]

    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters: those of the signature, or p1, p2, … where p0 has another number."""
        if isinstance(self.f, CompiledModel):
            return self.f.parameters
        if self.p0 is None:
            return parameter_names(self.f)
        given: tuple[Any, Any] = split_mask(self.p0)[0], split_mask(self.ydata)[0]
        p0 = np.atleast_1d(given[0])
        count = p0.shape[-1] if np.ndim(given[1]) == 2 else p0.size
        try:
            names = parameter_names(self.f)
        except (TypeError, ValueError):
            names = ()
        return names if len(names) == count else tuple(f"p{k + 1}" for k in range(count))

    def solver(self) -> dict[str, Any]:
        """Return the settings of a `CurveFitter` that the keyword arguments of scipy's solvers ask for."""
        rest = dict(self.kwargs)
        rounds = [rest.pop(name, None) for name in ("max_nfev", "maxfev")]
        given = [number for number in rounds if number]
        settings: dict[str, Any] = {"max_rounds": ROUNDS_PER_CALL * given[0] if given else None}
        settings |= {name: rest.pop(name, None) for name in ("ftol", "xtol", "gtol")}
        for name in ("max_nfev", "maxfev"):
            if self.kwargs.get(name) is not None:
                check_integer(name, self.kwargs[name], 1, MAX_CALLS)
        scale = rest.pop("f_scale", 1.0)
        if "loss" in rest:
            loss = rest.pop("loss")
            if self.estimator != "least_squares":
                raise InputError("loss: there is an estimator; give one of them", argument="loss")
            estimator = LOSSES[check_choice("loss", loss, tuple(LOSSES))]
            settings["estimator"] = estimator if estimator == "least_squares" else (estimator, scale)
            settings["sandwich_errors"] = False
        else:
            settings["estimator"] = self.estimator
        steering = [name for name in STEERING if rest.pop(name, None) is not None]
        if steering:
            warn_caller(f"{', '.join(steering)}: no effect; popfit chooses its own steps")
        for name in rest:
            raise TypeError(f"curve_fit() got an unexpected keyword argument {name!r}")
        return settings

    def fitter(self, names: tuple[str, ...], device: str | Device) -> CurveFitter:
        """Return the fitter of these settings."""
        absolute_sigma = bool(self.absolute_sigma)
        return CurveFitter(self.f, parameters=names, absolute_sigma=absolute_sigma, device=device, **self.solver())

    def check(self) -> None:
        """Raise exceptions for arguments that are wrong for one curve and for many."""
        if "args" in self.kwargs:
            raise ValueError("'args' is not a supported keyword argument.")
        if not (self.jac is None or callable(self.jac) or self.jac in ("2-point", "3-point", "cs")):
            raise InputError(f"jac: {self.jac!r}; give a function, '2-point', '3-point' or 'cs'", argument="jac")

    def needs_popfit(self) -> str | None:
        """Return the argument that scipy does not have, if there is one."""
        return None if self.estimator == "least_squares" else f"estimator={self.estimator!r}"

    def limits(self, count: int) -> tuple[Array, Array]:
        """Return lower and upper bounds, each a number, (P) or (curves, P) as the user gives them, as arrays."""
        bounds = self.bounds
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):  # scipy's Bounds
            bounds = bounds.lb, bounds.ub
        if bounds is None:
            bounds = -np.inf, np.inf
        sides: list[Array] = [np.asarray(side, dtype=np.float64) for side in bounds]
        lower, upper = (np.broadcast_to(side, (count,)) if side.ndim == 0 else side for side in sides)
        return lower, upper


def _check_method(method: str | None, is_bounded: bool) -> str:
    """Return scipy's method, or raise its exception."""
    method = method or ("trf" if is_bounded else "lm")
    if method == "lm" and is_bounded:
        raise ValueError("Method 'lm' only works for unconstrained problems. Use 'trf' or 'dogbox' instead.")
    if method not in METHODS:
        raise ValueError(f"`method` must be 'trf', 'dogbox' or 'lm', not {method!r}")
    return method


def choose_feasible_starts(lower: Array, upper: Array) -> Array:
    """Return starts between bounds, as scipy chooses them: 1 without bounds, 1 from a single one, else the middle."""
    below, above = np.isfinite(lower), np.isfinite(upper)
    with np.errstate(invalid="ignore"):
        start = np.where(below & above, 0.5 * (lower + upper), np.ones(np.broadcast_shapes(lower.shape, upper.shape)))
    start = np.where(below & ~above, lower + 1.0, start)
    return np.where(~below & above, upper - 1.0, start)


def _with_guesses(request: _Request, fitter: CurveFitter, given: CurveData, threads: int | None) -> CurveData:
    """Return curves with guesses for the starts of a built-in formula's parameters; else the curves as they are."""
    if not isinstance(request.f, Formula) or given.x.curves == 0:
        return given
    try:
        return fitter.add_guesses(given, fitter.parameters, threads)
    except InputError:  # it is no built-in formula
        return given


def _fit_one(
    request: _Request,
    check_finite: bool | None,
    errors: str,
    full_output: bool,
    device: str | Device,
    watch: dict[str, Any],
) -> Any:
    """Fit one curve, with scipy's checks in scipy's order."""
    # 1. Parameters, bounds and method.
    names = request.names()
    p0 = None if request.p0 is None else np.atleast_1d(_plain("p0", request.p0)).ravel()
    lower, upper = request.limits(len(names))
    method = _check_method(request.method, bool(np.any(lower > -np.inf) or np.any(upper < np.inf)))
    start = choose_feasible_starts(lower, upper) if p0 is None else p0
    if p0 is None and not lower.shape == upper.shape == (len(names),):
        raise InputError(
            f"bounds have the shapes {lower.shape} and {upper.shape}; give ({len(names)},)", argument="bounds"
        )
    if lower.shape != start.shape or upper.shape != start.shape:
        raise ValueError("Inconsistent shapes between bounds and `x0`.")
    if np.any(lower >= upper):
        raise ValueError("Each lower bound must be strictly less than each upper bound.")
    if np.any(start < lower) or np.any(start > upper):
        raise ValueError("Initial guess is outside of provided bounds")
    # 2. The data.
    if check_finite is None:
        check_finite = request.nan_policy is None
    as_floats = np.asarray_chkfinite if check_finite else np.asarray
    given_y, mask = split_mask(request.ydata)
    mask = None if mask is None or not mask.any() else mask.ravel()
    if unit_of(given_y) is not None:
        given_y = _plain("ydata", given_y)
    y = np.asarray(given_y, float)
    if y.ndim > 2:
        raise InputError(f"ydata has the shape {y.shape}; give (points) or (curves, points)", argument="ydata")
    y = as_floats(y if mask is None else np.where(mask, 0.0, y.ravel()), float)
    x = request.xdata
    if isinstance(x, list | tuple | np.ndarray):
        x, x_mask = split_mask(x) if isinstance(x, np.ndarray) else (x, None)
        if x_mask is not None and x_mask.any():
            raise InputError("xdata: values are masked; mask ydata instead", argument="xdata")
        x = as_floats(x, float)
    if y.size == 0:
        raise ValueError("`ydata` must not be empty!")
    request.check()
    sigma = None if request.sigma is None else _plain("sigma", request.sigma)
    if sigma is not None and sigma.ndim < 2 and not (sigma > 0.0).all():
        raise InputError("sigma: give numbers above 0", argument="sigma")
    if not check_finite and request.nan_policy is not None:
        missing = _missing(x, y, request.nan_policy)
        if missing is not None:
            x, y, mask = x[..., ~missing], y[~missing], None if mask is None else mask[~missing]
            if sigma is not None and sigma.ndim:
                sigma = sigma[~missing] if sigma.ndim == 1 else sigma[np.ix_(~missing, ~missing)]
    # 3. What scipy does and popfit does not.
    rivals = [f"{name}={request.kwargs[name]!r}" for name in DELEGATED if request.kwargs.get(name) is not None]
    rivals += ["loss=a function"] if callable(request.kwargs.get("loss")) else []
    if sigma is not None and sigma.size != 1:
        if sigma.shape == (y.size, y.size):
            variances = np.diag(sigma)
            if np.array_equal(sigma, np.diag(variances)) and (variances > 0.0).all():
                sigma = np.sqrt(variances)
            else:
                _check_positive_definite(sigma, mask)
        elif sigma.shape != (y.size,):
            raise ValueError("`sigma` has incorrect shape.")
    if method != "lm" and y.size != 1 and len(names) > y.size:
        rivals.append("fewer points than parameters")
    if method == "lm" and y.size != 1 and len(names) > y.size:
        raise TypeError(
            f"The number of func parameters={len(names)} must not exceed the number of data points={y.size}"
        )

    def by_scipy(reason: str) -> Any:
        """Return scipy's answer, in which masked points are left out."""
        rest = {"x": x, "y": y, "sigma": sigma}
        if mask is not None:
            if not (isinstance(x, np.ndarray) and x.shape[-1] == y.size):
                raise InputError(f"ydata: masked points, and {reason}; leave them out of xdata, too", argument="ydata")
            rest |= {"x": x[..., ~mask], "y": y[~mask]}
            if sigma is not None and sigma.size > 1:
                rest["sigma"] = sigma[~mask] if sigma.ndim == 1 else sigma[np.ix_(~mask, ~mask)]
        fit = rival_function("scipy.optimize", "curve_fit", reason)
        try:
            return fit(
                request.f,
                rest["x"],
                rest["y"],
                start,
                rest["sigma"],
                request.absolute_sigma,
                False,
                (lower, upper),
                method,
                request.jac,
                full_output=full_output,
                **request.kwargs,
            )
        except RuntimeError as error:
            if errors == "raise":
                raise
            return _failed_answer(len(names), str(error), full_output)

    if rivals:
        if request.needs_popfit():
            raise InputError(f"{request.needs_popfit()}: popfit does not do it with {rivals[0]}", argument="estimator")
        return by_scipy(rivals[0])
    if y.size == 1:  # scipy broadcasts it
        y = np.full(np.size(request.f(x, *start)), y.ravel()[0])
        if y.size < len(names):
            return by_scipy("fewer points than parameters")
    # 4. The fit.
    fitter = request.fitter(names, device)
    y = y.ravel()
    given = prepare_curves(names, x, y, start, sigma, mask, None if method == "lm" else (lower, upper), False)
    if p0 is None:
        given = _with_guesses(request, fitter, given, watch["threads"])
    model, reason = fitter.model_at(given)
    options = Options(covariance=True, exact=True)
    fits = None if reason is not None else fitter.run(model, given, options, watch)
    if fits is not None and model.is_traced and not agrees_at_results(model, given.x, fits.parameters):
        reason, fits = "at the result its values are not those of its formula", None
    if fits is None:
        is_scipys = request.needs_popfit() is None and watch["timeout"] is None
        if is_scipys and importlib.util.find_spec("scipy") is not None:
            return by_scipy(f"the function is no formula: {reason}")
        warn_caller(f"the function is no formula: {reason}. Fits call the function itself, which is slower")
        fits = fitter.run_calls(given, options, watch, request.jac if callable(request.jac) else None)
    # 5. The answer, in scipy's words.
    if not fits.converged[0]:
        cause = f"Optimal parameters not found: {_failure(fits, 0, request, method)}"
        is_undefined = _popfit.status_names()[int(fits.status[0])] == "not_finite" and fits.failure is None
        if errors == "raise" and method != "lm" and is_undefined:
            raise ValueError("Residuals are not finite in the initial point.")
        if errors == "raise":
            raise fits.failure or RuntimeError(cause)
        return _failed_answer(len(names), cause, full_output)
    model, _ = fits._model_and_data()
    popt = fits.parameters[0]
    pcov, is_known = _covariances(fits, model, request)
    if not is_known.all() and fits.converged[0]:
        _warn_of_covariance("Covariance of the parameters could not be estimated")
    if not full_output:
        return popt, pcov[0]
    return popt, pcov[0], *_full_output(fits, model, method)


def _fit_many(
    request: _Request,
    errors: str,
    full_output: bool,
    layout: dict[str, Any],
    device: str | Device,
    watch: dict[str, Any],
) -> Any:
    """Fit many curves."""
    request.check()
    names = request.names()
    lower, upper = request.limits(len(names))
    is_bounded = bool(np.any(lower > -np.inf) or np.any(upper < np.inf))
    method = _check_method(request.method, is_bounded)
    for name in DELEGATED:
        if request.kwargs.get(name) is not None:
            raise InputError(f"{name}: popfit has no answer to it; fit curves one by one for it", argument=name)
    given_y, mask = split_mask(request.ydata)
    y = given_y if unit_of(given_y) is not None else np.asarray(given_y)
    if request.nan_policy is not None:
        is_plain = isinstance(request.xdata, list | tuple | np.ndarray) and not layout["x_per_curve"]
        x = np.asarray(request.xdata, float) if is_plain else None
        missing = _missing(x, np.asarray(y, float), request.nan_policy)
        if missing is not None:
            mask = missing if mask is None else missing | mask
    p0 = choose_feasible_starts(lower, upper) if request.p0 is None else request.p0
    given = prepare_curves(
        names,
        request.xdata,
        y,
        p0,
        request.sigma,
        mask,
        (lower, upper) if is_bounded else None,
        layout["x_per_curve"],
    )
    fitter = request.fitter(names, device)
    if request.p0 is None:
        given = _with_guesses(request, fitter, given, watch["threads"])
    jac = request.jac if callable(request.jac) else None
    fits = fitter.fit_data(given, Options(covariance=True, exact=layout["exact"]), watch, jac)
    model, _ = fits._model_and_data()
    failed = np.flatnonzero(~fits.converged)
    if failed.size and errors == "raise":
        cause = _failure(fits, failed[0], request, method)
        raise RuntimeError(f"Optimal parameters not found: curve {failed[0]}: {cause}") from fits.failure
    pcov, is_known = _covariances(fits, model, request)
    if failed.size:
        fits.parameters[failed] = np.nan
        warn_caller(f"{failed.size} of {len(fits)} curves could not be fitted; the first: {fits.messages[failed[0]]}")
    unknown = int((~is_known & fits.converged).sum())
    if unknown:
        _warn_of_covariance(f"Covariance of the parameters could not be estimated for {unknown} curves")
    if not full_output:
        return fits.parameters, pcov
    infodict = {"nfev": fits.evaluations, "fvec": -fits.residuals(), "fits": fits}
    return fits.parameters, pcov, infodict, fits.messages, fits.status


def _check_positive_definite(sigma: Array, mask: Array | None) -> None:
    """Raise scipy's exception for a covariance matrix that is not positive definite at the points that count."""
    matrix = np.asarray_chkfinite(sigma if mask is None else sigma[np.ix_(~mask, ~mask)])
    deviations = np.sqrt(np.abs(np.diag(matrix)))
    if np.any(np.abs(matrix - matrix.T) > 1e-6 * np.outer(deviations, deviations)):
        raise InputError("sigma: give a symmetric matrix", argument="sigma")
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        raise ValueError("`sigma` must be positive definite.") from error


def _failure(fits: CurveFits, row: int, request: _Request, method: str) -> str:
    """Return why a fit has failed, in scipy's words where it has used up the calls that the user allows."""
    limits = [request.kwargs[name] for name in ("max_nfev", "maxfev") if request.kwargs.get(name)]
    if fits.status[row] != 0 or not limits:
        return fits.messages[row]
    if method == "lm":
        return f"Number of calls to function has reached maxfev = {limits[0]}."
    return "The maximum number of function evaluations is exceeded."


def _missing(x: Any, y: Array, policy: str) -> Array | None:
    """Return which points have a NaN, or None if none has, by scipy's rules."""
    if policy == "propagate":
        raise ValueError("`nan_policy='propagate'` is not supported by this function.")
    if policy not in ("raise", "omit"):
        raise ValueError("nan_policy must be one of {None, 'raise', 'omit'}")
    missing = np.isnan(y)
    if isinstance(x, np.ndarray) and x.shape[-1:] == y.shape[-1:]:
        missing = missing | np.isnan(x).any(axis=tuple(range(x.ndim - 1)))
    if not missing.any():
        return None
    if policy == "raise":
        raise ValueError("The input contains nan values")
    return missing


def _covariances(fits: CurveFits, model: ModelAtPoints, request: _Request) -> tuple[Array, Array]:
    """Return covariances as scipy has them, and which are known: the others are infinite.

    scipy does not take parameters at bounds for known, and makes the whole matrix infinite where the data do not
    determine a parameter.
    """
    assert fits.covariance is not None
    covariances = fits.covariance
    estimator = fits._fitter._settings["estimator"][0]
    at_bound = fits.flags & _popfit.AT_BOUND != 0 if estimator == "least_squares" else np.zeros(len(fits), dtype=bool)
    for row in np.flatnonzero(fits.converged & at_bound).tolist():
        covariances[row] = _free_covariance(fits[[row]], request.absolute_sigma)
    is_known = ~np.asarray(np.isinf(fits.errors).any(axis=1) | np.isnan(covariances).any(axis=(1, 2)))
    if not request.absolute_sigma:
        is_known = is_known & (fits.dof > 0)
    covariances[~is_known & fits.converged] = np.inf
    covariances[~fits.converged] = np.nan
    return covariances, is_known


def _free_covariance(one: CurveFits, absolute_sigma: bool) -> Array:
    """Return the covariance of a fit as if none of its parameters were at a bound, by the pseudoinverse."""
    jacobian = one.jacobian()
    _, sizes, axes = np.linalg.svd(jacobian, full_matrices=False)
    kept = sizes > np.finfo(float).eps * max(jacobian.shape) * sizes[0]
    covariance: Array = (axes[kept].T / sizes[kept] ** 2) @ axes[kept]
    return covariance if absolute_sigma else covariance * (one.chi2[0] / max(one.dof[0], 1))


def _full_output(fits: CurveFits, model: ModelAtPoints, method: str) -> tuple[dict[str, Any], str, int]:
    """Return infodict, message and code of one curve."""
    residuals = -fits.residuals()[0]
    residuals = residuals[~np.isnan(residuals)]  # without masked points
    infodict: dict[str, Any] = {"nfev": int(fits.evaluations[0]), "fvec": residuals}
    code = int(fits.status[0])
    if method != "lm":
        return infodict, fits.messages[0] or "converged", code
    jacobian = fits.jacobian()
    q, r, pivots = _pivoted_qr(jacobian)
    infodict["fjac"] = np.zeros(jacobian.T.shape)
    infodict["fjac"][:, : r.shape[0]] = r.T
    infodict["ipvt"] = pivots.astype(np.int32)
    infodict["qtf"] = q.T @ residuals
    return infodict, fits.messages[0] or "converged", LEASTSQ_CODES.get(code, code)


def _pivoted_qr(matrix: Array) -> tuple[Array, Array, Array]:
    """Return Q, R and the columns' order of a QR decomposition whose next column is always the longest."""
    rest = matrix.astype(np.float64)
    order = np.arange(matrix.shape[1])
    for k in range(min(matrix.shape)):
        q = np.linalg.qr(matrix[:, order[:k]])[0] if k else np.empty((len(matrix), 0))
        rest = matrix[:, order] - q @ (q.T @ matrix[:, order])
        longest = k + int(np.argmax((rest[:, k:] ** 2).sum(axis=0)))
        order[[k, longest]] = order[[longest, k]]
    q, r = np.linalg.qr(matrix[:, order])
    return q, r, order


def _failed_answer(parameters: int, cause: str, full_output: bool) -> Any:
    """Return the answer of one curve that could not be fitted, with a warning."""
    warn_caller(cause)
    answer = np.full(parameters, np.nan), np.full((parameters, parameters), np.nan)
    return (*answer, {"nfev": 0, "fvec": np.empty(0)}, cause, 0) if full_output else answer


def _plain(argument: str, values: Any) -> Array:
    """Return the numbers of an argument, which may have no unit and no masked values."""
    numbers, mask = split_mask(values)
    if mask is not None and mask.any():
        raise InputError(f"{argument}: values are masked; mask ydata instead", argument=argument)
    if unit_of(numbers) is not None and str(unit_of(numbers)):
        raise InputError(f"{argument} has the unit {unit_of(numbers)}; give plain numbers", argument=argument)
    return np.asarray(numbers, dtype=np.float64)


def _errors(errors: str | None, default: str) -> str:
    """Return what to do with fits that fail."""
    return default if errors is None else check_choice("errors", errors, ("raise", "nan"))


def _warn_of_covariance(message: str) -> None:
    """Warn as scipy does, with its class of warnings if it is installed."""
    try:
        from scipy.optimize import OptimizeWarning  # type: ignore[import-untyped,unused-ignore]

        category: type[Warning] = OptimizeWarning
    except ImportError:
        category = PopfitWarning
    warn_caller(message, category)
