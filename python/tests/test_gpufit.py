"""`popfit.gpufit`: Gpufit's examples and tests, rewritten from its documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popfit
import popfit.gpufit as gf


def spots(fits: int, size: int = 12) -> tuple[Any, Any, Any]:
    """Return Poisson images of a spot, random starts, and the true parameters."""
    rng = np.random.default_rng(0)
    truth = np.float32([10.0, 5.5, 5.5, 3.0, 10.0])
    y, x = np.mgrid[:size, :size]
    image = truth[0] * np.exp(-((x - truth[1]) ** 2 + (y - truth[2]) ** 2) / (2.0 * truth[3] ** 2)) + truth[4]
    data = rng.poisson(np.broadcast_to(image.ravel(), (fits, size * size))).astype(np.float32)
    starts = np.tile(truth, (fits, 1))
    starts[:, 1:3] += 3.0 * rng.uniform(-0.2, 0.2, (fits, 2))
    starts[:, [0, 3, 4]] *= rng.uniform(0.8, 1.2, (fits, 3))
    return data, starts.astype(np.float32), truth


def test_a_line_through_two_points() -> None:
    data = np.float32([[0.0, 1.0]])
    answer = gf.fit(data, None, gf.ModelID.LINEAR_1D, np.zeros((1, 2), np.float32), 0.001, None, None, None, data[0])
    parameters, states, chi_squares, number_iterations, seconds = answer
    assert chi_squares[0] < 1e-6 and states[0] == 0 and number_iterations[0] <= 10 and seconds > 0.0
    np.testing.assert_allclose(parameters, [[0.0, 1.0]], atol=1e-6)


def test_one_gauss_function() -> None:
    truth = np.float32([4.0, 2.0, 0.5, 1.0])
    x = np.arange(5.0)
    data = (truth[0] * np.exp(-((x - truth[1]) ** 2) / (2.0 * truth[2] ** 2)) + truth[3]).astype(np.float32)[None]
    parameters, states, chi_squares, number_iterations, _ = gf.fit(
        data, None, gf.ModelID.GAUSS_1D, np.float32([[2.0, 1.5, 0.3, 0.0]]), 0.001, 10, None, gf.EstimatorID.LSE
    )
    assert chi_squares[0] < 1e-6 and states[0] == 0 and number_iterations[0] <= 10
    np.testing.assert_allclose(parameters[0], truth, atol=1e-6)


@pytest.mark.parametrize("estimator", [gf.EstimatorID.LSE, gf.EstimatorID.MLE])
def test_spots(estimator: int) -> None:
    data, starts, truth = spots(2000)
    parameters, states, chi_squares, number_iterations, _ = gf.fit(
        data, None, gf.ModelID.GAUSS_2D, starts, 1e-4, 20, None, estimator, None
    )
    assert [one.dtype for one in (parameters, states, chi_squares, number_iterations)] == ["f4", "i4", "f4", "i4"]
    good = states == 0
    assert good.mean() > 0.995 and number_iterations.max() <= 20
    np.testing.assert_allclose(np.median(parameters[good], axis=0), truth, rtol=0.08)
    x = np.array([np.arange(144) % 12, np.arange(144) // 12])
    fitter = popfit.CurveFitter(
        popfit.Formula.builtin("gauss2d"), estimator="poisson" if estimator == gf.EstimatorID.MLE else "least_squares"
    )
    exact = fitter.fit(x, data, starts, exact=True)
    distance = np.abs(parameters - exact.parameters)[good] / exact.errors[good]
    assert np.median(distance) < 0.03 and np.quantile(distance, 0.99) < 0.3


def test_weights_fixed_parameters_and_constraints() -> None:
    data, starts, _ = spots(300)
    weights = (1.0 / np.maximum(data, 1.0)).astype(np.float32)
    parameters, states, chi_squares, *_ = gf.fit(data, weights, gf.ModelID.GAUSS_2D, starts)
    assert (states == 0).mean() > 0.95 and 100.0 < np.median(chi_squares) < 180.0
    fixed = np.array([1, 1, 1, 0, 1], dtype=np.int32)
    parameters, *_ = gf.fit(data, weights, gf.ModelID.GAUSS_2D, starts, parameters_to_fit=fixed)
    np.testing.assert_array_equal(parameters[:, 3], starts[:, 3])
    bounds = np.zeros((300, 10), np.float32)
    bounds[:, 6:8] = [2.9, 3.1]
    types = np.array([0, 0, 0, gf.ConstraintType.LOWER_UPPER, 0], dtype=np.int32)
    parameters, states, *_ = gf.fit_constrained(data, weights, gf.ModelID.GAUSS_2D, starts, bounds, types)
    assert (states == 0).mean() > 0.95
    assert parameters[:, 3].min() >= np.float32(2.9) and parameters[:, 3].max() <= np.float32(3.1)
    for kind, side in ((gf.ConstraintType.LOWER, np.min), (gf.ConstraintType.UPPER, np.max)):
        types[3] = kind
        parameters, *_ = gf.fit_constrained(data, weights, gf.ModelID.GAUSS_2D, starts, bounds, types)
        assert side(parameters[:, 3]) == np.float32(2.9 if kind == gf.ConstraintType.LOWER else 3.1)


def test_points_of_all_fits_and_of_each() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0.0, 5.0, (40, 20)), axis=1).astype(np.float32)
    truth = rng.uniform(-2.0, 2.0, (40, 2)).astype(np.float32)
    starts = np.zeros((40, 2), np.float32)
    own = gf.fit(truth[:, :1] + truth[:, 1:] * x, None, gf.ModelID.LINEAR_1D, starts, user_info=x)
    np.testing.assert_allclose(own[0], truth, atol=1e-4)
    common = gf.fit(truth[:, :1] + truth[:, 1:] * x[0], None, gf.ModelID.LINEAR_1D, starts, user_info=x[0])
    np.testing.assert_allclose(common[0], truth, atol=1e-4)
    numbers = gf.fit(
        truth[:, :1] + truth[:, 1:] * np.arange(20.0, dtype=np.float32), None, gf.ModelID.LINEAR_1D, starts
    )
    np.testing.assert_allclose(numbers[0], truth, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "truth", "points"),
    [
        ("GAUSS_2D_ELLIPTIC", [10.0, 5.5, 6.5, 2.0, 3.0, 1.0], 144),
        ("GAUSS_2D_ROTATED", [10.0, 5.5, 6.5, 2.0, 3.0, 1.0, 0.4], 144),
        ("CAUCHY_2D_ELLIPTIC", [10.0, 5.5, 6.5, 2.0, 3.0, 1.0], 144),
        ("FLETCHER_POWELL", [1.0, 0.0, 0.0], 3),
        ("BROWN_DENNIS", [-7.30761, 10.80237, -0.33634, 0.13788], 20),  # Gpufit's points are 0, 1, …
    ],
)
def test_every_model(name: str, truth: list[float], points: int) -> None:
    model_id = getattr(gf.ModelID, name)
    formula = popfit.Formula.builtin(gf._BUILTINS[model_id])
    if len(formula.predictors) == 2:
        x = np.array([np.arange(points) % 12, np.arange(points) // 12], dtype=np.float64)
        data = formula(x, *truth)
    else:
        data = np.zeros(points)  # the models are residuals
    starts = np.float32([truth]) * np.float32(1.05) + np.float32(0.02)
    parameters, states, *_ = gf.fit(data[None].astype(np.float32), None, model_id, starts, max_number_iterations=1000)
    assert states[0] == 0
    np.testing.assert_allclose(parameters[0], truth, rtol=1e-3, atol=2e-3)


def test_formulas_functions_and_doubles() -> None:
    x = np.linspace(0.0, 3.0, 30)
    data = 2.0 * np.exp(-np.outer(np.linspace(0.5, 2.0, 16), x))
    starts = np.ones((16, 2))
    for model in ("a*exp(-k*x)", popfit.Formula("a*exp(-k*x)"), lambda x, a, k: a * np.exp(-k * x)):
        parameters, states, *_ = gf.fit(data, None, model, starts, user_info=x)
        assert (states == 0).all()
        np.testing.assert_allclose(parameters[:, 1], np.linspace(0.5, 2.0, 16), rtol=1e-4)


def test_predictors_of_functions() -> None:
    points = np.float32([[0, 1, 2, 3], [5, 1, 2, 7]])
    data = np.tile(2.0 * points[0] - points[1], (2, 1))
    both = np.tile(points, (2, 1, 1))
    starts = np.ones((2, 2), np.float32)
    parameters, *_ = gf.fit(data, None, lambda x, a, b: a * x[0] + b * x[1], starts, user_info=both)
    np.testing.assert_allclose(parameters, [[2.0, -1.0]] * 2, atol=1e-4)
    with pytest.raises(RuntimeError, match="user_info has the shape"):
        gf.fit(np.tile(data[0], (3, 1)), None, lambda x, a: a * x[0], np.ones((3, 1), np.float32), user_info=points)
    with pytest.raises(RuntimeError, match="the model has 2 parameters, initial_parameters 3"):
        gf.fit(data, None, lambda x, a, b: a * x + b, np.ones((2, 3), np.float32), user_info=points[0])


def test_more_fits_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    data, starts, _ = spots(700)
    whole = gf.fit(data, None, gf.ModelID.GAUSS_2D, starts)
    monkeypatch.setattr(gf, "CHUNK", 256)
    parts = gf.fit(data, None, gf.ModelID.GAUSS_2D, starts)
    for one, other in zip(whole[:4], parts[:4], strict=True):
        np.testing.assert_array_equal(one, other)


def test_states_of_fits_that_fail() -> None:
    data, starts, _ = spots(6)
    data[2, 5] = np.nan
    parameters, states, *_ = gf.fit(data, None, gf.ModelID.GAUSS_2D, starts)
    assert states[2] == 5 and np.isnan(parameters[2]).all() and (states[[0, 1, 3, 4, 5]] == 0).all()
    far = starts * np.float32([9.0, 0.2, 3.0, 0.3, 4.0])
    assert 1 in gf.fit(data[:2], None, gf.ModelID.GAUSS_2D, far[:2], max_number_iterations=1)[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": np.zeros((3, 4, 5), np.float32)}, "two-dimensional"),
        ({"data": np.zeros((6, 144), np.float32, order="F")}, "Memory layout of data"),
        ({"data": np.zeros((6, 144), np.int32)}, "type of data"),
        ({"data": [[0.0] * 144] * 6}, "no array|not an array"),
        ({"weights": np.zeros((6, 143), np.float32)}, "mismatch between data and weights"),
        ({"initial_parameters": np.zeros((5, 5), np.float32)}, "number of fits"),
        ({"initial_parameters": np.zeros((6, 4), np.float32)}, "5 parameters, initial_parameters 4"),
        ({"constraints": np.zeros((6, 9), np.float32)}, "invalid shape"),
        ({"constraint_types": np.zeros(4, np.int32)}, "length of number of parameters"),
        ({"constraint_types": np.full(5, 7, np.int32)}, "Invalid constraint type"),
        ({"parameters_to_fit": np.zeros(5)}, "type of parameters_to_fit"),
        ({"model_id": 99}, "Invalid model ID"),
        ({"estimator_id": 99}, "Invalid estimator ID"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    data, starts, _ = spots(6)
    arguments = {"data": data, "weights": None, "model_id": gf.ModelID.GAUSS_2D, "initial_parameters": starts}
    with pytest.raises(RuntimeError, match=message):
        gf.fit_constrained(**{**arguments, **change})


def test_what_is_missing() -> None:
    data, starts, _ = spots(2)
    with pytest.raises(NotImplementedError, match="SPLINE_3D_MULTICHANNEL"):
        gf.fit(data, None, gf.ModelID.SPLINE_3D_MULTICHANNEL, starts)
    with pytest.raises(NotImplementedError, match="copy arrays of cupy"):
        _ = gf.fit_gpu
    with pytest.raises(RuntimeError, match="no square image"):
        gf.fit(np.ascontiguousarray(data[:, :100][:, :99]), None, gf.ModelID.GAUSS_2D, starts)
    assert gf.cuda_available() and gf.get_cuda_version() == ((0, 0), (0, 0)) and gf.get_last_error() == ""


def spline_coefficients(table: Any) -> Any:
    """Return the coefficients of the natural spline through a table, (intervals …, 4 …), as Gpuspline orders them."""
    interpolate = pytest.importorskip("scipy.interpolate")
    coefficients = table
    for axis, count in enumerate(table.shape):
        # (4, intervals, …) from the highest power on; the order goes behind all other axes
        powers = interpolate.CubicSpline(np.arange(count), coefficients, axis=axis, bc_type="natural").c[::-1]
        coefficients = np.moveaxis(np.moveaxis(powers, 0, -1), 0, axis)
    return coefficients.astype(np.float32)


@pytest.mark.parametrize(
    ("model_id", "sizes"),
    [(gf.ModelID.SPLINE_1D, (20,)), (gf.ModelID.SPLINE_2D, (14, 11)), (gf.ModelID.SPLINE_3D, (9, 8, 7))],
)
def test_splines(model_id: int, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    axes = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")
    table = np.exp(-sum(((axis - 0.45 * size) / (0.15 * size)) ** 2 for axis, size in zip(axes, sizes, strict=True)))
    coefficients = spline_coefficients(table)
    counts = [[*sizes, *(size - 1 for size in sizes)]] + ([[sizes[0] - 1]] if len(sizes) == 1 else [])
    truth = np.column_stack([rng.uniform(2, 5, 50), *(rng.uniform(-1, 1, 50) for _ in sizes), rng.uniform(0, 1, 50)])
    points = np.array([grid.ravel(order="F") for grid in axes])  # x runs fastest
    template = popfit.Spline(table)
    noise = rng.normal(0.0, 0.01, (50, points.shape[1]))
    data = (np.array([template(points, *one) for one in truth]) + noise).astype(np.float32)
    starts = truth.astype(np.float32)
    starts[:, 1:-1] += 0.3
    for header in counts:
        info = np.concatenate([np.float32(header), coefficients.ravel()])
        parameters, states, chi_squares, *_ = gf.fit(data, None, model_id, starts, 1e-6, 50, user_info=info)
        assert (states == 0).all() and chi_squares.max() < 0.0002 * data.shape[1]
        np.testing.assert_allclose(parameters, truth, atol=0.05)
        same = gf.fit(data, None, template, starts, 1e-6, 50, user_info=points)
        np.testing.assert_allclose(same[0], parameters, atol=1e-4)
    for bad, message in [(info[:-1], "no header"), (None, "missing"), (info[::-1].copy(), "no header")]:
        with pytest.raises(RuntimeError, match=message):
            gf.fit(data, None, model_id, starts, user_info=bad)
    info[-3:] += 0.1
    with pytest.raises(RuntimeError, match="natural"):
        gf.fit(data, None, model_id, starts, user_info=info)
    with pytest.raises(RuntimeError, match=r"data points|no header"):
        gf.fit(
            data[:, :-1].copy(),
            None,
            model_id,
            starts,
            user_info=np.concatenate([np.float32(counts[0]), coefficients.ravel()]),
        )
