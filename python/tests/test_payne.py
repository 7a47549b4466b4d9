"""`popfit.payne` finds what The Payne's own fit finds, and fits many spectra at once."""

from __future__ import annotations

import os
import pathlib
import sys
import types
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, required

import popfit
from popfit import payne
from popfit._rival import markdown_table
from popfit._rows import lower_rows

LOW, HIGH = np.array([4000.0, 1.0, -2.0]), np.array([7000.0, 5.0, 0.5])
#: Two detectors, each uniform in ln λ.
WAVELENGTH = np.concatenate([15150.0 * np.exp(2e-5 * np.arange(500)), 15860.0 * np.exp(2e-5 * np.arange(400))])
#: Bad pixels.
MASK = np.zeros(900, dtype=bool)
MASK[[3, 250, 251, 252, 700]] = True


def make_network() -> tuple[np.ndarray, ...]:
    """Return a network of 12 hidden units with lines a few pixels wide."""
    random = np.random.default_rng(7)
    centres, widths = random.uniform(0, 900, 12), random.uniform(2.0, 5.0, 12)
    lines = np.exp(-0.5 * ((np.arange(900)[:, None] - centres) / widths) ** 2)
    return (
        random.normal(0.0, 1.0, (12, 3)),
        random.normal(0.0, 0.5, (12, 12)),
        -0.15 * lines,
        random.normal(0.0, 0.3, 12),
        random.normal(0.8, 0.2, 12),
        np.ones(900),
        LOW,
        HIGH,
    )


NETWORK = make_network()


def shifted_spectrum(scaled: np.ndarray, velocity: float) -> np.ndarray:
    """Return the spectrum of scaled labels and a velocity, by The Payne's formulas."""
    w0, w1, w2, b0, b1, b2, *_ = NETWORK
    first = w0 @ scaled + b0
    second = w1 @ np.where(first > 0, first, 0.01 * first) + b1
    flux = w2 @ np.where(second > 0, second, 0.01 * second) + b2
    beta = velocity / 299792.458
    return np.interp(WAVELENGTH * np.sqrt((1 - beta) / (1 + beta)), WAVELENGTH, flux)


@pytest.fixture(scope="module")
def observed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truths (labels and velocity, scaled), spectra and errors of 24 stars."""
    random = np.random.default_rng(11)
    truth = np.column_stack([random.uniform(-0.4, 0.4, (24, 3)), random.uniform(-4.0, 4.0, 24)])
    clean = np.stack([shifted_spectrum(one[:3], one[3]) for one in truth])
    errors = np.full(clean.shape, 0.005)
    return truth, clean + errors * random.normal(size=clean.shape), errors


def fit_one(spectrum: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return The Payne's answer for one spectrum."""
    return payne.fit_normalized_spectrum_single_star_model(spectrum, errors, NETWORK, WAVELENGTH, MASK)


def fit_as_the_payne(spectrum: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (scaled) and velocity, and their errors, of The Payne's own way: scipy from the middle."""
    optimize = required("scipy.optimize")
    found, covariance = optimize.curve_fit(
        lambda _, *p: shifted_spectrum(np.array(p[:3]), p[3])[~MASK],
        [],
        spectrum[~MASK],
        p0=np.zeros(4),
        sigma=errors[~MASK],
        absolute_sigma=True,
        bounds=([-0.5] * 3 + [-5], [0.5] * 3 + [5]),
        ftol=5e-4,
        xtol=5e-4,
    )
    return found, np.sqrt(np.diag(covariance))


def test_one_spectrum_is_the_paynes_fit_or_better(observed: Any) -> None:
    _, spectra, errors = observed
    scale = np.append(HIGH - LOW, 1.0)
    same = 0
    for n in range(24):
        error = errors[n].copy()
        popt, pstd, model = fit_one(spectra[n], error)
        assert popt.shape == pstd.shape == (4,) and model.shape == (900,)
        np.testing.assert_array_equal(error, errors[n])
        scaled = (popt - np.append(0.5 * (LOW + HIGH), 0.0)) / scale
        np.testing.assert_allclose(model, shifted_spectrum(scaled[:3], scaled[3]), atol=1e-5)
        theirs, deviations = fit_as_the_payne(spectra[n], errors[n])
        chi2 = [
            (((shifted_spectrum(one[:3], one[3]) - spectra[n]) / errors[n])[~MASK] ** 2).sum()
            for one in (scaled, theirs)
        ]
        assert chi2[0] <= chi2[1] + 0.01, n
        if chi2[0] > chi2[1] - 1e-3:
            same += 1
            assert (np.abs(scaled - theirs) < 0.05 * deviations).all(), n
            np.testing.assert_allclose(pstd / scale, deviations, rtol=0.01)
    assert same >= 12


def test_many_spectra_are_each_alone(observed: Any) -> None:
    _, spectra, errors = observed
    table = payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, MASK, device="cpu")
    assert table.parameters == ["velocity", "label_0", "label_1", "label_2"]
    assert table.converged.all()
    for n in (0, 9, 23):
        popt, pstd, _ = fit_one(spectra[n], errors[n])
        names = ["label_0", "label_1", "label_2", "velocity"]
        assert [table[name][n] for name in names] == popt.tolist()
        free = [k for k, name in enumerate(names) if np.isfinite(table[f"{name}_err"][n])]
        if len(free) == 4:
            assert [table[f"{name}_err"][n] for name in names] == pstd.tolist()
    named = payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, MASK, labels=["teff", "logg", "feh"], device="cpu")
    assert named["teff"].tolist() == table["label_0"].tolist()


def test_starts_are_tried_and_masks_hold(observed: Any) -> None:
    _, spectra, errors = observed
    plain = payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, MASK, device="cpu")
    labels = np.stack([plain[f"label_{k}"] for k in range(3)], axis=1)
    ends = np.column_stack([(labels - LOW) / (HIGH - LOW) - 0.5, plain["velocity"]])
    table = payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, MASK, ends, device="cpu")
    assert (table["objective"] <= plain["objective"] + 0.01).all()
    beyond = payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, MASK, [0.7, 0.0, 0.0, 9.0], device="cpu")
    assert np.isfinite(beyond["objective"]).all()
    # of two fits of the same spectra the lower one is taken, row by row
    mixed = lower_rows(plain, plain[::-1])
    np.testing.assert_array_equal(mixed["objective"], np.minimum(plain["objective"], plain["objective"][::-1]))
    assert set(mixed["label_0"]) < set(plain["label_0"])
    spoiled, mask = spectra.copy(), np.tile(MASK, (24, 1))
    spoiled[:, 100:120] = 7.0
    mask[:, 100:120] = True
    masked = payne.fit_many(spoiled, errors, NETWORK, WAVELENGTH, mask, device="cpu")
    assert (masked["chi2"] < 1.3 * masked["dof"]).all()
    assert (masked["dof"] == plain["dof"] - 20).all()


def test_the_class(observed: Any, tmp_path: pathlib.Path) -> None:
    _, spectra, errors = observed
    np.savez(tmp_path / "network.npz", **dict(zip(payne.COEFFICIENTS, NETWORK, strict=True)))
    fitter = payne.PayneFitter(use_mask=False, nn_path=tmp_path / "network.npz", wavelength=WAVELENGTH)
    fitter.set_mask(MASK)
    labels, uncertainties, model = fitter.fit_spectrum(spectra[2], errors[2])
    wanted = fit_one(spectra[2], errors[2])
    for one, two in zip((labels, uncertainties, model), wanted, strict=True):
        np.testing.assert_array_equal(one, two)
    *_, scaled = fitter.fit_spectrum(spectra[2], errors[2], return_scaled=True)
    np.testing.assert_allclose(scaled, (labels[:3] - LOW) / (HIGH - LOW) - 0.5)
    guessed = fitter.fit_spectrum_with_initial_guess(spectra[2], errors[2], labels[:3], labels[3])
    np.testing.assert_allclose(guessed[0], labels, rtol=1e-4)
    chi2, reduced, dof = fitter.compute_chi2(spectra[2], errors[2], labels[:3], labels[3])
    table = fitter.fit_many(spectra, errors, device="cpu")
    assert dof == table["dof"][2] == 900 - 5 - 4
    np.testing.assert_allclose([chi2, reduced], [table["chi2"][2], table["chi2"][2] / dof], rtol=1e-3)
    np.testing.assert_array_equal(fitter.get_residuals(spectra[2], model), spectra[2] - model)
    assert fitter.get_label_names() == ["Teff", "logg", "Vturb", "RV"]
    fitter.add_mask_region(15150.0, 15151.0)
    assert fitter.mask.sum() == MASK.sum() + (WAVELENGTH <= 15151.0).sum() - 1
    assert "num_labels=3" in repr(fitter)
    with pytest.raises(ValueError, match="Mask length 3"):
        fitter.set_mask([True, False, True])


def test_data_of_the_payne_come_from_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "The_Payne", None)
    with pytest.raises(ImportError, match="nn_path"):
        payne.PayneFitter()
    with pytest.raises(AttributeError, match="PaynePredictor"):
        _ = payne.PaynePredictor
    package, utils, fitting = (types.ModuleType(name) for name in ("The_Payne", "The_Payne.utils", "The_Payne.fitting"))
    utils.read_in_neural_network = lambda: NETWORK  # type: ignore[attr-defined]
    utils.load_wavelength_array = lambda: WAVELENGTH  # type: ignore[attr-defined]
    utils.load_apogee_mask = lambda: MASK  # type: ignore[attr-defined]
    package.utils, package.PaynePredictor = utils, dict  # type: ignore[attr-defined]
    for module in (package, utils, fitting):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert payne.PayneFitter().mask.sum() == MASK.sum()
    assert payne.PaynePredictor is dict
    assert payne.PayneFitter().predictor == {"nn_path": None}
    # wavelengths that popfit cannot take go to The Payne
    fitting.fit_normalized_spectrum_single_star_model = lambda *arguments: arguments  # type: ignore[attr-defined]
    linear = np.linspace(15150.0, 15200.0, 900)
    with pytest.warns(popfit.PopfitWarning, match="wavelength"):
        passed = payne.fit_normalized_spectrum_single_star_model(MASK, MASK, NETWORK, linear, MASK)
    assert passed[3] is linear


def test_wrong_input_is_named(observed: Any) -> None:
    _, spectra, errors = observed
    with pytest.raises(popfit.InputError, match="NN_coeffs: 3 arrays"):
        payne.fit_many(spectra, errors, NETWORK[:3], WAVELENGTH)
    with pytest.raises(popfit.InputError, match="spec_err"):
        payne.fit_many(spectra, errors[:2], NETWORK, WAVELENGTH)
    with pytest.raises(popfit.InputError, match="mask has the shape"):
        payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, mask=np.zeros(3, dtype=bool))
    with pytest.raises(popfit.InputError, match="p0 has the shape"):
        payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, p0=[0.0, 0.0])
    with pytest.raises(popfit.InputError, match="labels: 1 names"):
        payne.fit_many(spectra, errors, NETWORK, WAVELENGTH, labels=["teff"])
    spoiled = spectra[0].copy()
    spoiled[5] = np.nan
    with pytest.raises(ValueError, match="5"):
        payne.fit_normalized_spectrum_single_star_model(spoiled, errors[0], NETWORK, WAVELENGTH, MASK)


def test_a_real_star_of_apogee() -> None:
    data = os.environ.get("POPFIT_REAL_DATA")
    if not data:
        pytest.skip("POPFIT_REAL_DATA is not set")
    folder = pathlib.Path(data) / "apogee"
    with np.load(folder / "NN_normalized_spectra.npz") as arrays:
        names = ("w_array_0", "w_array_1", "b_array_0", "b_array_1", "x_min", "x_max")
        network = [arrays[name] for name in names]
    with np.load(next(folder.glob("2M*.npz"))) as arrays:
        wavelength, flux, ivar = (arrays[name] for name in ("wavelength", "flux", "ivar"))
    good = ivar > 0
    errors = np.where(good, 1.0 / np.sqrt(np.where(good, ivar, 1.0)), np.inf)
    table = payne.fit_many(flux, errors, network, wavelength, ~good, activation="sigmoid")
    wanted = {"label_0": (4942.27, 4.02), "label_1": (4.5262, 0.0041), "label_2": (-0.1875, 0.0017)}
    wanted |= {"label_3": (0.1108, 0.0027), "label_4": (16.108, 0.105), "velocity": (0.9806, 0.0215)}
    for name, (value, error) in wanted.items():
        assert abs(table[name][0] - value) < 0.05 * error, name


def test_the_book_has_the_table_of_differences() -> None:
    page = (ROOT / "docs" / "src" / "python" / "from-payne.md").read_text(encoding="utf-8")
    assert markdown_table("The Payne", payne.DIFFERENCES) in page
