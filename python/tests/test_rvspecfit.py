"""`popfit.rvspecfit` gives rvspecfit's dict, likelihood and first guess, and for many stars the command's rows.

rvspecfit's own tests need its template libraries, which are made with a grid of synthetic spectra. Their cases are here
with the demo's network in the place of a library: test_fit_nn.py and test_fit.py (fixed and free vsini, CCF, priors,
continuum), test_sdss.py (a resolution matrix, systematic errors) and test_desi_fit.py. Left out are

- test_01template_creation.py, test_interp.py: they make and read libraries, which `popfit.rvspecfit` passes on;
- test_fit_fake.py, test_fit_fake_grid.py: triangulations and grids, which popfit refuses by name;
- test_spline.py: a function of rvspecfit that popfit does not have, and passes on;
- test_ccf_mismatch.py: files of rvs_make_ccf, which popfit does not read.
"""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, SYNB, assert_same_rows, required

import popfit
from popfit._rival import markdown_table
from popfit.rvspecfit import DIFFERENCES, _library, _results, fitter_ccf, spec_fit, utils, vel_fit
from popfit.rvspecfit._jobs import Job
from popfit.rvspecfit._models import Continuum
from popfit.rvspecfit.spec_fit import SpecData

LABELS = ["teff", "logg", "feh", "alpha"]
NPOLY = {"npoly": 10}

#: Keys of `process`, in rvspecfit's order.
KEYS = [
    *("param", "vel", "vel_err", "vel_skewness", "vel_kurtosis", "param_err", "param_covar", "minimize_success"),
    *("bad_hessian", "yfit", "raw_models", "chisq", "logl", "chisq_array", "npix_array"),
]


def read_synb(name: str) -> tuple[list[list[SpecData]], dict[str, Any]]:
    """Return the stars of a set of synb, and rvspecfit's results of them."""
    with np.load(SYNB / name / "spectra.npz") as arrays:
        grid, flux, ivar, mask = (arrays[key] for key in ("wavelength", "flux", "ivar", "mask"))
    sigma = 1.0 / np.sqrt(ivar.astype(np.float64))
    stars = [[SpecData("b", grid, flux[n], sigma[n], mask[n])] for n in range(len(flux))]
    with np.load(SYNB / name / "rvspecfit.npz") as reference:
        return stars, dict(reference)


@pytest.fixture(scope="session")
def fixed() -> tuple[list[list[SpecData]], dict[str, Any]]:
    """Stars without rotation."""
    return read_synb("fixed_vsini")


@pytest.fixture(scope="session")
def free() -> tuple[list[list[SpecData]], dict[str, Any]]:
    """Stars with rotation."""
    return read_synb("free_vsini")


@pytest.fixture(scope="session")
def forward() -> dict[str, Any]:
    """Likelihoods of rvspecfit at given parameters."""
    with np.load(SYNB / "forward_ref.npz") as arrays:
        return dict(arrays)


def start_of(reference: dict[str, Any], n: int) -> dict[str, float]:
    """Return rvspecfit's own start of a star."""
    return dict(zip(LABELS, reference["start_par"][n], strict=True))


def case_of(forward: dict[str, Any], n: int) -> list[SpecData]:
    """Return the spectrum of a case."""
    return [SpecData("b", forward["lam_obs"], forward["spec"][n], forward["espec"][n], forward["badmask"][n])]


def rotation_of(forward: dict[str, Any], n: int) -> tuple[float] | None:
    """Return the rotation of a case."""
    return None if np.isnan(forward["vsini"][n]) else (forward["vsini"][n],)


def test_the_dict_is_rvspecfits(fixed: Any, config: utils.frozendict) -> None:
    stars, reference = fixed
    found = vel_fit.process(stars[0], start_of(reference, 0), options=NPOLY, config=config)
    assert list(found) == [*KEYS, "vel_err_joint"]
    assert list(found["param"]) == list(found["param_err"]) == LABELS
    assert found["param_covar"].shape == (4, 4)
    np.testing.assert_allclose(np.sqrt(np.diag(found["param_covar"])), list(found["param_err"].values()))
    pixels = stars[0][0].lam.shape
    assert [one.shape for one in found["yfit"]] == [one.shape for one in found["raw_models"]] == [pixels]
    assert found["logl"] == -0.5 * found["chisq"]
    good = ~stars[0][0].badmask
    assert found["npix_array"] == [good.sum()] and found["npix_array"][0] == reference["npix"][0]
    residuals = (found["yfit"][0] - stars[0][0].spec) / stars[0][0].espec
    np.testing.assert_allclose(found["chisq_array"], [(residuals[good] ** 2).sum()])
    assert found["minimize_success"] is True and found["bad_hessian"] is False
    # a SpecData alone is a star
    alone = vel_fit.process(stars[0][0], start_of(reference, 0), options=NPOLY, config=config)
    assert alone["chisq"] == found["chisq"]


@pytest.mark.parametrize("n", [*range(0, 128, 16), 10])
def test_likelihoods_are_not_above_rvspecfits(fixed: Any, config: utils.frozendict, n: int) -> None:
    stars, reference = fixed
    found = vel_fit.process(stars[n], start_of(reference, n), options=NPOLY, config=config)
    assert found["chisq"] <= reference["m2logl"][n] + 0.01
    errors = [found["vel_err_joint"], *found["param_err"].values()]
    if np.isfinite(errors).all() and reference["ref_outside"][n] == 0:
        np.testing.assert_allclose(errors, reference["ref_err"][n], rtol=0.1)
    # rvspecfit is in another minimum where it is that much above
    if reference["m2logl"][n] - found["chisq"] < 0.1:
        assert abs(found["vel"] - reference["fit_vel"][n]) < 0.1 * reference["fit_vel_err"][n]
        np.testing.assert_allclose(found["vel_err"], reference["fit_vel_err"][n], rtol=0.02)
        assert abs(found["vel_skewness"] - reference["fit_vel_skew"][n]) < 0.05
        assert abs(found["vel_kurtosis"] - reference["fit_vel_kurt"][n]) < 0.1


def test_spectra_without_lines(fixed: Any, config: utils.frozendict) -> None:
    grid = np.linspace(4100.0, 4500.0, 1500)
    flat = SpecData("b", grid, np.ones(1500), np.full(1500, 0.1))
    start = start_of(fixed[1], 0)
    found = vel_fit.process(flat, start, options=NPOLY, config=config)
    assert list(found) == [*KEYS, "vel_err_joint"]
    assert np.isfinite([found["vel"], found["vel_err"], found["chisq"]]).all()
    # rows with and without a scan of the velocity in one table
    table = vel_fit.process_many([flat, fixed[0][0]], options=NPOLY, config=config, velocity_scan="fixed", device="cpu")
    assert np.isfinite(table["velocity_posterior"][1])
    assert not table.converged[0] and np.isnan(table["velocity_posterior"][0])
    # a fit that did not converge has a velocity and an error, but no moments
    unscanned = _results._velocity(table[:1], 4.0 * np.eye(5))
    assert unscanned["vel"] == table["velocity"][0] and unscanned["vel_err"] == 0.5
    assert np.isnan([unscanned["vel_skewness"], unscanned["vel_kurtosis"]]).all()


@pytest.mark.parametrize("n", range(0, 48, 8))
def test_rotating_stars(free: Any, config: utils.frozendict, n: int) -> None:
    stars, reference = free
    start = start_of(reference, n) | {"vsini": float(reference["start_vsini"][n])}
    found = vel_fit.process(stars[n], start, options=NPOLY, config=config)
    assert list(found) == [KEYS[0], "vsini", *KEYS[1:], "vel_err_joint"]
    assert found["chisq"] <= reference["m2logl"][n] + 0.01
    # a fixed vsini does not move, and is no key
    held = vel_fit.process(stars[n], start, fixParam=["vsini"], options=NPOLY, config=config)
    assert "vsini" not in held
    assert held["chisq"] >= found["chisq"] - 0.01


def test_fixed_labels_and_priors(fixed: Any, config: utils.frozendict) -> None:
    stars, reference = fixed
    start = start_of(reference, 3)
    free = vel_fit.process(stars[3], start, options=NPOLY, config=config)
    held = vel_fit.process(stars[3], start, fixParam=["feh"], options=NPOLY, config=config)
    assert held["param"]["feh"] == start["feh"]
    assert held["param_err"]["feh"] == 0.0 and held["param_err"]["teff"] < free["param_err"]["teff"]
    assert held["chisq"] > free["chisq"]
    target = free["param"]["teff"] + 3 * free["param_err"]["teff"]
    sigma = free["param_err"]["teff"]
    prior = vel_fit.process(stars[3], start, options=NPOLY, config=config, priors={"teff": (target, sigma)})
    # two measurements of one error: half way between, and the likelihood is without the prior
    assert abs(prior["param"]["teff"] - 0.5 * (free["param"]["teff"] + target)) < 0.1 * sigma
    assert abs(prior["chisq"] - free["chisq"] - 1.5**2) < 0.2
    with pytest.warns(popfit.PopfitWarning, match="priors: 'vrad' has no effect"):
        vel_fit.process(stars[3], start, options=NPOLY, config=config, priors={"vrad": (0.0, 1.0)})
    with pytest.raises(KeyError):
        vel_fit.process(stars[3], {"teff": 5000.0}, options=NPOLY, config=config)


def test_likelihoods_at_given_parameters(forward: dict[str, Any], config: utils.frozendict) -> None:
    for n in range(len(forward["m2logl"])):
        arguments = (case_of(forward, n), forward["vel"][n], tuple(forward["par"][n]), rotation_of(forward, n))
        found = spec_fit.get_chisq(*arguments, options=NPOLY, config=config)
        assert isinstance(found, float)
        assert abs(found / forward["m2logl_f64nn"][n] - 1.0) < 2e-5, n
        whole = spec_fit.get_chisq(*arguments, options=NPOLY, config=config, full_output=True)
        assert whole["chisq"] == found and whole["logl"] == -0.5 * found
        rotation = None if rotation_of(forward, n) is None else [forward["vsini"][n]] * 2
        several = spec_fit.get_chisq_many(
            arguments[0], [0.0, arguments[1]], [arguments[2]] * 2, rotation, options=NPOLY, config=config
        )
        assert several.shape == (2,) and abs(several[1] / found - 1.0) < 1e-6
        np.testing.assert_allclose(whole["chisq_array"], [forward["chisq"][n]], rtol=1e-4)
        if n < len(forward["obs_model"]):
            np.testing.assert_allclose(whole["raw_models"][0], forward["obs_model"][n], rtol=1e-4)


def test_grids_of_velocities(forward: dict[str, Any], config: utils.frozendict) -> None:
    cases = len(forward["find_best_vel"])
    for n in range(cases):
        # the reference's grids are at the truth without rotation
        labels, grid = tuple(forward["sim_par"][n]), forward["vel_grid"]
        found = spec_fit.find_best(case_of(forward, n), grid, [labels], options=NPOLY, config=config)
        for key, name in [("best_vel", "vel"), ("vel_err", "err"), ("skewness", "skew"), ("kurtosis", "kurt")]:
            np.testing.assert_allclose(found[key], forward[f"find_best_{name}"][n], rtol=0.01, atol=0.01)
        assert found["probs"].shape == grid.shape and found["best_param"] == labels
        assert abs(found["best_chi"] / forward["m2logl_velgrid"][n].min() - 1) < 1e-4


def test_every_continuum_has_rvspecfits_determinant(forward: dict[str, Any], config: utils.frozendict) -> None:
    star, vel, par = case_of(forward, 0), forward["vel"][0], tuple(forward["par"][0])
    for options in [{"npoly": 1}, {"npoly": 3}, {"npoly": 4}, {}, {"npoly": 6, "rbf_continuum": False}]:
        whole = spec_fit.get_chisq(star, vel, par, options=options, config=config, full_output=True)
        # −2 ln L = ln det SᵀS + 2 Σ ln e + ‖D − S a‖²
        basis = Continuum.of(options).basis(star[0].lam) * whole["raw_models"][0] / star[0].espec
        residuals = (whole["models"][0] - star[0].spec) / star[0].espec
        expected = np.linalg.slogdet(basis @ basis.T)[1] + 2 * np.log(star[0].espec).sum() + (residuals**2).sum()
        assert abs(whole["chisq"] - expected) < 0.02, options


def test_huge_errors_keep_their_part_of_the_likelihood(forward: dict[str, Any], config: utils.frozendict) -> None:
    one = case_of(forward, 0)[0]
    errors = one.espec.copy()
    errors[100:110] = 1e30
    marked = SpecData("b", one.lam, one.spec, errors, one.badmask)
    vel, par = forward["vel"][0], tuple(forward["par"][0])
    whole = spec_fit.get_chisq([marked], vel, par, options=NPOLY, config=config, full_output=True)
    basis = Continuum(10, True).basis(one.lam) * whole["raw_models"][0] / errors
    residuals = (whole["models"][0] - one.spec) / errors
    expected = np.linalg.slogdet(basis @ basis.T)[1] + 2 * np.log(errors).sum() + (residuals**2).sum()
    assert abs(whole["chisq"] - expected) < 0.02


def test_resolution_matrices_and_systematic_errors(forward: dict[str, Any], config: utils.frozendict) -> None:
    sparse = required("scipy.sparse")
    one = case_of(forward, 0)[0]
    vel, par = forward["vel"][0], tuple(forward["par"][0])
    plain = spec_fit.get_chisq([one], vel, par, options=NPOLY, config=config, full_output=True)
    kernel = [np.full(len(one.lam), weight) for weight in (0.1, 0.2, 0.4, 0.2, 0.1)]
    matrix = spec_fit.ResolMatrix(sparse.diags_array(kernel, offsets=[-2, -1, 0, 1, 2], shape=(len(one.lam),) * 2))
    smooth = spec_fit.get_chisq(
        [one], vel, par, resol_params={"b": matrix}, options=NPOLY, config=config, full_output=True
    )
    wanted = matrix.mat @ plain["raw_models"][0]
    np.testing.assert_allclose(smooth["raw_models"][0][5:-5], wanted[5:-5], rtol=1e-5)
    resolved = SpecData("b", one.lam, one.spec, one.espec, one.badmask, matrix)
    assert spec_fit.get_chisq([resolved], vel, par, options=NPOLY, config=config) == smooth["chisq"]
    with pytest.raises(ValueError, match="resol"):
        spec_fit.get_chisq([resolved], vel, par, resol_params={"b": matrix}, options=NPOLY, config=config)
    worse = SpecData("b", one.lam, one.spec, np.hypot(one.espec, 0.01), one.badmask)
    systematic = spec_fit.get_chisq([one], vel, par, options=NPOLY, config=config, espec_systematic={"b": 0.01})
    assert systematic == spec_fit.get_chisq([worse], vel, par, options=NPOLY, config=config)


def test_the_continuum_alone(forward: dict[str, Any]) -> None:
    star = case_of(forward, 0)
    found = spec_fit.get_chisq_continuum(star, options=NPOLY)
    np.testing.assert_allclose(found["chisq_array"], [636478.94810323], rtol=1e-9)  # rvspecfit 0.9.0
    np.testing.assert_allclose(found["redchisq_array"], [172.72155987], rtol=1e-9)
    np.testing.assert_allclose(Continuum(10, True).basis(star[0].lam), forward["poly_basis"], atol=1e-14)


def test_the_example_of_its_readme(fixed: Any, config: utils.frozendict) -> None:
    stars, reference = fixed
    for n in (0, 40):
        res = fitter_ccf.fit(stars[n], config)
        assert list(res["best_par"]) == LABELS
        assert abs(res["best_vel"] - reference["ref_x"][n, 0]) < 15.0
        assert res["vel_grid"].shape == res["best_ccf"].shape == (401,)
        assert res["vel_grid"][0] == -1000.0 and res["vel_grid"][-1] == 1000.0
        assert abs(res["vel_grid"][res["best_ccf"].argmin()] - res["best_vel"]) <= 5.0
        still = fitter_ccf.fit(stars[n], config.copy(max_vsini=0))
        assert still["best_vsini"] is None and res["best_vsini"] is not None
        start = res["best_par"] | {"vsini": res["best_vsini"]}
        found = vel_fit.process(stars[n], start, fixParam=[], config=config, options=NPOLY)
        assert found["chisq"] <= reference["m2logl"][n] + 0.01


def test_the_first_guess_of_a_grid(fixed: Any, config: utils.frozendict) -> None:
    stars, _ = fixed
    grid = {"logg": [3, 4.5], "teff": [5000, 6000, 20000], "feh": [-1, 0], "alpha": [0.2]}
    best = vel_fit.firstguess(stars[5], options=NPOLY, config=config, vsinigrid=(None, 100), paramsgrid=grid)
    assert list(best)[:4] == LABELS
    chisqs = {}
    for point in itertools.product((5000, 6000), (3, 4.5), (-1, 0), (0.2,)):
        scan = spec_fit.find_best(stars[5], range(-300, 301, 5), [point], options=NPOLY, config=config)
        chisqs[point] = scan["best_chi"]
    assert tuple(best[name] for name in LABELS) == min(chisqs, key=chisqs.__getitem__)
    turning, reference = read_synb("free_vsini")
    fast = int(reference["ref_x"][:, 1].argmax())
    labels = {name: [value] for name, value in zip(LABELS, reference["ref_x"][fast, 2:], strict=True)}
    rotating = vel_fit.firstguess(turning[fast], config=config, vsinigrid=(None, 100, 1), paramsgrid=labels)
    assert rotating["vsini"] == 100
    with pytest.raises(popfit.InputError, match="training range"):
        vel_fit.firstguess(stars[5], config=config, paramsgrid={name: [90000.0] for name in LABELS})
    with pytest.raises(popfit.InputError, match="alpha"):
        vel_fit.firstguess(stars[5], config=config, paramsgrid={name: [1.0] for name in LABELS[:3]})


@pytest.mark.parametrize(("name", "vsini"), [("fixed_vsini", False), ("free_vsini", True)])
def test_many_stars_are_the_commands_rows(name: str, vsini: bool, config: utils.frozendict) -> None:
    stars, reference = read_synb(name)
    table = vel_fit.process_many(stars, options=NPOLY, config=config, mask="apply", vsini=vsini, device="cpu")
    with np.load(SYNB / name / "spectra.npz") as arrays:
        sigma = np.stack([star[0].espec for star in stars])
        spectra = popfit.Spectra.from_arrays(
            arrays["wavelength"], arrays["flux"].astype(np.float64), sigma=sigma, mask=arrays["mask"]
        )
    network = popfit.Emulator.open(ROOT / "data" / "emulator.safetensors")
    keys: dict[str, Any] = {"velocity": (-1000, 1000), "continuum": {"kind": "rbf", "terms": 10}, "marginalise": True}
    if vsini:
        keys["vsini"] = (0, 500)
    command = popfit.fit(popfit.SpectralModel({"b": network}, **keys), spectra, device="cpu")
    assert_same_rows(table, command)
    masked = [2 * np.log(star[0].espec[star[0].badmask]).sum() for star in stars]
    assert (table["objective"] + masked <= reference["m2logl"] + 0.01).all()


def test_many_stars_are_each_star_alone(fixed: Any, config: utils.frozendict) -> None:
    stars, reference = fixed
    short = SpecData("b", *(getattr(stars[1][0], name)[:3000] for name in ("lam", "spec", "espec", "badmask")))
    some = [stars[0], short, stars[2], [short]]
    starts = [start_of(reference, n) for n in (0, 1, 2, 1)]
    table = vel_fit.process_many(
        some, starts, options=NPOLY, config=config, ids=["a", "b", "c", "d"], velocity_scan="fixed", device="cpu"
    )
    assert table["id"].tolist() == ["a", "b", "c", "d"]
    job = Job.of(some[:1], {"teff": 5123.0, "logg": 99.0}, config=config)
    columns = job.columns(started=True)
    assert columns["start_teff"] == [5123.0] and columns["start_logg"] == [job.model.bounds["logg"][1]]
    assert np.isnan(columns["start_feh"]).all() and np.isnan(job.columns(started=False)["start_teff"]).all()
    for n, star in enumerate(some):
        alone = vel_fit.process(star, starts[n], options=NPOLY, config=config)
        assert {name: table[name][n] for name in LABELS} == alone["param"]
        assert table["velocity_posterior"][n] == alone["vel"]
        assert abs(table["objective"][n] - alone["chisq"]) < 0.03
    assert table["teff"][1] == table["teff"][3]


def test_bad_pixels_count_unless_they_are_masked(fixed: Any, config: utils.frozendict) -> None:
    one = fixed[0][4][0]
    bad = one.badmask.copy()
    bad[1500:1520] = True
    flux = one.spec.copy()
    flux[1500:1520] *= 1.5
    star = [SpecData("b", one.lam, flux, one.espec, bad)]
    kept = vel_fit.process_many([star], options=NPOLY, config=config)
    masked = vel_fit.process_many([star], options=NPOLY, config=config, mask="apply")
    assert kept["chi2"][0] > masked["chi2"][0] + 100.0
    found = vel_fit.process(star, fitter_ccf.fit(star, config)["best_par"], options=NPOLY, config=config)
    assert found["npix_array"] == [(~bad).sum()]
    assert found["chisq_array"][0] < kept["chi2"][0] - 100.0
    with pytest.raises(popfit.InputError, match="mask='drop'"):
        vel_fit.process_many([star], config=config, mask="drop")  # type: ignore[arg-type]


def test_what_popfit_does_not_do_is_rvspecfits(fixed: Any, config: utils.frozendict, monkeypatch: Any) -> None:
    import sys
    import types

    star, start = fixed[0][0], start_of(fixed[1], 0)
    for name in ("rvspecfit", "rvspecfit.vel_fit"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotImplementedError, match=r"npoly=40.*rvspecfit"):
        vel_fit.process(star, start, options={"npoly": 40}, config=config)
    with pytest.raises(AttributeError, match="VSiniMapper"):
        _ = vel_fit.VSiniMapper
    theirs = types.ModuleType("rvspecfit.vel_fit")
    theirs.process = lambda *arguments: {"arguments": arguments}  # type: ignore[attr-defined]
    theirs.VSiniMapper = float  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rvspecfit", types.ModuleType("rvspecfit"))
    monkeypatch.setitem(sys.modules, "rvspecfit.vel_fit", theirs)
    with pytest.warns(popfit.PopfitWarning, match="npoly=40"):
        found = vel_fit.process(star, start, options={"npoly": 40}, config=config)
    assert found["arguments"] == (star, start, None, {"npoly": 40}, config, None, None)
    assert vel_fit.VSiniMapper is float


def test_wrong_input_is_named(fixed: Any, config: utils.frozendict, library: pathlib.Path) -> None:
    star, start = fixed[0][0], start_of(fixed[1], 0)
    with pytest.raises(RuntimeError, match="Config must be provided"):
        vel_fit.process(star, start)
    with pytest.raises(popfit.InputError, match="two SpecData"):
        vel_fit.process(star * 2, start, config=config)
    with pytest.raises(FileNotFoundError, match="no setup 'c'"):
        vel_fit.process([SpecData("c", star[0].lam, star[0].spec, star[0].espec)], start, config=config)
    spoiled = star[0].spec.copy()
    spoiled[7] = np.nan
    with pytest.raises(RuntimeError, match="7"):
        vel_fit.process([SpecData("b", star[0].lam, spoiled, star[0].espec)], start, config=config)
    with pytest.raises(popfit.InputError, match="espec has the shape"):
        SpecData("b", star[0].lam, star[0].spec, star[0].espec[:-1])
    with pytest.warns(popfit.PopfitWarning, match="'npol'"):
        vel_fit.process(star, start, options={"npol": 5}, config=config)
    with pytest.raises(popfit.InputError, match="vsini is fixed at 2 values"):
        vel_fit.process_many([star, star], [{"vsini": 1.0}, {"vsini": 2.0}], ["vsini"], config=config)


def test_libraries_that_are_no_networks_are_refused_by_name(
    fixed: Any, config: utils.frozendict, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = required("h5py")
    monkeypatch.setenv("POPFIT_CACHE", str(tmp_path / "cache"))
    star = fixed[0][0]
    for kind in ("triangulation", "regulargrid"):
        with h5py.File(tmp_path / "interp_b.h5", "w") as file:
            file["interpolation_type"] = kind
        with pytest.raises(popfit.InputError, match=r"interp_b\.h5.*rvs_train_nn_interpolator") as caught:
            vel_fit.process(star, {}, config=config.copy(template_lib=str(tmp_path)))
        assert caught.value.path == str(tmp_path / "interp_b.h5")
    with h5py.File(tmp_path / "interp_b.h5", "w") as file:
        file["interpolation_type"] = "generic"
    with pytest.raises(popfit.InputError, match=r"setup b: [^:]*: .*(torch|version)"):
        vel_fit.process(star, {}, config=config.copy(template_lib=str(tmp_path)))


def test_imported_libraries_are_kept_by_their_content(
    fixed: Any, config: utils.frozendict, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPFIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "interp_b.h5").write_bytes(b"a library")
    (tmp_path / "NNstate_b.sav").write_bytes(b"its network")
    imported = tmp_path / "cache" / "rvspecfit" / f"{_library._content_hash(tmp_path, 'b')}-b.safetensors"
    imported.parent.mkdir(parents=True)
    imported.symlink_to(ROOT / "data" / "emulator.safetensors")
    own = config.copy(template_lib=str(tmp_path))
    start = start_of(fixed[1], 0)
    assert spec_fit.get_chisq(fixed[0][0], 0.0, tuple(start.values()), config=own) < 1e9
    (tmp_path / "NNstate_b.sav").write_bytes(b"another network")
    with pytest.raises((popfit.InputError, OSError)):
        spec_fit.get_chisq(fixed[0][0], 0.0, tuple(start.values()), config=own)


def test_the_book_has_the_table_of_differences() -> None:
    page = (ROOT / "docs" / "src" / "python" / "from-rvspecfit.md").read_text(encoding="utf-8")
    assert markdown_table("rvspecfit 0.9.0", DIFFERENCES) in page


def test_what_users_type(fixed: Any, config: utils.frozendict) -> None:
    stars, reference = fixed
    start = start_of(reference, 0)
    held = vel_fit.process(stars[0], start, fixParam="feh", options=NPOLY, config=config)
    assert held["param_err"]["feh"] == 0.0
    with pytest.raises(popfit.InputError, match="priors: teff: 5000; give"):
        vel_fit.process(stars[0], start, options=NPOLY, config=config, priors={"teff": 5000})  # type: ignore[dict-item]
    with pytest.raises(popfit.InputError, match=r"config: 'config\.yaml'; give what"):
        vel_fit.process(stars[0], start, options=NPOLY, config="config.yaml")  # type: ignore[arg-type]
