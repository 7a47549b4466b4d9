"""`popfit.astropy` beside astropy's own fitters."""

from __future__ import annotations

import inspect
import pathlib
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, required

from popfit import PopfitWarning
from popfit._rival import markdown_table

required("scipy")
fitting = required("astropy.modeling.fitting")
models = required("astropy.modeling.models")
u = required("astropy.units")
theirs = fitting
ours = required("popfit.astropy")

#: Models of astropy that are no formulas, and why.
NOT_TRACED = {
    "AiryDisk2D": "takes elements out of a result",
    "BlackBody": "computes with units",
    "GeneralSersic2D": "calls gammaincinv, unless n is fixed",
    "KingProjectedAnalytic1D": "writes into parts of a result",
    "Sersic1D": "calls gammaincinv, unless n is fixed",
    "Sersic2D": "calls gammaincinv, unless n is fixed",
    "SmoothlyBrokenPowerLaw1D": "writes into parts of a result",
}
#: Models that no least-squares fit of one output fits.
NO_CURVES = {"Identity", "Mapping", "NFW", "Spline1D"}
FITTERS = ("TRFLSQFitter", "DogBoxLSQFitter", "LMLSQFitter")
X = np.linspace(0.0, 10.0, 60)


def noisy(model: Any, *inputs: Any, noise: float = 0.05) -> Any:
    """Return values of a model with noise."""
    values = model(*inputs)
    return values + noise * np.random.default_rng(3).normal(size=values.shape)


def assert_same_fit(name: str, start: Any, *data: Any, **kwargs: Any) -> Any:
    """Assert that both fitters find the same minimum, to 0.001 of the errors, and the same covariances."""
    mine, other = getattr(ours, name)(calc_uncertainties=True), getattr(theirs, name)(calc_uncertainties=True)
    # derivatives of models with ties are astropy's only if it estimates them
    wanted = other(start, *data, estimate_jacobian=True, **kwargs)
    found = mine(start, *data, **kwargs)
    errors = np.zeros(len(start.parameters))
    free = [not (start.fixed[one] or start.tied[one]) for one in start.param_names]
    errors[free] = found.stds.stds
    errors[errors == 0.0] = np.array(found.stds.stds).max()
    assert np.abs((found.parameters - wanted.parameters) / errors).max() < 1e-3
    np.testing.assert_allclose(
        found.cov_matrix.cov_matrix, wanted.cov_matrix.cov_matrix, rtol=1e-3, atol=1e-5 * errors.min() ** 2
    )
    assert mine.fit_info.cost <= other.fit_info.cost * (1.0 + 1e-9)
    assert found.sync_constraints
    return found


@pytest.mark.parametrize("name", FITTERS)
@pytest.mark.parametrize("weights", [None, 20.0 + X])
def test_compound_models_with_constraints(name: str, weights: Any) -> None:
    truth = models.Gaussian1D(3.0, 4.0, 0.8) + models.Lorentz1D(1.0, 7.0, 1.0) + models.Const1D(1.0)
    start = models.Gaussian1D(2.0, 4.3, 1.0) + models.Lorentz1D(1.2, 7.3, 1.0) + models.Const1D(0.5)
    start.stddev_0.bounds = (None, None)
    y = noisy(truth, X)
    assert_same_fit(name, start, X, y, weights=weights)
    start.fwhm_1.fixed = True
    assert assert_same_fit(name, start, X, y, weights=weights).fwhm_1 == 1.0
    for tie in (lambda m: m.mean_0 + 3.0, lambda m: np.maximum(m.mean_0.value, 1.0) + 3.0, lambda m: m[0].mean + 3.0):
        start.x_0_1.tied = tie
        fitted = assert_same_fit(name, start, X, y, weights=weights)
        np.testing.assert_allclose(fitted.x_0_1.value, fitted.mean_0.value + 3.0)


def test_fit_info_is_that_of_least_squares() -> None:
    y = noisy(models.Gaussian1D(3.0, 4.0, 0.8), X)
    mine, other = ours.TRFLSQFitter(), theirs.TRFLSQFitter()
    start = models.Gaussian1D(2.0, 4.3, 1.0)
    wanted, found = other(start, X, y, weights=20.0 + X), mine(start, X, y, weights=20.0 + X)
    assert isinstance(mine, theirs.TRFLSQFitter) and type(mine.fit_info) is type(other.fit_info)
    assert set(mine.fit_info) == set(other.fit_info)
    np.testing.assert_array_equal(mine.fit_info.x, found.parameters)
    for key in ("cost", "fun", "jac"):
        np.testing.assert_allclose(mine.fit_info[key], other.fit_info[key], rtol=1e-4, atol=1e-3)
    assert mine.fit_info.success and mine.fit_info.status in (1, 2, 3, 4) and mine.fit_info.optimality < 1e-6
    assert not mine.fit_info.active_mask.any() and mine.fit_info.nfev > 0 and mine.fit_info.njev > 0
    np.testing.assert_allclose(found.parameters, wanted.parameters, rtol=1e-4)
    assert pickle.loads(pickle.dumps(mine)).fit_info.cost == mine.fit_info.cost


@pytest.mark.parametrize("name", FITTERS[:2])
def test_bounds(name: str) -> None:
    y = noisy(models.Gaussian1D(3.0, 5.0, 0.8), X)
    start = models.Gaussian1D(2.0, 3.5, 1.0, bounds={"mean": (0.0, 4.0), "amplitude": (0.0, None)})
    mine = getattr(ours, name)()
    found, wanted = mine(start, X, y), getattr(theirs, name)()(start, X, y)
    np.testing.assert_allclose(found.parameters, wanted.parameters, rtol=1e-4)
    assert found.mean == 4.0 and mine.fit_info.active_mask.tolist() == [0, 1, 0]
    start.mean = 4.5
    with pytest.raises(ValueError, match="Initial guess is outside of provided bounds"):
        mine(start, X, y)


def test_bounds_of_lm_are_bounds() -> None:
    y = noisy(models.Gaussian1D(3.0, 5.0, 0.8), X)
    deprecation = required("astropy.utils.exceptions").AstropyDeprecationWarning
    start = models.Gaussian1D(2.0, 6.0, 1.0, bounds={"stddev": (None, None), "mean": (0.0, 4.0)})
    with pytest.warns(deprecation, match="LMLSQFitter for models with bounds"):
        found = ours.LMLSQFitter()(start, X, y)
    np.testing.assert_allclose(found.mean.value, 4.0)


def test_units() -> None:
    y = noisy(models.Gaussian1D(3.0, 5.0, 0.8), X)
    start = models.Gaussian1D(2000.0 * u.mJy, 5200.0 * u.nm, 1.0 * u.um)
    fitted = ours.TRFLSQFitter()(start, X * u.um, y * u.Jy)
    wanted = theirs.TRFLSQFitter()(start, X * u.um, y * u.Jy)
    for name in start.param_names:
        found = getattr(fitted, name).quantity
        assert found.unit == getattr(wanted, name).unit
        assert abs((found / getattr(wanted, name).quantity).to_value("") - 1.0) < 1e-5


def test_models_of_two_inputs() -> None:
    y, x = np.mgrid[:20, :25].astype(float)
    truth = models.Gaussian2D(3.0, 11.0, 9.0, 3.0, 2.0, theta=0.3) + models.Polynomial2D(1, c0_0=0.5, c1_0=0.01)
    start = models.Gaussian2D(2.0, 12.0, 8.0, 2.5, 2.5, theta=0.1) + models.Polynomial2D(1, c0_0=0.1)
    z = noisy(truth, x, y)
    found, wanted = ours.TRFLSQFitter()(start, x, y, z), theirs.TRFLSQFitter()(start, x, y, z)
    np.testing.assert_allclose(found(x, y), wanted(x, y), atol=1e-5)


def test_data_that_are_not_finite_or_masked() -> None:
    clean = noisy(models.Gaussian1D(3.0, 5.0, 0.8), X)
    y, start = clean.copy(), models.Gaussian1D(2.0, 4.5, 1.0)
    y[25] = np.nan
    fitter = ours.TRFLSQFitter(calc_uncertainties=True)
    with pytest.raises(theirs.NonFiniteValueError, match="non-finite value"):
        fitter(start, X, y)
    kept = np.arange(X.size) != 25
    wanted = fitter(start, X[kept], clean[kept])
    cost = fitter.fit_info.cost
    with pytest.warns(UserWarning, match="Non-Finite input data has been removed"):
        found = fitter(start, X, y, filter_non_finite=True)
    np.testing.assert_array_equal(found.parameters, wanted.parameters)
    # of a masked value, NaN or not, nothing counts
    for value in (np.nan, 1e3):
        y[25] = value
        found = fitter(start, X, np.ma.masked_array(y, ~kept))
        np.testing.assert_allclose(found.parameters, wanted.parameters, rtol=1e-12)
        np.testing.assert_allclose(found.stds.stds, wanted.stds.stds, rtol=1e-9)
        np.testing.assert_allclose(fitter.fit_info.cost, cost, rtol=1e-9)


def test_limits_and_tolerances() -> None:
    y = noisy(models.Gaussian1D(3.0, 5.0, 0.8), X)
    fitter, start = ours.TRFLSQFitter(), models.Gaussian1D(1.0, 9.0, 1.0)
    with pytest.warns(UserWarning, match="(?s)fit may be unsuccessful.*maximum number of function evaluations"):
        fitter(start, X, y, maxiter=1)
    assert fitter.fit_info.status == 0 and not fitter.fit_info.success
    fitter(models.Gaussian1D(2.0, 4.5, 1.0), X, y)
    assert fitter.fit_info.status != 3
    fitter(models.Gaussian1D(2.0, 4.5, 1.0), X, y, acc=0.1)
    assert fitter.fit_info.status == 3
    with pytest.warns(PopfitWarning, match="epsilon: no effect") as caught:
        fitter(models.Gaussian1D(2.0, 4.5, 1.0), X, y, epsilon=1e-5)
    assert caught[0].filename == __file__
    assert ours.LevMarLSQFitter is theirs.LevMarLSQFitter
    with pytest.raises(AttributeError, match="has no attribute 'NoFitter'"):
        _ = ours.NoFitter


def test_what_astropy_does() -> None:
    y = models.Sersic1D(1.0, 4.0, 3.0)(X + 1.0)
    with pytest.warns(PopfitWarning, match="gammaincinv.*The fit is astropy's") as caught:
        found = ours.TRFLSQFitter()(models.Sersic1D(2.0, 5.0, 2.0), X + 1.0, y)
    assert len(caught) == 1 and caught[0].filename == __file__
    np.testing.assert_allclose(found.parameters, [1.0, 4.0, 3.0], rtol=1e-4)
    fixed = models.Sersic1D(2.0, 5.0, 3.0, fixed={"n": True})
    np.testing.assert_allclose(ours.TRFLSQFitter()(fixed, X + 1.0, y).parameters, [1.0, 4.0, 3.0], rtol=1e-6)
    pair = models.Gaussian1D(2.0, 4.0, 1.0) + models.Gaussian1D(1.0, 6.0, 1.0)
    pair.amplitude_0.tied = lambda m: 2.0 * m.stddev_0
    pair.stddev_0.tied = lambda m: m.stddev_1
    with pytest.warns(PopfitWarning, match="a tie uses 'stddev_0' of the model"):
        ours.TRFLSQFitter()(pair, X, noisy(pair, X))
    with pytest.warns(PopfitWarning, match="2 points for 3 parameters"):
        ours.TRFLSQFitter()(models.Gaussian1D(2.0, 4.0, 1.0), X[24:26], [3.0, 3.1])


def test_which_models_are_formulas() -> None:
    known = {name: one for name, one in vars(models).items() if inspect.isclass(one) and not inspect.isabstract(one)}
    known = {name: one for name, one in known.items() if issubclass(one, required("astropy.modeling").FittableModel)}
    arguments: dict[str, tuple[Any, ...]] = {
        name: (2, 2) for name in ("Chebyshev2D", "Hermite2D", "Legendre2D")
    } | dict.fromkeys(("Chebyshev1D", "Hermite1D", "Legendre1D", "Polynomial1D", "Polynomial2D"), (2,))
    found = set()
    for name in sorted(known.keys() - NO_CURVES - {"OrthoPolynomialBase", "PolynomialModel", "item"}):
        model = known[name](*arguments.get(name, ()))
        free = [one for one in model.param_names if not model.fixed[one]]
        inputs = [np.linspace(0.5, 4.0, 12), np.linspace(2.0, 0.3, 12)][: model.n_inputs]
        function = ours._ModelFunction(model, free)
        starts = np.array([getattr(model, one).value for one in free])
        given = ours.prepare_curves(free, np.stack(inputs), np.zeros(12), starts, None, None, None, False)
        try:
            ours.model_of_function(function, free, given.x, starts, warns_of_branches=False)
        except ours.NotTraceableError:
            found.add(name)
    assert found == NOT_TRACED.keys()


def cube_of_lines(noise: float = 0.05) -> tuple[Any, Any]:
    """Return a cube, (points, 4, 5), and starts that differ from pixel to pixel."""
    rng = np.random.default_rng(5)
    amplitude, mean, constant = rng.uniform(2.0, 4.0, (4, 5)), rng.uniform(4.0, 6.0, (4, 5)), rng.uniform(0, 1, (4, 5))
    values = amplitude * np.exp(-0.5 * (X[:, None, None] - mean) ** 2) + constant
    start = models.Gaussian1D(2.5, 5.0, 1.2) + models.Const1D(0.5)
    start.stddev_0.bounds = (None, None)
    # what astropy does not take from the parts of a compound model
    start._reset_parameters(amplitude_0=2.5, mean_0=mean + 0.3, stddev_0=1.2, amplitude_1=0.5)
    return values + noise * rng.normal(size=values.shape), start


def parallel(module: Any, name: str = "TRFLSQFitter", **kwargs: Any) -> Any:
    """Return a fit of a cube by popfit or by astropy in one process."""
    how = {"scheduler": "synchronous"} if module is theirs else {}
    return module.parallel_fit_dask(
        **{"fitter": getattr(module, name)(), "fitting_axes": 0, "world": (X,), **how, **kwargs}
    )


def assert_same_cube(found: Any, wanted: Any, rtol: float = 2e-5) -> None:
    """Assert that two models have the same parameters."""
    for name in wanted.param_names:
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.unit == other.unit and one.value.shape == other.value.shape
        np.testing.assert_allclose(one.value, other.value, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", FITTERS)
def test_cubes(name: str) -> None:
    required("dask")
    cube, start = cube_of_lines()
    weights = np.random.default_rng(1).uniform(10.0, 20.0, cube.shape)
    assert_same_cube(parallel(ours, name, model=start, data=cube), parallel(theirs, name, model=start, data=cube))
    kwargs = {"model": start, "data": np.moveaxis(cube, 0, 1), "weights": np.moveaxis(weights, 0, 1), "fitting_axes": 1}
    assert_same_cube(parallel(ours, name, **kwargs), parallel(theirs, name, **kwargs))
    assert_same_cube(parallel(ours, name, **{**kwargs, "fitting_axes": -2}), parallel(ours, name, **kwargs))
    assert_same_cube(parallel(ours, name, **kwargs, chunk_n_max=3), parallel(ours, name, **kwargs), rtol=0.0)


def test_compound_models_of_parts_with_starts_of_each_pixel() -> None:
    cube, start = cube_of_lines()
    parts = models.Gaussian1D(2.5, start.mean_0.value, 1.2) + models.Const1D(0.5) + models.Const1D(0.0)
    parts.amplitude_2.fixed = True
    found = parallel(ours, model=parts, data=cube)
    np.testing.assert_allclose(found.mean_0.value, parallel(ours, model=start, data=cube).mean_0.value, rtol=1e-6)
    assert np.abs(found(X[:, None, None]) - cube).max() < 0.3
    assert found.evaluate(X[:, None, None], *(getattr(found, name).value for name in found.param_names)).ndim == 3


def test_cubes_with_constraints() -> None:
    required("dask")
    cube, start = cube_of_lines()
    start.amplitude_0.bounds = (0.0, 3.0)
    start.mean_0.fixed = True  # each pixel has its own
    start.stddev_0.fixed = True
    kwargs = {"model": start, "data": cube}
    assert_same_cube(parallel(ours, **kwargs), parallel(theirs, **kwargs))
    start.mean_0.fixed = False
    start.amplitude_1.tied = lambda m: 0.1 * m.amplitude_0 + 0.3
    kwargs["fitter_kwargs"] = {"estimate_jacobian": True}
    found = parallel(ours, **kwargs)
    assert_same_cube(found, parallel(theirs, **kwargs))
    np.testing.assert_allclose(found.amplitude_1.value, 0.1 * found.amplitude_0.value + 0.3)
    # starts outside of the bounds are fits that fail, and those of LMLSQFitter are clipped
    start.amplitude_0.bounds = (2.6, 3.0)
    assert np.isnan(parallel(ours, **kwargs).mean_0.value).all()
    clipped = parallel(ours, "LMLSQFitter", **kwargs).amplitude_0.value
    assert ((clipped >= 2.6) & (clipped <= 3.0)).all()


def test_cubes_with_missing_data() -> None:
    required("dask")
    cube, start = cube_of_lines()
    cube[:, 1, 2] = np.nan
    cube[7, 2, 3] = np.nan
    found = parallel(ours, model=start, data=cube)
    assert_same_cube(found, parallel(theirs, model=start, data=cube))
    assert np.argwhere(np.isnan(found.mean_0.value)).tolist() == [[1, 2], [2, 3]]
    kwargs = {"model": start, "data": cube, "fitter_kwargs": {"filter_non_finite": True}}
    wanted = parallel(theirs, **kwargs)
    assert_same_cube(parallel(ours, **kwargs), wanted)
    # beyond astropy: NaN that is masked does not count
    weights = np.ones(cube.shape)
    found = parallel(ours, model=start, data=cube, mask=np.isnan(cube), weights=weights)
    assert_same_cube(found, wanted)
    assert (weights == 1.0).all()
    weights[np.isnan(cube)] = np.nan
    masked = np.ma.masked_invalid(cube)
    assert_same_cube(parallel(ours, model=start, data=masked), wanted)
    assert_same_cube(parallel(ours, model=start, data=cube, mask=masked.mask, weights=weights), wanted)
    assert_same_cube(parallel(ours, model=start, data=cube, weights=np.ma.masked_invalid(weights)), wanted)
    dask = required("dask.array")
    lazy = {"data": dask.from_array(masked, chunks=(60, 2, 3)), "scheduler": "synchronous"}
    assert_same_cube(parallel(ours, model=start, **lazy), wanted)
    lazy |= {"data": dask.from_array(cube), "mask": dask.from_array(masked.mask, chunks=(9, 2, 3))}
    assert_same_cube(parallel(ours, model=start, **lazy), wanted)
    # a mask leaves fewer points than parameters: by astropy
    mask = np.zeros(cube.shape, dtype=bool)
    mask[3:, 0, 0] = True
    with pytest.warns(PopfitWarning, match="1 of 20 fits are astropy's; the first: "):
        found = parallel(ours, model=start, data=cube, mask=mask)
    with pytest.warns(PopfitWarning, match="1 of 20 fits are astropy's; the first: "):
        world = (X[:, None, None] + 0.0 * cube[0],)
        same = parallel(ours, model=start, data=cube, mask=mask, world=world)
    alone = theirs.TRFLSQFitter()(
        models.Gaussian1D(2.5, start.mean_0.value[0, 0], 1.2, bounds={"stddev": (None, None)}) + models.Const1D(0.5),
        X[:3],
        cube[:3, 0, 0],
    )
    for one in (found, same):
        np.testing.assert_allclose([getattr(one, name).value[0, 0] for name in one.param_names], alone.parameters)


def test_cubes_with_units() -> None:
    required("dask")
    cube, _ = cube_of_lines()
    start = models.Gaussian1D(2500.0 * u.mJy, 5.0 * u.um, 0.0012 * u.mm) + models.Const1D(0.5 * u.Jy)
    kwargs = {"model": start, "data": cube * u.Jy, "world": (1e3 * X * u.nm,)}
    assert_same_cube(parallel(ours, **kwargs), parallel(theirs, **kwargs))
    kwargs |= {"data": cube, "data_unit": u.Jy}
    assert_same_cube(parallel(ours, **kwargs), parallel(theirs, **kwargs))
    # wavelengths of a model of frequencies
    frequency = models.Gaussian1D(2.5 * u.Jy, 60.0 * u.THz, 12.0 * u.THz)
    frequency.input_units_equivalencies = {"x": u.spectral()}
    waves = {"model": frequency, "data": cube[1:] * u.Jy, "world": (X[1:] * u.um,), "equivalencies": {"x": []}}
    assert_same_cube(parallel(ours, **waves), parallel(theirs, **waves), rtol=1e-3)
    frequency.input_units_equivalencies = None
    waves["equivalencies"] = {"x": u.spectral()}
    assert_same_cube(parallel(ours, **waves), parallel(theirs, **waves), rtol=1e-3)
    nddata = required("astropy.nddata")
    data = nddata.NDData(cube * u.Jy, uncertainty=nddata.StdDevUncertainty(0.05 + 0.0 * cube), mask=cube > 3.5)
    kwargs = {"model": start, "data": data, "world": (X * u.um,)}
    assert_same_cube(parallel(ours, **kwargs), parallel(theirs, **kwargs))


def test_inputs_of_cubes() -> None:
    required("dask")
    cube, start = cube_of_lines()
    shifted = X[:, None, None] + np.linspace(0.0, 0.5, 5)
    assert_same_cube(
        parallel(ours, model=start, data=cube, world=(shifted,)),
        parallel(theirs, model=start, data=cube, world=(np.broadcast_to(shifted, cube.shape),)),
    )
    wcs = required("astropy.wcs").WCS(naxis=3)
    wcs.wcs.ctype = "OFFSET", "WIDTH", "WAVE"
    wcs.wcs.cdelt, wcs.wcs.crpix, wcs.wcs.crval = (1.0, 1.0, X[1]), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
    found = parallel(ours, model=start, data=cube, world=wcs)
    assert_same_cube(found, parallel(ours, model=start, data=cube))
    # the wavelengths of a slanted spectrum differ from pixel to pixel
    wcs.wcs.ctype = "OFFSET", "WIDTH", "WAVELEN"
    wcs.wcs.pc = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]]
    kwargs = {"model": start, "data": cube, "world": wcs}
    slanted = parallel(ours, **kwargs)
    assert_same_cube(slanted, parallel(theirs, **kwargs))
    assert np.abs(slanted.mean_0.value - found.mean_0.value).max() > 0.1
    dask = required("dask.array")
    with pytest.warns(PopfitWarning, match="world: a WCS whose coordinates .* differ from fit to fit"):
        by_astropy = parallel(ours, **{**kwargs, "data": dask.from_array(cube), "scheduler": "synchronous"})
    assert_same_cube(by_astropy, slanted)


def test_images() -> None:
    required("dask")
    y, x = np.mgrid[:12, :10].astype(float)
    centre = np.array([4.0, 4.5, 5.0])
    images = noisy(lambda c: 3.0 * np.exp(-((x[..., None] - c) ** 2 + (y[..., None] - 6.0) ** 2) / 8.0), centre)
    start = models.Gaussian2D(2.0, 6.2, 4.4, 1.8, 1.8, fixed={"theta": True})
    kwargs = {"model": start, "data": images, "fitting_axes": (0, 1), "world": None}
    found = parallel(ours, **kwargs)
    assert_same_cube(found, parallel(theirs, **kwargs), rtol=1e-4)
    np.testing.assert_allclose(found.y_mean.value, centre, atol=0.1)
    swapped = {
        **kwargs,
        "fitting_axes": (1, 0),
        "model": models.Gaussian2D(2.0, 4.4, 6.2, 1.8, 1.8, fixed={"theta": True}),
    }
    np.testing.assert_allclose(parallel(ours, **swapped).x_mean.value, found.y_mean.value, rtol=1e-6)


def test_a_wcs_of_images() -> None:
    required("dask")
    wcs = required("astropy.wcs").WCS(naxis=3)
    wcs.wcs.ctype = "OFFSET", "WEIGHTS", "WAVE"
    wcs.wcs.cdelt, wcs.wcs.crpix, wcs.wcs.crval = (10.0, 0.1, 0.2), (1.0, 1.0, 1.0), (10.0, 0.1, 0.2)
    wcs.wcs.cunit = "deg", "kg", "mm"
    x, y = 0.2 * (1.0 + np.arange(20))[:, None, None] * u.mm, 0.1 * (1.0 + np.arange(10))[:, None] * u.kg
    slopes = np.array([1.0, 3.0, 2.0]) * u.Jy / u.mm, np.array([-1.0, 2.0, 3.0]) * u.Jy / u.kg
    data = slopes[0] * x + slopes[1] * y + 5.0 * u.Jy
    start = models.Planar2D(2.0 * u.Jy / u.mm, 1.0 * u.Jy / u.kg, 4.0 * u.Jy)
    for axes in ((0, 1), (1, 0)):
        if axes == (0, 1):
            fitted = parallel(ours, model=start, data=data, world=wcs, fitting_axes=axes)
            found = fitted.slope_x.quantity, fitted.slope_y.quantity
        else:
            start = models.Planar2D(1.0, 2.0, 4.0)
            fitted = parallel(ours, model=start, data=data.value, world=wcs, fitting_axes=axes)
            # a WCS is in metres
            found = fitted.slope_y.value * u.Jy / u.m, fitted.slope_x.value * u.Jy / u.kg
        for one, wanted in zip(found, slopes, strict=True):
            np.testing.assert_allclose(one.to_value(wanted.unit), wanted.value)


@pytest.mark.parametrize("scheduler", [None, "synchronous", "threads", "processes", "default"])
def test_dask_arrays(scheduler: str | None) -> None:
    dask = required("dask.array")
    cube, start = cube_of_lines()
    start.amplitude_1.tied = lambda m: 0.1 * m.amplitude_0 + 0.3
    wanted = parallel(ours, model=start, data=cube, weights=0.0 * cube + 20.0)
    lazy, weights = dask.from_array(cube, chunks=(20, 3, 2)), dask.full(cube.shape, 20.0, chunks=(60, 4, 5))
    kwargs = {"model": start, "weights": weights, "scheduler": scheduler}
    assert_same_cube(parallel(ours, data=lazy, chunk_n_max=7, **kwargs), wanted, rtol=0.0)
    if scheduler == "processes":
        return
    assert_same_cube(parallel(ours, data=lazy, **{**kwargs, "weights": np.full(cube.shape, 20.0)}), wanted, rtol=0.0)
    world = (np.broadcast_to(X[:, None, None], cube.shape),)
    assert_same_cube(parallel(ours, data=lazy, world=world, **kwargs), wanted, rtol=1e-9)
    native = {"data": lazy.rechunk((60, 3, 2)), "weights": weights.rechunk((60, 3, 2))}
    assert_same_cube(parallel(ours, **{**kwargs, **native}, preserve_native_chunks=True), wanted, rtol=0.0)


def test_numpy_arrays_need_no_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    cube, start = cube_of_lines()
    assert np.isfinite(parallel(ours, model=start, data=cube).mean_0.value).all()


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda path: {"diagnostics": "error", "diagnostics_path": path}, "diagnostics='error'"),
        (lambda path: {"fit_info": ("nfev",)}, r"fit_info=\('nfev',\)"),
        (lambda path: {"fitter": theirs.LevMarLSQFitter()}, "fitter=LevMarLSQFitter"),
        (lambda path: {"fitter_kwargs": {"spam": 1}}, "fitter_kwargs: spam=1"),
        (lambda path: {"model": models.Sersic1D(2.0, 5.0, 2.0)}, "gammaincinv"),
    ],
)
def test_cubes_that_astropy_fits(change: Callable[[Any], Any], argument: str, tmp_path: pathlib.Path) -> None:
    required("dask")
    cube, start = cube_of_lines()
    kwargs = {"model": start, "data": cube[:, :1, :2], "scheduler": "synchronous", "fitter": ours.TRFLSQFitter()}
    kwargs["model"] = models.Gaussian1D(2.5, 5.0, 1.2)
    kwargs |= change(tmp_path)
    with pytest.warns(PopfitWarning, match=f"{argument}.*parallel_fit_dask does it") as caught:
        found = parallel(ours, **kwargs)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert found.parameters.size == len(found.param_names) * 2
    if "fit_info" in kwargs:
        assert (kwargs["fitter"].fit_info.get_property_as_array("nfev") > 0).all()
    elif isinstance(kwargs["fitter"], ours.TRFLSQFitter):
        assert kwargs["fitter"].fit_info is None


def test_exceptions() -> None:
    cube, start = cube_of_lines()
    for error, message, change in [
        (ValueError, "Model is 1-dimensional, but got 2 value", {"fitting_axes": (0, 1)}),
        (ValueError, "Fitting index 3 out of range for 3-dimensional data", {"fitting_axes": 3}),
        (ValueError, "diagnostics should be None", {"diagnostics": "spam"}),
        (ValueError, "diagnostics_path should be set", {"diagnostics": "all"}),
        (ValueError, "world\\[0\\] has length 3 but data along dimension 0 has length 60", {"world": (X[:3],)}),
        (ValueError, "number of world arrays \\(2\\) must match", {"world": (X, X)}),
        (ValueError, "broadcastable to the shape of the data", {"world": (X[:, None],)}),
        (TypeError, "world should be None, a WCS object or a tuple", {"world": "banana"}),
        (TypeError, "preserve_native_chunks=True if input data is a dask array", {"preserve_native_chunks": True}),
    ]:
        with pytest.raises(error, match=message):
            parallel(ours, **{"model": start, "data": cube, **change})


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "src" / "python" / "from-astropy.md").read_text()
    assert markdown_table("astropy", ours.DIFFERENCES) in page
