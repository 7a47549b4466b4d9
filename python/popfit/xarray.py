"""A drop-in replacement for xarray's ``curvefit``: ``import popfit.xarray``, and ``obj.popfit.curvefit(…)``.

xarray calls scipy once for each curve; here all curves of a block are fitted at once.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr  # type: ignore[import-not-found,unused-ignore]

from popfit._curve_fit import choose_feasible_starts, curve_fit
from popfit._errors import PopfitWarning
from popfit._rival import Difference

__all__ = ["DIFFERENCES", "CurvefitAccessor", "curvefit"]

Array: TypeAlias = npt.NDArray[Any]

#: Differences from xarray.
DIFFERENCES = (
    Difference("call", "`obj.curvefit(…)`", "`obj.popfit.curvefit(…)`, or `popfit.xarray.curvefit(obj, …)`"),
    Difference("curves", "one call of scipy for each", "one call for each block"),
    Difference("`kwargs`", "arguments of scipy's `curve_fit`", "arguments of `popfit.curve_fit`"),
    Difference("messages of fits that fail", "scipy's", "popfit's, with the number of the curve in its block"),
)


def curvefit(
    obj: Any,
    coords: Any,
    func: Callable[..., Any],
    reduce_dims: Any = None,
    skipna: bool = True,
    p0: Mapping[str, Any] | None = None,
    bounds: Mapping[str, tuple[Any, Any]] | None = None,
    param_names: Sequence[str] | None = None,
    errors: str = "raise",
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Fit a function along dimensions of a DataArray or Dataset, as xarray's ``curvefit`` does.

    Parameters
    ----------
    obj : DataArray or Dataset
        The data.
    coords : hashable, DataArray, or a sequence of these
        Coordinates that the function gets as x, one or a sequence of several.
    func : callable
        The function, ``f(x, a, b, …)``; `popfit.curve_fit` says what becomes of it.
    reduce_dims : hashable or iterable of hashable, optional
        Further dimensions over which points are taken together.
    skipna : bool
        True to leave out missing values.
    p0 : mapping, optional
        Starts by the parameters' names, numbers or DataArrays; others are the function's defaults, or scipy's.
    bounds : mapping, optional
        Pairs of bounds by the parameters' names, numbers or DataArrays.
    param_names : sequence of str, optional
        Names of the parameters of a function that takes any number of them.
    errors : {"raise", "ignore"}
        Of a fit that fails: RuntimeError, or NaN.
    kwargs : dict, optional
        Further arguments of `popfit.curve_fit`.

    Returns
    -------
    Dataset
        ``curvefit_coefficients`` and ``curvefit_covariance``, for a Dataset with the name of each variable before it.

    Examples
    --------
    >>> import numpy as np, xarray, popfit.xarray
    >>> t = np.arange(0.0, 5.0, 0.5)
    >>> decays = xarray.DataArray(3.0 * np.exp(-np.outer([0.5, 1.0], t)), {"star": [1, 2], "t": t}, ("star", "t"))
    >>> fit = decays.popfit.curvefit("t", lambda t, a, k: a * np.exp(-k * t))
    >>> fit.curvefit_coefficients.sel(param="k").values.round(3)
    array([0.5, 1. ])
    """
    starts, limits = dict(p0 or {}), dict(bounds or {})
    if errors not in ("raise", "ignore"):
        raise ValueError('errors must be either "raise" or "ignore"')
    # 1. Which dimensions are fitted along, and which are kept.
    axes = [obj[one] if isinstance(one, str) else one for one in _listed(coords, (str, xr.DataArray))]
    along = list(dict.fromkeys([*_listed(reduce_dims, str), *_dimensions_of(obj, axes)]))
    kept = [dimension for dimension in obj.dims if dimension not in along]
    if not along:
        raise ValueError(
            "No arguments to `coords` were identified as a dimension on the calling object, and no dims were supplied "
            "to `reduce_dims`. This would result in fitting on scalar data."
        )
    for name, start in starts.items():
        _check_dimensions(f"Initial guess for '{name}'", start, kept)
    for name, (lower, upper) in limits.items():
        _check_dimensions(f"Lower bound for '{name}'", lower, kept)
        _check_dimensions(f"Upper bound for '{name}'", upper, kept)
    axes = [axis.broadcast_like(obj, exclude=kept) for axis in xr.broadcast(*axes)]
    # 2. Parameters, their starts and bounds.
    names, defaults = _parameters(func, param_names)
    lowers = [limits.get(name, (-np.inf, np.inf))[0] for name in names]
    uppers = [limits.get(name, (-np.inf, np.inf))[1] for name in names]
    begins = [
        starts[name] if name in starts else _start_between(defaults.get(name, 1.0), lower, upper)
        for name, lower, upper in zip(names, lowers, uppers, strict=True)
    ]
    # 3. All curves of each block at once.
    block = _Block(func, len(axes), len(along), len(names), skipna, errors, dict(kwargs or {}))
    cores = [along] * (1 + len(axes)) + [[]] * (3 * len(names))
    result = xr.Dataset()
    variables = {"": obj} if isinstance(obj, xr.DataArray) else {f"{name}_": obj[name] for name in obj.data_vars}
    for prefix, variable in variables.items():
        coefficients, covariances = xr.apply_ufunc(
            block.fit,
            variable,
            *axes,
            *begins,
            *lowers,
            *uppers,
            dask="parallelized",
            input_core_dims=cores,
            output_core_dims=[["param"], ["cov_i", "cov_j"]],
            dask_gufunc_kwargs={"output_sizes": dict.fromkeys(("param", "cov_i", "cov_j"), len(names))},
            output_dtypes=(np.float64, np.float64),
            exclude_dims=set(along),
        )
        result[f"{prefix}curvefit_coefficients"] = coefficients
        result[f"{prefix}curvefit_covariance"] = covariances
    result = result.assign_coords({"param": names, "cov_i": names, "cov_j": names})
    result.attrs = {} if isinstance(obj, xr.DataArray) else obj.attrs.copy()
    return result


class _Block:
    """Fits all curves of a block of arrays."""

    def __init__(
        self,
        function: Callable[..., Any],
        axes: int,
        along: int,
        parameters: int,
        skipna: bool,
        errors: str,
        settings: dict[str, Any],
    ) -> None:
        self.function = function
        self.axes = axes
        self.along = along
        self.parameters = parameters
        self.skipna = skipna
        self.errors = errors
        self.settings = settings

    def fit(self, y: Array, *others: Array) -> tuple[Array, Array]:
        """Return coefficients and covariances of y (…, points), whose other axes are curves."""
        axes = others[: self.axes]
        numbers = [np.asarray(one, dtype=np.float64) for one in others[self.axes :]]
        kept = np.broadcast_shapes(y.shape[: y.ndim - self.along], *(one.shape for one in numbers))
        core = y.shape[y.ndim - self.along :]
        curves, points = int(np.prod(kept)), int(np.prod(core))
        y = np.broadcast_to(y, (*kept, *core)).reshape(curves, points)
        y = y if y.dtype == np.float32 else y.astype(np.float64)
        columns = [np.broadcast_to(one, kept).ravel() for one in numbers]
        starts, lower, upper = (
            np.stack(columns[k * self.parameters : (k + 1) * self.parameters], axis=-1) for k in range(3)
        )
        x, x_per_curve = self._points(axes, kept, core)
        # what is missing does not count, and a curve without data has no fit
        missing = np.zeros(y.shape, dtype=bool)
        if self.skipna:
            missing = np.isnan(y) | np.isnan(x).all(axis=-2)
        some = ~missing.all(axis=1) if points else np.zeros(curves, dtype=bool)
        coefficients = np.full((curves, self.parameters), np.nan)
        covariances = np.full((curves, self.parameters, self.parameters), np.nan)
        if some.any():
            given_x = x[some] if x_per_curve else x
            given_x = given_x[..., 0, :] if x.shape[-2] == 1 else given_x
            is_bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
            with warnings.catch_warnings():
                if self.errors == "ignore":
                    warnings.filterwarnings("ignore", ".*could not be fitted", PopfitWarning)
                coefficients[some], covariances[some] = curve_fit(
                    self.function,
                    given_x,
                    np.ma.masked_array(y[some], missing[some]),
                    starts[some],
                    bounds=(lower[some], upper[some]) if is_bounded else (-np.inf, np.inf),
                    x_per_curve=x_per_curve,
                    errors="raise" if self.errors == "raise" else "nan",
                    **self.settings,
                )
        return coefficients.reshape(*kept, -1), covariances.reshape(*kept, self.parameters, self.parameters)

    def _points(self, axes: Sequence[Array], kept: tuple[int, ...], core: tuple[int, ...]) -> tuple[Array, bool]:
        """Return x, (axes, points) or of each curve (curves, axes, points), and whether it is the latter."""
        points = int(np.prod(core))
        leading = [axis.shape[: axis.ndim - self.along] for axis in axes]
        rows = [np.asarray(axis, dtype=np.float64) for axis in axes]
        if all(np.prod(one) == 1 for one in leading):
            return np.stack([row.reshape(points) for row in rows]), False
        broadcast = [np.broadcast_to(row, (*kept, *core)).reshape(-1, points) for row in rows]
        return np.stack(broadcast, axis=1), True


def _listed(values: Any, single: Any) -> list[Any]:
    """Return one value or several as a list."""
    if values is None:
        return []
    if isinstance(values, single) or not isinstance(values, Iterable):
        return [values]
    return list(values)


def _dimensions_of(obj: Any, axes: Sequence[Any]) -> list[Hashable]:
    """Return the dimensions of an object whose coordinates are among the axes."""
    return [dimension for dimension in obj.dims if any(axis.equals(obj[dimension]) for axis in axes)]


def _check_dimensions(what: str, values: Any, kept: Sequence[Hashable]) -> None:
    """Raise ValueError for a DataArray with dimensions that are not kept."""
    unexpected = set(values.dims) - set(kept) if isinstance(values, xr.DataArray) else set()
    if unexpected:
        raise ValueError(
            f"{what} has unexpected dimensions {tuple(unexpected)}. It should only have dimensions that are in data "
            f"dimensions {list(kept)}."
        )


def _parameters(function: Callable[..., Any], names: Sequence[str] | None) -> tuple[list[str], dict[str, float]]:
    """Return the names of a function's parameters, and the defaults of its signature."""
    try:
        known = dict(inspect.signature(function).parameters)
    except ValueError as error:
        if not names:
            raise ValueError("Unable to inspect `func` signature, and `param_names` was not provided.") from error
        known = {}
    defaults = {name: one.default for name, one in known.items() if one.default is not one.empty}
    if names:
        return list(names), defaults
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in known.values()):
        raise ValueError("`param_names` must be provided because `func` takes variable length arguments.")
    return list(known)[1:], defaults


def _start_between(start: float, lower: Any, upper: Any) -> Any:
    """Return a start, or one between the bounds where it does not lie there."""
    between = choose_feasible_starts(np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64))
    outside = (np.asarray(start) < lower) | (np.asarray(start) > upper)
    if isinstance(lower, xr.DataArray) or isinstance(upper, xr.DataArray):
        like = xr.broadcast(*(one if isinstance(one, xr.DataArray) else xr.DataArray(one) for one in (lower, upper)))
        between = choose_feasible_starts(like[0].values, like[1].values)
        where: Any = xr.where
        return where((like[0] > start) | (like[1] < start), like[0].copy(data=between), start)
    return float(between) if outside else start


class CurvefitAccessor:
    """What ``obj.popfit`` offers."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def curvefit(self, coords: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Fit a function along dimensions of this object, as `popfit.xarray.curvefit` does."""
        return curvefit(self._obj, coords, func, *args, **kwargs)


_register: Any
for _register in (xr.register_dataarray_accessor, xr.register_dataset_accessor):
    _register("popfit")(CurvefitAccessor)
