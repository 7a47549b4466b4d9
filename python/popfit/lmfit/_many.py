"""Fits of one model of lmfit to many curves at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import lmfit  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import numpy.typing as npt

from popfit._checks import check_switch, close_name
from popfit._curve_data import CurveData, prepare_curves
from popfit._curve_models import ModelAtPoints, model_of_calls
from popfit._errors import InputError
from popfit._popfit import AT_BOUND
from popfit.curves import CurveFits, CurveFitter, Options
from popfit.lmfit._traced import ModelFunction, NotTraceableError, derivatives
from popfit.lmfit.model import ModelResult, Solution, covariance_of

Array = npt.NDArray[Any]

#: What a model may do with a NaN.
NAN_POLICIES = ("raise", "propagate", "omit")


def fit_many(
    model: Any,
    data: Any,
    params: Any = None,
    weights: Any = None,
    nan_policy: str | None = None,
    scale_covar: bool = True,
    **kwargs: Any,
) -> LmfitMany:
    """Fit a model of lmfit to many curves with the same points, all at once.

    Parameters
    ----------
    model : lmfit.Model
        The model; popfit's and lmfit's own will do.
    data : array, (curves, points)
        One curve per row.
    params : lmfit.Parameters or sequence of lmfit.Parameters, optional
        Starts, bounds and expressions of all curves, or of each; by default those of ``model.make_params()``. Those of
        a sequence have the same names, expressions and varying parameters.
    weights : number or array, (points) or (curves, points), optional
        1/σ of the data; a weight of 0 leaves its point out.
    nan_policy : {"raise", "propagate", "omit"}, optional
        What to do with values that are not finite; by default what the model says. "propagate" gives a curve that has
        one a result without success.
    scale_covar : bool
        True to multiply covariances by the reduced χ², as lmfit does by default.
    **kwargs
        Independent variables, and parameters by their names: a number, or one per curve.

    Returns
    -------
    LmfitMany
        The results.

    Raises
    ------
    InputError
        If arrays or parameters do not fit together.
    ValueError
        If data are not finite, and the policy is "raise".

    Examples
    --------
    >>> import numpy as np
    >>> from popfit.lmfit import fit_many, models
    >>> x = np.linspace(-5.0, 5.0, 60)
    >>> centers = np.array([-1.0, 0.0, 1.5])
    >>> data = np.exp(-0.5 * (x - centers[:, np.newaxis]) ** 2)
    >>> model = models.GaussianModel()
    >>> many = fit_many(model, data, model.make_params(amplitude=2, center=0, sigma=1), x=x)
    >>> many.best_values["center"].round(3)
    array([-1. ,  0. ,  1.5])
    >>> many[2].success
    True
    """
    # 1. The data.
    if not isinstance(model, lmfit.Model):
        raise InputError(f"model: {type(model).__name__}; give a model of lmfit", argument="model")
    curves = np.asarray(data)
    if curves.ndim != 2 or curves.dtype.kind not in "biuf":
        raise InputError(
            f"data: {curves.dtype} of the shape {curves.shape}; give real numbers, (curves, points)", argument="data"
        )
    curves = curves if curves.dtype in (np.float32, np.float64) else curves.astype(np.float64)
    count, points = curves.shape
    weights = None if weights is None else _weights(weights, count, points)
    mask = _mask(curves, weights, model.nan_policy if nan_policy is None else nan_policy)
    # 2. Parameters of each curve, and the function of those that vary.
    keywords = _independent_variables(model, kwargs)
    starts = _Starts(model, params, kwargs, count)
    function = ModelFunction(model.eval, starts.template, starts.names)
    # 3. The fit.
    sigma = None
    if weights is not None:
        with np.errstate(divide="ignore"):
            sigma = 1.0 / np.abs(np.where(np.isfinite(weights), weights, 0.0))
    bounds = starts.lower, starts.upper
    given = prepare_curves(
        starts.names,
        keywords,
        curves,
        starts.values,
        sigma,
        mask,
        bounds if np.isfinite(bounds).any() else None,
        False,
    )
    fitter = _Fitter(function, parameters=starts.names, fixed=starts.fixed, absolute_sigma=True)
    watch = {"progress": False, "timeout": None, "threads": None}
    fits = fitter.fit_data(given, Options(covariance=True, exact=False), watch)
    return LmfitMany(model, starts, curves, weights, mask, keywords, check_switch("scale_covar", scale_covar), fits)


class _Fitter(CurveFitter):
    """Fits models of lmfit, of whose branches nobody is warned."""

    def model_at(self, given: CurveData) -> tuple[ModelAtPoints, str | None]:
        """Return the model at the curves' points, and why it is no formula, if it is none."""
        function = self.model
        assert isinstance(function, ModelFunction)
        try:
            if given.x.curves == 0:
                raise NotTraceableError("there is no curve")
            return function.traced_at(given.x, given.arrays["starts"]), None
        except NotTraceableError as error:
            return model_of_calls(function, self.parameters, given.x, given.arrays["starts"]), str(error)


class _Starts:
    """Starts and bounds of the parameters of each curve.

    Attributes
    ----------
    template : lmfit.Parameters
        Parameters with all that the curves share.
    varying, fixed : tuple of str
        Parameters that vary, and parameters that do not but differ from curve to curve.
    names : tuple of str
        Both.
    values, lower, upper : array, (curves, names)
        Starts and bounds.
    """

    def __init__(self, model: Any, params: Any, kwargs: dict[str, Any], count: int) -> None:
        given = model.make_params() if params is None else params
        each: Sequence[Any] = [given] if isinstance(given, lmfit.Parameters) else list(given)
        if not all(isinstance(one, lmfit.Parameters) for one in each) or len(each) not in (1, count):
            raise InputError(
                f"params: give lmfit.Parameters, or a sequence of them, one for each of the {count} curves",
                argument="params",
            )
        self.template = deepcopy(each[0]) if each else model.make_params()
        columns = self._columns(model, kwargs, count)
        missing = [name for name in model.param_names if name not in self.template]
        if missing:
            raise InputError(f"params: no {', '.join(missing)}", argument="params")
        for row, other in enumerate(each[1:], start=1):
            for name in {*self.template, *other}:
                if name not in other or name not in self.template:
                    raise InputError(f"params: curve {row} and curve 0 do not both have {name!r}", argument="params")
                one, two = each[0][name], other[name]
                if (one.expr, one.vary) != (two.expr, two.vary):
                    raise InputError(
                        f"params: {name!r} of curve {row} has another expression than that of curve 0, or one of them "
                        "does not vary",
                        argument="params",
                    )
        free = [name for name, one in self.template.items() if one.expr is None]
        for name in free:
            if name not in columns:
                numbers = [float(one[name].value) for one in each] if len(each) > 1 else [self.template[name].value]
                columns[name] = np.array(numbers, dtype=np.float64)
        self.varying = tuple(name for name in free if self.template[name].vary)
        if not self.varying:
            raise InputError("params: no parameter varies", argument="params")
        self.fixed = tuple(
            name for name in free if name not in self.varying and np.unique(columns[name], equal_nan=True).size > 1
        )
        for name in free:
            if name not in self.varying and name not in self.fixed and columns[name].size:
                self.template[name].value = columns[name][0]
        self.names = (*self.varying, *self.fixed)
        self.values = np.empty((count, len(self.names)))
        self.lower, self.upper = np.full(self.values.shape, -np.inf), np.full(self.values.shape, np.inf)
        for k, name in enumerate(self.names):
            self.values[:, k] = columns[name]
            if name in self.varying:
                sources = each if len(each) > 1 and name in each[0] else [self.template]
                self.lower[:, k] = [one[name].min for one in sources]
                self.upper[:, k] = [one[name].max for one in sources]
        unset = [name for name, column in zip(self.names, self.values.T, strict=True) if np.isinf(column).any()]
        if unset:
            raise InputError(f"params: give {', '.join(unset)} a start", argument="params")
        np.clip(self.values, self.lower, self.upper, out=self.values)

    def _columns(self, model: Any, kwargs: dict[str, Any], count: int) -> dict[str, Array]:
        """Return starts that keyword arguments give by the parameters' names, and set them in the template."""
        columns = {}
        for name in [name for name in kwargs if name in model.param_names or name in self.template]:
            value = kwargs.pop(name)
            if isinstance(value, lmfit.Parameter):
                self.template[name] = deepcopy(value)
                continue
            column = np.asarray(value, dtype=np.float64)
            if column.shape not in ((), (count,)):
                raise InputError(f"{name} has the shape {column.shape}; give a number or ({count},)", argument=name)
            if name not in self.template:
                self.template.add(name)
            self.template[name].set(value=float(column.ravel()[0]) if column.size else 0.0)
            columns[name] = np.atleast_1d(column)
        for name in kwargs:
            if name not in model.independent_vars:
                known = [*model.independent_vars, *model.param_names]
                raise InputError(f"no argument {name!r}{close_name(name, known)}", argument=name)
        return columns

    def of(self, row: int) -> Any:
        """Return the Parameters of a curve."""
        own = deepcopy(self.template)
        for name, value, low, high in zip(
            self.names, self.values[row].tolist(), self.lower[row].tolist(), self.upper[row].tolist(), strict=True
        ):
            if name in self.varying:
                own[name].set(min=low, max=high)
            own[name].set(value=value)
        return own


def _weights(weights: Any, count: int, points: int) -> Array:
    """Return weights, (1), (points) or (curves, points)."""
    array = np.atleast_1d(np.asarray(weights))
    if array.dtype.kind not in "biuf" or array.shape not in ((1,), (points,), (count, points)):
        raise InputError(
            f"weights: {array.dtype} of the shape {array.shape}; give real numbers, ({points},) or ({count}, {points})",
            argument="weights",
        )
    return array.astype(np.float64)


def _mask(curves: Array, weights: Array | None, policy: str) -> Array | None:
    """Return which points do not count."""
    if policy not in NAN_POLICIES:
        raise ValueError("nan_policy must be 'propagate', 'omit', or 'raise'.")
    missing = ~np.isfinite(curves)
    if weights is not None:
        missing = missing | ~np.isfinite(weights)
    if not missing.any() or policy == "propagate":
        return None
    if policy == "omit":
        return missing
    first = int(np.flatnonzero(missing.any(axis=1))[0])
    raise ValueError(f"curve {first} has values that are not finite; nan_policy='omit' leaves such points out")


def _independent_variables(model: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the independent variables, which are taken out of the keyword arguments."""
    found = {}
    for name in model.independent_vars:
        if name in kwargs:
            found[name] = lmfit.model.coerce_arraylike(kwargs.pop(name))
        elif name not in model.opts and name not in model.independent_vars_defvals:
            raise ValueError(f"Missing independent variable '{name}'")
    return found


class LmfitMany(Sequence[Any]):
    """Results of `fit_many`: ``many[i]`` is a `ModelResult`, made when it is asked for.

    Attributes
    ----------
    model : lmfit.Model
        The model.
    var_names : list of str
        The P parameters that vary.
    best_values, stderr : mapping of str to array, (curves)
        Values and standard errors of all parameters, those with expressions among them; NaN where there is none.
    covar : array, (curves, P, P)
        Covariances; NaN where they are not known.
    chisqr, redchi, aic, bic : array, (curves)
        Statistics, as lmfit defines them.
    ndata, nfree, nfev : array, (curves)
        Numbers of points, of degrees of freedom, and of evaluations, of which a linearisation counts `nvarys` + 1.
    nvarys : int
        The number of parameters that vary.
    success, errorbars : array of bool, (curves)
        True for fits that converged, and for those with errors.
    message : list of str
        What there is to say about each fit.
    """

    def __init__(
        self,
        model: Any,
        starts: _Starts,
        data: Array,
        weights: Array | None,
        mask: Array | None,
        keywords: dict[str, Any],
        scale_covar: bool,
        fits: CurveFits,
    ) -> None:
        assert fits.covariance is not None
        self.model = model
        self.var_names = list(starts.varying)
        self.nvarys = len(self.var_names)
        self.scale_covar = scale_covar
        self._starts, self._data, self._weights, self._mask = starts, data, weights, mask
        self._keywords = keywords
        self._status = fits.status
        self.success = fits.converged
        self.message = fits.messages
        self.nfev = fits.rounds.astype(np.int64) * (self.nvarys + 1)
        # 1. Values; what could not be fitted has none.
        self._values = fits.parameters
        count, points = data.shape
        self.ndata = np.full(count, points) if mask is None else points - np.count_nonzero(mask, axis=1)
        self.nfree = self.ndata - self.nvarys
        # 2. Statistics.
        with np.errstate(divide="ignore", invalid="ignore"):
            self.redchi = fits.chi2 / np.maximum(1, self.nfree)
            self.chisqr = np.maximum(fits.chi2, 1e-250 * self.ndata)
            likelihood = self.ndata * np.log(self.chisqr / self.ndata)
            self.aic = likelihood + 2 * self.nvarys
            self.bic = likelihood + np.log(self.ndata) * self.nvarys
        # 3. Covariances, as if no parameter were at a bound.
        self._unscaled = fits.covariance[:, : self.nvarys, : self.nvarys].copy()
        for row in np.flatnonzero(self.success & (fits.flags & AT_BOUND != 0)).tolist():
            known = covariance_of(fits[[row]].jacobian()[:, : self.nvarys])
            self._unscaled[row] = np.nan if known is None else known
        known = np.isfinite(self._unscaled).all(axis=(1, 2)) & self.success
        self._unscaled[~known] = np.nan
        self.covar = self._unscaled * self.redchi[:, np.newaxis, np.newaxis] if scale_covar else self._unscaled
        self.errorbars = known & (np.diagonal(self.covar, axis1=1, axis2=2) > 0.0).all(axis=1)

    def __len__(self) -> int:
        """Return the number of curves."""
        return len(self.success)

    def __getitem__(self, key: Any) -> Any:
        """Return the result of a curve, or a list of those of a slice."""
        if isinstance(key, slice):
            return [self[row] for row in range(*key.indices(len(self)))]
        row = range(len(self))[key]
        data, keywords = self._data[row].astype(np.float64), dict(self._keywords)
        weights = self._weights if self._weights is None or self._weights.ndim == 1 else self._weights[row]
        if self._mask is not None:  # as lmfit's fit does, which leaves out what is infinite later
            kept = ~np.isnan(data)
            data = data[kept]
            weights = weights if weights is None or weights.size == 1 else weights[kept]
            keywords = {
                name: value[..., kept] if np.shape(value)[-1:] == kept.shape else value
                for name, value in keywords.items()
            }
        values = self._values[row, : self.nvarys]
        covariance = self._unscaled[row]
        has_values = bool(np.isfinite(values).all())
        result = ModelResult(
            self.model,
            self._starts.of(row),
            fcn_kws=keywords,
            scale_covar=self.scale_covar,
            nan_policy="propagate" if not has_values else "raise" if self._mask is None else "omit",
        )
        result._known = Solution(
            values if has_values else self._starts.values[row, : self.nvarys],
            covariance if self.errorbars[row] else None,
            int(self._status[row]),
            int(self.nfev[row]),
            self.message[row],
        )
        with np.errstate(invalid="ignore"):
            result.fit(data=data, weights=weights)
        result.components = self.model.components
        return result

    def __iter__(self) -> Iterator[Any]:
        """Yield the results."""
        return (self[row] for row in range(len(self)))

    @property
    def best_values(self) -> Mapping[str, Array]:
        """Values of each parameter."""
        return _Columns(self, self._value_column)

    @property
    def stderr(self) -> Mapping[str, Array]:
        """Standard errors of each parameter; 0 of those that are fixed."""
        return _Columns(self, self._error_column)

    @property
    def best_fit(self) -> Array:
        """The best-fit curves, (curves, points)."""
        function = ModelFunction(self.model.eval, self._starts.template, self._starts.names)
        fitted = np.full(self._data.shape, np.nan)
        for row, values in enumerate(self._values.tolist()):
            if np.isfinite(values).all():
                fitted[row] = function(self._keywords, *values)
        return fitted

    def _value_column(self, name: str) -> Array:
        """Return the values of a parameter."""
        names = self._starts.names
        if name in names:
            return self._values[:, names.index(name)].copy()
        if self._starts.template[name].expr is None:
            return np.full(len(self), float(self._starts.template[name].value))
        return self._expression(name)[0]

    def _error_column(self, name: str) -> Array:
        """Return the standard errors of a parameter."""
        if name in self.var_names:
            k = self.var_names.index(name)
            return np.sqrt(self.covar[:, k, k])
        if self._starts.template[name].expr is None:
            return np.where(self.errorbars, 0.0, np.nan)
        return self._expression(name)[1]

    def _expression(self, name: str) -> tuple[Array, Array]:
        """Return values and standard errors of a parameter with an expression."""
        values, errors = np.full((2, len(self)), np.nan)
        fitted = np.flatnonzero(np.isfinite(self._values).all(axis=1)).tolist()
        if not fitted:
            return values, errors
        function = ModelFunction(lambda parameters: parameters[name].value, self._starts.template, self._starts.names)
        try:
            model = function.traced({}, 1, self._values[fitted[0]])
        except NotTraceableError:  # lmfit's own way, curve by curve
            for row in fitted:
                one = self[row].params[name]
                values[row], errors[row] = one.value, np.nan if one.stderr is None else one.stderr
            return values, errors
        for row in fitted:
            value, slopes = derivatives(model, self._values[row])
            slopes = slopes[: self.nvarys, 0]
            values[row], errors[row] = value[0], np.sqrt(slopes @ self.covar[row] @ slopes)
        return values, errors

    def __repr__(self) -> str:
        """Return the numbers of curves and of fits that converged."""
        return f"<popfit.LmfitMany: {len(self)} curves, {int(self.success.sum())} converged; {self.model!r}>"


class _Columns(Mapping[str, Array]):
    """Columns of results by the parameters' names."""

    def __init__(self, many: LmfitMany, column: Callable[[str], Array]) -> None:
        self._many = many
        self._column = column

    def __getitem__(self, name: str) -> Array:
        """Return the values of a parameter, (curves)."""
        if name not in self._many._starts.template:
            raise KeyError(f"no parameter {name!r}{close_name(name, list(self))}")
        return self._column(name)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the parameters."""
        return iter(self._many._starts.template)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self._many._starts.template)


__all__ = ["LmfitMany", "fit_many"]
