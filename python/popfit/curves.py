"""Fits of populations of curves: one model, and many sets of points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import warn_caller
from popfit._checks import check_choice, check_integer, check_switch, close_name, is_number, timeout_seconds
from popfit._compiled import CompiledModel
from popfit._curve_data import CurveData, plain_x, prepare_curves
from popfit._curve_models import (
    ModelAtPoints,
    Xdata,
    agrees_at_results,
    check_size,
    model_of_calls,
    model_of_function,
    place_model,
    rows_are_single_calls,
)
from popfit._errors import ColumnError, InputError, Interrupted
from popfit._guesses import Wanted, complete_starts, lacks_starts
from popfit._progress import Progress, check_progress, progress_function
from popfit._tracing import NotTraceableError
from popfit.devices import Device, name_missing_driver, thread_count
from popfit.formula import Formula, parameter_names
from popfit.table import SHOWN_ROWS, _object_array, _rounded, _sparkline

Array = npt.NDArray[Any]

#: Estimators, and whether they have a scale, in units of sigma.
ESTIMATORS = {
    "least_squares": False,
    "poisson": False,
    "soft_l1": True,
    "huber": True,
    "cauchy": True,
    "arctan": True,
    "student": True,
}
#: Largest number of starts of a curve.
MOST_STARTS = 64
#: Solvers.
SOLVERS = ("lm", "nelder-mead")


class CurveFitter:
    """Fits a model to many curves at once.

    Parameters
    ----------
    model : Formula, Spline, str or callable
        A formula or its text, a tabulated template, or a function of numpy, ``f(x, a, b, …)``. A function is traced: it
        becomes a formula with exact derivatives. Where this is impossible fits call the function itself, and a
        `PopfitWarning` says why.
    parameters : sequence of str, optional
        Names of a function's parameters; by default those of its signature.
    bounds : mapping of str to pair of float
        Lower and upper bounds of parameters by their names; None and infinity are no bound.
    fixed : sequence of str
        Parameters that keep their starts.
    ties : mapping of str to str
        Expressions of other parameters, ``{"b": "2*a + 1"}``. Functions must be formulas for this.
    priors : mapping of str to pair of float
        Means and standard deviations of Gaussian priors.
    estimator : str or pair of str and float
        "least_squares", "poisson" (y are counts), or a robust loss with its scale in units of sigma, such as
        ``("huber", 1.5)``: "soft_l1", "huber", "cauchy", "arctan", "student".
    starts : int
        Number of starts of each curve, up to 64, of which the one with the lowest χ² is kept: its own, and others
        that are drawn between the bounds of each parameter, or from a tenth of its own start to ten times this.
    solver : {"lm", "nelder-mead"}
        Levenberg–Marquardt, or the simplex of Nelder and Mead.
    absolute_sigma : bool
        As in scipy: True if sigma is known in absolute terms; else errors are multiplied by √(χ²/dof).
    sandwich_errors : bool
        True for errors under robust losses that follow from the scatter of the residuals.
    device : str or Device
        "auto", "cpu", "gpu", … as `popfit.fit` takes them. For curves "auto" is the CPU.
    max_rounds, ftol, xtol, gtol : optional
        Limit and tolerances of the solver, those of Rust's `CurveFitter` unless set.
    max_memory : int, optional
        Bytes that curves that are fitted together may take.
    cpu_fallback : bool, optional
        True to let the CPU fit what a GPU fails to fit twice.

    Examples
    --------
    >>> import numpy as np, popfit
    >>> x = np.linspace(0.0, 4.0, 30)
    >>> rates = np.array([0.5, 1.0, 2.0])
    >>> fitter = popfit.CurveFitter(lambda x, a, k: a * np.exp(-k * x), bounds={"k": (0, 10)})
    >>> fits = fitter.fit(x, 3.0 * np.exp(-np.outer(rates, x)), [1.0, 1.0])
    >>> fits["k"].round(3)
    array([0.5, 1. , 2. ])
    """

    def __init__(
        self,
        model: CompiledModel | str | Callable[..., Any],
        *,
        parameters: Sequence[str] | None = None,
        bounds: Mapping[str, tuple[float | None, float | None]] = {},
        fixed: Sequence[str] = (),
        ties: Mapping[str, str] = {},
        priors: Mapping[str, tuple[float, float]] = {},
        estimator: str | tuple[str, float] = "least_squares",
        starts: int = 1,
        solver: str = "lm",
        absolute_sigma: bool = False,
        sandwich_errors: bool = True,
        device: str | Device = "auto",
        max_rounds: int | None = None,
        ftol: float | None = None,
        xtol: float | None = None,
        gtol: float | None = None,
        max_memory: int | None = None,
        cpu_fallback: bool | None = None,
    ) -> None:
        self.model = Formula(model) if isinstance(model, str) else model
        if not isinstance(self.model, CompiledModel) and not callable(self.model):
            raise InputError(
                f"model: {type(model).__name__}; give a Formula, its text, a Spline or a function", argument="model"
            )
        fixed = (fixed,) if isinstance(fixed, str) else fixed
        if isinstance(self.model, CompiledModel):
            if parameters is not None and tuple(parameters) != self.model.parameters:
                raise InputError(
                    "parameters: a formula names its own; give Formula(…, parameters=…)", argument="parameters"
                )
            self.parameters = self.model.parameters
        else:
            self.parameters = parameter_names(self.model) if parameters is None else tuple(parameters)
            if len(set(self.parameters)) != len(self.parameters):
                raise InputError(f"parameters: {self.parameters!r}; give distinct names", argument="parameters")
        for argument, names in (("bounds", bounds), ("fixed", fixed), ("ties", ties), ("priors", priors)):
            for name in names:
                self._check_name(argument, name)
        self._settings: dict[str, Any] = {
            "bounds": [(name, *_limits(name, pair)) for name, pair in bounds.items()],
            "fixed": [str(name) for name in fixed],
            "ties": [(name, _expression(name, text)) for name, text in ties.items()],
            "priors": [(name, *_pair("priors", name, pair)) for name, pair in priors.items()],
            "estimator": _estimator(estimator),
            "starts": check_integer("starts", starts, 1, MOST_STARTS),
            "solver": check_choice("solver", solver, SOLVERS),
            "max_rounds": None if max_rounds is None else check_integer("max_rounds", max_rounds, 1, 2**32 - 1),
            "ftol": _tolerance("ftol", ftol),
            "xtol": _tolerance("xtol", xtol),
            "gtol": _tolerance("gtol", gtol),
            "absolute_sigma": check_switch("absolute_sigma", absolute_sigma),
            "sandwich_errors": check_switch("sandwich_errors", sandwich_errors),
            "device": _device(device),
            "max_memory": None if max_memory is None else check_integer("max_memory", max_memory, 1, 2**64 - 1),
            "cpu_fallback": None if cpu_fallback is None else check_switch("cpu_fallback", cpu_fallback),
        }

    def _check_name(self, argument: str, name: object) -> None:
        """Raise `InputError` for a parameter that the model does not have."""
        if name not in self.parameters:
            raise InputError(
                f"{argument}: no parameter {name!r}{close_name(name, self.parameters)} "
                f"(the model has {', '.join(self.parameters)})",
                argument=argument,
            )

    def fit(
        self,
        x: Any,
        y: Any,
        p0: Any = None,
        *,
        sigma: Any = None,
        mask: Any = None,
        bounds: tuple[Any, Any] | None = None,
        x_per_curve: bool = False,
        covariance: bool = True,
        exact: bool = False,
        progress: bool | Progress = False,
        timeout: float | None = None,
        threads: int | None = None,
    ) -> CurveFits:
        """Fit the model to curves with the same number of points.

        Parameters
        ----------
        x : array, (points) or (predictors, points)
            Points of all curves; of each, (curves, points) or (curves, predictors, points), with `x_per_curve`.
            A function may take anything, which it is then given as it is.
        y : array, (curves, points) or (points)
            Data. Native float32 and float64 arrays in C order are lent, not copied; residuals of the results follow
            the array if it changes.
        p0 : array, (P) or (curves, P), optional
            Starts of the parameters, of all curves or of each; a mapping of names to numbers or arrays will do. What is
            missing of a built-in formula's starts is guessed for each curve, without weights, and moved inside the
            bounds. A guess takes longer than a fit.
        sigma : number or array, (points) or (curves, points), optional
            Standard deviations of y; 1 unless given. An infinite one masks its point. Covariance matrices of y are
            (curves, points, points), or (1, points, points) of all curves; of one curve (points, points), too.
        mask : array of bool, (points) or (curves, points), optional
            True for points that do not count. The mask of a masked array y counts, too.
        bounds : pair of arrays, (P) or (curves, P), optional
            Lower and upper bounds of each curve, in place of the fitter's.
        x_per_curve : bool
            True if each curve has points of its own.
        covariance : bool
            True to compute covariance matrices.
        exact : bool
            True to fit to the solver's tolerances; else parameters lie within 0.001 of their errors from the minimum.
        progress : bool or callable
            True shows a bar; a function is called with the numbers of finished and of all fits, on this thread.
        timeout : float, optional
            Seconds, from the end of all guesses, after which fits that have not ended get the status "interrupted".
        threads : int, optional
            Threads of this run; by default those of `popfit.get_threads`.

        Returns
        -------
        CurveFits
            One row for each curve. A curve that cannot be fitted is a row with a status and a message.

        Raises
        ------
        InputError
            If arrays do not fit together, or settings are wrong.
        Interrupted
            At Ctrl-C; its attribute `fits` has what was fitted.
        """
        watch = {"progress": progress, "timeout": timeout, "threads": threads}
        curves = {"x": x, "y": y, "sigma": sigma, "mask": mask, "bounds": bounds, "x_per_curve": x_per_curve}
        given = self._prepare(p0, curves, threads)
        options = Options(check_switch("covariance", covariance), check_switch("exact", exact))
        return self.fit_data(given, options, watch)

    def _prepare(self, p0: Any, curves: dict[str, Any], threads: int | None) -> CurveData:
        """Return the curves of a fit, checked, with guesses of the starts that are not given."""
        if p0 is None and not isinstance(self.model, CompiledModel):
            raise InputError("p0: give a start of each parameter; functions have no guesses", argument="p0")
        if not lacks_starts(self.model, p0):
            return self._checked(prepare_curves(self.parameters, p0=p0, **curves))
        known = {} if p0 is None else dict(p0)
        for name in known:
            self._check_name("p0", name)
        guessed = [name for name in self.parameters if name not in known]
        for name in guessed:
            if name in self._settings["fixed"]:
                raise InputError(f"p0: no value of {name}, which is fixed", argument="p0")
        given = self._checked(prepare_curves(self.parameters, p0=dict.fromkeys(guessed, 1.0) | known, **curves))
        try:
            return self.add_guesses(given, guessed, threads) if given.x.curves else given
        except InputError as error:
            if error.argument == "x":
                raise
            raise InputError(f"p0: no start of {', '.join(guessed)}: {error}", argument="p0") from error

    def add_guesses(self, given: CurveData, names: Sequence[str], threads: int | None) -> CurveData:
        """Return curves with guesses for the starts of some parameters of a built-in formula.

        Raises
        ------
        InputError
            If the model is none.
        """
        if not isinstance(self.model, CompiledModel):
            raise InputError("functions have no guesses", argument="p0")
        limits = {name: (lower, upper) for name, lower, upper in self._settings["bounds"]}
        has_counts = self._settings["estimator"][0] == "poisson"
        return complete_starts(self.model, given, Wanted(names, limits, has_counts, threads))

    def _checked(self, given: CurveData) -> CurveData:
        """Return the curves; raises `InputError` if the fitter has no use for their sigma."""
        if self._settings["estimator"][0] == "poisson" and given.arrays.keys() & {"sigma", "covariance"}:
            raise InputError(
                "sigma: it has no meaning for counts: leave it out, and mask what must not count", argument="sigma"
            )
        if "covariance" in given.arrays and self._settings["device"] != "cpu":
            raise InputError(
                "sigma: covariance matrices are for the CPU alone; give device='cpu' to the fitter", argument="sigma"
            )
        return given

    def fit_data(
        self, given: CurveData, options: Options, watch: dict[str, Any], jac: Callable[..., Any] | None = None
    ) -> CurveFits:
        """Fit curves that are checked; a function that is no formula has the derivatives `jac`, if there are any."""
        model, reason = self.model_at(given)
        if reason is None:
            fits = self.run(model, given, options, watch)
            if not model.is_traced or agrees_at_results(model, given.x, fits.parameters):
                return fits
            reason = "at some results its values are not those of its formula"
        if given.x.curves:
            warn_caller(f"the function is no formula: {reason}. Fits call the function itself, which is slower")
        return self.run_calls(given, options, watch, jac)

    def run_calls(
        self, given: CurveData, options: Options, watch: dict[str, Any], jac: Callable[..., Any] | None = None
    ) -> CurveFits:
        """Fit the curves by calls of the function, for many curves at once if each gets its own row so."""
        starts = given.arrays["starts"]
        model = model_of_calls(self.model, self.parameters, given.x, starts, jac)
        fits = self.run(model, given, options, watch)
        if model.broadcasts and not rows_are_single_calls(model, given.x, fits.parameters):
            model = model_of_calls(self.model, self.parameters, given.x, starts, jac, singly=True)
            fits = self.run(model, given, options, watch)
        return fits

    def model_at(self, given: CurveData) -> tuple[ModelAtPoints, str | None]:
        """Return the model at the curves' points, and why a function is no formula, if it is none."""
        if isinstance(self.model, CompiledModel):
            return place_model(self.model, given.x), None
        try:
            if given.x.curves == 0:
                raise NotTraceableError("there is no curve")
            return model_of_function(self.model, self.parameters, given.x, given.arrays["starts"]), None
        except NotTraceableError as error:
            if self._settings["ties"]:
                raise InputError(
                    f"ties: the function is no formula, and only parameters of formulas are tied: {error}",
                    argument="ties",
                ) from error
            check_size(self.model, given.x, given.arrays["starts"])
            return model_of_calls(self.model, self.parameters, given.x, given.arrays["starts"]), str(error)

    def run(self, model: ModelAtPoints, given: CurveData, options: Options, watch: dict[str, Any]) -> CurveFits:
        """Fit the curves, and return their results."""
        check_progress(watch["progress"])
        limits = {"timeout": timeout_seconds(watch["timeout"]), "threads": thread_count(watch["threads"])}
        settings = {**self.settings_of(model), "covariance": options.covariance}
        stopped: BaseException | None = None
        if given.x.curves == 0:
            results = _empty_results(len(self.parameters))
        else:
            with progress_function(watch["progress"], "curves") as on_progress:
                results = _popfit.fit_curves(
                    model.model, given.for_rust(model), settings, options.exact, {**limits, "progress": on_progress}
                )
            stopped = results.pop("stopped")
        if not options.covariance:
            results.pop("covariance", None)
        fits = CurveFits._of(self, model, given, results)
        failure = model.model.take_failure()
        if failure is not None:
            if not isinstance(failure, Exception):  # such as a KeyboardInterrupt
                raise failure
            fits.failure = failure
        if isinstance(stopped, KeyboardInterrupt):
            raise Interrupted("the run was interrupted", fits=fits) from stopped
        if stopped is not None:
            raise stopped
        return fits

    def settings_of(self, model: ModelAtPoints) -> dict[str, Any]:
        """Return the settings with the parameters' names in the model, some of which have got an underscore."""
        names = dict(zip(self.parameters, model.model.parameters, strict=True))
        settings = dict(self._settings)
        for key in ("bounds", "ties", "priors"):
            settings[key] = [(names[name], *rest) for name, *rest in settings[key]]
        settings["fixed"] = [names[name] for name in settings["fixed"]]
        for old, new in names.items():
            if old != new:  # a function keeps its name: gamma(x) is no parameter
                settings["ties"] = [
                    (tied, re.sub(rf"\b{re.escape(old)}\b(?!\s*\()", new, text)) for tied, text in settings["ties"]
                ]
        return settings

    def __repr__(self) -> str:
        """Return the model."""
        return f"<popfit.CurveFitter of {self.model!r}>"


class Options(NamedTuple):
    """Results that a fit computes."""

    covariance: bool
    exact: bool


class CurveFits:
    """Results of fits of curves, one row for each.

    ``fits["a"]`` is a column (``a_err`` its errors, and ``chi2``, ``dof``, ``status``, …), ``fits[5]`` a row as a dict,
    and ``fits[fits.converged]``, ``fits[10:20]`` are some of the rows.

    Attributes
    ----------
    names : tuple of str
        Names of the P parameters.
    parameters, errors : array, (curves, P)
        Best-fit parameters and their standard errors: infinite for parameters that the data do not determine, NaN where
        there is no fit.
    covariance : array, (curves, P, P), or None
        Covariances of the parameters.
    chi2, dof : array, (curves)
        Σ ((y − model)/sigma)², and its degrees of freedom.
    status, flags, evaluations, rounds : array, (curves)
        Codes of how fits ended (1 to 4 converged; the book's page on results lists them), flags, evaluations of the
        model and linearisations.
    """

    names: tuple[str, ...]
    parameters: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64] | None
    chi2: npt.NDArray[np.float64]
    dof: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]
    flags: npt.NDArray[np.uint32]
    evaluations: npt.NDArray[np.uint32]
    rounds: npt.NDArray[np.uint32]
    _messages: dict[int, str]
    #: First exception of a user's function that is called.
    failure: Exception | None
    _fitter: CurveFitter
    _model: ModelAtPoints | None
    _given: CurveData | None

    _ROWS = ("parameters", "errors", "covariance", "chi2", "dof", "status", "flags", "evaluations", "rounds")

    def __init__(self) -> None:
        raise TypeError("CurveFitter.fit makes CurveFits")

    @classmethod
    def _of(cls, fitter: CurveFitter, model: ModelAtPoints, given: CurveData, results: dict[str, Any]) -> CurveFits:
        """Return the results of a run."""
        fits = cls.__new__(cls)
        fits.names = fitter.parameters
        fits._fitter, fits._model, fits._given = fitter, model, given
        fits._messages = dict(results.pop("messages"))
        fits.covariance, fits.failure = None, None
        free = len(fitter.parameters) - len({*fitter._settings["fixed"], *dict(fitter._settings["ties"])})
        priors = sum(name not in fitter._settings["fixed"] for name, *_ in fitter._settings["priors"])
        results["dof"] = given.used_points() + priors - free
        for name, values in results.items():
            setattr(fits, name, values)
        return fits

    @property
    def converged(self) -> npt.NDArray[np.bool_]:
        """True for each fit that converged."""
        return self.status > 0

    @property
    def messages(self) -> list[str]:
        """Message of each curve: why it could not be fitted, or which parameters its data do not determine."""
        return [self._messages.get(row, "") for row in range(len(self))]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns())

    def _columns(self) -> dict[str, Array]:
        """Return the columns by their names."""
        columns: dict[str, Array] = {}
        for p, name in enumerate(self.names):
            columns[name] = self.parameters[:, p]
            columns[f"{name}_err"] = self.errors[:, p]
        texts = _popfit.status_names()
        others = {name: getattr(self, name) for name in self._ROWS[3:]}
        others["status_text"] = _object_array([texts[code] for code in self.status.tolist()])
        others["message"] = _object_array(self.messages)
        # a parameter may be called chi2
        return others | columns if others.keys() & columns.keys() else columns | others

    def __len__(self) -> int:
        """Return the number of curves."""
        return len(self.status)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows."""
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | Array) -> CurveFits: ...
    def __getitem__(self, key: Any) -> Any:
        """Return a column, a row, or some of the rows."""
        if isinstance(key, str):
            columns = self._columns()
            if key not in columns:
                raise ColumnError(f"no column {key!r}{close_name(key, columns)}", argument=key)
            return columns[key]
        rows = np.arange(len(self))[key]
        if rows.ndim == 0:
            return {name: values[rows] for name, values in self._columns().items()}
        if rows.ndim != 1 or key is None:
            raise InputError(f"rows: {key!r}; give a name, a row, a slice, a mask or a list of rows", argument="rows")
        return self._some(rows)

    def _some(self, rows: npt.NDArray[np.int64]) -> CurveFits:
        """Return some of the rows."""
        fits = CurveFits.__new__(CurveFits)
        fits.__dict__.update(self.__dict__)
        for name in self._ROWS:
            values = getattr(self, name)
            setattr(fits, name, None if values is None else values[rows])
        fits._messages = {k: self._messages[row] for k, row in enumerate(rows.tolist()) if row in self._messages}
        if self._given is not None and self._model is not None:
            x = self._given.x._replace(curves=len(rows))
            arrays = {
                name: values[rows] if values.ndim == 2 and len(values) == self._given.x.curves else values
                for name, values in self._given.arrays.items()
            }
            if x.x_per_curve:
                x = x._replace(values=x.values[rows])
                fits._model = self._model._replace(x=self._model.x[rows])
            fits._given = self._given._replace(x=x, arrays=arrays)
        return fits

    def predict(self, x: Any = None, *, threads: int | None = None) -> npt.NDArray[np.float64]:
        """Return the best-fit curves, (curves, points), at the points of the data or at others.

        Parameters
        ----------
        x : array, optional
            Points of all curves, as the fit took them; by default those of the data.
        threads : int, optional
            Threads of this call.
        """
        return self._predicted(x, None, threads)

    def prediction_errors(self, x: Any = None, *, threads: int | None = None) -> npt.NDArray[np.float64]:
        """Return the standard errors of the best-fit curves, (curves, points), as `predict` returns these.

        They follow from the covariances, which the fit must have computed. lmfit's ``eval_uncertainty`` multiplies them
        by the quantile of Student's distribution.

        Raises
        ------
        InputError
            If there are no covariances.
        """
        if self.covariance is None:
            raise InputError("prediction_errors: give covariance=True to the fit", argument="covariance")
        return self._predicted(x, np.ascontiguousarray(self.covariance).ravel(), threads)

    def _predicted(self, x: Any, covariance: Array | None, threads: int | None) -> npt.NDArray[np.float64]:
        """Return best-fit curves, or with covariances their standard errors, at the points of the data or at others."""
        if x is None:
            model, given = self._model_and_data()
        else:
            values, _ = plain_x(x)
            points = _points_of(values)
            if len(self) == 0:
                return np.empty((0, points))
            y, starts = np.zeros((len(self), points)), np.ascontiguousarray(self.parameters)
            given = CurveData(Xdata(values, False, len(self), points), {"y": y, "starts": starts}, False)
            model, _ = self._fitter.model_at(given)
        curves = given.for_rust(model, self.parameters)
        return _popfit.predict_curves(model.model, curves, covariance, thread_count(threads))

    def residuals(self, *, threads: int | None = None) -> npt.NDArray[np.float64]:
        """Return (y − model)/sigma, (curves, points); NaN where a point is masked.

        With covariance matrices C = L Lᵀ they are L⁻¹ (y − model), so that the sum of their squares is χ².
        """
        model, given = self._model_and_data()
        if len(self) == 0:
            return np.empty((0, given.x.points))
        return _popfit.curve_residuals(model.model, given.for_rust(model, self.parameters), thread_count(threads))

    def statistics(self, *, threads: int | None = None) -> dict[str, npt.NDArray[np.float64]]:
        """Return how well the curves are fitted, as lmfit reports it: a dict of columns, (curves).

        ``reduced_chi2`` is χ²/dof, ``aic`` and ``bic`` are Akaike's and the Bayesian information criterion, and
        ``r_squared`` is the coefficient of determination, whatever the sigmas.

        Examples
        --------
        >>> import numpy as np, popfit
        >>> x = np.linspace(0.0, 4.0, 5)
        >>> fits = popfit.CurveFitter("a + b*x").fit(x, [0.1, 0.9, 2.1, 2.9, 4.1], [1.0, 1.0])
        >>> fits.statistics()["r_squared"].round(4)
        array([0.9952])
        """
        columns = {"reduced_chi2": self.chi2 / np.maximum(self.dof, 1)}
        if len(self) == 0:
            return columns | dict.fromkeys(("aic", "bic", "r_squared"), np.empty(0))
        model, given = self._model_and_data()
        settings = {**self._fitter.settings_of(model), "covariance": False}
        curves = given.for_rust(model, self.parameters)
        chi2 = np.ascontiguousarray(self.chi2)
        return columns | _popfit.curve_statistics(model.model, curves, settings, chi2, thread_count(threads))

    def jacobian(self, row: int = 0) -> npt.NDArray[np.float64]:
        """Return the derivatives of a row's curve divided by sigma, (points, P), without masked points.

        With a covariance matrix C = L Lᵀ they are multiplied by L⁻¹.
        """
        if len(self) != 1 or row not in (0, -1):
            return self[[row]].jacobian()
        model, given = self._model_and_data()
        columns = model.x[0] if given.x.x_per_curve else model.x
        rows = model.model.linearise(columns.ravel(), np.ascontiguousarray(self.parameters[0]))[1:].T
        if "sigma" in given.arrays:
            sigma = given.arrays["sigma"]
            rows = rows / (sigma[0] if sigma.ndim == 2 else sigma)[:, np.newaxis]
        kept = np.broadcast_to(~np.atleast_2d(given.masked())[0], len(rows))
        if "covariance" in given.arrays:
            matrix = given.arrays["covariance"].reshape(len(rows), len(rows))[np.ix_(kept, kept)]
            return np.asarray(np.linalg.solve(np.linalg.cholesky(matrix), rows[kept]))
        return np.asarray(rows[kept])

    def confidence_intervals(
        self,
        parameters: Sequence[str] = (),
        sigmas: Sequence[float] = (1.0, 2.0, 3.0),
        *,
        progress: bool | Progress = False,
        timeout: float | None = None,
        threads: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return confidence intervals from the rise of χ², as lmfit's ``conf_interval`` defines them.

        Parameters
        ----------
        parameters : sequence of str
            Parameters; by default all that are not tied.
        sigmas : sequence of float
            Multiples of standard errors; below 1 they are probabilities.

        Returns
        -------
        array, (curves, parameters, sigmas, 2)
            Lower and upper limits; NaN where there is none.
        """
        model, given = self._model_and_data()
        tied = dict(self._fitter._settings["ties"])
        untied = [name for name in self.names if name not in tied]
        names = [parameters] if isinstance(parameters, str) else list(parameters) or untied
        for name in names:
            self._fitter._check_name("parameters", name)
        own = dict(zip(self.names, model.model.parameters, strict=True))
        # the fits are at their minima: one start is enough
        settings = {**self._fitter.settings_of(model), "covariance": False, "starts": 1}
        watch = {"timeout": timeout_seconds(timeout), "threads": thread_count(threads)}
        with progress_function(progress, "intervals") as on_progress:
            return _popfit.curve_intervals(
                model.model,
                given.for_rust(model, self.parameters),
                settings,
                ([own[name] for name in names], np.atleast_1d(np.asarray(sigmas, dtype=np.float64)).tolist()),
                {**watch, "progress": on_progress},
            )

    def _model_and_data(self) -> tuple[ModelAtPoints, CurveData]:
        """Return the model and the data of these results."""
        if self._model is None or self._given is None:
            raise InputError("these results were unpickled, without their data: give x, or fit again", argument="x")
        return self._model, self._given

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row for each curve."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame(self._columns())

    def to_astropy(self) -> Any:
        """Return an ``astropy.table.Table`` with one row for each curve."""
        from astropy.table import Table  # type: ignore[import-untyped,unused-ignore]

        return Table(
            {name: values.astype(str) if values.dtype == object else values for name, values in self._columns().items()}
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as a stream of Arrow, for pyarrow, polars, pandas, duckdb and others."""
        return _popfit.columns_stream(
            [
                (
                    name,
                    "",
                    "",
                    values.tolist() if values.dtype == object else np.ascontiguousarray(values, _column_type(values)),
                )
                for name, values in self._columns().items()
            ]
        )

    def plot(self, row: int, *, ax: Any = None) -> Any:
        """Draw a curve of one predictor and its fit with matplotlib, and return the axes."""
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f'{error}: pip install matplotlib, or popfit with "[notebook]"') from error

        one = self[[row]]
        _, given = one._model_and_data()
        x = np.asarray(given.x.of_curve(0), dtype=np.float64)
        if x.ndim != 1 or x.shape != (given.x.points,):
            raise InputError("plot: x has more than one predictor", argument="x")
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        order = np.argsort(x)
        y = given.arrays["y"].ravel()
        sigma = given.arrays.get("sigma")
        if "covariance" in given.arrays:
            sigma = np.sqrt(given.arrays["covariance"][0, :: len(x) + 1])
        mask = given.arrays.get("mask")
        kept = np.ones(x.shape, bool) if mask is None else ~mask.ravel()
        bars = None if sigma is None else np.broadcast_to(sigma.ravel(), x.shape)[kept]
        ax.errorbar(x[kept], y[kept], bars, fmt=".", color="black", label="data")
        ax.plot(x[order], one.predict()[0][order], color="C3", label="model")
        ax.set_title(
            "; ".join(
                f"{name} {_rounded(value, error)}"
                for name, value, error in zip(self.names, one.parameters[0], one.errors[0], strict=True)
            )
        )
        ax.legend(frameon=False)
        return ax

    def __copy__(self) -> CurveFits:
        """Return the same results with the same data."""
        return self._some(np.arange(len(self)))

    def __deepcopy__(self, _: Any) -> CurveFits:
        """Return a copy of the results, with the same data."""
        return self._some(np.arange(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle results and fitter, without the data."""
        return {**self.__dict__, "_model": None, "_given": None, "failure": None}

    def __repr__(self) -> str:
        """Return the numbers of curves and of fits that converged."""
        return f"<popfit.CurveFits: {len(self)} curves, {int(self.converged.sum())} converged; {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        """Return the counts, a histogram of each parameter and the first rows, for notebooks."""
        texts = _popfit.status_names()
        is_good = self.converged
        codes, counts = np.unique(self.status[~is_good], return_counts=True)
        others = "".join(f"; {count} {escape(texts[int(code)])}" for code, count in zip(codes, counts, strict=True))
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.names)
        sparks = "".join(f"<td>{_sparkline(column)}</td>" for column in self.parameters[is_good].T)
        rows = "".join(
            f"<tr><td>{row}</td><td>{'converged' if is_good[row] else escape(texts[int(self.status[row])])}</td>"
            + "".join(
                f"<td>{_rounded(value, error)}</td>"
                for value, error in zip(self.parameters[row], self.errors[row], strict=True)
            )
            + f"<td>{self.chi2[row] / max(self.dof[row], 1):.3f}</td></tr>"
            for row in range(min(SHOWN_ROWS, len(self)))
        )
        more = f"<p>… and {len(self) - SHOWN_ROWS} more rows</p>" if len(self) > SHOWN_ROWS else ""
        return (
            f"<p><b>{len(self)}</b> curves, <b>{int(is_good.sum())}</b> converged{others}</p><table>"
            f"<tr><th></th><th>status</th>{heads}<th>χ²/dof</th></tr>"
            f"<tr><td></td><td></td>{sparks}<td></td></tr>{rows}</table>{more}"
        )


def _points_of(x: Any) -> int:
    """Return the number of points of an x: its last axis, or all its elements as a function takes them."""
    return int(np.asarray(x).shape[-1]) if np.ndim(x) else 1


def _column_type(values: Array) -> Any:
    """Return the type of a column in tables: 64 bits, or 32 of integers that fit."""
    return np.float64 if values.dtype.kind == "f" else np.int64 if values.dtype.itemsize > 2 else np.int32


def _empty_results(parameters: int) -> dict[str, Any]:
    """Return the results of no curve."""
    return {
        "parameters": np.empty((0, parameters)),
        "errors": np.empty((0, parameters)),
        "covariance": np.empty((0, parameters, parameters)),
        "chi2": np.empty(0),
        "status": np.empty(0, np.int8),
        "flags": np.empty(0, np.uint32),
        "evaluations": np.empty(0, np.uint32),
        "rounds": np.empty(0, np.uint32),
        "messages": [],
    }


def _limits(name: str, pair: Any) -> tuple[float, float]:
    """Return the bounds of a parameter, infinite where there is none."""
    try:
        lower, upper = pair
        limits = -math.inf if lower is None else float(lower), math.inf if upper is None else float(upper)
    except (TypeError, ValueError) as error:
        raise InputError(f"bounds: {name}: {pair!r}; give a lower and an upper bound", argument="bounds") from error
    return limits


def _pair(argument: str, name: str, pair: Any) -> tuple[float, float]:
    """Return two finite numbers."""
    if not (isinstance(pair, list | tuple | np.ndarray) and len(pair) == 2 and all(map(is_number, pair))):
        raise InputError(f"{argument}: {name}: {pair!r}; give two numbers", argument=argument)
    return float(pair[0]), float(pair[1])


def _expression(name: str, text: Any) -> str:
    """Return the expression of a tie."""
    if not isinstance(text, str):
        raise InputError(f"ties: {name}: {text!r}; give an expression such as '2*a + 1'", argument="ties")
    return str(text)


def _estimator(estimator: Any) -> tuple[str, float | None]:
    """Return an estimator's name and scale."""
    name, scale = estimator if isinstance(estimator, list | tuple) and len(estimator) == 2 else (estimator, None)
    name = check_choice("estimator", name, tuple(ESTIMATORS))
    if scale is None:
        return name, None
    if not ESTIMATORS[name]:
        raise InputError(f"estimator: {name} has no scale", argument="estimator")
    if not is_number(scale) or scale <= 0:
        raise InputError(f"estimator: {scale!r}; give a scale above 0, in units of sigma", argument="estimator")
    return name, float(scale)


def _tolerance(name: str, value: Any) -> float | None:
    """Return a tolerance, or None where the solver's own is wanted."""
    if value is None:
        return None
    if not is_number(value) or not value >= 0.0:
        raise InputError(f"{name}: {value!r}; give a number from 0", argument=name)
    return float(value)


def _device(device: Any) -> str:
    """Return the selector of a device: for curves, all of whose models run on the CPU, "auto" is the CPU."""
    if device in ("auto", "cpu"):
        return "cpu"
    name_missing_driver()
    if isinstance(device, Device):
        return device.selector
    if isinstance(device, str):
        return str(device)
    raise InputError(f'device: {device!r}; give "auto", "cpu", "gpu", … or a popfit.Device', argument="device")
