"""Curves along an axis of dask arrays beside the same curves in memory."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import required

import popfit

dask = required("dask")
da = required("dask.array")
required("distributed")
import popfit.dask  # noqa: E402

fit_blocks = popfit.dask.fit_blocks
X = np.linspace(0.0, 5.0, 24)
SHAPE = (7, 24, 5)
AXIS = 1

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")


def decay(x: Any, a: Any, k: Any) -> Any:
    return a * np.exp(-k * x)


def cube(dtype: Any = np.float64) -> Any:
    """Return noisy decays along the axis in the middle, of which some values and one whole curve are missing."""
    rng = np.random.default_rng(4)
    a, k = rng.uniform(0.5, 2.0, (2, 7, 1, 5))
    values = decay(X[:, np.newaxis], a, k) + 0.02 * rng.normal(size=SHAPE)
    values[1, 3, 2] = values[4, 5:9, 0] = np.nan
    values[2, :, 2] = np.nan
    return values.astype(dtype)


def rows(values: Any) -> Any:
    return np.moveaxis(values, AXIS, -1).reshape(-1, len(X))


def in_memory(values: Any, p0: Any = (1.0, 1.0), model: Any = decay, **given: Any) -> popfit.CurveFits:
    """Return the fits of all curves in one call."""
    arrays = {name: given.pop(name) for name in ("sigma", "mask") if name in given}
    mask = np.isnan(rows(values)) | arrays.get("mask", False)
    return popfit.CurveFitter(model, **given).fit(X, rows(values), p0, sigma=arrays.get("sigma"), mask=mask)


def assert_same(found: Any, wanted: popfit.CurveFits) -> None:
    """Assert that computed results are those in memory, to the bit."""
    assert found.names == wanted.names
    for name in ("parameters", "errors"):
        shaped = np.moveaxis(getattr(wanted, name).reshape(7, 5, -1), -1, AXIS)
        np.testing.assert_array_equal(getattr(found, name), shaped)
    for name in ("chi2", "dof", "status"):
        values = getattr(found, name)
        assert values.dtype == getattr(wanted, name).dtype
        np.testing.assert_array_equal(values, getattr(wanted, name).reshape(7, 5))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("chunks", [(7, -1, 5), (2, -1, 3), (1, -1, 1)])
def test_blocks_have_the_values_of_one_call(chunks: Any, dtype: Any) -> None:
    values = cube(dtype)
    fits = fit_blocks(da.from_array(values, chunks=chunks), AXIS, X, decay, [1.0, 1.0])
    (found,) = dask.compute(fits)
    assert_same(found, in_memory(values))
    assert np.isnan(found.parameters[2, :, 2]).all() and (found.status > 0).sum() == 34


def test_results_have_the_shapes_chunks_and_types_that_they_say() -> None:
    array = da.from_array(cube(), chunks=(3, -1, 2))
    fits = fit_blocks(array, -2, X, decay, [1.0, 1.0])
    assert fits.parameters.chunks == fits.errors.chunks == ((3, 3, 1), (2,), (2, 2, 1))
    assert fits.chi2.chunks == fits.status.chunks == ((3, 3, 1), (2, 2, 1))
    for lazy in fits[1:]:
        computed = lazy.compute()
        assert isinstance(lazy._meta, np.ndarray) and lazy._meta.ndim == lazy.ndim
        assert (computed.shape, computed.dtype) == (lazy.shape, lazy.dtype)
    # one curve, and none at all
    one = fit_blocks(array[0, :, 0], 0, X, decay, [1.0, 1.0])
    assert one.parameters.compute().shape == (2,) and one.chi2.compute().shape == ()
    none = fit_blocks(array[:0], AXIS, X, decay, [1.0, 1.0])
    assert none.parameters.compute().shape == (0, 2, 5)


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def fail(block: Any) -> Any:
        raise AssertionError("this block was computed")

    array = da.from_array(cube(), chunks=(3, -1, 2)).map_blocks(fail, dtype=float, meta=np.empty((0, 0, 0)))
    fits = fit_blocks(array, AXIS, X, decay, [1.0, 1.0])
    with pytest.raises(AssertionError, match="was computed"):
        fits.chi2[0, 0].compute()


def test_sigmas_masks_and_starts() -> None:
    values = cube()
    array = da.from_array(values, chunks=(2, -1, 3))
    rng = np.random.default_rng(5)
    sigma = rng.uniform(0.01, 0.05, SHAPE)
    sigma[3, 4, 4] = np.nan
    mask = rng.random(SHAPE) < 0.1
    usable = np.where(np.isnan(sigma), 1.0, sigma)
    wanted = in_memory(
        values, sigma=rows(usable), mask=rows(mask | np.isnan(sigma)), absolute_sigma=True, bounds={"k": (0.6, 1.8)}
    )
    settings = {"absolute_sigma": True, "bounds": {"k": (0.6, 1.8)}}
    for lazy in (sigma, da.from_array(sigma, chunks=(7, 6, 1))):
        fits = fit_blocks(array, AXIS, X, decay, [1.0, 1.0], sigma=lazy, mask=mask, **settings)
        assert_same(dask.compute(fits)[0], wanted)
    # of all curves: numbers, or values along the axis
    along = np.linspace(0.01, 0.03, len(X))
    for sigmas in (0.02, along):
        fits = fit_blocks(array, AXIS, X, decay, [1.0, 1.0], sigma=sigmas, absolute_sigma=True)
        assert_same(dask.compute(fits)[0], in_memory(values, sigma=sigmas, absolute_sigma=True))
    # starts of each curve
    starts = rng.uniform(0.8, 1.2, (7, 5))
    fits = fit_blocks(array, AXIS, X, decay, {"a": da.from_array(starts, chunks=3), "k": 1.0})
    assert_same(dask.compute(fits)[0], in_memory(values, {"a": starts.ravel(), "k": 1.0}))


def test_points_of_each_curve() -> None:
    values = cube()
    x = np.broadcast_to(X[:, np.newaxis], SHAPE) + np.linspace(0.0, 0.1, 5)
    fits = fit_blocks(da.from_array(values, chunks=(2, -1, 3)), AXIS, x, decay, [1.0, 1.0], x_per_curve=True)
    missing = np.isnan(rows(values))
    wanted = popfit.CurveFitter(decay).fit(rows(x), rows(values), [1.0, 1.0], mask=missing, x_per_curve=True)
    assert_same(dask.compute(fits)[0], wanted)


def test_formulas_guess_and_fitters_keep_their_settings() -> None:
    values = cube()
    array = da.from_array(values, chunks=(2, -1, 3))
    fitter = popfit.CurveFitter("a*exp(-k*x)", fixed=["a"])
    fits = fit_blocks(array, AXIS, X, pickle.loads(pickle.dumps(fitter)), {"a": 1.2, "k": 1.0})
    assert_same(dask.compute(fits)[0], in_memory(values, {"a": 1.2, "k": 1.0}, "a*exp(-k*x)", fixed=["a"]))
    with pytest.raises(popfit.InputError, match="settings of its own"):
        fit_blocks(array, AXIS, X, fitter, [1.0, 1.0], fixed=["k"])
    # starts of a built-in model are guessed in each block; a curve without data gets none
    gauss = popfit.Formula.builtin("gauss1d")
    peaks = np.exp(-0.5 * ((X[:, np.newaxis] - np.array([1.5, 2.5, 3.5])) / 0.4) ** 2)
    fits = fit_blocks(da.from_array(peaks, chunks=(-1, 2)), 0, X, gauss)
    assert (fits.status.compute() > 0).all()


def test_an_axis_of_several_chunks_is_refused_or_joined() -> None:
    values = cube()
    array = da.from_array(values, chunks=(7, 8, 5))
    with pytest.raises(popfit.InputError, match=r"axis 1 has 3 chunks(.|\n)*array\.rechunk\(\{1: -1\}\)"):
        fit_blocks(array, AXIS, X, decay, [1.0, 1.0])
    fits = fit_blocks(array, AXIS, X, decay, [1.0, 1.0], rechunk=True)
    assert_same(dask.compute(fits)[0], in_memory(values))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"array": np.ones(SHAPE)}, "array: ndarray"),
        ({"array": da.ones(SHAPE, dtype=complex, chunks=-1)}, "real numbers"),
        ({"axis": 3}, "3 dimensions"),
        ({"axis": "t"}, "give an integer"),
        ({"x": X[:-1]}, r"x has the shape \(23,\)"),
        ({"x": None}, "x: give the points"),
        ({"p0": None}, "p0: give a start of each parameter"),
        ({"p0": [1.0]}, "p0 has the shape"),
        ({"p0": {"a": 1.0, "kk": 1.0}}, "no parameter 'kk'; did you mean 'k'"),
        ({"p0": {"a": np.ones((5, 7)), "k": 1.0}}, r"p0: a has the shape \(5, 7\)"),
        ({"sigma": np.ones((7, 24))}, "sigma has the shape"),
        ({"sigma": np.ones(23)}, "sigma has the shape"),
        ({"mask": np.zeros(SHAPE[:2], bool)}, "mask has the shape"),
        ({"mask": np.zeros(24)}, "give truth values"),
        ({"sigma": da.ones(24)}, r"give sigma\.compute\(\)"),
        ({"x": da.ones(24)}, r"give x\.compute\(\)"),
        ({"x_per_curve": True}, "x has the shape"),
        ({"x_per_curve": 1}, "x_per_curve: 1"),
        ({"bounds": {"b": (0, 1)}}, "no parameter 'b'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_computed(given: dict[str, Any], match: str) -> None:
    call = {"array": da.ones(SHAPE, chunks=(3, -1, 2)), "axis": AXIS, "x": X, "model": decay, "p0": [1.0, 1.0]} | given
    with pytest.raises(popfit.InputError, match=match):
        fit_blocks(**call)


def test_a_data_array_gives_a_dataset() -> None:
    xr = required("xarray")
    values = cube()
    coords = {"y": range(7), "t": X, "x": list("abcde"), "sky": ("y", np.arange(7.0))}
    array = xr.DataArray(values, coords, ("y", "t", "x"))
    lazy = array.chunk({"y": 3, "t": -1, "x": 2})
    guess = xr.DataArray(np.linspace(0.8, 1.2, 5), coords={"x": list("abcde")})
    fits = fit_blocks(lazy, "t", None, decay, {"a": 1.0, "k": guess}, sigma=xr.DataArray(np.full(24, 0.02), dims="t"))
    assert fits.parameters.dims == ("y", "param", "x") and fits.chi2.dims == ("y", "x")
    assert fits.param.values.tolist() == ["a", "k"] and "t" not in fits.coords
    assert fits.parameters.chunks == ((3, 3, 1), (2,), (2, 2, 1))
    wanted = in_memory(values, {"a": 1.0, "k": np.tile(guess.values, 7)}, sigma=0.02)
    found = fits.compute()
    np.testing.assert_array_equal(
        found.parameters.transpose("y", "x", "param").values.reshape(35, 2), wanted.parameters
    )
    np.testing.assert_array_equal(found.sky, np.arange(7.0))
    for wrong, match in [({"axis": "z"}, "no dimension 'z'"), ({"array": array}, "popfit.xarray")]:
        with pytest.raises(popfit.InputError, match=match):
            fit_blocks(**({"array": lazy, "axis": "t", "x": None, "model": decay, "p0": [1.0, 1.0]} | wrong))


def test_other_settings_are_other_tasks() -> None:
    """Dask takes results of the same name for the same results."""
    array = da.from_array(cube(), chunks=(3, -1, 2))
    names = [
        fit_blocks(array, AXIS, x, model, p0, **settings).parameters.name
        for x, model, p0, settings in [
            (X, "a*exp(-k*x)", [1.0, 1.0], {}),
            (X + 0.1, "a*exp(-k*x)", [1.0, 1.0], {}),
            (X, "a*exp(-2*k*x)", [1.0, 1.0], {}),
            (X, "a*exp(-k*x)", [1.0, 2.0], {}),
            (X, "a*exp(-k*x)", [1.0, 1.0], {"sigma": 0.1}),
            (X, "a*exp(-k*x)", [1.0, 1.0], {"bounds": {"a": (0, 1)}}),
            (X, decay, [1.0, 1.0], {}),
            (X, lambda x, a, k: a * np.exp(-k * x) + 1.0, [1.0, 1.0], {}),
        ]
    ]
    assert len(set(names)) == len(names)
    again = fit_blocks(array, AXIS, X, "a*exp(-k*x)", [1.0, 1.0])
    assert again.parameters.name == names[0]
