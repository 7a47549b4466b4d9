"""A drop-in replacement for fitters of ``astropy.modeling.fitting``: ``from popfit.astropy import TRFLSQFitter``.

Models become formulas with exact derivatives, and `parallel_fit_dask` fits all spectra of a cube at once. Every other
name is astropy's own.
"""

from __future__ import annotations

import copy
import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import astropy.units as u  # type: ignore[import-untyped,unused-ignore]
import numpy as np
import numpy.typing as npt
from astropy.modeling import fitting  # type: ignore[import-untyped,unused-ignore]
from astropy.nddata import NDUncertainty, StdDevUncertainty, support_nddata  # type: ignore[import-untyped,unused-ignore]
from astropy.utils.exceptions import AstropyUserWarning  # type: ignore[import-untyped,unused-ignore]
from astropy.wcs.wcsapi import (  # type: ignore[import-untyped,unused-ignore]
    BaseHighLevelWCS,
    BaseLowLevelWCS,
    SlicedLowLevelWCS,
)

from popfit._arrays import split_mask, warn_caller
from popfit._curve_data import prepare_curves
from popfit._curve_fit import ROUNDS_PER_CALL
from popfit._curve_models import ModelAtPoints, agrees_at_results, model_of_function
from popfit._errors import InputError
from popfit._rival import Difference, rival_attribute
from popfit._tracing import NotTraceableError, Traced
from popfit.curves import CurveFits, CurveFitter, Options

__all__ = ["DIFFERENCES", "DogBoxLSQFitter", "LMLSQFitter", "TRFLSQFitter", "parallel_fit_dask"]

Array: TypeAlias = npt.NDArray[Any]

#: What differs from astropy.
DIFFERENCES = (
    Difference("`TRFLSQFitter`, `DogBoxLSQFitter`, `LMLSQFitter`", "three solvers of scipy", "one solver, popfit's"),
    Difference(
        "derivatives",
        "the model's `fit_deriv`, or differences",
        "exact ones of the formula that the model is traced to; `epsilon` has no effect, with a warning",
    ),
    Difference(
        "derivatives of models with ties",
        "leave out what is tied, unless `estimate_jacobian` is set",
        "exact; fits that stop early there go on, and covariances are right",
    ),
    Difference("`maxiter`", "limit of calls of the model", "four linearisations for each call"),
    Difference("`acc`", "1e-7 by default", "popfit's own tolerance, which is tighter, unless given"),
    Difference("bounds of `LMLSQFitter`", "clipped while the model is evaluated", "bounds"),
    Difference("masked data", "count in part", "do not count"),
    Difference(
        "ties to parameters that are tied themselves",
        "lag behind by one evaluation",
        "exact, where those come first in the model; else by astropy, with a warning",
    ),
    Difference(
        "models that are no formulas, such as `AiryDisk2D`, and fits that fail", "", "by astropy, with a warning"
    ),
    Difference(
        "`parallel_fit_dask` of numpy arrays",
        "Dask, in processes",
        "one call; neither Dask nor processes, whatever the `scheduler`",
    ),
    Difference("`parallel_fit_dask` of dask arrays", "a loop in each chunk", "one call for each chunk, by threads"),
    Difference(
        "other fitters, `diagnostics`, `fit_info`, a WCS that differs from fit to fit of a dask array",
        "",
        "by astropy, with a warning",
    ),
    Difference("compound models whose starts differ from fit to fit", "all fits fail", "are fitted"),
    Difference("NaN in the data where `mask` is true, or the weight 0", "the fit fails", "does not count"),
    Difference("`weights` beside `mask`", "are written to", "stay as they are"),
)

#: Packages whose lines are not those that a warning is about.
_INNER = ("popfit", "astropy")
#: Fits of one chunk of a dask array, unless the caller says how many.
_CHUNK = 1 << 13
#: Largest number of fits that are made in one call of the core.
_ROWS = 1 << 16
#: Watch of a run: no bar, no timeout, the usual threads.
_WATCH: dict[str, Any] = {"progress": False, "timeout": None, "threads": None}
#: popfit's codes of fits that have ended in scipy's words.
_MESSAGES = {
    0: "The maximum number of function evaluations is exceeded.",
    1: "`gtol` termination condition is satisfied.",
    2: "`ftol` termination condition is satisfied.",
    3: "`xtol` termination condition is satisfied.",
    4: "Both `ftol` and `xtol` termination conditions are satisfied.",
}


class _LeftToAstropyError(Exception):
    """A fit that popfit does not make; the text says why, and is empty where astropy raises an exception."""


class _Number(np.float64):
    """The value of a parameter, as a function that ties another one to it expects it."""

    @property
    def value(self) -> np.float64:
        """The number."""
        return np.float64(self)


class _TracedParameter(Traced):
    """A stand-in for the value of a parameter: one number, and for a function that ties another one a parameter."""

    size, shape, ndim = 1, (), 0

    @property
    def value(self) -> _TracedParameter:
        """The number."""
        return self

    def item(self) -> _TracedParameter:
        """Return the number."""
        return self

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Record a function of numpy; an array like a parameter can be filled, as constant models do."""
        if function is np.empty_like:
            return _Empty(self.graph, self.graph.operand(0.0))
        return super().__array_function__(function, types, args, kwargs)


class _Empty(Traced):
    """A stand-in for an array without values."""

    def fill(self, value: Any) -> None:
        """Give all elements a value."""
        self.node = self.graph.operand(value)


class _Parameters:
    """A stand-in for a model, whose parameters up to now are known, for functions that tie another one to them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Refuse what is not known yet."""
        raise NotTraceableError(f"a tie uses {name!r} of the model; give it parameters that come before the tied one")

    def __getitem__(self, part: Any) -> _Parameters:
        """Return the parameters of a part of a compound model, by its number."""
        ending = f"_{part}"
        own = {name.removesuffix(ending): value for name, value in self.__dict__.items() if name.endswith(ending)}
        return _Parameters(own)


class _ModelFunction:
    """A model of astropy as a function of its inputs and of some of its parameters.

    With numbers it sets the model's ties as astropy does, and with stand-ins it uses none of the model's own values, so
    that the comparison of formula and function before and after a fit is one with astropy's values.

    Parameters
    ----------
    model : Model
        A model with one value for each parameter.
    names : sequence of str
        Parameters that are arguments; others that are not tied keep the model's values.
    """

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        self.model = model
        self.names = tuple(names)
        self.tied = [name for name in model.param_names if model.tied[name]]
        self._values = np.array(model.parameters)
        self._places = {name: k for k, name in enumerate(model.param_names)}
        if len(self._values) != len(self._places):
            raise _LeftToAstropyError("a parameter has several values")
        self._twin = model
        if any(map(_is_voigt, _parts(model))):
            # a Voigt profile compares its argument with that of its last call, which stand-ins cannot
            self._twin = model.copy()
            for part in filter(_is_voigt, _parts(self._twin)):
                part._wrap_wofz = part._faddeeva

    def __call__(self, x: Array, *values: Any) -> Any:
        """Return the values of the model, in one dimension."""
        if any(isinstance(value, Traced) for value in values):
            return np.ravel(self._twin.evaluate(*x, *self.completed(values)))
        return np.ravel(self.model.evaluate(*x, *self.set(values)))

    def set(self, values: Sequence[Any]) -> Array:
        """Return all parameters for the values of some; where some are tied, the model has them afterwards."""
        found = self._values.copy()
        found[[self._places[name] for name in self.names]] = values
        for name in self.tied:
            self.model.parameters = found
            found[self._places[name]] = np.asarray(self.model.tied[name](self.model)).item()
        if self.tied:
            self.model.parameters = found
        return found

    def completed(self, values: Sequence[Any]) -> list[Any]:
        """Return all parameters for the values of some, without the model."""
        found = {name: _Number(self._values[k]) for name, k in self._places.items() if name not in self.tied}
        found |= dict(zip(self.names, map(_as_parameter, values), strict=True))
        for name in self.tied:
            found[name] = _as_parameter(self.model.tied[name](_Parameters(found)))
        return [found[name] for name in self._places]


def _parts(model: Any) -> list[Any]:
    """Return the models that a compound model is made of, or the model itself."""
    return getattr(model, "_leaflist", None) or [model]


def _is_voigt(model: Any) -> bool:
    """Return True for a model with astropy's Faddeeva function."""
    return hasattr(model, "_wrap_wofz") and hasattr(model, "_faddeeva")


def _as_parameter(value: Any) -> Any:
    """Return a number or a stand-in with the attributes of a parameter that functions use which tie others to it."""
    return _TracedParameter(value.graph, value.node) if isinstance(value, Traced) else _Number(value)


class _Settings(NamedTuple):
    """What a fitter is asked for."""

    maxiter: int
    acc: float
    epsilon: float

    def curve_fitter(self, function: _ModelFunction, fixed: Sequence[str] = ()) -> CurveFitter:
        """Return popfit's fitter of these settings."""
        return CurveFitter(
            function,
            parameters=function.names,
            fixed=fixed,
            absolute_sigma=True,
            max_rounds=ROUNDS_PER_CALL * int(self.maxiter),
            xtol=None if self.acc == fitting.DEFAULT_ACC else self.acc,
        )

    def warn_of_epsilon(self) -> None:
        """Warn of a step of differences, of which there are none."""
        if self.epsilon != fitting.DEFAULT_EPS:
            warn_caller("epsilon: no effect; derivatives are exact", packages=_INNER)


def _run(
    fitter: CurveFitter, function: _ModelFunction, given: Any, options: Options
) -> tuple[CurveFits, ModelAtPoints]:
    """Fit a model to curves.

    Raises
    ------
    _LeftToAstropyError
        If it is no formula.
    """
    try:
        model = model_of_function(function, function.names, given.x, given.arrays["starts"], warns_of_branches=False)
    except (NotTraceableError, InputError) as error:
        raise _LeftToAstropyError(f"the model is no formula: {error}") from error
    fits = fitter.run(model, given, options, _WATCH)
    if not agrees_at_results(model, given.x, fits.parameters):
        raise _LeftToAstropyError("at some results the model's values are not those of its formula")
    return fits, model


def _deviations(weights: Array) -> Array:
    """Return standard deviations, infinite where the weight is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / np.abs(weights))


def _bounds_of(model: Any, names: Sequence[str]) -> tuple[Array, Array]:
    """Return lower and upper bounds of parameters, infinite where there is none."""
    pairs = [model.bounds[name] for name in names]
    lower = np.array([-np.inf if pair[0] is None else pair[0] for pair in pairs], dtype=np.float64)
    upper = np.array([np.inf if pair[1] is None else pair[1] for pair in pairs], dtype=np.float64)
    return lower, upper


class _PopfitFitter:
    """What the fitters of this module do in the place of scipy's `least_squares`."""

    _method: str
    _use_min_max_bounds: bool
    fit_info: Any
    objective_function: Any

    def _run_fitter(
        self,
        model: Any,
        farg: tuple[Any, ...],
        fkwarg: dict[str, Any],
        maxiter: int,
        acc: float,
        epsilon: float,
        estimate_jacobian: bool,
    ) -> tuple[Array, Array, Array]:
        """Return the starts of the free parameters, their best values and covariances of weighted residuals."""
        settings = _Settings(maxiter, acc, epsilon)
        try:
            answer = self._fit(model, farg, fkwarg, settings)
            settings.warn_of_epsilon()
            return answer
        except _LeftToAstropyError as error:
            reason = str(error)
        if reason:
            warn_caller(f"{reason}. The fit is astropy's, which is slower", packages=_INNER)
        base: Any = super()
        by_astropy: tuple[Array, Array, Array] = base._run_fitter(
            model, farg, fkwarg, maxiter, acc, epsilon, estimate_jacobian
        )
        return by_astropy

    def _fit(
        self, model: Any, farg: tuple[Any, ...], fkwarg: dict[str, Any], settings: _Settings
    ) -> tuple[Array, Array, Array]:
        """Fit a model to one set of points."""
        # 1. The free parameters, and scipy's checks of them.
        names = [name for name in model.param_names if not (model.fixed[name] or model.tied[name])]
        function = _ModelFunction(model, names)
        starts, _, _ = fitting.model_to_fit_params(model)
        starts = np.array(starts)
        lower, upper = _bounds_of(model, names)
        if not names:
            raise _LeftToAstropyError  # scipy's exception
        first = starts
        if self._use_min_max_bounds:  # astropy clips
            first = np.clip(starts, lower, upper)
        elif np.any(lower >= upper) or np.any(starts < lower) or np.any(starts > upper):
            raise _LeftToAstropyError  # scipy's exception
        # 2. The points.
        _, weights, *inputs, y = farg
        self.objective_function(starts, *farg, **fkwarg)  # raises an exception at values that are not finite
        weighted = np.ones(y.shape) if weights is None else np.broadcast_to(np.asarray(weights, np.float64), y.shape)
        masks = [np.ma.getmaskarray(one) for one in (*inputs, y)]
        masks += [] if weights is None else [np.broadcast_to(np.ma.getmaskarray(weights), y.shape)]
        mask = np.logical_or.reduce(masks).ravel()
        if self._method == "lm" and y.size < len(names):
            raise _LeftToAstropyError  # scipy's exception
        used = int(np.count_nonzero(~mask & (weighted.ravel() != 0.0)))
        if used < len(names):
            raise _LeftToAstropyError(f"there are {used} points for {len(names)} parameters")
        # 3. The fit.
        x = np.stack([np.asarray(one, dtype=np.float64) for one in inputs])
        is_bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
        given = prepare_curves(
            names,
            x,
            np.asarray(y).ravel(),
            first,
            None if weights is None else _deviations(weighted.ravel()),
            mask if mask.any() else None,
            (lower, upper) if is_bounded else None,
            False,
        )
        fits, formula = _run(settings.curve_fitter(function), function, given, Options(False, True))
        status = int(fits.status[0])
        if status not in _MESSAGES:
            raise _LeftToAstropyError(f"popfit's fit has failed: {fits.messages[0]}")
        # 4. The answer.
        best = fits.parameters[0]
        slopes = formula.model.linearise(formula.x.ravel(), np.ascontiguousarray(best))[1:].T
        jacobian = np.where(mask, 0.0, weighted.ravel())[:, np.newaxis] * slopes
        model.parameters = function.set(best)
        residuals = np.where(mask, 0.0, np.ma.getdata(self.objective_function(best, *farg, **fkwarg)))
        self.fit_info = _optimize_result(best, residuals, jacobian, (lower, upper), fits)
        if not self.fit_info.success:
            message = f"The fit may be unsuccessful; check: \n    {self.fit_info.message}"
            warn_caller(message, AstropyUserWarning, _INNER)
        covariance = _pseudo_covariance(jacobian)
        if weights is None and mask.any():  # astropy takes masked points for degrees of freedom
            covariance = covariance * ((len(y) - len(names)) / max(used - len(names), 1))
        return starts, best, covariance


def _optimize_result(x: Array, residuals: Array, jacobian: Array, bounds: tuple[Array, Array], fits: CurveFits) -> Any:
    """Return the attributes that scipy's `least_squares` gives."""
    from scipy.optimize import OptimizeResult  # type: ignore[import-untyped,unused-ignore]

    lower, upper = bounds
    gradient = jacobian.T @ residuals
    # first-order optimality as scipy has it: the gradient, scaled by the distance to the bound that it points at
    distance = np.where(gradient < 0.0, upper - x, np.where(gradient > 0.0, x - lower, 1.0))
    scale = np.where(np.isfinite(distance), distance, 1.0)
    status = int(fits.status[0])
    return OptimizeResult(
        x=x,
        cost=0.5 * float(residuals @ residuals),
        fun=residuals,
        jac=jacobian,
        grad=gradient,
        optimality=float(np.abs(gradient * scale).max()),
        active_mask=(x >= upper).astype(int) - (x <= lower).astype(int),
        nfev=int(fits.evaluations[0]),
        njev=int(fits.rounds[0]),
        status=status,
        message=_MESSAGES[status],
        success=status > 0,
    )


def _pseudo_covariance(jacobian: Array) -> Array:
    """Return the pseudoinverse of JᵀJ, without singular values that are zero to rounding."""
    _, sizes, axes = np.linalg.svd(jacobian, full_matrices=False)
    kept = sizes > np.finfo(float).eps * max(jacobian.shape) * sizes[0]
    covariance: Array = (axes[kept].T / sizes[kept] ** 2) @ axes[kept]
    return covariance


class TRFLSQFitter(_PopfitFitter, fitting.TRFLSQFitter):  # type: ignore[misc,unused-ignore]
    """Fits as astropy's ``TRFLSQFitter`` does: units, bounds, ties, uncertainties and ``fit_info`` are astropy's.

    Parameters
    ----------
    calc_uncertainties : bool
        True to give the fitted model covariances and standard deviations.

    Examples
    --------
    >>> import numpy as np
    >>> from astropy.modeling import models
    >>> from popfit.astropy import TRFLSQFitter
    >>> x = np.linspace(0.0, 10.0, 50)
    >>> line = models.Gaussian1D(3.0, 4.0, 0.8) + models.Const1D(1.0)
    >>> fit = TRFLSQFitter()(models.Gaussian1D(2.0, 4.5, 1.0) + models.Const1D(0.0), x, line(x))
    >>> fit.parameters.round(6)
    array([3. , 4. , 0.8, 1. ])
    """


class DogBoxLSQFitter(_PopfitFitter, fitting.DogBoxLSQFitter):  # type: ignore[misc,unused-ignore]
    """Fits as astropy's ``DogBoxLSQFitter`` does; see `TRFLSQFitter`.

    Parameters
    ----------
    calc_uncertainties : bool
        True to give the fitted model covariances and standard deviations.
    """


class LMLSQFitter(_PopfitFitter, fitting.LMLSQFitter):  # type: ignore[misc,unused-ignore]
    """Fits as astropy's ``LMLSQFitter`` does; see `TRFLSQFitter`.

    Parameters
    ----------
    calc_uncertainties : bool
        True to give the fitted model covariances and standard deviations.
    """


#: The fitters of this module, and those of astropy in their place.
_FITTERS = {
    TRFLSQFitter: fitting.TRFLSQFitter,
    DogBoxLSQFitter: fitting.DogBoxLSQFitter,
    LMLSQFitter: fitting.LMLSQFitter,
}


class _World(NamedTuple):
    """Inputs of a model at the points of a cube."""

    #: One array for each input: of the fitting axes' shape if all fits share them, else of the cube's.
    inputs: tuple[Any, ...]
    #: Their units, or None.
    units: list[Any]
    #: True if all fits share them.
    is_shared: bool


@support_nddata(wcs="world", uncertainty="weights", unit="data_unit")  # type: ignore[untyped-decorator,unused-ignore]
def parallel_fit_dask(
    *,
    model: Any,
    fitter: Any,
    data: Any,
    data_unit: Any = None,
    weights: Any = None,
    mask: Any = None,
    fitting_axes: Any = None,
    world: Any = None,
    chunk_n_max: int | None = None,
    diagnostics: str | None = None,
    diagnostics_path: Any = None,
    diagnostics_callable: Any = None,
    scheduler: Any = None,
    fitter_kwargs: dict[str, Any] | None = None,
    preserve_native_chunks: bool = False,
    equivalencies: Any = None,
    fit_info: Any = False,
) -> Any:
    """Fit a model to all spectra of a cube, or along any axes of any array, as astropy's ``parallel_fit_dask`` does.

    Parameters
    ----------
    model : Model
        The model; the shapes of its parameters, which are the starts, can be broadcast to that of the iterating axes.
    fitter : TRFLSQFitter, DogBoxLSQFitter or LMLSQFitter
        A fitter of this module. With others, astropy fits.
    data : array or dask array
        The data. A numpy array needs no Dask.
    data_unit : Unit, optional
        Unit of the data, if they are no Quantity.
    weights : array, dask array or NDUncertainty, optional
        Weights of the residuals, 1/sigma.
    mask : array of bool, optional
        True for data that do not count.
    fitting_axes : int or tuple of int
        Axes along which the model is fitted; the others are iterated over.
    world : None, tuple of arrays or WCS
        Inputs of the model for each fitting axis, of one dimension or of shapes that can be broadcast to the data's; or
        a WCS of the data. Pixels unless given.
    chunk_n_max : int, optional
        Largest number of fits that are made together.
    diagnostics, diagnostics_path, diagnostics_callable : optional
        With these, astropy fits.
    scheduler : str, optional
        Scheduler of Dask for dask arrays, "default" for that of its settings; threads unless given.
    fitter_kwargs : dict, optional
        Further arguments of the fitter.
    preserve_native_chunks : bool
        True to fit the chunks of a dask array as they are.
    equivalencies : dict, optional
        Further equivalencies of units by the names of inputs.
    fit_info : bool or iterable of str
        With this, astropy fits.

    Returns
    -------
    Model
        The model with parameters of the shape of the iterating axes; NaN where the data are all NaN, or a fit fails.

    Examples
    --------
    >>> import numpy as np
    >>> from astropy.modeling import models
    >>> from popfit.astropy import TRFLSQFitter, parallel_fit_dask
    >>> x = np.linspace(0.0, 10.0, 50)
    >>> centres = np.array([[4.0, 5.0, 6.0], [4.5, 5.5, 6.5]])
    >>> cube = 3.0 * np.exp(-0.5 * (x[:, None, None] - centres) ** 2)
    >>> start = models.Gaussian1D(2.0, 5.0, 1.5)
    >>> fit = parallel_fit_dask(model=start, fitter=TRFLSQFitter(), data=cube, fitting_axes=0, world=(x,))
    >>> fit.mean.value.round(6)
    array([[4. , 5. , 6. ],
           [4.5, 5.5, 6.5]])
    """
    given = {name: value for name, value in locals().items() if value is not None}
    # 1. The arguments.
    if diagnostics not in (None, "error", "error+warn", "all"):
        raise ValueError("diagnostics should be None, 'error', 'error+warn', or 'all'")
    if diagnostics is not None and diagnostics_path is None:
        raise ValueError("diagnostics_path should be set")
    is_dask = hasattr(data, "dask")
    axes = _checked_axes(model, data, weights, fitting_axes, preserve_native_chunks)
    given["fitting_axes"] = tuple(axes)
    try:
        request = _Request.of(fitter, fitter_kwargs)
        if diagnostics is not None:
            raise _LeftToAstropyError(f"diagnostics={diagnostics!r}")
        if fit_info:
            raise _LeftToAstropyError(f"fit_info={fit_info!r}")
        request.settings.warn_of_epsilon()
        # 2. Data, weights, inputs and units.
        data, own_mask = split_mask(data)
        if isinstance(data, u.Quantity):
            data_unit = data.unit if data_unit is None else data_unit
            data = data.to_value(data_unit)
        weights = _joined_weights(weights, [mask, own_mask])
        place = _world_of(world, data.shape, axes, is_dask)
        plain, place, renamed = _without_units(model, place, data_unit, equivalencies)
        cube = _Cube(data.shape, axes)
        starts = np.stack([np.broadcast_to(getattr(plain, name).value, cube.kept) for name in plain.param_names], -1)
        # 3. The fits.
        block = _Block(_with_parameters(plain, {}), request, math.prod(cube.along), starts, place)
        if is_dask:
            chunk = None if preserve_native_chunks else chunk_n_max or _CHUNK
            found = block.fit_dask(data, weights, starts, cube, chunk, scheduler)
        else:
            found = block.fit_cube(data, weights, starts, cube, chunk_n_max or _ROWS)
    except _LeftToAstropyError as reason:
        return _by_astropy(reason, given)
    # 4. The model of all fits.
    fitted = _with_parameters(plain, {name: found[..., k] for k, name in enumerate(plain.param_names)})
    return fitted if renamed is None else fitted.with_units_from_data(**renamed)


def _by_astropy(reason: _LeftToAstropyError, given: dict[str, Any]) -> Any:
    """Return what astropy's function makes of the same arguments, with astropy's fitter in the place of popfit's."""
    warn_caller(
        f"{reason}: popfit does not do this; astropy.modeling.fitting.parallel_fit_dask does it, slowly",
        packages=_INNER,
    )
    fitter = given["fitter"]
    if type(fitter) in _FITTERS:
        given["fitter"] = _astropys(fitter)
    fitted = fitting.parallel_fit_dask(**given)
    if given.get("fit_info"):
        fitter.fit_info = given["fitter"].fit_info
    return fitted


def _astropys(fitter: Any) -> Any:
    """Return the fitter of astropy with the settings of one of popfit's."""
    rival = _FITTERS[type(fitter)](calc_uncertainties=fitter._calc_uncertainties)
    rival._use_min_max_bounds = fitter._use_min_max_bounds
    return rival


def _checked_axes(model: Any, data: Any, weights: Any, fitting_axes: Any, preserve_native_chunks: bool) -> list[int]:
    """Return the fitting axes, counted from the first; raise astropy's exceptions."""
    axes = list(fitting_axes) if isinstance(fitting_axes, tuple) else [fitting_axes]
    if model.n_inputs != len(axes):
        raise ValueError(f"Model is {model.n_inputs}-dimensional, but got {len(axes)} value(s) in fitting_axes=")
    for axis in axes:
        if not -data.ndim <= axis < data.ndim:
            raise ValueError(f"Fitting index {axis} out of range for {data.ndim}-dimensional data")
    axes = [axis % data.ndim for axis in axes]
    if preserve_native_chunks:
        if not hasattr(data, "dask"):
            raise TypeError("Can only set preserve_native_chunks=True if input data is a dask array")
        if weights is not None and not hasattr(weights, "dask"):
            raise TypeError("Can only set preserve_native_chunks=True if input weights is a dask array (if specified)")
        if any(data.chunksize[axis] != data.shape[axis] for axis in axes):
            raise ValueError(
                "When using preserve_native_chunks=True, the chunk size should match the data size along the fitting "
                "axes"
            )
        if weights is not None and data.chunksize != weights.chunksize:
            raise ValueError(
                "When using preserve_native_chunks=True, the weights should have the same chunk size as the data"
            )
    return axes


def _joined_weights(weights: Any, masks: Sequence[Any]) -> Any:
    """Return the weights, 0 where a mask is true, or None if all are 1."""
    if isinstance(weights, NDUncertainty):
        weights = 1.0 / weights.represent_as(StdDevUncertainty).array
    weights, own_mask = split_mask(weights)
    for mask in (*masks, own_mask):
        if mask is not None:
            weights = np.where(mask, 0.0, 1.0 if weights is None else weights)
    return weights


def _world_of(world: Any, shape: tuple[int, ...], axes: list[int], is_dask: bool) -> _World:
    """Return the inputs of a model at the points of a cube; raise astropy's exceptions."""
    along = tuple(shape[axis] for axis in axes)
    if world is None:
        return _World(_grid([np.arange(size) for size in along]), [None] * len(axes), True)
    if isinstance(world, BaseHighLevelWCS):
        world = world.low_level_wcs
    if isinstance(world, BaseLowLevelWCS):
        return _world_of_wcs(world, shape, axes, is_dask)
    if not isinstance(world, tuple):
        raise TypeError("world should be None, a WCS object or a tuple of arrays")
    if len(world) != len(axes):
        raise ValueError(f"The number of world arrays ({len(world)}) must match number of fitting axes ({len(axes)})")
    units = [getattr(one, "unit", None) for one in world]
    values = [one if unit is None else one.value for one, unit in zip(world, units, strict=True)]
    if all(one.ndim == 1 for one in values):
        for axis, size, one in zip(axes, along, values, strict=True):
            if len(one) != size:
                raise ValueError(
                    f"world[{axis}] has length {len(one)} but data along dimension {axis} has length {size}"
                )
        return _World(_grid([np.asarray(one) for one in values]), units, True)
    for one in values:
        try:
            fits = np.broadcast_shapes(one.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                "The arrays in the world tuple should be broadcastable to the shape of the data "
                f"(expected {shape}), got {one.shape})"
            )
    return _World(tuple(np.broadcast_to(np.asarray(one), shape) for one in values), units, False)


def _world_of_wcs(world: Any, shape: tuple[int, ...], axes: list[int], is_dask: bool) -> _World:
    """Return the inputs of a model at the points of a cube that has a WCS."""
    if world.pixel_n_dim != len(shape):
        raise ValueError(
            f"The WCS pixel_n_dim ({world.pixel_n_dim}) does not match the number of dimensions in the data "
            f"({len(shape)})"
        )
    along = SlicedLowLevelWCS(world, [slice(None) if axis in axes else 0 for axis in range(len(shape))])
    if along.world_n_dim != len(axes):
        raise ValueError(
            "The number of WCS world axes corresponding to the fitting axes "
            f"({along.world_n_dim}) does not match the number of fitting axes ({len(axes)})"
        )
    units = [u.Unit(unit) for unit in along.world_axis_units[::-1]]
    # pixel axes of a WCS come in the opposite order
    pixels = [len(shape) - 1 - axis for axis in axes]
    correlated = np.asarray(world.axis_correlation_matrix)
    coordinates = [int(np.flatnonzero(correlated[:, pixel])[0]) for pixel in pixels]
    others = [pixel for pixel in range(len(shape)) if pixel not in pixels]
    is_shared = not correlated[np.ix_(coordinates, others)].any()
    if is_dask and not is_shared:
        raise _LeftToAstropyError("world: a WCS whose coordinates along the fitting axes differ from fit to fit")
    sizes = [size if axis in axes or not is_shared else 1 for axis, size in enumerate(shape)]
    grid = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")
    values = world.array_index_to_world_values(*grid)
    values = [values] if world.world_n_dim == 1 else values
    found = [np.asarray(values[one]) for one in coordinates]
    if is_shared:
        kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
        order = [sorted(axes).index(axis) for axis in axes]
        found = [one.squeeze(kept).transpose(order) for one in found]
    return _World(tuple(found), units, is_shared)


def _grid(values: list[Array]) -> tuple[Array, ...]:
    """Return the coordinates of a grid."""
    return tuple(np.meshgrid(*values, indexing="ij"))


def _without_units(model: Any, world: _World, data_unit: Any, equivalencies: Any) -> tuple[Any, _World, Any]:
    """Return a model and its inputs without units, and what gives the fitted model its units back, if it has any."""
    if not model._has_units and data_unit is None:
        return model, world, None
    units, inputs = list(world.units), list(world.inputs)
    if model.input_units is not None:
        own, given = model.input_units_equivalencies or {}, equivalencies or {}
        for k, name in enumerate(model.inputs):
            known = [*(given.get(name) or ()), *(own.get(name) or ())]
            if units[k] is not None:
                inputs[k] = units[k].to(model.input_units[name], inputs[k], equivalencies=known)
            units[k] = model.input_units[name]
    renamed = {name: _one_of(unit) for name, unit in zip(model.inputs, units, strict=True)}
    renamed[model.outputs[0]] = _one_of(data_unit)
    if len(inputs) < 2:
        renamed["z"] = None
    plain = model.without_units_for_data(**renamed)
    if isinstance(plain, tuple):
        plain, renamed["_left_kwargs"], renamed["_right_kwargs"] = plain
    return plain, world._replace(inputs=tuple(inputs)), renamed


def _one_of(unit: Any) -> Any:
    """Return an array with a unit."""
    return np.zeros(1) if unit is None else u.Quantity(np.zeros(1), unit)


def _with_parameters(model: Any, values: dict[str, Any]) -> Any:
    """Return a copy of a model with other parameters, of any shape; those that are not given have their defaults."""
    changed = model.copy()
    changed._reset_parameters(**values)  # no public way leads to other shapes
    # a compound model counts the values of its parts' parameters once, and takes them for the parameters' number
    nodes = [changed]
    for node in nodes:
        if hasattr(node, "n_left_params"):
            node.n_left_params = len(node.left.param_names)
            nodes += [part for part in (node.left, node.right) if hasattr(part, "param_names")]
    return changed


class _Cube(NamedTuple):
    """Shape of the data, and the axes along which the model is fitted."""

    shape: tuple[int, ...]
    axes: list[int]

    @property
    def others(self) -> list[int]:
        """The axes that are iterated over."""
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]

    @property
    def along(self) -> tuple[int, ...]:
        """The shape of the fitting axes."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of the axes that are iterated over."""
        return tuple(self.shape[axis] for axis in self.others)

    def rows(self, array: Any) -> Array:
        """Return an array of the cube's number of dimensions with one row of points for each fit."""
        moved = np.asarray(array, dtype=np.float64).transpose([*self.others, *self.axes])
        points = math.prod(moved.shape[len(self.others) :])
        return np.ascontiguousarray(moved).reshape(math.prod(moved.shape[: len(self.others)]), points)


class _Request(NamedTuple):
    """What the fits of a cube are asked for."""

    fitter: Any
    settings: _Settings
    filters: bool
    kwargs: dict[str, Any]

    @staticmethod
    def of(fitter: Any, kwargs: dict[str, Any] | None) -> _Request:
        """Return what a fitter and its arguments ask for."""
        if type(fitter) not in _FITTERS:
            raise _LeftToAstropyError(f"fitter={type(fitter).__name__}")
        rest = dict(kwargs or {})
        settings = _Settings(
            rest.pop("maxiter", fitting.DEFAULT_MAXITER),
            rest.pop("acc", fitting.DEFAULT_ACC),
            rest.pop("epsilon", fitting.DEFAULT_EPS),
        )
        rest.pop("estimate_jacobian", None)  # no derivative is the model's own
        filters = bool(rest.pop("filter_non_finite", False))
        for name, value in rest.items():
            raise _LeftToAstropyError(f"fitter_kwargs: {name}={value!r}")
        return _Request(_astropys(fitter), settings, filters, dict(kwargs or {}))


class _Block:
    """Fits all curves of a chunk."""

    def __init__(self, model: Any, request: _Request, points: int, starts: Array, world: _World) -> None:
        self.model = model
        self.request = request
        self.world = world
        rows = starts.reshape(-1, starts.shape[-1])
        if len(rows):
            model.parameters = rows[0]
        names = model.param_names
        is_given = [not model.tied[name] for name in names]
        self.free = [name for name, given in zip(names, is_given, strict=True) if given and not model.fixed[name]]
        #: Fixed parameters that differ from fit to fit; others are numbers.
        self.varying = [
            name
            for k, name in enumerate(names)
            if is_given[k] and model.fixed[name] and len(rows) and np.ptp(rows[:, k]) > 0.0
        ]
        if not self.free:
            raise _LeftToAstropyError("a model without free parameters")
        if points < len(self.free):
            raise _LeftToAstropyError(f"{points} points for {len(self.free)} parameters")

    def fit_cube(self, data: Any, weights: Any, starts: Array, cube: _Cube, rows: int) -> Array:
        """Return the parameters, (…, parameters), of all fits of a numpy array, `rows` of them at once."""
        y, starts = cube.rows(data), starts.reshape(-1, starts.shape[-1])
        w = None if weights is None else cube.rows(np.broadcast_to(weights, cube.shape))
        inputs = self.world.inputs if self.world.is_shared else tuple(map(cube.rows, self.world.inputs))
        found = np.empty(starts.shape)
        for begin in range(0, len(y), rows):
            some = slice(begin, begin + rows)
            own = inputs if self.world.is_shared else tuple(one[some] for one in inputs)
            found[some] = self.fit(y[some], None if w is None else w[some], starts[some], own)
        return found.reshape(*cube.kept, starts.shape[-1])

    def fit_dask(self, data: Any, weights: Any, starts: Array, cube: _Cube, chunk: int | None, scheduler: Any) -> Array:
        """Return the parameters, (…, parameters), of all fits of a dask array, chunk by chunk."""
        dask: Any = importlib.import_module("dask")
        da: Any = importlib.import_module("dask.array")
        if chunk is not None:
            limit = chunk * math.prod(cube.along) * data.dtype.itemsize
            chunks = tuple(-1 if axis in cube.axes else "auto" for axis in range(data.ndim))
            data = data.rechunk(chunks, block_size_limit=limit)
        if weights is not None:
            weights = da.broadcast_to(da.asarray(weights), data.shape).rechunk(data.chunks).to_delayed().ravel()
        places = da.core.slices_from_chunks(data.chunks)
        fit = dask.delayed(_fit_chunk, pure=False)
        carried = copy.copy(self)
        carried.world = self.world._replace(inputs=())  # tasks carry their own
        block = dask.delayed(carried, pure=False, traverse=False)
        shared = dask.delayed(self.world.inputs, pure=False, traverse=False) if self.world.is_shared else None
        tasks = []
        for k, (part, place) in enumerate(zip(data.to_delayed().ravel(), places, strict=True)):
            own = tuple(place[axis] for axis in cube.others)
            inputs = shared if self.world.is_shared else tuple(one[place] for one in self.world.inputs)
            tasks.append(fit(block, part, None if weights is None else weights[k], starts[own], inputs, cube))
        found = np.empty(starts.shape)
        options = {} if scheduler == "default" else {"scheduler": scheduler or "threads"}
        for place, values in zip(places, dask.compute(*tasks, **options), strict=True):
            found[tuple(place[axis] for axis in cube.others)] = values
        return found

    def fit(self, y: Array, weights: Array | None, starts: Array, inputs: tuple[Array, ...]) -> Array:
        """Return the parameters, (fits, parameters), of fits to y, (fits, points)."""
        found = np.full(starts.shape, np.nan)
        # 1. Which points count, and which fits have any.
        finite = np.isfinite(y) if weights is None else np.isfinite(y) & np.isfinite(weights)
        x = np.stack(inputs).astype(np.float64)  # (inputs, …) of the fitting axes' shape, or (inputs, fits, points)
        finite_x = np.isfinite(x).all(axis=0)
        finite &= finite_x.ravel() if self.world.is_shared else finite_x
        counts = np.ones(y.shape, dtype=bool) if weights is None else weights != 0.0
        if self.request.filters:
            counts &= finite
        some = np.flatnonzero(~np.isnan(y).all(axis=1) & (finite | ~counts).all(axis=1) & counts.any(axis=1))
        if not some.size:
            return found
        # 2. The fits.
        if not self.world.is_shared:
            x = np.moveaxis(x, 0, 1)[some]
        names = [*self.free, *self.varying]
        columns = [self.model.param_names.index(name) for name in names]
        lower, upper = _bounds_of(self.model, self.free)
        first = starts[some][:, columns]
        if self.request.fitter._use_min_max_bounds:
            first[:, : len(self.free)] = np.clip(first[:, : len(self.free)], lower, upper)
        open_ends = np.full(len(self.varying), np.inf)
        is_bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
        masked = ~counts[some]
        given = prepare_curves(
            names,
            x,
            y[some],
            first,
            None if weights is None else _deviations(weights[some]),
            masked if masked.any() else None,
            (np.append(lower, -open_ends), np.append(upper, open_ends)) if is_bounded else None,
            not self.world.is_shared,
        )
        function = _ModelFunction(self.model.copy(), names)
        fitter = self.request.settings.curve_fitter(function, self.varying)
        fits, _ = _run(fitter, function, given, Options(False, True))
        # 3. All parameters. What failed, astropy may do: points without a unique minimum, for one.
        done = np.isin(fits.status, list(_MESSAGES))
        all_values = np.tile(self.model.parameters, (len(some), 1))
        all_values[:, columns] = fits.parameters
        if function.tied:
            for row in np.flatnonzero(done).tolist():
                all_values[row] = function.completed(fits.parameters[row])
        found[some[done]] = all_values[done]
        failed = some[~done]
        if failed.size:
            own = [x[k] for k in np.flatnonzero(~done)] if not self.world.is_shared else [x] * failed.size
            rows = self._fit_rows(failed, y, counts, weights, starts, own)
            found[failed] = rows
            count = int(np.isfinite(rows).all(axis=1).sum())
            if count:
                message = fits.messages[int(np.flatnonzero(~done)[0])]
                warn_caller(f"{count} of {len(y)} fits are astropy's; the first: {message}", packages=_INNER)
        return found

    def _fit_rows(
        self, rows: Array, y: Array, counts: Array, weights: Array | None, starts: Array, inputs: list[Array]
    ) -> Array:
        """Return the parameters of fits that astropy makes one by one; NaN where it fails, too."""
        found = np.full((len(rows), starts.shape[1]), np.nan)
        model = self.model.copy()
        for k, row in enumerate(rows.tolist()):
            kept = counts[row]
            x = [one.ravel()[kept] for one in inputs[k]]
            w = {} if weights is None else {"weights": weights[row][kept]}
            model.parameters = starts[row]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fitted = self.request.fitter(model, *x, y[row][kept], **w, **self.request.kwargs)
            except Exception:  # as astropy's loop, which takes any exception for a fit that fails
                continue
            found[k] = fitted.parameters
        return found


def _fit_chunk(block: _Block, data: Any, weights: Any, starts: Array, inputs: tuple[Array, ...], cube: _Cube) -> Array:
    """Return the parameters, (…, parameters), of the fits of a chunk of a dask array."""
    data, mask = split_mask(data)
    weights = _joined_weights(weights, [mask])
    w = None if weights is None else cube.rows(weights)
    if not block.world.is_shared:
        inputs = tuple(map(cube.rows, inputs))
    rows = starts.reshape(-1, starts.shape[-1])
    return block.fit(cube.rows(data), w, rows, inputs).reshape(starts.shape)


def __getattr__(name: str) -> Any:
    """Return what astropy.modeling.fitting calls so."""
    return rival_attribute(__name__, "astropy.modeling.fitting", name)
