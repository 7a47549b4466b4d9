"""Built-in formulas, guesses of their starts, and formulas made of others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import popfit

X = np.linspace(0.0, 10.0, 60)


def test_guesses_of_one_curve_and_of_many() -> None:
    peak = popfit.Formula.builtin("gauss1d")
    truth = np.random.default_rng(1).uniform([2.0, 2.0, 0.5, -1.0], [4.0, 8.0, 1.5, 1.0], (500, 4))
    truth[::2, 0] *= -1.0
    y = np.array([peak(X, *row) for row in truth])
    starts = peak.guess(X, y)
    assert starts.shape == (500, 4)
    np.testing.assert_allclose(starts, truth, rtol=0.1, atol=0.1)
    np.testing.assert_array_equal(peak.guess(X, y[3]), starts[3])
    fits = popfit.CurveFitter(peak).fit(X, y, starts)
    assert fits.converged.all()
    # the same through another's names, after a pickle, and with an x for each curve
    typed = pickle.loads(pickle.dumps(popfit.Formula("h*exp(-(t - t0)**2/(2*w**2)) + base", ["t"])))
    np.testing.assert_array_equal(typed.guess(X, y), starts)
    np.testing.assert_array_equal(peak.guess(np.tile(X, (500, 1)), y, x_per_curve=True), starts)
    spot = popfit.Formula.builtin("gauss2d")
    image = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0))).reshape(2, -1)
    values = spot(image, 5.0, 7.0, 3.0, 1.5, 1.0)
    np.testing.assert_allclose(spot.guess(image, values), [5.0, 7.0, 3.0, 1.5, 1.0], rtol=0.05)
    np.testing.assert_allclose(
        spot.guess(np.tile(image, (2, 1, 1)), [values, values], x_per_curve=True)[1], spot.guess(image, values)
    )


def test_guesses_leave_out_what_is_masked_or_not_finite() -> None:
    decay = popfit.Formula.builtin("exponential")
    y = decay(X, 3.0, 0.7, 0.5)
    masked = np.ma.masked_array(y, X == X[7])
    masked.data[7] = 1e9
    spoiled = y.copy()
    spoiled[7] = np.nan
    np.testing.assert_array_equal(decay.guess(X, masked), decay.guess(X, spoiled))
    many = decay.guess(X, [y, np.full(60, np.nan), y])
    assert np.isnan(many[1]).all() and np.isfinite(many[[0, 2]]).all()
    with pytest.raises(popfit.InputError, match="of 60 points none is finite"):
        decay.guess(X, np.full(60, np.nan))


def test_guesses_that_are_refused() -> None:
    with pytest.raises(
        popfit.InputError, match=r"`a\*x\^x`, which is not the formula of a built-in model: give starts"
    ):
        popfit.Formula("a*x^x").guess(X, X)
    line = popfit.Formula.builtin("linear1d")
    for x, y, argument in ((X[1:], X, "x"), (np.tile(X, (3, 1)), X, "x"), (X, X.reshape(2, 5, 6), "y"), ([], [], "y")):
        with pytest.raises(popfit.InputError, match="has the shape") as caught:
            line.guess(x, y)
        assert caught.value.argument == argument
    with pytest.raises(popfit.InputError, match="x has the shape"):
        line.guess(X, [X, X], x_per_curve=True)


def test_formulas_of_formulas() -> None:
    first, second = (popfit.Formula.builtin("emg", prefix) for prefix in ("e1_", "e2_"))
    both = first + second
    assert both.parameters == (*first.parameters, *second.parameters)
    p, q = (3.0, 4.0, 0.5, 0.9, 0.2), (2.0, 6.0, 0.4, -0.7, 0.1)
    left, right = first(X, *p), second(X, *q)
    for formula, wanted in (
        (both, left + right),
        (first - second, left - right),
        (first * second, left * right),
        (first / second, left / right),
        (pickle.loads(pickle.dumps(both)), left + right),
    ):
        np.testing.assert_allclose(formula(X, *p, *q), wanted, rtol=1e-13)
    for formula, wanted in (
        (2.5 + first, 2.5 + left),
        (first + 1, left + 1.0),
        (np.float64(2.5) - first, 2.5 - left),
        (first - -2.5, left + 2.5),
        (2 * first, 2.0 * left),
        (first * np.float32(0.5), 0.5 * left),
        (1 / first, 1.0 / left),
        (first / 4, left / 4.0),
    ):
        assert formula.parameters == first.parameters
        np.testing.assert_allclose(formula(X, *p), wanted, rtol=1e-13)
    plane = popfit.Formula("k*t", ["t"]) * popfit.Formula("a*x")
    assert plane.predictors == ("t", "x")
    with pytest.raises(popfit.InputError, match=r"both formulas have `a`, `m`.*with_prefix"):
        popfit.Formula.builtin("gauss1d") + popfit.Formula.builtin("lorentz")
    with pytest.raises(popfit.InputError, match="`9a`"):
        popfit.Formula("a*x").with_prefix("9")
    with pytest.raises(TypeError):
        first + "1"  # type: ignore[operator]
    with pytest.raises(TypeError):
        first * np.nan


def test_a_sum_is_fitted() -> None:
    model = popfit.Formula.builtin("gauss1d", "g1_") + popfit.Formula.builtin("lorentz", "g2_")
    truth = [3.0, 3.0, 0.6, 0.0, 2.0, 7.0, 0.5, 0.4]
    fits = popfit.CurveFitter(model, fixed=["g1_c"]).fit(X, model(X, *truth), [2.0, 2.8, 0.8, 0.0, 1.5, 7.2, 0.7, 0.2])
    np.testing.assert_allclose(fits.parameters[0], truth, atol=1e-6)


def noisy_peaks(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points, and noisy peaks at random places."""
    generator = np.random.default_rng(5)
    x = np.linspace(0.0, 10.0, 60)
    truth = generator.uniform([2.0, 2.0, 0.4, -1.0], [9.0, 8.0, 1.2, 1.0], (count, 4))
    curves = truth[:, :1] * np.exp(-((x - truth[:, 1:2]) ** 2) / (2.0 * truth[:, 2:3] ** 2)) + truth[:, 3:]
    return x, curves + generator.normal(0.0, 0.1, curves.shape)


def test_fits_without_starts_are_those_from_the_guesses() -> None:
    x, curves = noisy_peaks(50)
    mask = np.random.default_rng(1).random(curves.shape) < 0.1
    curves = np.ma.array(np.where(mask, 1e3, curves), mask=mask)
    peak = popfit.Formula.builtin("gauss1d")
    fitter = popfit.CurveFitter(peak)
    wanted = fitter.fit(x, curves, peak.guess(x, curves))
    assert wanted.converged.all() and np.median(wanted.chi2 / wanted.dof) < 0.012
    np.testing.assert_array_equal(fitter.fit(x, curves).parameters, wanted.parameters)
    np.testing.assert_array_equal(fitter.fit(x, curves.filled(), mask=mask).parameters, wanted.parameters)
    np.testing.assert_array_equal(popfit.curve_fit(peak, x, curves)[0], wanted.parameters)
    one = fitter.fit(x, curves[3])
    np.testing.assert_allclose(one.parameters[0], wanted.parameters[3], atol=1e-3)
    np.testing.assert_allclose(popfit.curve_fit(peak, x, curves[3])[0], wanted.parameters[3], atol=1e-3)


def test_some_starts_are_given_and_the_others_guessed_within_bounds() -> None:
    x, curves = noisy_peaks(20)
    peak = popfit.Formula.builtin("gauss1d")
    fits = popfit.CurveFitter(peak, fixed=["c"]).fit(x, curves, {"c": 0.25})
    assert np.all(fits["c"] == 0.25) and fits.converged.all()
    bounds = (np.array([0.0, 0.0, 0.1, -1.0]), np.array([4.0, 10.0, 2.0, 1.0]))
    for fits in (
        popfit.CurveFitter(peak).fit(x, curves, bounds=bounds),
        popfit.CurveFitter(peak, bounds={"a": (0.0, 4.0), "c": (-1.0, 1.0)}).fit(x, curves),
    ):
        assert np.all(fits.status != -1) and fits["a"].max() <= 4.0
    with pytest.raises(popfit.InputError, match="no value of c, which is fixed"):
        popfit.CurveFitter(peak, fixed=["c"]).fit(x, curves)
    with pytest.raises(popfit.InputError, match="no parameter 'd'"):
        popfit.CurveFitter(peak).fit(x, curves, {"d": 1.0})
    with pytest.raises(popfit.InputError, match="not the formula of a built-in model"):
        popfit.CurveFitter("a*exp(-k*x) + b*x").fit(x, curves)
    with pytest.raises(popfit.InputError, match="functions have no guesses"):
        popfit.CurveFitter(lambda x, a: a * x).fit(x, curves)
    with pytest.raises(popfit.InputError, match="p0: no start of a, x0, c"):
        popfit.CurveFitter(popfit.Spline(x)).fit(x, curves)
    with pytest.raises(popfit.InputError, match=r"p0: c has the shape \(2,\); give \(\) or \(20,\)"):
        popfit.CurveFitter(peak).fit(x, curves, {"c": [1.0, 2.0]})


def test_guesses_lie_inside_bounds() -> None:
    x, curves = noisy_peaks(20)
    peak = popfit.Formula.builtin("gauss1d")
    fits = popfit.CurveFitter(peak, bounds={"s": (-5.0, 0.0)}).fit(x, curves)
    assert fits.converged.all() and np.all(fits["s"] < -0.1)
    np.testing.assert_allclose(-fits["s"], popfit.CurveFitter(peak).fit(x, curves)["s"], atol=1e-3)


def test_guesses_leave_out_uncertain_points() -> None:
    x = np.linspace(-5.0, 5.0, 60)
    peak = popfit.Formula.builtin("gauss1d")
    spoiled = np.where(x > 4.0, 1e9, peak(x, 5.0, 0.3, 0.8, 1.0))
    for large in (np.inf, 1e12):
        sigma = np.where(x > 4.0, large, 0.1)
        found = popfit.CurveFitter(peak).fit(x, spoiled, sigma=sigma)
        np.testing.assert_allclose(found.parameters[0], [5.0, 0.3, 0.8, 1.0], atol=1e-4)
        np.testing.assert_allclose(popfit.curve_fit(peak, x, spoiled, sigma=sigma)[0], found.parameters[0], atol=1e-4)
    matrix = np.diag(np.where(x > 4.0, 1e24, 0.01))
    np.testing.assert_allclose(popfit.CurveFitter(peak).fit(x, spoiled, sigma=matrix)["a"], 5.0, atol=1e-4)


def test_guesses_of_counts_are_positive() -> None:
    x = np.linspace(-5.0, 5.0, 60)
    counts = np.random.default_rng(3).poisson(popfit.Formula.builtin("gauss1d")(x, 50.0, 0.3, 0.8, 0.2), (200, 60))
    for name in ("gauss1d", "lorentz", "exponential"):
        fits = popfit.CurveFitter(popfit.Formula.builtin(name), estimator="poisson").fit(x, counts)
        assert not any("not positive" in message for message in fits.messages), name
    assert (
        popfit.CurveFitter(popfit.Formula.builtin("gauss1d"), estimator="poisson").fit(x, counts).converged.mean()
        > 0.97
    )


def test_curves_without_data_are_rows_and_wrong_arrays_are_named() -> None:
    x = np.linspace(-5.0, 5.0, 60)
    fitter = popfit.CurveFitter(popfit.Formula.builtin("gauss1d"))
    assert fitter.fit(x, np.full(60, np.nan)).messages[0].startswith("non_finite_input")
    assert len(fitter.fit(x, np.empty((0, 60)))) == 0
    assert popfit.Formula.builtin("gauss1d").guess(x, np.empty((0, 60))).shape == (0, 4)
    y = np.ones((3, 60))
    for change, argument in (
        ({"mask": np.zeros(59, bool)}, "mask"),
        ({"y": ["a"] * 60}, "y"),
        ({"y": 1j * y}, "y"),
        ({"x": np.ones((3, 60))}, "x"),
        ({"x_per_curve": True}, "x"),
    ):
        with pytest.raises(popfit.InputError) as caught:
            fitter.fit(**{"x": x, "y": y, **change})
        assert caught.value.argument == argument, change


def test_spots_without_starts() -> None:
    y, x = np.mgrid[:11, :12]
    spot = popfit.Formula.builtin("gauss2d")
    points = np.array([x, y], dtype=float)
    images = np.array([spot(points, 5.0, 3.0 + k, 6.0, 1.5, 1.0) for k in range(5)])
    fits = popfit.CurveFitter(spot).fit(points, images)
    np.testing.assert_allclose(fits["x0"], 3.0 + np.arange(5), atol=1e-6)
