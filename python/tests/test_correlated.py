"""Curves whose errors are correlated, several starts, and statistics, beside scipy and lmfit."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from popfit import CurveFitter, InputError, PopfitWarning, curve_fit

X = np.linspace(0.0, 5.0, 40)


def decay(x: Any, a: Any, k: Any, c: Any) -> Any:
    """Return a falling exponential with an offset."""
    return a * np.exp(-k * x) + c


def draw_curves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy curves and a covariance matrix for each."""
    generator = np.random.default_rng(3)
    distance = np.abs(np.subtract.outer(np.arange(X.size), np.arange(X.size)))
    reach = generator.uniform(0.2, 0.9, (count, 1, 1))
    sigma = generator.uniform(0.02, 0.08, (count, X.size))
    matrices = sigma[:, :, None] * sigma[:, None, :] * reach**distance
    noise = np.einsum("nij,nj->ni", np.linalg.cholesky(matrices), generator.normal(size=(count, X.size)))
    return decay(X, 3.0, 0.9, 0.5) + noise, matrices


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "cauchy"])
@pytest.mark.parametrize("absolute_sigma", [True, False])
def test_one_curve_is_scipys(loss: str, absolute_sigma: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    curves, matrices = draw_curves(4)
    keywords: dict[str, Any] = {"method": "trf", "loss": loss, "absolute_sigma": absolute_sigma, "full_output": True}
    tight = {"ftol": 1e-13, "xtol": 1e-13, "gtol": 1e-13}
    for y, sigma in zip(curves, matrices, strict=True):
        popt, pcov, info, *_ = curve_fit(decay, X, y, [1.0, 1.0, 0.0], sigma, **keywords)
        theirs, their_pcov, their_info, *_ = optimize.curve_fit(decay, X, y, [1, 1, 0], sigma, **keywords, **tight)
        assert_allclose(popt, theirs, atol=1e-5 * np.sqrt(np.diag(pcov)).min())
        assert_allclose(pcov, their_pcov, rtol=1e-4, atol=1e-6 * np.abs(pcov).max())
        assert_allclose(info["fvec"], their_info["fvec"], atol=1e-4)


def test_masked_points_are_left_out_of_the_matrix() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    curves, matrices = draw_curves(1)
    mask = np.random.default_rng(1).random(X.size) < 0.3
    popt, pcov = curve_fit(decay, X, np.ma.array(curves[0], mask=mask), [1, 1, 0], matrices[0], absolute_sigma=True)
    kept = matrices[0][np.ix_(~mask, ~mask)]
    theirs, their_pcov = optimize.curve_fit(decay, X[~mask], curves[0][~mask], [1, 1, 0], kept, absolute_sigma=True)
    assert_allclose(popt, theirs, atol=1e-4 * np.sqrt(np.diag(pcov)).min())
    assert_allclose(pcov, their_pcov, rtol=1e-3, atol=1e-6 * np.abs(pcov).max())


def test_many_curves_are_as_one_by_one() -> None:
    curves, matrices = draw_curves(30)
    start = [1.0, 1.0, 0.0]
    popt, pcov = curve_fit(decay, X, curves, start, matrices, absolute_sigma=True)
    popt_of_all, _ = curve_fit(decay, X, curves, start, matrices[:1], absolute_sigma=True)
    for k, y in enumerate(curves):
        one, one_cov = curve_fit(decay, X, y, start, matrices[k], absolute_sigma=True)
        error = np.sqrt(np.diag(one_cov))
        assert np.all(np.abs(popt[k] - one) < 1e-3 * error)
        assert_allclose(pcov[k], one_cov, rtol=1e-2, atol=1e-4 * np.abs(one_cov).max())
        assert np.all(np.abs(popt_of_all[k] - curve_fit(decay, X, y, start, matrices[0])[0]) < 1e-3 * error)
    fits = CurveFitter(decay, absolute_sigma=True).fit(X, curves, start, sigma=matrices)
    assert_allclose((fits.residuals() ** 2).sum(axis=1), fits.chi2, rtol=1e-8)
    some = fits[[3, 17]]
    assert_allclose(some.residuals(), fits.residuals()[[3, 17]])
    normal = some[[1]].jacobian()
    assert_allclose(np.linalg.inv(normal.T @ normal), fits.covariance[17], rtol=1e-4, atol=1e-9)  # type: ignore[index]
    low, high = fits[:2].confidence_intervals(["k"], [1.0])[:, 0, 0].T
    assert np.all(low < fits["k"][:2]) and np.all(high > fits["k"][:2])
    assert_allclose(high - low, 2.0 * fits["k_err"][:2], rtol=0.05)
    assert len(pickle.loads(pickle.dumps(fits))) == 30


def test_bad_matrices() -> None:
    curves, matrices = draw_curves(3)
    fitter, start = CurveFitter(decay), [1.0, 1.0, 0.0]
    for sigma in (matrices[0], matrices[:2], matrices[:, :-1], matrices[0, :-1]):
        with pytest.raises(InputError, match="sigma") as caught:
            fitter.fit(X, curves, start, sigma=sigma)
        assert caught.value.argument == "sigma"
    with pytest.raises(InputError, match=r"\(1, 40, 40\)"):
        fitter.fit(X, curves, start, sigma=matrices[0])
    matrices[1] *= -1.0
    fits = fitter.fit(X, curves, start, sigma=matrices)
    assert fits.converged.tolist() == [True, False, True] and "positive definite" in fits.messages[1]
    for sigma in (-matrices[0], matrices[0] * np.nan, np.triu(matrices[0])):
        with pytest.raises(ValueError, match=r"positive definite|NaN|symmetric"):
            curve_fit(decay, X, curves[0], start, sigma)


def test_shapes_of_sigma() -> None:
    fitter, start = CurveFitter("a*exp(-k*x)"), [1.0, 1.0]
    curves, matrices = draw_curves(3)
    whole = np.full((1, X.size), 0.2)
    np.testing.assert_array_equal(
        fitter.fit(X, curves, start, sigma=whole).chi2, fitter.fit(X, curves, start, sigma=0.2).chi2
    )
    assert len(fitter.fit(X, np.empty((0, X.size)), start, sigma=np.empty((0, X.size, X.size)))) == 0
    square = np.tile(curves, (14, 1))[: X.size]
    with pytest.warns(PopfitWarning, match="newaxis"):
        fitter.fit(X, square, start, sigma=matrices[0])
    with pytest.raises(InputError, match="counts") as caught:
        CurveFitter("a*exp(-k*x)", estimator="poisson").fit(X, curves, start, sigma=matrices)
    assert caught.value.argument == "sigma"
    with pytest.raises(InputError, match="device='cpu'"):
        CurveFitter("a*exp(-k*x)", device="gpu").fit(X, curves, start, sigma=matrices)


def test_several_starts_do_not_depend_on_the_place_of_a_curve() -> None:
    fitter = CurveFitter("a*sin(w*x + f)", bounds={"w": (0.1, 20.0), "f": (-4.0, 4.0)}, starts=3)
    waves = np.sin(np.outer(np.linspace(1.0, 18.0, 30), X))
    forward, backward = fitter.fit(X, waves, [1.0, 1.0, 0.0]), fitter.fit(X, waves[::-1], [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(forward.parameters, backward.parameters[::-1])
    # intervals are those of the end that was found, whatever other starts would find
    found = fitter.fit(X, waves[4], [1.0, 1.0, 0.0])
    again = CurveFitter("a*sin(w*x + f)", bounds={"w": (0.1, 20.0), "f": (-4.0, 4.0)})
    alone = again.fit(X, waves[4], found.parameters[0])
    np.testing.assert_array_equal(found.confidence_intervals(["w"]), alone.confidence_intervals(["w"]))
    fits = CurveFitter("a*x", starts=2, bounds={"a": (0, 9)}).fit(X, X, [99.0])
    assert fits.messages[0].startswith("start_out_of_bounds")


def test_several_starts_find_lower_minima() -> None:
    generator = np.random.default_rng(0)
    truth = generator.uniform(0.5, 5.0, 40)
    curves = np.sin(np.outer(truth, X)) + generator.normal(0.0, 0.05, (40, X.size))
    one, many = (
        CurveFitter("a*sin(w*x)", bounds={"w": (0.1, 8.0)}, starts=starts).fit(X, curves, [1.0, 1.0])
        for starts in (1, 16)
    )
    assert np.all(many.chi2 <= one.chi2 * (1.0 + 1e-6))
    assert np.mean(np.abs(many["w"] - truth) < 0.1) > 0.9 > 0.6 > np.mean(np.abs(one["w"] - truth) < 0.1)
    for starts in (0, 65, 1.5):
        with pytest.raises(InputError, match="starts"):
            CurveFitter("a*x", starts=starts)  # type: ignore[arg-type]


def test_statistics_are_lmfits() -> None:
    lmfit = pytest.importorskip("lmfit")
    curves, _ = draw_curves(3)
    sigma = np.random.default_rng(2).uniform(0.02, 0.1, curves.shape)
    fits = CurveFitter(decay, fixed=["c"]).fit(X, curves, [1.0, 1.0, 0.5], sigma=sigma, exact=True)
    statistics = fits.statistics()
    for k, y in enumerate(curves):
        model = lmfit.Model(decay)
        parameters = model.make_params(a=1, k=1, c={"value": 0.5, "vary": False})
        theirs = model.fit(y, parameters, x=X, weights=1.0 / sigma[k])
        names = {"reduced_chi2": "redchi", "aic": "aic", "bic": "bic", "r_squared": "rsquared"}
        for ours, name in names.items():
            assert_allclose(statistics[ours][k], getattr(theirs, name), rtol=1e-6)
    masked = CurveFitter("a*x").fit(X, [X], [1.0], mask=np.ones(X.size, bool))
    assert np.isnan(masked.statistics()["r_squared"]).all()
    with pytest.raises(IndexError):
        masked.jacobian(5)
    empty = CurveFitter(decay).fit(X, np.empty((0, X.size)), [1.0, 1.0, 0.5])
    assert empty.residuals().shape == (0, X.size) and empty.statistics()["aic"].shape == (0,)
