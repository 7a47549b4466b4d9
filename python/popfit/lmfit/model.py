"""lmfit's `Model`, `CompositeModel` and `ModelResult`, whose fits are popfit's."""

from __future__ import annotations

import operator
import os
import pathlib
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import lmfit.model  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import numpy.typing as npt
from lmfit.minimizer import coerce_float64  # type: ignore[import-not-found,import-untyped,unused-ignore]

from popfit._curve_data import prepare_curves
from popfit._curve_models import ModelAtPoints, agrees_at_results
from popfit._errors import PopfitWarning
from popfit._rival import rival_attribute
from popfit.curves import CurveFitter, Options
from popfit.lmfit._traced import ModelFunction, NotTraceableError, StandIns, derivatives, evaluated
from popfit.table import CONVERGED_CODES

__all__ = ["CompositeModel", "Model", "ModelResult", "load_model", "load_modelresult"]

Array = npt.NDArray[Any]

#: Settings of lmfit's solvers that popfit's has, too.
TOLERANCES = ("ftol", "xtol", "gtol")
#: Values of further settings of `least_squares` that ask for what popfit does anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "loss": ("linear",),
    "f_scale": (1.0,),
    "verbose": (0,),
    "full_output": (1, True),
    "Dfun": (None,),
    "col_deriv": (0, False),
}
#: Codes of scipy's leastsq for those of popfit, which are those of its least_squares.
LEASTSQ_CODES = {1: 4, 2: 1, 3: 2, 4: 3}
#: Code of a fit that has used up its rounds.
MAX_ROUNDS = 0


class Solution(NamedTuple):
    """What popfit has found for one curve."""

    #: Values of the varying parameters.
    values: Array
    #: Their covariance with weights as errors, (P, P), or None if it is not known.
    covariance: Array | None
    #: Status of the fit, its evaluations as lmfit would count them, and its message.
    status: int
    evaluations: int
    message: str
    #: Derivatives of the residual, (points, P), if they are known.
    jacobian: Array | None = None


class Model(lmfit.model.Model):  # type: ignore[misc,unused-ignore]
    """A model as lmfit has it, whose ``fit`` is popfit's.

    Its arguments are those of ``lmfit.Model``.

    Examples
    --------
    >>> import numpy as np
    >>> from popfit.lmfit import Model
    >>> t = np.linspace(0.0, 4.0, 40)
    >>> model = Model(lambda t, a, k: a * np.exp(-k * t))
    >>> result = model.fit(3.0 * np.exp(-0.5 * t), t=t, a=1.0, k=1.0)
    >>> round(result.best_values["k"], 6), result.success
    (0.5, True)
    """

    def _function(self) -> Callable[..., Any]:
        """Return the function that is traced."""
        function: Callable[..., Any] = self.func
        return function

    def eval(self, params: Any = None, **kwargs: Any) -> Any:
        """Return the model, as lmfit's ``eval`` does."""
        if not isinstance(self, lmfit.model.CompositeModel) and isinstance(params, StandIns):
            traced = evaluated(self._function(), self.make_funcargs(params, kwargs))
            if traced is not None:
                return traced
        return super().eval(params, **kwargs)

    def fit(
        self,
        data: Any,
        params: Any = None,
        weights: Any = None,
        method: str = "leastsq",
        iter_cb: Any = None,
        scale_covar: bool = True,
        verbose: bool = False,
        fit_kws: Any = None,
        nan_policy: str | None = None,
        calc_covar: bool = True,
        max_nfev: int | None = None,
        coerce_farray: bool = True,
        **kwargs: Any,
    ) -> ModelResult:
        """Fit the model to data, as lmfit's ``fit`` does.

        Parameters
        ----------
        data : array
            The data.
        params : lmfit.Parameters, optional
            Starts, bounds and expressions; by default those of ``make_params``.
        weights : array or number, optional
            1/σ of the data.
        method : str
            "leastsq" and "least_squares" are popfit's; others go to lmfit, with a `PopfitWarning`.
        iter_cb, verbose, calc_covar, coerce_farray, scale_covar
            As in lmfit; with `iter_cb` lmfit itself fits.
        fit_kws : dict, optional
            ``ftol``, ``xtol`` and ``gtol``; with others lmfit itself fits.
        nan_policy : {"raise", "propagate", "omit"}, optional
            What to do with a NaN; by default what the model says.
        max_nfev : int, optional
            Limit of evaluations; a linearisation counts as `nvarys` + 1 of them.
        **kwargs
            Independent variables, and parameters by their names.

        Returns
        -------
        ModelResult
            The result, with all that lmfit's has.
        """
        params = self._starts(params, kwargs, verbose)
        if nan_policy is not None:
            self.nan_policy = nan_policy
        data, weights, kwargs = self._aligned(data, weights, kwargs, params)
        if coerce_farray:
            data = lmfit.model.coerce_arraylike(data)
            for name in self.independent_vars:
                if name in kwargs and name not in params:
                    kwargs[name] = lmfit.model.coerce_arraylike(kwargs[name])
        result = ModelResult(
            self,
            params,
            method=method,
            iter_cb=iter_cb,
            scale_covar=scale_covar,
            fcn_kws=kwargs,
            nan_policy=self.nan_policy,
            calc_covar=calc_covar,
            max_nfev=max_nfev,
            **(fit_kws or {}),
        )
        result.fit(data=data, weights=weights)
        result.components = self.components
        return result

    def _starts(self, params: Any, kwargs: dict[str, Any], verbose: bool) -> Any:
        """Return a copy of the parameters, with those that keyword arguments give, which are taken out."""
        params = self.make_params(verbose=verbose) if params is None else deepcopy(params)
        for name in set(kwargs) & set(self.param_names):
            given = kwargs.pop(name)
            if isinstance(given, lmfit.Parameter):
                given.name = name
                params[name] = deepcopy(given)
            else:
                params[name].set(value=given)
        for name in kwargs:
            if name not in self.independent_vars:
                warnings.warn(
                    f"The keyword argument {name} does not match any arguments of the model function. "
                    "It will be ignored.",
                    UserWarning,
                    stacklevel=3,
                )
        missing = [name for name in self.param_names if name not in params]
        blank = [name for name, one in params.items() if one.value is None and one.expr is None]
        if missing or blank:
            raise ValueError(
                "Assign each parameter an initial value by passing Parameters or keyword arguments to fit.\n"
                f"Missing parameters: {missing}\nNon initialized parameters: {blank}"
            )
        return params

    def _aligned(self, data: Any, weights: Any, kwargs: dict[str, Any], params: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return data, weights and independent variables without missing values, and with the data's index."""
        align, mask = lmfit.model._align, None
        if self.nan_policy == "omit":
            mask = ~lmfit.model.isnull(data)
            data = data[mask]
            if weights is not None and not np.isscalar(weights):
                weights = align(weights, mask, data)
        for name in self.independent_vars:
            if name in params or name in self.opts:
                continue
            if name not in kwargs:
                raise ValueError(f"'Missing independent variable '{name}'")
            if not np.isscalar(kwargs[name]):
                kwargs[name] = align(kwargs[name], mask, data)
        return data, weights, kwargs

    def __add__(self, other: Any) -> CompositeModel:
        """Return the sum of two models."""
        return CompositeModel(self, other, operator.add)

    def __sub__(self, other: Any) -> CompositeModel:
        """Return the difference of two models."""
        return CompositeModel(self, other, operator.sub)

    def __mul__(self, other: Any) -> CompositeModel:
        """Return the product of two models."""
        return CompositeModel(self, other, operator.mul)

    def __truediv__(self, other: Any) -> CompositeModel:
        """Return the quotient of two models."""
        return CompositeModel(self, other, operator.truediv)

    def _set_state(self, state: Any, funcdefs: Any = None) -> Any:
        """Return a model from what ``dumps`` has written."""
        return adopted(super()._set_state(state, funcdefs=funcdefs))


class CompositeModel(Model, lmfit.model.CompositeModel):  # type: ignore[misc,unused-ignore]
    """Two models joined by an operator, whose ``fit`` is popfit's."""

    def __init__(self, left: Any, right: Any, op: Any, **kws: Any) -> None:
        super().__init__(left, right, op, **kws)
        self.func = _no_function  # lmfit's, which is never called, cannot be pickled


def _no_function(*args: Any, **kwargs: Any) -> None:
    """Stand for the function of a composite model, which is evaluated by its parts."""


def adopted(model: Any) -> Any:
    """Return a model that lmfit has made, with popfit's fit."""
    if isinstance(model, Model):
        return model
    if isinstance(model, lmfit.model.CompositeModel):
        model.left, model.right = adopted(model.left), adopted(model.right)
        model.__class__ = CompositeModel
        return model
    from popfit.lmfit import models

    kind = getattr(models, type(model).__name__, None)
    if kind is not None and issubclass(kind, type(model)):
        model.__class__ = kind
    return model


class ModelResult(lmfit.model.ModelResult):  # type: ignore[misc,unused-ignore]
    """The result of a fit, with all that lmfit's has; fits by "leastsq" and "least_squares" are popfit's."""

    model: Any
    #: What popfit has found already, for results that are made on demand.
    _known: Solution | None = None
    #: Reasons that the user has been warned of.
    _warned: frozenset[str] = frozenset()

    def minimize(self, method: str = "leastsq", params: Any = None, **kws: Any) -> Any:
        """Fit by a method, as lmfit's ``minimize`` does."""
        if not method.lower().startswith(("leasts", "least_s")):
            self._warn(f"method={method!r}")
        return super().minimize(method=method, params=params, **kws)

    def leastsq(self, params: Any = None, max_nfev: int | None = None, **kws: Any) -> Any:
        """Fit by least squares, as lmfit's ``leastsq`` does."""
        return self._fitted("leastsq", params, max_nfev, kws)

    def least_squares(self, params: Any = None, max_nfev: int | None = None, **kws: Any) -> Any:
        """Fit by least squares, as lmfit's ``least_squares`` does."""
        return self._fitted("least_squares", params, max_nfev, kws)

    def _fitted(self, method: str, params: Any, max_nfev: int | None, kws: dict[str, Any]) -> Any:
        """Return the result of popfit's fit, or of lmfit's where popfit has no answer."""
        settings = {**self.kws, **kws}
        try:
            with np.errstate(all="ignore"):  # as lmfit does
                return self._popfits(method, params, max_nfev, settings)
        except _NotPopfitsError as reason:
            if str(reason):
                self._warn(str(reason))
        return getattr(super(), method)(params=params, max_nfev=max_nfev, **kws)

    def _popfits(self, method: str, params: Any, max_nfev: int | None, settings: dict[str, Any]) -> Any:
        """Return the result of popfit's fit.

        Raises
        ------
        _NotPopfitsError
            If lmfit is to do it.
        """
        result = self.prepare_fit(params)
        result.method = method
        result.call_kws = settings
        is_limited = max_nfev is not None or self.max_nfev not in (None, np.inf)
        self.set_max_nfev(max_nfev, 2000 * (result.nvarys + 1))
        solution, self._known = self._known, None
        if solution is None:
            solution = self._solved(result, settings)
            if solution.status == MAX_ROUNDS and not is_limited:
                raise _NotPopfitsError(f"a fit that needs more than {self.max_nfev} evaluations")
        return self._filled(result, solution)

    def _warn(self, reason: str) -> None:
        """Warn once that lmfit does what popfit does not, at the line that called either."""
        if reason in self._warned:
            return
        self._warned |= {reason}
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and _package(frame) in ("popfit", "lmfit"):
            frame = frame.f_back
            level += 1
        warnings.warn(f"{reason}: popfit does not do this; lmfit does it, slowly", PopfitWarning, stacklevel=level)

    def _solved(self, result: Any, settings: dict[str, Any]) -> Solution:
        """Fit with popfit.

        Raises
        ------
        _NotPopfitsError
            If lmfit is to do it.
        """
        # 1. What is asked for.
        if callable(self.iter_cb):
            raise _NotPopfitsError("iter_cb")
        for name, value in settings.items():
            if name not in TOLERANCES and not any(value is one or value == one for one in HARMLESS.get(name, ())):
                raise _NotPopfitsError(f"fit_kws: {name}={value!r}")
        if type(self.model)._residual is not lmfit.model.Model._residual:
            raise _NotPopfitsError("a model with a residual of its own")
        # 2. The data.
        start = np.array(result.init_vals, dtype=np.float64)
        data, weights, mask = self._data(result)
        if not start.size or start.size > np.count_nonzero(~mask):
            raise _NotPopfitsError("")  # lmfit has an exception for it
        # 3. The fit.
        function = ModelFunction(self.model.eval, result.params, result.var_names)
        try:
            model = function.traced(self.userkws, data.size, start)
        except NotTraceableError as error:
            raise _NotPopfitsError(f"a model that is no formula ({error})") from error
        bounds = np.array([(result.params[name].min, result.params[name].max) for name in result.var_names]).T
        with np.errstate(divide="ignore"):
            sigma = None if weights is None else 1.0 / np.abs(weights)
        given = prepare_curves(
            function.names,
            self.userkws,
            data,
            start,
            sigma,
            mask if mask.any() else None,
            (bounds[0], bounds[1]) if np.isfinite(bounds).any() else None,
            False,
        )
        fitter = CurveFitter(
            function,
            parameters=function.names,
            absolute_sigma=True,
            max_rounds=max(1, int(self.max_nfev) // (start.size + 1)),
            **{name: settings[name] for name in TOLERANCES if settings.get(name) is not None},
        )
        watch = {"progress": False, "timeout": None, "threads": None}
        fits = fitter.run(model, given, Options(covariance=False, exact=True), watch)
        status, values = int(fits.status[0]), fits.parameters[0]
        if status not in CONVERGED_CODES and status != MAX_ROUNDS:
            raise _NotPopfitsError(f"a fit that does not converge ({fits.messages[0]})")
        if not agrees_at_results(model, given.x, fits.parameters):
            raise _NotPopfitsError("a model whose values are not those of its formula at the result")
        # 4. The covariance, as if no parameter were at a bound.
        jacobian = -_jacobian(model, values)[~mask]
        if weights is not None:
            jacobian *= weights[~mask, np.newaxis]
        if status == MAX_ROUNDS:  # lmfit has one evaluation less than its limit there
            return Solution(values, None, status, int(self.max_nfev) - 1, fits.messages[0], jacobian)
        evaluations = int(fits.rounds[0]) * (start.size + 1)
        return Solution(values, covariance_of(jacobian), status, evaluations, fits.messages[0], jacobian)

    def _data(self, result: Any) -> tuple[Array, Array | None, Array]:
        """Return data, weights and a mask of missing points, each as long as the residual.

        Raises
        ------
        _NotPopfitsError
            If they are not real numbers, or what lmfit makes of them is no simple residual.
        """
        start = self.model.eval(result.params, **self.userkws)
        if any(np.iscomplexobj(one) for one in (start, self.data, self.weights)):
            raise _NotPopfitsError("complex data, weights or model")
        # 1. lmfit's own residual, which raises its exceptions
        residual = np.asarray(self.userfcn(result.params, *self.userargs, **self.userkws), dtype=np.float64)
        coerce_float64(residual, nan_policy=self.nan_policy)
        data = np.asarray(self.data, dtype=np.float64)
        weights = None if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        if residual.shape != data.shape or np.size(start) not in (1, data.size):
            raise _NotPopfitsError("data and a model of several shapes")
        # 2. what is missing is missing from the data, not from the model
        if weights is not None:
            weights = np.broadcast_to(weights, data.shape).ravel()
        data = data.ravel()
        mask = ~np.isfinite(data) if weights is None else ~(np.isfinite(data) & np.isfinite(weights))
        if mask.any() and self.nan_policy != "omit":
            raise _NotPopfitsError(f"nan_policy={self.nan_policy!r} with NaN in the data")
        if not np.isfinite(residual.ravel()[~mask]).all():
            raise _NotPopfitsError("a model with values that are not finite at the start")
        if weights is not None and mask.any():
            weights = np.where(np.isfinite(weights), weights, 1.0)
        return np.where(mask, 0.0, data), weights, mask

    def _filled(self, result: Any, solution: Solution) -> Any:
        """Return the result with all that lmfit's has."""
        values = solution.values.tolist()
        for name, value in zip(result.var_names, values, strict=True):
            result.params[name].value = value
        result.params.update_constraints()
        residual = self.userfcn(result.params, *self.userargs, **self.userkws)
        result.residual = coerce_float64(residual, nan_policy=self.nan_policy)
        result._calculate_statistics()
        result.nfev = solution.evaluations
        result.success = solution.status in CONVERGED_CODES
        result.ier = LEASTSQ_CODES.get(solution.status, 5 if solution.status == MAX_ROUNDS else 0)
        result.message = "Fit succeeded."
        if solution.status == MAX_ROUNDS:
            result.aborted = True
            result.message = f"Fit aborted: number of function evaluations > {self.max_nfev}"
        elif not result.success:
            result.message = f"Fit failed: {solution.message}"
        if result.method == "least_squares":
            self._fill_least_squares(result, solution)
        else:
            result.lmdif_message = solution.message or result.message
        if solution.covariance is None:
            result.message = f"{result.message} Could not estimate error-bars."
        else:
            result.covar = solution.covariance.copy()
            self._calculate_uncertainties_correlations()
        return result

    def _fill_least_squares(self, result: Any, solution: Solution) -> None:
        """Set what scipy's ``least_squares`` returns beside the parameters."""
        result.x = solution.values
        result.fun = result.residual
        result.cost = 0.5 * float(result.residual @ result.residual)
        result.status = solution.status
        result.least_squares_nfev = result.njev = solution.evaluations
        limits = [(result.params[name].min, result.params[name].max) for name in result.var_names]
        result.active_mask = np.array(
            [int(x >= high) - int(x <= low) for x, (low, high) in zip(solution.values, limits, strict=True)]
        )
        if solution.jacobian is not None:
            result.jac = solution.jacobian
            result.grad = solution.jacobian.T @ result.residual
            result.optimality = float(np.abs(result.grad * (result.active_mask == 0)).max(initial=0.0))

    def eval_uncertainty(self, params: Any = None, sigma: float = 1, dscale: float = 0.01, **kwargs: Any) -> Any:
        """Return the uncertainty of the model, from its exact derivatives.

        Parameters
        ----------
        params : lmfit.Parameters, optional
            Parameters; by default those of the result.
        sigma : float
            Multiple of the standard error; below 1 it is a probability.
        dscale : float
            Step of finite differences. Derivatives are exact, and this only counts if it is given, or if the model is
            no formula: then lmfit does it.
        **kwargs
            Independent variables, by default those of the fit.

        Returns
        -------
        array
            The uncertainty at each point; the attributes `dely`, `dely_comps` and `dely_predicted` are set as in lmfit.
        """
        parameters = self.params if params is None else params
        keywords = {**self.userkws, **kwargs}
        shape = np.shape(self.model.eval(parameters, **keywords))
        known = all(one.stderr is not None for one in parameters.values())
        try:
            if dscale != 0.01 or not known or self.covar is None:
                raise NotTraceableError("lmfit does it")
            errors = {"": self._errors_of(self.model, parameters, keywords, shape)}
            for part in self.model.components:
                label = part.prefix if len(part.prefix) > 1 else part._name
                errors[label] = self._errors_of(part, parameters, keywords, shape)
        except NotTraceableError:
            return super().eval_uncertainty(params, sigma=sigma, dscale=dscale, **kwargs)
        from scipy.special import erf  # type: ignore[import-untyped,unused-ignore]
        from scipy.stats import t  # type: ignore[import-untyped,unused-ignore]

        probability = sigma if sigma < 1.0 else erf(sigma / np.sqrt(2.0))
        scale = t.ppf(0.5 * (probability + 1.0), self.ndata - self.nvarys)
        total = errors.pop("")
        self.dely = scale * np.sqrt(total)
        self.dely_predicted = scale * np.sqrt(total + self.redchi)
        self.dely_comps = {label: scale * np.sqrt(variance) for label, variance in errors.items()}
        return self.dely

    def _errors_of(self, model: Any, parameters: Any, keywords: dict[str, Any], shape: tuple[int, ...]) -> Array:
        """Return the variance of a model's values, gᵀ C g with their derivatives g."""
        values = np.array([parameters[name].value for name in self.var_names])
        if np.iscomplexobj(model.eval(parameters, **keywords)):
            raise NotTraceableError("it is complex")
        function = ModelFunction(model.eval, parameters, self.var_names)
        slopes = derivatives(function.traced(keywords, int(np.prod(shape)), values), values)[1]
        variance: Array = np.einsum("ik,ij,jk->k", slopes, self.covar, slopes)
        return variance.reshape(shape)

    def loads(self, s: str, funcdefs: Any = None, **kws: Any) -> Any:
        """Read the result from a text that ``dumps`` has written."""
        super().loads(s, funcdefs=funcdefs, **kws)
        self.model = adopted(self.model)
        return self


class _NotPopfitsError(Exception):
    """A fit that lmfit is to do; the text says why, and is empty where lmfit has an exception for it."""


def _package(frame: Any) -> str:
    """Return the package that a frame belongs to."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _jacobian(model: ModelAtPoints, values: Array) -> Array:
    """Return the derivatives of a traced model, (points, P)."""
    return derivatives(model, values)[1].T


def covariance_of(jacobian: Array) -> Array | None:
    """Return (JᵀJ)⁻¹, or None if the data do not determine all parameters."""
    lengths = np.sqrt((jacobian**2).sum(axis=0))
    if not np.isfinite(lengths).all() or not lengths.all():
        return None
    _, sizes, axes = np.linalg.svd(jacobian / lengths, full_matrices=False)
    if sizes[-1] <= np.finfo(float).eps * max(jacobian.shape) * sizes[0]:
        return None
    covariance: Array = (axes.T / sizes**2) @ axes / np.outer(lengths, lengths)
    return covariance


def load_model(fname: str | os.PathLike[str], funcdefs: Any = None) -> Any:
    """Return a model from a file that lmfit's ``save_model`` has written."""
    return Model(lambda x: x).loads(pathlib.Path(fname).read_text(), funcdefs=funcdefs)


def load_modelresult(fname: str | os.PathLike[str], funcdefs: Any = None) -> Any:
    """Return a result from a file that lmfit's ``save_modelresult`` has written."""
    result = ModelResult(Model(lambda x: x, None), lmfit.Parameters())
    return result.loads(pathlib.Path(fname).read_text(), funcdefs=funcdefs)


def __getattr__(name: str) -> Any:
    """Return what lmfit.model calls so."""
    return rival_attribute(__name__, "lmfit.model", name)
