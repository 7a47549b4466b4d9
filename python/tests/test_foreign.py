"""Spectra of specutils and of rvspecfit give the rows of their arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_rows, required

import popfit


@pytest.mark.parametrize("kind", ["ivar", "std"])
def test_spectra_of_specutils_give_the_same_rows(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], kind: str
) -> None:
    units, nddata, specutils = required("astropy.units"), required("astropy.nddata"), required("specutils")
    plain = {
        "wavelength": demo_arrays["wavelength"],
        "flux": demo_arrays["flux"][:3].astype(float),
        "ivar": demo_arrays["ivar"][:3].astype(float),
    }
    bad = plain["ivar"] == 0.0
    sigma = 1.0 / np.sqrt(np.where(bad, 1.0, plain["ivar"]))
    weights = {"ivar": plain["ivar"]} if kind == "ivar" else {"sigma": sigma, "mask": bad}
    reference = popfit.fit(
        demo_model, {"wavelength": plain["wavelength"], "flux": plain["flux"], **weights}, device="cpu"
    )

    def spectrum(rows: Any, pixels: slice = slice(None)) -> Any:
        error = (
            nddata.InverseVariance(plain["ivar"][rows, pixels])
            if kind == "ivar"
            else nddata.StdDevUncertainty(sigma[rows, pixels])
        )
        return specutils.Spectrum(
            flux=plain["flux"][rows, pixels] * units.Jy,
            spectral_axis=plain["wavelength"][pixels] * units.AA,
            uncertainty=error,
            mask=bad[rows, pixels],
        )

    together = popfit.fit(demo_model, spectrum(slice(None)), device="cpu")
    assert_same_rows(together, reference)
    listed = specutils.SpectrumList([spectrum(0), spectrum(1), spectrum(2)])
    assert_same_rows(popfit.fit(demo_model, listed, device="cpu"), reference)
    # a shorter spectrum is padded, and its padding does not count
    mixed = popfit.fit(demo_model, [spectrum(0), spectrum(1, slice(0, 3000))], device="cpu")
    short = {
        name: a[:3000] if a.ndim == 1 else a[1:2, :3000]
        for name, a in {"wavelength": plain["wavelength"], "flux": plain["flux"], **weights}.items()
    }
    assert_same_rows(mixed[:1], reference[:1])
    alone = popfit.fit(demo_model, short, device="cpu")
    assert mixed["dof"][1] == alone["dof"][0]
    for name in mixed.parameters:
        assert abs(mixed[name][1] - alone[name][0]) < 0.02 * alone[f"{name}_err"][0], name
    with pytest.raises(popfit.InputError, match="no uncertainty"):
        popfit.fit(
            demo_model, specutils.Spectrum(flux=np.ones(9) * units.Jy, spectral_axis=np.arange(1, 10) * units.AA)
        )


def source(spectra: object) -> dict[str, Any]:
    """Return the arrays that are lent to Rust."""
    held = popfit.spectra.as_spectra(spectra)._source
    assert isinstance(held, dict)
    return held


def spectrum_of(uncertainty: Any, unit: str = "Jy") -> Any:
    """Return a spectrum of specutils of the shape of its uncertainty, with wavelengths 1, 2, … Å."""
    units, specutils = required("astropy.units"), required("specutils")
    shape = uncertainty.array.shape
    grid = np.arange(1.0, shape[-1] + 1.0) * units.AA
    return specutils.Spectrum(
        flux=np.ones(shape) * units.Unit(unit),
        spectral_axis=grid,
        uncertainty=uncertainty,
        spectral_axis_index=len(shape) - 1,
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse_variances_of_specutils_keep_their_bits(dtype: Any) -> None:
    nddata, units = required("astropy.nddata"), required("astropy.units")
    ivar = np.random.default_rng(1).uniform(0.1, 9.0, (2, 50)).astype(dtype)
    ivar[:, 3] = 0.0
    lent = source(spectrum_of(nddata.InverseVariance(ivar)))["ivar"]
    assert lent.dtype == dtype and lent.tobytes() == ivar.tobytes()
    explicit = nddata.InverseVariance(ivar, unit=units.Jy**-2)
    assert source(spectrum_of(explicit))["ivar"].tobytes() == ivar.tobytes()
    converted = source(spectrum_of(nddata.InverseVariance(ivar, unit=units.mJy**-2)))["ivar"]
    np.testing.assert_allclose(converted, ivar * 1e6, rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_other_uncertainties_of_specutils_become_inverse_variances() -> None:
    nddata = required("astropy.nddata")
    sigma = np.array([[2.0, np.inf, 0.0]])
    variance = spectrum_of(nddata.VarianceUncertainty(sigma**2))
    assert source(variance)["ivar"].tolist() == [[0.25, 0.0, np.inf]]
    mixed = [spectrum_of(nddata.StdDevUncertainty(sigma.astype(np.float32))), variance]
    assert source(mixed)["ivar"].tolist() == [[0.25, 0.0, np.inf]] * 2
    tiny = spectrum_of(nddata.StdDevUncertainty(np.full((1, 3), 1e-25, np.float32)))
    np.testing.assert_allclose(source([tiny, variance])["ivar"][0], 1e50, rtol=1e-6)
    with pytest.raises(popfit.InputError, match="UnknownUncertainty; give a StdDevUncertainty"):
        source(spectrum_of(nddata.UnknownUncertainty(sigma)))


def test_descending_wavelengths_of_specutils_are_turned() -> None:
    units, nddata, specutils = required("astropy.units"), required("astropy.nddata"), required("specutils")

    def spectrum(pixels: slice) -> Any:
        return specutils.Spectrum(
            flux=np.array([[1.0, 2.0, 3.0]])[:, pixels] * units.Jy,
            spectral_axis=(np.array([6.0, 5.0, 4.0]) * 1e14)[pixels] * units.Hz,
            uncertainty=nddata.StdDevUncertainty(np.array([[3.0, 2.0, 1.0]])[:, pixels]),
            mask=np.array([[True, False, False]])[:, pixels],
        )

    ascending, turned = source(spectrum(slice(None))), source(spectrum(slice(None, None, -1)))
    assert (np.diff(ascending["wavelength"]) > 0.0).all() and ascending["flux"].tolist() == [[1.0, 2.0, 3.0]]
    for name in ("wavelength", "flux", "sigma", "mask"):
        assert (turned[name] == ascending[name]).all(), name


@pytest.mark.parametrize("empty", [[], ()])
def test_empty_lists_are_no_spectra(demo_model: popfit.SpectralModel, empty: Any) -> None:
    with pytest.raises(popfit.InputError, match="no spectra: an empty list has no wavelengths"):
        popfit.fit(demo_model, empty, device="cpu")


def test_empty_lists_of_other_libraries_are_no_spectra() -> None:
    for empty in (required("specutils").SpectrumList([]), [[]], [[], []]):
        with pytest.raises(popfit.InputError, match="no spectra: an empty list has no wavelengths"):
            popfit.spectra.as_spectra(empty)


def test_cubes_of_specutils_are_refused() -> None:
    nddata = required("astropy.nddata")
    cube = spectrum_of(nddata.StdDevUncertainty(np.ones((2, 4, 3))))
    with pytest.raises(popfit.InputError, match=r"flux has the shape \(2, 4, 3\).*reshape it to \(n, pixels\)"):
        source(cube)
    units, specutils = required("astropy.units"), required("specutils")
    turned = specutils.Spectrum(
        flux=np.ones((3, 3)) * units.Jy,
        spectral_axis=np.arange(1, 4) * units.AA,
        spectral_axis_index=0,
        uncertainty=nddata.StdDevUncertainty(np.ones((3, 3))),
    )
    with pytest.raises(popfit.InputError, match=r"wavelengths along axis 0; reshape it to \(n, pixels\)"):
        source(turned)


def test_collections_of_specutils_have_grids_of_their_own() -> None:
    units, nddata, specutils = required("astropy.units"), required("astropy.nddata"), required("specutils")
    grids = np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])
    collection = specutils.SpectrumCollection(
        flux=np.ones((2, 3)) * units.Jy,
        spectral_axis=grids / 10.0 * units.nm,
        uncertainty=nddata.StdDevUncertainty(np.full((2, 3), 0.5)),
    )
    found = source(collection)
    np.testing.assert_allclose(found["wavelength"], grids, rtol=1e-12)
    assert found["sigma"].tolist() == [[0.5] * 3] * 2


def test_spec_data_of_several_lengths_are_padded_with_masked_pixels() -> None:
    def spec_data(name: str, pixels: int, bad: int) -> Any:
        return SimpleNamespace(
            name=name,
            lam=np.arange(10.0, 10.0 + pixels),
            spec=np.full(pixels, 2.0),
            espec=np.full(pixels, 0.5),
            badmask=np.arange(pixels) == bad,
        )

    stars = [[spec_data("b", 4, 0), spec_data("r", 3, 1)], [spec_data("b", 3, 2)]]
    found = source(stars)
    inf = np.inf
    assert found["b_sigma"].tolist() == [[inf, 0.5, 0.5, 0.5], [0.5, 0.5, inf, inf]]
    assert found["b_flux"].tolist() == [[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 0.0]]
    assert found["b_wavelength"].tolist() == [10.0, 11.0, 12.0, 13.0]
    assert found["r_wavelength"].tolist() == [10.0, 11.0, 12.0]
    assert found["r_sigma"].tolist() == [[0.5, inf, 0.5], [inf, inf, inf]]
    unmasked = popfit.spectra.spectra_of_spec_data(stars, mask=False)._source
    assert unmasked["b_sigma"].tolist() == [[0.5] * 4, [0.5, 0.5, 0.5, inf]]  # type: ignore[index,union-attr]
