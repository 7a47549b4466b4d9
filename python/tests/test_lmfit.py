"""`popfit.lmfit` beside lmfit itself."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, required

import popfit
from popfit._rival import markdown_table

lmfit = required("lmfit")
pl = required("popfit.lmfit")

X = np.linspace(0.0, 10.0, 120)
gaussian = lmfit.lineshapes.gaussian
#: Both packages, lmfit first.
BOTH = (lmfit, pl)

#: Built-in models that are not fitted here, and why.
NOT_COMPARED = {
    "ComplexConstantModel": "complex: lmfit itself fits",
    "ExpressionModel": "a test of its own",
    "Gaussian2dModel": "a test of its own",
    "Pearson4Model": "the logarithm of the gamma function of complex numbers: lmfit itself fits",
    "SplineModel": "a test of its own",
    "StepModel": "its derivative jumps at points of the data: a test of its own",
    "ThermalDistributionModel": "its amplitude and center do the same: a test of its own",
}
#: Parameters with which the models are drawn, where those of `make_params` plus 0.3 will not do.
DRAWN = {
    "PseudoVoigtModel": {"amplitude": 5.0, "center": 4.6, "sigma": 1.0, "fraction": 0.5},
    "RectangleModel": {"amplitude": 2.0, "center1": 2.9, "sigma1": 0.9, "center2": 7.1, "sigma2": 0.7},
    "SplitLorentzianModel": {"amplitude": 5.0, "center": 4.6, "sigma": 0.8, "sigma_r": 1.2},
    "SineModel": {"amplitude": 2.0, "frequency": 1.5, "shift": 0.4},
    "SkewedGaussianModel": {"amplitude": 5.0, "center": 4.0, "sigma": 1.2, "gamma": 2.0},
    "SkewedVoigtModel": {"amplitude": 5.0, "center": 4.0, "sigma": 1.2, "gamma": 0.4, "skew": 1.0},
    "PolynomialModel": {f"c{k}": 0.5 ** (3 * k) for k in range(8)},
}
MODELS = sorted({one.__name__ for one in lmfit.models.lmfit_models.values()} - set(NOT_COMPARED))


def noisy(values: Any, part: float = 0.02) -> Any:
    """Return values with noise that is a part of their scatter."""
    values = np.asarray(values, dtype=np.float64)
    return values + (part * values.std() + 1e-3) * np.random.default_rng(3).normal(size=values.shape)


def peaks(package: Any) -> tuple[Any, Any]:
    """Return a model of a line and three peaks, and starts."""
    model = package.models.LinearModel(prefix="b_")
    for k in range(3):
        model = model + package.models.GaussianModel(prefix=f"g{k}_")
    starts = model.make_params(b_slope=0.2, b_intercept=1.0)
    for k, center in enumerate((2.1, 5.1, 7.6)):
        starts[f"g{k}_center"].set(value=center)
        starts[f"g{k}_amplitude"].set(value=3.0, min=0.0)
        starts[f"g{k}_sigma"].set(value=0.45)
    return model, starts


PEAKS = noisy(gaussian(X, 5, 2, 0.6) + gaussian(X, 3, 5, 0.5) + gaussian(X, 4, 7.5, 0.4) + 0.3 * X + 1.0)


def assert_alike(found: Any, wanted: Any, stderr: float = 1e-3, value: float = 1e-4) -> None:
    """Assert that two results are those of the same minimum: values to 1e-4 errors, errors to 0.001 of themselves."""
    assert isinstance(found, pl.ModelResult) and found.success and found.errorbars == wanted.errorbars
    assert found.chisqr <= wanted.chisqr * (1.0 + 1e-9)
    assert found.var_names == wanted.var_names and found.method == wanted.method
    for name in ("ndata", "nvarys", "nfree", "init_values", "userkws"):
        np.testing.assert_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_array_equal(found.init_fit, wanted.init_fit)
    for name in ("chisqr", "redchi", "aic", "bic", "rsquared"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-7, atol=1e-7)
    assert list(found.best_values) == list(wanted.best_values)
    for name, one in wanted.params.items():
        other = found.params[name]
        assert (one.vary, one.min, one.max, one.expr) == (other.vary, other.min, other.max, other.expr)
        assert one.init_value == other.init_value
        assert abs(one.value - other.value) <= value * one.stderr + 1e-12 * abs(one.value), name
        assert other.stderr == pytest.approx(one.stderr, rel=stderr), name
        for partner, correlation in (one.correl or {}).items():
            assert other.correl[partner] == pytest.approx(correlation, abs=2.0 * stderr)
    sizes = np.sqrt(np.diag(wanted.covar))
    np.testing.assert_allclose(found.covar / np.outer(sizes, sizes), wanted.covar / np.outer(sizes, sizes), atol=5e-3)
    scatter = np.sqrt(wanted.redchi)
    np.testing.assert_allclose(found.residual, wanted.residual, atol=1e-3 * scatter)


def fits(build: Callable[[Any], tuple[Any, Any]], data: Any, **arguments: Any) -> tuple[Any, Any]:
    """Return lmfit's result and popfit's of a model that is built of either package."""
    return tuple(model.fit(data, starts, **{"x": X, **arguments}) for model, starts in map(build, BOTH))  # type: ignore[return-value]


def test_importing_popfit_does_not_import_lmfit() -> None:
    code = "import sys, popfit; assert 'lmfit' not in sys.modules and 'asteval' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names() -> None:
    assert pl.Parameters is lmfit.Parameters and pl.conf_interval is lmfit.conf_interval
    assert pl.lineshapes is lmfit.lineshapes and pl.model.save_model is lmfit.model.save_model
    for name, kind in lmfit.models.lmfit_models.items():
        own = pl.models.lmfit_models[name]
        assert issubclass(own, kind) and issubclass(own, pl.Model) and own is getattr(pl.models, kind.__name__)
    assert pl.models.ParabolicModel is pl.models.QuadraticModel and pl.models.tiny == lmfit.models.tiny
    with pytest.raises(AttributeError, match=r"popfit\.lmfit.*lmfit has none"):
        _ = pl.nothing
    both = pl.models.GaussianModel(prefix="a_") * pl.models.LinearModel() - lmfit.models.ConstantModel()
    assert isinstance(both, pl.CompositeModel) and isinstance(both / pl.models.SineModel(prefix="s_"), pl.Model)


@pytest.mark.parametrize("name", MODELS)
def test_built_in_models(name: str) -> None:
    def build(package: Any) -> tuple[Any, Any]:
        model = getattr(package.models, name)()
        starts = model.make_params()
        for k, one in enumerate(starts.values()):
            if one.expr is None:
                one.set(value=(one.value if np.isfinite(one.value) else 0.0) + 0.31 + 0.05 * k)
        for key, value in DRAWN.get(name, {}).items():
            starts[key].set(value=value)
        return model, starts

    x = X + 0.4
    model, drawn = build(lmfit)
    data = noisy(model.eval(drawn, x=x))
    results = []
    for package in BOTH:
        model, starts = build(package)
        for one in starts.values():
            if one.expr is None:
                one.set(value=1.04 * one.value)
        with np.errstate(all="ignore"):
            results.append(model.fit(data, starts, x=x))
    wanted, found = results
    assert_alike(found, wanted, stderr=2e-3)
    # the same report, up to the last digits of numbers and to evaluations
    shapes = [
        re.sub(r"\d+", "0", re.sub(r"[-+]?\d+\.\d+(e[-+]\d+)?|\(\d.*?%\)|evals += \d+", "#", one.fit_report()))
        for one in results
    ]
    lines = [sorted(re.sub(r" +", " ", line) for line in shape.split("[[Corr")[0].splitlines()) for shape in shapes]
    assert lines[0] == lines[1]


def test_all_built_in_models_are_known() -> None:
    names = {one.__name__ for one in lmfit.models.lmfit_models.values()}
    assert set(NOT_COMPARED) <= names


def test_reports_have_the_same_numbers() -> None:
    wanted, found = fits(peaks, PEAKS)
    for one, other in zip(wanted.fit_report().splitlines(), found.fit_report().splitlines(), strict=True):
        if "evals" in one:
            continue
        pattern = r"[-+]?\d+\.\d+(?:e[-+]\d+)?"
        assert re.sub(pattern + " *", "#", one) == re.sub(pattern + " *", "#", other)
        np.testing.assert_allclose(
            [float(number) for number in re.findall(pattern, other)],
            [float(number) for number in re.findall(pattern, one)],
            rtol=2e-5,
            atol=0.011,
        )


@pytest.mark.parametrize("method", ["leastsq", "least_squares"])
def test_composite_models(method: str) -> None:
    wanted, found = fits(peaks, PEAKS, method=method)
    assert_alike(found, wanted)
    parts, others = wanted.eval_components(x=X), found.eval_components(x=X)
    assert list(parts) == list(others) == ["b_", "g0_", "g1_", "g2_"]
    for name in parts:
        np.testing.assert_allclose(others[name], parts[name], atol=1e-4)
    if method == "least_squares":
        np.testing.assert_allclose(found.jac, wanted.jac, atol=1e-4 * np.abs(wanted.jac).max())
        assert found.x.shape == wanted.x.shape and found.optimality < 1e-4 and not found.active_mask.any()


def test_fixed_parameters_bounds_and_expressions() -> None:
    def tied(package: Any) -> tuple[Any, Any]:
        model, starts = peaks(package)
        starts["g0_sigma"].set(expr="1.1*g1_sigma + max(0.01, 0.1*g2_sigma)")
        starts["g2_sigma"].set(value=0.42, vary=False)
        starts["g1_amplitude"].set(min=1.0, max=9.0)
        starts.add("distance", value=2.4, min=0.1, max=4.0)
        starts["g2_center"].set(expr="g1_center + distance")
        return model, starts

    # lmfit's differences move g1_center by 7e-4 errors; popfit is within 1e-9 of scipy with jac="3-point"
    wanted, found = fits(tied, PEAKS)
    assert_alike(found, wanted, value=1e-3)
    assert found.params["g0_sigma"].value == pytest.approx(1.1 * found.params["g1_sigma"].value + 0.042)


def test_expressions_with_bounds_and_symbols() -> None:
    def tied(package: Any) -> tuple[Any, Any]:
        model = package.Model(lambda x, a, b, c: a * np.exp(-b * x) + c)
        starts = package.Parameters(usersyms={"half": lambda value: 0.5 * value})
        starts.add("a", value=1.5)
        starts.add("b", value=0.7)
        starts.add("c", expr="half(a)", max=0.8)
        return model, starts

    data = noisy(2.0 * np.exp(-0.4 * X) + 0.8)
    assert_alike(*reversed(fits(tied, data)))


def test_many_functions_with_branches() -> None:
    def decay(x: Any, a: float, k: float) -> Any:
        return a * np.exp(-max(1e-3, k) * x) if a > 0.0 else 0.0 * x

    def build(package: Any) -> tuple[Any, Any]:
        model = package.Model(decay, prefix="p0_")
        for k in range(1, 6):  # 4⁶ paths, if all were followed together
            model = model + package.models.GaussianModel(prefix=f"g{k}_") * package.Model(decay, prefix=f"p{k}_")
        starts = model.make_params()
        for k in range(6):
            starts[f"p{k}_a"].set(value=1.1, vary=k == 0)
            starts[f"p{k}_k"].set(value=0.1, vary=k == 0)
        for k in range(1, 6):
            starts[f"g{k}_center"].set(value=2.0 * k - 0.9)
            starts[f"g{k}_amplitude"].set(value=2.0)
            starts[f"g{k}_sigma"].set(value=0.32)
        return model, starts

    model, starts = build(lmfit)
    data = noisy(model.eval(starts, x=X))
    assert_alike(*reversed(fits(build, data)))


def test_a_bound_that_holds() -> None:
    def narrow(package: Any) -> tuple[Any, Any]:
        model = package.models.GaussianModel()
        starts = model.make_params(amplitude=3, center=3, sigma=0.4)
        starts["sigma"].set(max=0.5)
        return model, starts

    wanted, found = fits(narrow, noisy(gaussian(X, 5, 3, 0.6)))
    assert found.success and found.errorbars and found.params["sigma"].value == 0.5
    assert found.chisqr <= wanted.chisqr * (1.0 + 1e-9)
    slopes = found.model.eval(found.params, x=X) / found.params["amplitude"].value
    assert found.params["amplitude"].stderr > np.sqrt(found.redchi / (slopes**2).sum())


@pytest.mark.parametrize("scale_covar", [True, False])
def test_weights(scale_covar: bool) -> None:
    weights = 1.0 / (0.03 * (1.0 + 0.1 * X))
    weights[5] = 0.0
    weights[9] *= -1.0
    for one in (weights, weights.tolist(), 2.5):
        given = np.array(one) if isinstance(one, list) else one
        wanted, found = fits(peaks, PEAKS, weights=given, scale_covar=scale_covar)
        assert_alike(found, wanted)
        np.testing.assert_array_equal(found.weights, wanted.weights)


def test_nan_policies() -> None:
    data = PEAKS.copy()
    data[[4, 50]] = np.nan
    model, starts = peaks(pl)
    with pytest.raises(ValueError, match="NaN values detected"):
        model.fit(data, starts, x=X)
    with pytest.warns(popfit.PopfitWarning, match="nan_policy='propagate'"):
        assert np.isnan(model.fit(data, starts, x=X, nan_policy="propagate").chisqr)
    with pytest.raises(ValueError, match="nan_policy must be"):
        model.fit(PEAKS, starts, x=X, nan_policy="drop")
    wanted, found = fits(peaks, data, nan_policy="omit")
    assert_alike(found, wanted)
    assert found.ndata == X.size - 2
    data[60] = np.inf
    with np.errstate(invalid="ignore"):
        wanted, found = fits(peaks, data, nan_policy="omit", weights=1.0 + X)
    assert found.ndata == X.size - 3
    assert_alike(found, wanted)


def test_two_independent_variables_and_shapes() -> None:
    x, y = np.meshgrid(np.arange(10.0), np.arange(12.0))
    data = noisy(lmfit.lineshapes.gaussian2d(x, y, 100, 4, 5, 2, 3))

    def build(package: Any) -> tuple[Any, Any]:
        model = package.models.Gaussian2dModel()
        return model, model.make_params(amplitude=80, centerx=4.4, centery=5.5, sigmax=2.1, sigmay=2.6)

    assert_alike(*reversed(fits(build, data.ravel(), x=x.ravel(), y=y.ravel())))

    def plane(package: Any) -> tuple[Any, Any]:
        model = package.Model(lambda x, y, a, b: a * x + b * y, independent_vars=["x", "y"])
        return model, model.make_params(a=1.0, b=1.0)

    wanted, found = fits(plane, 2.0 * x - y + 0.01 * np.sin(x * y), x=x, y=y)
    assert found.best_values == pytest.approx(wanted.best_values) and found.residual.shape == wanted.residual.shape


def test_splines_and_expression_models() -> None:
    def spline(package: Any) -> tuple[Any, Any]:
        model = package.models.SplineModel(xknots=np.linspace(0.0, 10.0, 12))
        return model, model.guess(PEAKS, x=X)

    assert_alike(*reversed(fits(spline, PEAKS)))

    def expression(package: Any) -> tuple[Any, Any]:
        model = package.models.ExpressionModel("a*exp(-b*x) + c")
        return model, model.make_params(a=1.0, b=0.3, c=0.1)

    assert_alike(*reversed(fits(expression, noisy(3.0 * np.exp(-0.5 * X) + 0.5))))


def test_undetermined_parameters() -> None:
    model = pl.Model(lambda x, a, b, c: a * x + b + c)
    result = model.fit(PEAKS, x=X, a=1.0, b=2.0, c=3.0)
    assert result.success and not result.errorbars and result.covar is None and result.params["a"].stderr is None
    assert result.message == "Fit succeeded. Could not estimate error-bars."
    assert "+/-" not in result.fit_report()
    with pytest.raises(TypeError, match="N=3 must not exceed"):
        pl.models.GaussianModel().fit(np.ones(2), x=np.arange(2.0), amplitude=1, center=0, sigma=1)


def test_degenerate_distribution_and_kinks() -> None:
    for name, starts in (
        ("ThermalDistributionModel", {"amplitude": 1.2, "center": 0.3, "kt": 1.1}),
        ("StepModel", {"amplitude": 2.0, "center": 5.0, "sigma": 1.4}),
    ):
        with warnings.catch_warnings(action="ignore", category=popfit.PopfitWarning):
            results = []
            for package in BOTH:
                model = getattr(package.models, name)()
                data = noisy(model.eval(x=X + 0.4, **starts))
                params = model.make_params(**{key: 1.05 * value for key, value in starts.items()})
                results.append(model.fit(data, params, x=X + 0.4))
        assert results[1].success and results[1].chisqr <= results[0].chisqr * (1.0 + 1e-6)


def python_only(x: Any, a: float, b: float) -> Any:
    return np.array([a * math.exp(-b * one) for one in x])


def test_what_lmfit_does() -> None:
    model, starts = peaks(pl)
    rival = peaks(lmfit)[0]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "nelder", "max_nfev": 300}, "method='nelder'"),
        ({"fit_kws": {"epsfcn": 1e-8}}, "fit_kws: epsfcn"),
        ({"method": "least_squares", "fit_kws": {"loss": "huber"}}, "fit_kws: loss='huber'"),
        ({"iter_cb": lambda *args, **kws: None}, "iter_cb"),
    ]
    for arguments, reason in cases:
        with pytest.warns(popfit.PopfitWarning, match=reason) as caught:
            found = model.fit(PEAKS, starts, x=X, **arguments)
        assert len(caught) == 1 and caught[0].filename == __file__
        assert found.chisqr == rival.fit(PEAKS, starts, x=X, **arguments).chisqr
    decay = pl.Model(python_only)
    with pytest.warns(popfit.PopfitWarning, match=r"no formula.*np\.exp") as caught:
        found = decay.fit(noisy(np.exp(-0.3 * X)), x=X, a=2.0, b=0.4)
        found.conf_interval()
    assert len(caught) == 1 and found.success
    line = pl.Model(lambda x, a, b: a * x + 1j * b)
    with pytest.warns(popfit.PopfitWarning, match="complex"):
        found = line.fit(2.0 * X + 3.0j, x=X, a=1.0, b=1.0)
    assert found.best_values == pytest.approx({"a": 2.0, "b": 3.0})

    class Absolute(pl.Model):  # type: ignore[misc,name-defined]
        def _residual(self, *args: Any, **kws: Any) -> Any:
            return np.abs(super()._residual(*args, **kws))

    with pytest.warns(popfit.PopfitWarning, match="residual of its own"):
        Absolute(lambda x, a: a * x).fit(X, x=X, a=2.0)


def test_tolerances_and_limits() -> None:
    wanted, found = fits(peaks, PEAKS, fit_kws={"ftol": 1e-13, "xtol": 1e-13})
    assert_alike(found, wanted)
    model, starts = peaks(pl)
    result = model.fit(PEAKS, starts, x=X, max_nfev=30)
    assert result.aborted and not result.success and not result.errorbars and result.nfev == 29
    assert "number of function evaluations > 30" in result.message


def test_arguments_are_checked_as_in_lmfit() -> None:
    for package in BOTH:
        model = package.models.GaussianModel()
        with pytest.raises(ValueError, match="Missing independent variable"):
            model.fit(X, amplitude=1, center=0, sigma=1)
        with pytest.raises(ValueError, match="Assign each parameter an initial value"):
            model.fit(X, package.Parameters(), x=X)
        with pytest.warns(UserWarning, match="keyword argument width does not match"):
            model.fit(gaussian(X, 2, 5, 1), x=X, amplitude=1.5, center=5.2, sigma=1.1, width=3)
        line = package.models.LinearModel()
        fit = line.fit(X.tolist(), x=X.tolist(), slope=package.Parameter("any", value=2.0, min=0.0), intercept=1.0)
        assert fit.params["slope"].min == 0.0 and fit.best_values["slope"] == pytest.approx(1.0)


def test_uncertainty_of_the_model() -> None:
    wanted, found = fits(peaks, PEAKS)
    fine = np.linspace(0.0, 10.0, 33)
    for arguments in ({}, {"sigma": 2}, {"sigma": 0.9, "x": fine}):
        np.testing.assert_allclose(found.eval_uncertainty(**arguments), wanted.eval_uncertainty(**arguments), rtol=2e-4)
        np.testing.assert_allclose(found.dely_predicted, wanted.dely_predicted, rtol=1e-4)
        assert list(found.dely_comps) == list(wanted.dely_comps)
        for name, part in wanted.dely_comps.items():
            np.testing.assert_allclose(found.dely_comps[name], part, rtol=1e-3, atol=1e-9)
    # another step is lmfit's way
    assert not np.array_equal(found.eval_uncertainty(dscale=0.5), found.eval_uncertainty())


def test_results_are_lmfits() -> None:
    matplotlib = required("matplotlib")
    matplotlib.use("Agg")

    def one_peak(package: Any) -> tuple[Any, Any]:
        model = package.models.GaussianModel()
        return model, model.guess(data, x=X)

    data = noisy(gaussian(X, 5, 3, 0.6))
    wanted, found = fits(one_peak, data)
    found.plot()
    matplotlib.pyplot.close("all")
    for name, interval in wanted.conf_interval(sigmas=[1, 2]).items():
        error = wanted.params[name].stderr
        np.testing.assert_allclose(found.conf_interval(sigmas=[1, 2])[name], interval, atol=1e-3 * error)
    assert "+/-" in found.fit_report() and found.uvars["sigma"].std_dev == pytest.approx(found.params["sigma"].stderr)
    # refitting is popfit's, too
    found.fit(data + 1e-3)
    assert found.success and found.nfev > 4


def test_saving_and_pickling(tmp_path: Any) -> None:
    model, starts = peaks(pl)
    result = model.fit(PEAKS, starts, x=X)
    again = pl.ModelResult(pl.Model(gaussian), lmfit.Parameters()).loads(result.dumps())
    assert again.best_values == result.best_values and isinstance(again.model, pl.CompositeModel)
    pl.model.save_modelresult(result, tmp_path / "result.sav")
    again = pl.model.load_modelresult(tmp_path / "result.sav")
    np.testing.assert_array_equal(again.best_fit, result.best_fit)
    pl.model.save_model(pl.models.ExpressionModel("a*x"), tmp_path / "model.sav")
    assert isinstance(pl.model.load_model(tmp_path / "model.sav"), pl.models.ExpressionModel)
    copy = pickle.loads(pickle.dumps(result))
    assert copy.fit_report() == result.fit_report()
    assert pickle.loads(pickle.dumps(model)).fit(PEAKS, starts, x=X).chisqr == result.chisqr


def many_peaks(count: int = 40) -> tuple[Any, Any, Any]:
    """Return a model, its starts and noisy curves."""
    generator = np.random.default_rng(7)
    amplitude, center = generator.uniform(3.0, 8.0, (count, 1)), generator.uniform(3.0, 7.0, (count, 1))
    sigma = generator.uniform(0.6, 1.4, (count, 1))
    curves = amplitude * np.exp(-0.5 * ((X - center) / sigma) ** 2) / (np.sqrt(2 * np.pi) * sigma)
    model = pl.models.GaussianModel()
    starts = model.make_params(amplitude=5.0, center=5.0, sigma=1.0)
    return model, starts, curves + 0.03 * generator.normal(size=curves.shape)


def assert_rows_alike(many: Any, results: list[Any]) -> None:
    """Assert that results of many curves are those of a loop."""
    assert len(many) == len(results) and many.success.all() and many.errorbars.all()
    assert list(many.best_values) == list(many.stderr) == list(results[0].params)
    for row, wanted in enumerate(results):
        found = many[row]
        assert_alike(found, wanted)
        for name in ("chisqr", "redchi", "aic", "bic", "ndata", "nfree"):
            # The last step of columns is taken without an evaluation: χ², by which errors scale, is predicted there.
            assert getattr(many, name)[row] == pytest.approx(getattr(found, name), rel=1e-8)
        np.testing.assert_allclose(many.covar[row], found.covar, rtol=1e-8)
    for name in results[0].params:
        values, errors = many.best_values[name], many.stderr[name]
        wanted = np.array([one.params[name].stderr for one in results])
        np.testing.assert_allclose(errors, wanted, rtol=1e-3)
        assert (np.abs(values - [one.params[name].value for one in results]) <= 1e-4 * wanted + 1e-12).all()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_many_curves_beside_a_loop(kind: Any) -> None:
    model, starts, curves = many_peaks()
    curves = curves.astype(kind)
    rival = lmfit.models.GaussianModel()
    weights = 1.0 / (0.03 + 0.001 * X)
    for arguments in ({}, {"weights": weights}, {"weights": np.tile(weights, (40, 1)), "scale_covar": False}):
        many = pl.fit_many(model, curves, starts, x=X, **arguments)
        own = [{key: one[row] if np.ndim(one) == 2 else one for key, one in arguments.items()} for row in range(40)]
        assert_rows_alike(many, [rival.fit(one, starts, x=X, **more) for one, more in zip(curves, own, strict=True)])
    np.testing.assert_allclose(many.best_fit[7], many[7].best_fit)
    assert [one.ndata for one in many[3:5]] == [X.size] * 2 and len(list(iter(many))) == 40
    assert "40 curves, 40 converged" in repr(many)


def test_many_curves_with_missing_values() -> None:
    model, starts, curves = many_peaks()
    curves[3, 10:14] = np.nan
    curves[20, 50] = np.inf
    with pytest.raises(ValueError, match="curve 3 has values that are not finite"):
        pl.fit_many(model, curves, starts, x=X)
    many = pl.fit_many(model, curves, starts, x=X, nan_policy="omit")
    rival = lmfit.models.GaussianModel(nan_policy="omit")
    with np.errstate(invalid="ignore"):
        assert_rows_alike(many, [rival.fit(one, starts, x=X) for one in curves])
    assert many.ndata[3] == X.size - 4
    many = pl.fit_many(model, curves, starts, x=X, nan_policy="propagate")
    assert np.flatnonzero(~many.success).tolist() == [3, 20] and many.message[3]
    assert np.isnan(many.best_values["center"][3]) and np.isnan(many.stderr["fwhm"][3])
    assert np.isnan(many.best_fit[3]).all()
    failed = many[3]
    assert not failed.success and not failed.errorbars and "Fit failed" in failed.message
    with pytest.raises(ValueError, match="nan_policy must be"):
        pl.fit_many(model, curves, starts, x=X, nan_policy="drop")


def test_starts_bounds_and_fixed_values_of_each_curve() -> None:
    _, _, curves = many_peaks(12)
    model, rival = (package.models.GaussianModel() + package.models.LinearModel() for package in BOTH[::-1])
    each = []
    for row, curve in enumerate(curves):
        own = model.make_params(amplitude=4.0, sigma=1.0, center=X[curve.argmax()], slope=0.001 * row, intercept=0.0)
        own["center"].set(min=X[curve.argmax()] - 1.0, max=X[curve.argmax()] + 1.0)
        own["slope"].vary = False
        each.append(own)
    many = pl.fit_many(model, curves, each, x=X)
    assert_rows_alike(many, [rival.fit(curve, own, x=X) for curve, own in zip(curves, each, strict=True)])
    np.testing.assert_allclose(many.best_values["slope"], 0.001 * np.arange(12))
    assert (many.stderr["slope"] == 0.0).all()
    # starts by name, one for each curve
    centers = np.array([own["center"].value for own in each])
    by_name = pl.fit_many(model, curves, each[0], x=X, center=centers, slope=np.arange(12) * 0.001)
    inside = np.abs(many.best_values["center"] - centers[0]) < 1.0
    np.testing.assert_allclose(by_name.chisqr[inside], many.chisqr[inside])


def test_many_curves_at_a_bound_and_undetermined() -> None:
    model, starts, curves = many_peaks(10)
    starts["sigma"].set(max=0.9)
    many = pl.fit_many(model, curves, starts, x=X)
    held = many.best_values["sigma"] == 0.9
    assert held.any() and many.errorbars.all()
    for row in range(10):
        np.testing.assert_allclose(many.covar[row], model.fit(curves[row], starts, x=X).covar, 1e-4, 1e-12)
    line = pl.Model(lambda x, a, b, c: a * x + b + c)
    many = pl.fit_many(line, curves, x=X, a=1.0, b=2.0, c=0.0)
    assert many.success.all() and not many.errorbars.any() and np.isnan(many.stderr["b"]).all()
    assert many[0].covar is None


def test_many_curves_of_models_that_are_no_formulas() -> None:
    curves = np.exp(-np.outer([0.3, 0.5], X))
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        many = pl.fit_many(pl.Model(python_only), curves, x=X, a=0.8, b=0.4)
    np.testing.assert_allclose(many.best_values["b"], [0.3, 0.5], rtol=1e-6)
    # an expression that is none is evaluated by lmfit
    model, starts, curves = many_peaks(3)
    starts.add("rounded", expr="float(sigma) + 1")
    many = pl.fit_many(model, curves, starts, x=X)
    np.testing.assert_allclose(many.best_values["rounded"], many.best_values["sigma"] + 1.0)
    np.testing.assert_allclose(many.stderr["rounded"], many.stderr["sigma"], rtol=1e-3)


def test_what_fit_many_refuses() -> None:
    model, starts, curves = many_peaks(4)
    other = model.make_params(amplitude=1, center=1, sigma=1)
    other["sigma"].vary = False
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": curves[0]}, "data: float64 of the shape"),
        ({"data": curves + 1j}, "data: complex128"),
        ({"params": [starts] * 3}, "one for each of the 4 curves"),
        ({"params": [starts, starts, other, starts]}, "'sigma' of curve 2"),
        ({"params": [starts, starts, lmfit.Parameters(), starts]}, "curve 2 and curve 0"),
        ({"weights": np.ones(7)}, "weights: float64 of the shape"),
        ({"centre": 2.0}, "no argument 'centre'; did you mean 'center'"),
        ({"center": np.ones(3)}, "center has the shape"),
        ({"params": lmfit.Parameters()}, "params: no amplitude, center, sigma"),
    ]
    for arguments, message in cases:
        with pytest.raises(popfit.InputError, match=message):
            pl.fit_many(**{"model": model, "data": curves, "params": starts, "x": X, **arguments})
    with pytest.raises(ValueError, match="Missing independent variable 'x'"):
        pl.fit_many(model, curves, starts)
    with pytest.raises(popfit.InputError, match="give a model of lmfit"):
        pl.fit_many(gaussian, curves, starts, x=X)
    fixed = model.make_params(amplitude=1, center=1, sigma=1)
    for name in ("amplitude", "center", "sigma"):
        fixed[name].vary = False
    with pytest.raises(popfit.InputError, match="no parameter varies"):
        pl.fit_many(model, curves, fixed, x=X)
    with pytest.raises(KeyError, match="no parameter 'width'"):
        _ = pl.fit_many(model, curves, starts, x=X).best_values["width"]


def test_no_curve_and_pickled_results() -> None:
    model, starts, curves = many_peaks(3)
    assert len(pl.fit_many(model, curves[:0], starts, x=X)) == 0
    many = pl.fit_many(model, curves, starts, x=X)
    copy = pickle.loads(pickle.dumps(many))
    assert copy[1].fit_report() == many[1].fit_report()
    np.testing.assert_array_equal(copy.stderr["fwhm"], many.stderr["fwhm"])


def test_the_book_has_the_table_of_differences() -> None:
    page = (ROOT / "docs" / "src" / "python" / "from-lmfit.md").read_text(encoding="utf-8")
    assert markdown_table("lmfit", pl.DIFFERENCES) in page
