"""Tabulated templates as models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from popfit import CurveFitter, InputError, Spline, curve_fit

X = np.arange(-5.0, 5.1, 0.5)


def test_values_and_derivatives_are_scipys() -> None:
    interpolate = pytest.importorskip("scipy.interpolate")
    rng = np.random.default_rng(0)
    table = rng.normal(size=X.size)
    model = Spline(table, first=-5.0, step=0.5)
    wanted = interpolate.CubicSpline(X, table, bc_type="natural")
    x = rng.uniform(-4.0, 4.0, 50)
    np.testing.assert_allclose(model(x, 2.0, 0.7, 1.0), 2.0 * wanted(x - 0.7) + 1.0, atol=1e-12)
    slopes = np.column_stack([wanted(x - 0.7), -2.0 * wanted(x - 0.7, 1), np.ones(50)])
    np.testing.assert_allclose(model.jacobian(x, 2.0, 0.7, 1.0), slopes, atol=1e-11)


def test_fits_of_images() -> None:
    y, x = np.mgrid[:12, :15]
    model = Spline(np.exp(-((x - 7.0) ** 2 + (y - 5.0) ** 2) / 6.0))
    assert model.predictors == ("x", "y") and model.parameters == ("a", "x0", "y0", "c")
    shifts = np.random.default_rng(1).uniform(-1.0, 1.0, (20, 2))
    points = np.array([y, x], dtype=float)  # the table's first axis is its x
    images = np.array([model(points, 3.0, *shift, 0.5) for shift in shifts])
    fits = CurveFitter(model, fixed=["c"]).fit(points, images, [1.0, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(fits.parameters[:, 1:3], shifts, atol=1e-6)
    assert fits.converged.all()
    popt, _ = curve_fit(model, points, images[0], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(popt, [3.0, *shifts[0], 0.5], atol=1e-7)


def test_pickles_and_comparisons() -> None:
    model = Spline(X**2, first=-5.0, step=0.5)
    again = pickle.loads(pickle.dumps(model))
    assert again == model and hash(again) == hash(model) and model != Spline(X**2)
    np.testing.assert_array_equal(again(X, 1.0, 0.1, 0.0), model(X, 1.0, 0.1, 0.0))
    values = model.values
    values[:] = 0.0
    assert model.values[0] == 25.0 and "21 values" in repr(model)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        (np.zeros((2, 2, 2, 2)), {}, "axes"),
        ([1.0], {}, "at least two"),
        (np.ma.masked_less(X, 0.0), {}, "masked"),
        (X, {"step": 0.0}, "above 0"),
        (X, {"step": None}, "step"),
        (X, {"step": [1.0, 1.0]}, "step"),
        ([1.0, np.nan], {}, "NaN"),
        (["a", "b"], {}, "values"),
    ],
)
def test_bad_tables(values: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Spline(values, **settings)
