"""Fits of curves along an axis of arrays of Dask, block by block."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from popfit._checks import check_switch
from popfit._compiled import CompiledModel
from popfit._errors import InputError
from popfit.curves import CurveFits, CurveFitter

Array = npt.NDArray[Any]

#: Name of the parameters' dimension in a Dataset, as xarray's ``curvefit`` has it.
PARAMETER_DIMENSION = "param"
#: Columns of a block's results after parameters and errors, with the types that they get.
SCALARS = {"chi2": np.dtype(np.float64), "dof": np.dtype(np.int64), "status": np.dtype(np.int8)}


class BlockFits(NamedTuple):
    """Results of the fits of all curves of an array of Dask: arrays that nothing has computed yet.

    ``dask.compute(fits)[0]`` computes all of them, and fits each curve once. Whoever computes one array after the other
    fits the curves anew each time. The axis that was fitted along is that of the parameters, or is missing.
    """

    #: Names of the P parameters.
    names: tuple[str, ...]
    #: Best-fit parameters (…, P, …), float64; NaN where a curve has no data.
    parameters: Any
    #: Their standard errors (…, P, …), float64: infinite where the data do not determine a parameter.
    errors: Any
    #: χ² of each curve (…), float64.
    chi2: Any
    #: Its degrees of freedom (…), int64.
    dof: Any
    #: Codes of how fits ended (…), int8; those above 0 converged.
    status: Any


def _dask_array() -> Any:
    """Return the module ``dask.array``, which has no types."""
    return importlib.import_module("dask.array")


def fit_blocks(
    array: Any,
    axis: Hashable,
    x: Any,
    model: CurveFitter | CompiledModel | str | Callable[..., Any],
    p0: Any = None,
    *,
    sigma: Any = None,
    mask: Any = None,
    x_per_curve: bool = False,
    rechunk: bool = False,
    exact: bool = False,
    threads: int = 1,
    **settings: Any,
) -> Any:
    """Fit a model to the curves along an axis of an array of Dask, lazily: one call of `CurveFitter` for each block.

    Values that are NaN, in the data or in `sigma`, are missing and do not count. The results are those of
    `CurveFitter.fit` with all curves in memory, bit for bit.

    Parameters
    ----------
    array : dask.array.Array or xarray.DataArray
        The data, of any number of dimensions; a DataArray must hold an array of Dask. Its axis `axis` is one chunk.
    axis : int or dimension's name
        Axis of the points of a curve.
    x : array, (points) or (predictors, points)
        Points of all curves; with `x_per_curve` an array of the shape of the data. None stands for the coordinate of a
        DataArray.
    model : CurveFitter, Formula, Spline, str or callable
        The model, as `popfit.CurveFitter` takes it, or a fitter.
    p0 : sequence of numbers (P), or mapping of str to number or array, optional
        Starts of the parameters, numbers for all curves or arrays with one for each, which have the shape of the data
        without `axis`. What is missing of a built-in formula's starts is guessed for each curve.
    sigma : number or array, (points) or of the shape of the data, optional
        Standard deviations of the data; 1 unless given. An infinite one masks its point.
    mask : array of bool, (points) or of the shape of the data, optional
        True for points that do not count.
    x_per_curve : bool
        True if each curve has points of its own.
    rechunk : bool
        True to make `axis` one chunk where it has several, with other chunks of Dask's choice. Dask then moves all
        data. By default that is an error.
    exact : bool
        As in `CurveFitter.fit`.
    threads : int
        Threads of each block's fit. Dask computes a block in each of its own threads, so that one is enough.
    **settings
        Settings of `CurveFitter`, such as ``bounds``, ``fixed`` and ``estimator``.

    Returns
    -------
    BlockFits
        Arrays of Dask: ``parameters`` and ``errors``, with a parameter axis in the place of `axis`, and ``chi2``,
        ``dof`` and ``status`` without it. Of a DataArray an ``xarray.Dataset`` with these names and the dimension
        "param".

    Raises
    ------
    InputError
        If arrays do not fit together, `axis` has several chunks, or settings are wrong. What only the data show is
        raised where a block is computed.

    Examples
    --------
    >>> import dask.array, numpy as np, popfit.dask
    >>> x = np.linspace(0.0, 4.0, 30)
    >>> rates = np.array([[0.5, 1.0], [2.0, 1.5]])
    >>> cube = dask.array.from_array(3.0 * np.exp(-rates * x[:, None, None]), chunks=(-1, 1, 2))
    >>> fits = popfit.dask.fit_blocks(cube, 0, x, lambda x, a, k: a * np.exp(-k * x), [1.0, 1.0])
    >>> fits.names, fits.parameters.shape, fits.parameters.chunks
    (('a', 'k'), (2, 2, 2), ((2,), (1, 1), (2,)))
    >>> fits.parameters[1].compute().round(3)
    array([[0.5, 1. ],
           [2. , 1.5]])
    """
    labelled = array if hasattr(array, "dims") and hasattr(array, "coords") else None
    if labelled is not None:
        if axis not in labelled.dims:
            raise InputError(f"axis: no dimension {axis!r} (the array has {list(labelled.dims)})", argument="axis")
        x = labelled.coords[axis] if x is None and axis in labelled.coords else x
        given = {"x": x, "sigma": sigma, "mask": mask}
        x, sigma, mask = (_values_like(name, one, labelled, axis) for name, one in given.items())
        if isinstance(p0, Mapping):
            first = labelled.isel({axis: 0}, drop=True)
            p0 = {name: _values_like("p0", start, first, None) for name, start in p0.items()}
        array, place = labelled.data, labelled.dims.index(axis)
    elif not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise InputError(f"axis: {axis!r}; give an integer", argument="axis")
    else:
        place = int(axis)
    fitter = _fitter_of(model, settings)
    cube = _Cube.of(array, place, rechunk)
    points = {"x": x, "sigma": sigma, "mask": mask}
    options = {"exact": exact, "threads": threads}
    fits = _fit_cube(cube, fitter, points, check_switch("x_per_curve", x_per_curve), p0, options)
    return fits if labelled is None else _dataset_of(fits, labelled, axis)


@dataclass(frozen=True)
class _Cube:
    """An array of Dask whose curves lie along one axis, in one chunk."""

    array: Any
    axis: int

    @classmethod
    def of(cls, array: Any, axis: int, rechunk: bool) -> _Cube:
        """Return the array with its axis, one chunk, as an index from 0."""
        if not isinstance(array, _dask_array().Array):
            raise InputError(
                f"array: {type(array).__name__}; give an array of Dask. popfit.CurveFitter fits arrays in memory, and "
                "popfit.xarray.curvefit DataArrays",
                argument="array",
            )
        if not -array.ndim <= axis < array.ndim:
            raise InputError(f"axis: {axis}; the array has {array.ndim} dimensions", argument="axis")
        if array.dtype.kind not in "fiub":
            raise InputError(f"array: {array.dtype}; give real numbers", argument="array")
        axis %= array.ndim
        if math.isnan(array.shape[axis]):
            raise InputError(f"array: axis {axis} has an unknown length", argument="array")
        chunks = len(array.chunks[axis])
        if chunks != 1:
            if not rechunk:
                raise InputError(
                    f"array: axis {axis} has {chunks} chunks, and a curve must be in one; give "
                    f"array.rechunk({{{axis}: -1}}), or rechunk=True",
                    argument="array",
                )
            array = array.rechunk({k: -1 if k == axis else "auto" for k in range(array.ndim)})
        return cls(array, axis)

    @property
    def points(self) -> int:
        """Number of points of a curve."""
        return int(self.array.shape[self.axis])

    @property
    def kept(self) -> tuple[int, ...]:
        """Shape without the axis of the points."""
        return tuple(size for k, size in enumerate(self.array.shape) if k != self.axis)

    def aligned(self, name: str, values: Any) -> Any:
        """Return an array of the shape of the data, with its chunks."""
        if values.shape != self.array.shape:
            raise InputError(
                f"{name} has the shape {values.shape}; give ({self.points},) or {self.array.shape}", argument=name
            )
        return _dask_array().asarray(values).rechunk(self.array.chunks)

    def aligned_starts(self, name: str, values: Any) -> Any:
        """Return an array of the shape of the data without the axis, with its chunks and an axis of 1 in its place."""
        if values.shape != self.kept:
            raise InputError(f"p0: {name} has the shape {values.shape}; give () or {self.kept}", argument="p0")
        chunks = tuple(sizes for k, sizes in enumerate(self.array.chunks) if k != self.axis)
        da = _dask_array()
        return da.expand_dims(da.asarray(values).rechunk(chunks), self.axis)


def _fit_cube(
    cube: _Cube,
    fitter: CurveFitter,
    points: Mapping[str, Any],
    x_per_curve: bool,
    p0: Any,
    options: Mapping[str, Any],
) -> BlockFits:
    """Return the results of a cube, whose arrays of the data's shape go to the blocks piece by piece."""
    # 1. What all blocks get, and what each gets of its own.
    constants: dict[str, Any] = {}
    pieces: dict[str, Any] = {}
    for name, values in points.items():
        size = np.shape(values)
        if hasattr(values, "dask") and len(size) < cube.array.ndim:
            raise InputError(f"{name}: an array of Dask of all curves; give {name}.compute()", argument=name)
        is_shared = size in ((), (cube.points,)) if name != "x" else not x_per_curve
        if values is None or is_shared:
            constants[name] = values
        else:
            pieces[name] = cube.aligned(name, values if hasattr(values, "shape") else np.asarray(values))
    starts = p0
    if isinstance(p0, Mapping):
        starts = {name: start for name, start in p0.items() if np.shape(start) == ()}
        for name, start in p0.items():
            if name not in starts:
                held = start if hasattr(start, "shape") else np.asarray(start)
                pieces[f"p0 {name}"] = cube.aligned_starts(name, held)
    _check(fitter, cube, constants, list(pieces), starts)
    # 2. One block of results, in which columns lie along the axis, for each block of data.
    parameters = len(fitter.parameters)
    width = 2 * parameters + len(SCALARS)
    block = _BlockFitter(fitter, cube.axis, constants, tuple(pieces), starts, dict(options))
    chunks = tuple((width,) if k == cube.axis else sizes for k, sizes in enumerate(cube.array.chunks))
    packed = _dask_array().map_blocks(
        _fit_block,
        cube.array,
        *pieces.values(),
        # a task of its own: in the tasks of the blocks, the scheduler would send the model along with each of them
        fitter=importlib.import_module("dask").delayed(block, pure=True, traverse=False),
        dtype=np.float64,
        chunks=chunks,
        meta=np.empty((0,) * cube.array.ndim),
        token="popfit-fit-blocks",
    )
    # 3. The columns.
    before = (slice(None),) * cube.axis
    scalars = {
        name: packed[(*before, 2 * parameters + k)].astype(dtype) for k, (name, dtype) in enumerate(SCALARS.items())
    }
    return BlockFits(
        tuple(fitter.parameters),
        packed[(*before, slice(parameters))],
        packed[(*before, slice(parameters, 2 * parameters))],
        **scalars,
    )


def _fit_block(y: Array, *pieces: Array, fitter: _BlockFitter) -> Array:
    """Return the packed results of a block."""
    return fitter(y, *pieces)


def _fitter_of(model: Any, settings: Mapping[str, Any]) -> CurveFitter:
    """Return a model's fitter."""
    if not isinstance(model, CurveFitter):
        return CurveFitter(model, **settings)
    if settings:
        raise InputError(f"{min(settings)}: the fitter has settings of its own", argument=min(settings))
    return model


def _check(fitter: CurveFitter, cube: _Cube, constants: Mapping[str, Any], pieces: Sequence[str], starts: Any) -> None:
    """Raise `InputError` for what is wrong with any data: a fit of no curve looks at all but these."""
    given = starts
    if isinstance(starts, Mapping):
        given = {**starts, **{name.removeprefix("p0 "): 1.0 for name in pieces if name.startswith("p0 ")}}
    if "x" not in pieces:
        x = constants["x"]
        if x is None:
            raise InputError("x: give the points of the curves", argument="x")
        if isinstance(x, list | tuple | np.ndarray) and np.shape(x)[-1:] != (cube.points,):
            raise InputError(
                f"x has the shape {np.shape(x)}; give ({cube.points},) or (predictors, {cube.points})", argument="x"
            )
    sigma, mask = constants.get("sigma"), constants.get("mask")
    x = np.zeros(cube.points) if "x" in pieces else constants["x"]
    fitter._prepare(
        given,
        {"x": x, "y": np.empty((0, cube.points)), "sigma": sigma, "mask": mask, "bounds": None, "x_per_curve": False},
        None,
    )


@dataclass(frozen=True)
class _BlockFitter:
    """Fits the curves of a block, on a worker."""

    fitter: CurveFitter
    axis: int
    #: ``x``, ``sigma`` and ``mask`` of all curves.
    constants: dict[str, Any]
    #: Names of the arrays that a block gets after its data.
    pieces: tuple[str, ...]
    starts: Any
    options: dict[str, Any]

    def __call__(self, y: Array, *pieces: Array) -> Array:
        """Return parameters, errors and scalars of the curves of a block, along its axis."""
        kept = tuple(size for k, size in enumerate(y.shape) if k != self.axis)
        columns = 2 * len(self.fitter.parameters) + len(SCALARS)
        packed = np.empty((math.prod(kept), columns))
        if len(packed):
            fits = self._fit(
                self._rows(y), {name: self._rows(one) for name, one in zip(self.pieces, pieces, strict=True)}
            )
            scalars = [getattr(fits, name)[:, np.newaxis] for name in SCALARS]
            np.concatenate([fits.parameters, fits.errors, *scalars], axis=1, out=packed, casting="unsafe")
        return np.moveaxis(packed.reshape(*kept, columns), -1, self.axis)

    def _rows(self, values: Array) -> Array:
        """Return the curves of a block as rows (curves, points)."""
        last = np.moveaxis(values, self.axis, -1)
        return last.reshape(-1, values.shape[self.axis])

    def _fit(self, y: Array, pieces: Mapping[str, Array]) -> CurveFits:
        """Return the fits of rows y (curves, points)."""
        x: Any
        sigma: Any
        x, sigma, mask = (
            pieces[name] if name in pieces else self.constants.get(name) for name in ("x", "sigma", "mask")
        )
        missing = np.zeros(y.shape, dtype=bool) if mask is None else np.array(np.broadcast_to(mask, y.shape))
        if y.dtype.kind == "f":
            missing |= np.isnan(y)
        if "x" in pieces:
            missing |= np.isnan(x)
        if sigma is not None and np.isnan(sigma).any():
            missing |= np.isnan(sigma)
            sigma = np.where(np.isnan(sigma), np.inf, sigma)
        starts = self.starts
        if isinstance(starts, Mapping):
            own = {name.removeprefix("p0 "): one[:, 0] for name, one in pieces.items() if name.startswith("p0 ")}
            starts = {**starts, **own}
        return self.fitter.fit(
            x,
            y,
            starts,
            sigma=sigma,
            mask=missing if missing.any() else None,
            x_per_curve="x" in pieces,
            covariance=False,
            **self.options,
        )


def _values_like(name: str, values: Any, array: Any, axis: Hashable | None) -> Any:
    """Return the array of a DataArray with the dimensions of another, or along its axis alone; else the values.

    Raises
    ------
    InputError
        If it has other dimensions.
    """
    if not hasattr(values, "dims"):
        return values
    if axis is not None and tuple(values.dims) == (axis,):
        return values.values
    if not set(values.dims) <= set(array.dims):
        raise InputError(
            f"{name} has the dimensions {list(values.dims)}; give some of {list(array.dims)}", argument=name
        )
    return values.broadcast_like(array).transpose(*array.dims).data if values.dims else values.values


def _dataset_of(fits: BlockFits, array: Any, axis: Hashable) -> Any:
    """Return the results of a DataArray as a Dataset, with its coordinates."""
    import xarray as xr  # type: ignore[import-not-found,unused-ignore]

    kept = tuple(dimension for dimension in array.dims if dimension != axis)
    full = tuple(PARAMETER_DIMENSION if dimension == axis else dimension for dimension in array.dims)
    coordinates = {name: one for name, one in array.coords.items() if axis not in one.dims}
    variables = {"parameters": (full, fits.parameters), "errors": (full, fits.errors)}
    variables |= {name: (kept, getattr(fits, name)) for name in SCALARS}
    return xr.Dataset(variables, {**coordinates, PARAMETER_DIMENSION: list(fits.names)})
