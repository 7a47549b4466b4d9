"""`curve_fit` beside scipy's, for one curve and for many."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import required

import popfit
import popfit.scipy

optimize = required("scipy.optimize")
X = np.linspace(0.0, 4.0, 40)


def decay(x: Any, a: Any, k: Any, c: Any) -> Any:
    return a * np.exp(-k * x) + c


def gauss(x: Any, a: Any, m: Any, s: Any, c: Any) -> Any:
    return a * np.exp(-((x - m) ** 2) / (2.0 * s**2)) + c


def decays(count: int, seed: int = 0) -> Any:
    """Return noisy decays."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform([2.0, 0.5, 0.0], [4.0, 2.0, 1.0], (count, 3))
    return decay(X, *truth.T[:, :, np.newaxis]) + 0.05 * rng.normal(size=(count, X.size))


def assert_as_scipy(f: Any, x: Any, y: Any, *arguments: Any, rtol: float = 1e-5, **settings: Any) -> None:
    """Assert that popfit's answer is scipy's."""
    popt, pcov = popfit.curve_fit(f, x, y, *arguments, **settings)
    wanted, wanted_pcov = optimize.curve_fit(f, x, y, *arguments, **settings)
    assert popt.shape == wanted.shape and pcov.shape == wanted_pcov.shape and popt.dtype == wanted.dtype
    np.testing.assert_allclose(popt, wanted, atol=1e-3 * np.sqrt(np.diag(wanted_pcov)).max())
    np.testing.assert_allclose(pcov, wanted_pcov, rtol=rtol, atol=rtol * np.abs(wanted_pcov).max())


@pytest.mark.parametrize("absolute_sigma", [False, True])
@pytest.mark.parametrize("sigma", [None, 0.05, np.linspace(0.02, 0.1, 40)])
def test_one_curve(absolute_sigma: bool, sigma: Any) -> None:
    y = decays(1)[0]
    assert_as_scipy(decay, X, y, sigma=sigma, absolute_sigma=absolute_sigma)
    assert_as_scipy(decay, X, y, [3.0, 1.0, 0.1], sigma, absolute_sigma)
    assert_as_scipy(decay, X, y, bounds=([0.0, 0.0, 0.0], [10.0, 9.0, 3.0]), sigma=sigma)
    assert_as_scipy(decay, X.tolist(), y.tolist(), bounds=(0.0, np.inf), method="dogbox")


def test_a_parameter_at_its_bound() -> None:
    y = decays(1)[0]
    assert_as_scipy(decay, X, y, bounds=([0.0, 0.0, 0.9], [10.0, 9.0, 3.0]), rtol=1e-3)
    popt, pcov = popfit.curve_fit(decay, X, np.array([y, y]), bounds=([0.0, 0.0, 0.9], [10.0, 9.0, 3.0]))
    one = popfit.curve_fit(decay, X, y, bounds=([0.0, 0.0, 0.9], [10.0, 9.0, 3.0]))
    np.testing.assert_allclose(pcov[1], one[1], rtol=1e-3)
    np.testing.assert_allclose(popt[0], one[0], atol=1e-4)


def test_robust_losses() -> None:
    y = decays(1)[0]
    y[7] += 3.0
    for loss in ("soft_l1", "huber", "cauchy", "arctan"):
        settings = {"loss": loss, "f_scale": 0.1, "method": "trf"}
        popt, _ = popfit.curve_fit(decay, X, y, [3.0, 1.0, 0.1], **settings)
        wanted, wanted_pcov = optimize.curve_fit(decay, X, y, [3.0, 1.0, 0.1], **settings)
        np.testing.assert_allclose(popt, wanted, atol=0.01 * np.sqrt(np.diag(wanted_pcov)).max())


def test_scipys_exceptions() -> None:
    y = decays(1)[0]
    broken = np.where(X > 2.0, np.nan, y)
    calls: list[dict[str, Any]] = [
        {"ydata": broken},
        {"ydata": y, "xdata": broken},
        {"ydata": broken, "check_finite": False, "nan_policy": "raise"},
        {"ydata": broken, "check_finite": False, "nan_policy": "propagate"},
        {"ydata": y, "p0": [1.0, 1.0, 9.0], "bounds": (0.0, 5.0)},
        {"ydata": y, "bounds": (5.0, 0.0)},
        {"ydata": y, "bounds": (0.0, 5.0), "method": "lm"},
        {"ydata": y, "method": "newton"},
        {"ydata": y, "sigma": np.ones(7)},
        {"ydata": y, "args": (3,)},
        {"ydata": [], "xdata": []},
        {"ydata": y[:2], "xdata": X[:2]},
        {"ydata": y, "f": lambda x: x},
        {"ydata": y, "maxfev": 1, "p0": [1.0, 9.0, -3.0]},
        {"ydata": y, "no_such_argument": 3},
        {"ydata": y[:1], "xdata": X[:1], "p0": [1.0, 1.0, 1.0]},
    ]
    for call in calls:
        call = {"f": decay, "xdata": X, **call}
        with pytest.raises((ValueError, TypeError, RuntimeError)) as wanted, warnings.catch_warnings(action="ignore"):
            optimize.curve_fit(**call)
        with pytest.raises((ValueError, TypeError, RuntimeError)) as found, warnings.catch_warnings(action="ignore"):
            popfit.curve_fit(**call)
        assert found.type is wanted.type, call
        if found.type is ValueError and "unknown" not in str(wanted.value) and call.get("method") != "newton":
            assert str(found.value) == str(wanted.value)


def test_an_undetermined_parameter() -> None:
    y = decays(3)
    with pytest.warns(optimize.OptimizeWarning, match="Covariance of the parameters could not be estimated"):
        _, pcov = popfit.curve_fit(lambda x, a, b: a * x, X, y[0])
    assert np.isinf(pcov).all()
    with pytest.warns(optimize.OptimizeWarning, match="for 3 curves"):
        _, pcov = popfit.curve_fit(lambda x, a, b: a * x, X, y)
    assert np.isinf(pcov).all() and pcov.shape == (3, 2, 2)


def test_full_output() -> None:
    y = decays(1)[0]
    popt, _, infodict, message, code = popfit.curve_fit(decay, X, y, full_output=True)
    *_, wanted, wanted_message, _ = optimize.curve_fit(decay, X, y, full_output=True)
    assert set(infodict) == set(wanted) and isinstance(message, type(wanted_message)) and code in (1, 2, 3, 4)
    np.testing.assert_allclose(infodict["fvec"], decay(X, *popt) - y, atol=1e-12)
    np.testing.assert_array_equal(infodict["ipvt"], wanted["ipvt"])
    r, wanted_r = np.abs(infodict["fjac"][:, :3].T), np.abs(np.triu(wanted["fjac"].T[:3]))
    np.testing.assert_allclose(np.triu(r), wanted_r, rtol=1e-4, atol=1e-4)
    y = decays(4)
    popt, _, infodict, messages, codes = popfit.curve_fit(decay, X, y, full_output=True)
    assert isinstance(infodict["fits"], popfit.CurveFits) and len(messages) == 4 and (codes > 0).all()
    np.testing.assert_allclose(infodict["fvec"], decay(X, *popt.T[:, :, np.newaxis]) - y, atol=1e-9)


def test_many_curves_that_fail() -> None:
    y = decays(5)
    y[3, 4] = np.nan
    with pytest.warns(popfit.PopfitWarning, match="1 of 5 curves could not be fitted; the first: .*y is NaN"):
        popt, pcov = popfit.curve_fit(decay, X, y)
    assert np.isnan(popt[3]).all() and np.isnan(pcov[3]).all() and np.isfinite(popt[[0, 1, 2, 4]]).all()
    with pytest.raises(RuntimeError, match="Optimal parameters not found: curve 3"):
        popfit.curve_fit(decay, X, y, errors="raise")
    popt, _ = popfit.curve_fit(decay, X, y, nan_policy="omit")
    assert np.isfinite(popt).all()
    with pytest.raises(ValueError, match="The input contains nan values"):
        popfit.curve_fit(decay, X, y, nan_policy="raise")
    with pytest.raises(ValueError, match="infs or NaNs"):
        popfit.curve_fit(decay, X, y, check_finite=True)


def test_many_curves_with_their_own_everything() -> None:
    y = decays(12)
    sigma = np.random.default_rng(1).uniform(0.03, 0.08, y.shape)
    p0 = np.random.default_rng(2).uniform([2.0, 0.5, 0.0], [4.0, 2.0, 1.0], (12, 3))
    lower = p0 - 5.0
    popt, pcov = popfit.curve_fit(decay, X, y, p0, sigma, absolute_sigma=True, bounds=(lower, np.inf), exact=True)
    for k in range(12):
        wanted, wanted_pcov = optimize.curve_fit(
            decay, X, y[k], p0[k], sigma[k], absolute_sigma=True, bounds=(lower[k], np.inf)
        )
        errors = np.sqrt(np.diag(wanted_pcov))
        np.testing.assert_allclose(popt[k], wanted, atol=1e-3 * errors.max())
        np.testing.assert_allclose(pcov[k], wanted_pcov, rtol=1e-3, atol=1e-3 * errors.max() ** 2)


def test_against_a_loop_of_scipy() -> None:
    """500 random Gauss functions: nowhere a higher χ² than scipy's, and where both agree the same numbers."""
    rng = np.random.default_rng(11)
    x = np.linspace(-5.0, 5.0, 60)
    truth = rng.uniform([1.0, -3.0, 0.3, -1.0], [9.0, 3.0, 2.0, 1.0], (500, 4))
    y = gauss(x, *truth.T[:, :, np.newaxis]) + rng.normal(size=(500, 60)) * rng.uniform(0.05, 0.5, (500, 1))
    starts = truth * rng.uniform(0.6, 1.4, truth.shape)
    popt, pcov = popfit.curve_fit(gauss, x, y, starts)
    higher = 0
    for k in range(500):
        try:
            with warnings.catch_warnings(action="ignore"):
                wanted, wanted_pcov = optimize.curve_fit(gauss, x, y[k], starts[k])
        except RuntimeError:
            continue
        chi2, wanted_chi2 = (((gauss(x, *p) - y[k]) ** 2).sum() for p in (popt[k], wanted))
        higher += chi2 > wanted_chi2 * (1.0 + 1e-6)
        if wanted_chi2 <= chi2 * (1.0 + 1e-9) and np.isfinite(wanted_pcov).all():
            errors = np.sqrt(np.diag(wanted_pcov))
            sign = np.array([1.0, 1.0, np.sign(popt[k, 2] * wanted[2]), 1.0])
            assert (np.abs(popt[k] * sign - wanted) < 0.01 * errors).all()
            size = np.outer(errors, errors)
            assert (np.abs(pcov[k] * np.outer(sign, sign) - wanted_pcov) < 0.01 * size).all()
    assert higher == 0


def test_the_rival_does_what_popfit_does_not() -> None:
    y = decays(1)[0]
    covariance = 0.0025 * np.exp(-np.abs(np.subtract.outer(X, X)) / 0.3)
    assert_as_scipy(decay, X, y, sigma=covariance, rtol=1e-4)
    assert_as_scipy(decay, X, y, sigma=np.diag(np.full(40, 0.0025)))
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        popt, _ = popfit.curve_fit(lambda x, a, k: float(a) * np.exp(-k * x), X, y)
    with pytest.warns(popfit.PopfitWarning, match="x_scale: no effect"):
        popfit.curve_fit(decay, X, y, method="trf", x_scale=[1.0, 1.0, 1.0])
    with pytest.raises(popfit.InputError, match="callback"):
        popfit.curve_fit(decay, X, decays(2), callback=print)
    own = pytest.warns(popfit.PopfitWarning, match="fewer points than parameters")
    with pytest.warns(optimize.OptimizeWarning), own:
        popt, _ = popfit.curve_fit(decay, X[:2], y[:2], method="trf")
    assert popt.shape == (3,)
    with pytest.raises(popfit.InputError, match=r"bounds have the shapes \(2,\) and \(2,\); give \(3,\)"):
        popfit.curve_fit(decay, X, y, bounds=([0.0, 0.0], [1.0, 1.0]))


def test_masks_and_estimators_are_not_lost_on_the_way_to_scipy() -> None:
    def no_formula(x: Any, a: Any, k: Any, c: Any) -> Any:
        return decay(x, float(a), k, c)

    y = decays(1)[0]
    spoiled = np.ma.masked_array(np.where(np.arange(40) == 5, 50.0, y), np.arange(40) == 5)
    wanted = popfit.curve_fit(decay, X, spoiled)[0]
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        np.testing.assert_allclose(popfit.curve_fit(no_formula, X, spoiled)[0], wanted, rtol=1e-4)
    outliers = y.copy()
    outliers[[3, 9]] += 20.0
    wanted = popfit.curve_fit(decay, X, outliers, [3.0, 1.0, 0.1], 0.05, estimator="cauchy")[0]
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        found = popfit.curve_fit(no_formula, X, outliers, [3.0, 1.0, 0.1], 0.05, estimator="cauchy")[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    with pytest.raises(popfit.InputError, match="estimator"):
        popfit.curve_fit(decay, X[:2], y[:2], method="trf", estimator="cauchy")
    with pytest.warns(popfit.PopfitWarning, match="Optimal parameters not found"):
        popt, pcov = popfit.curve_fit(decay, X, y, [1.0, 9.0, -3.0], errors="nan", maxfev=1)
    assert np.isnan(popt).all() and np.isnan(pcov).all()


def test_errors_of_counts_at_a_bound_are_not_invented() -> None:
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 10.0, 40)
    counts = rng.poisson(100.0 * (5.0 + 2.0 * x)).astype(float)
    settings = {"estimator": "poisson", "bounds": ([0.0, 0.0], [999.0, 490.0])}
    with pytest.warns(optimize.OptimizeWarning):
        _, pcov = popfit.curve_fit(lambda x, a, b: a * x + b, x, counts, [200.0, 480.0], **settings)
    assert np.isinf(pcov).all()


def test_units_and_masks_of_arguments() -> None:
    units = required("astropy.units")
    y = decays(2)
    for arguments in (
        {"ydata": y * units.Jy},
        {"ydata": y[0] * units.Jy},
        {"ydata": y, "sigma": np.full(40, 0.1) * units.Jy},
    ):
        with pytest.raises(popfit.InputError, match="has the unit Jy"):
            popfit.curve_fit(decay, X, **arguments)
    plain = popfit.curve_fit(decay, X, y)[0]
    np.testing.assert_array_equal(popfit.curve_fit(decay, X, y * units.dimensionless_unscaled)[0], plain)
    with pytest.raises(popfit.InputError, match="masked"):
        popfit.curve_fit(decay, X, y[0], sigma=np.ma.masked_array(np.ones(40), np.arange(40) == 3))
    masked = np.ma.masked_array(np.where(np.arange(40) == 3, np.nan, y[0]), np.arange(40) == 3)
    *_, infodict, _, _ = popfit.curve_fit(decay, X, masked, full_output=True)
    assert infodict["fvec"].shape == (39,)
    with pytest.raises(ValueError, match="above 0"):
        popfit.curve_fit(decay, X, y[0], sigma=-0.1)
    np.testing.assert_allclose(popfit.curve_fit(decay, X, y[0], p0=[[3.0], [1.0], [0.1]])[0], plain[0], rtol=1e-3)


def test_the_drop_in() -> None:
    assert popfit.scipy.curve_fit is popfit.curve_fit
    assert popfit.scipy.minimize is optimize.minimize
    with pytest.raises(AttributeError, match="no_such"):
        _ = popfit.scipy.no_such
    ours, theirs = (inspect.signature(one).parameters for one in (popfit.curve_fit, optimize.curve_fit))
    wanted = [(name, one.default, one.kind) for name, one in theirs.items() if one.default != "deprecated"]
    found = [(name, one.default, one.kind) for name, one in ours.items() if name in theirs]
    for (name, default, kind), (own_name, own_default, own_kind) in zip(wanted, found, strict=True):
        assert name == own_name and kind == own_kind
        assert name == "bounds" or own_default == default


def test_functions_of_any_number_of_parameters() -> None:
    y = 1.0 + 2.0 * X - 0.5 * X**2
    popt, _ = popfit.curve_fit(lambda x, *p: np.polyval(p, x), X, y, p0=[0.1, 0.1, 0.1])
    np.testing.assert_allclose(popt, [-0.5, 2.0, 1.0])
    popt, _ = popfit.curve_fit(popfit.Formula("a*x^2 + b*x + c"), X, y)
    np.testing.assert_allclose(popt, [-0.5, 2.0, 1.0])
    popt, _ = popfit.curve_fit(lambda _, a: a * np.arange(10), None, 2 * np.arange(10))
    np.testing.assert_allclose(popt, [2.0])


def test_a_function_that_is_not_finite_at_the_start() -> None:
    x = np.linspace(0.0, 1.0, 10)
    for method, error in (("trf", ValueError), ("lm", RuntimeError)):
        with pytest.raises(error, match="finite"):
            popfit.curve_fit(lambda x, a, b: a * np.log(b * x - 9.0), x, x, [1.0, 1.0], method=method)
