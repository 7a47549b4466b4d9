"""Units of astropy and masked values are taken into account, or refused by name."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_rows, required

import popfit


@pytest.fixture
def plain(demo_arrays: dict[str, Any]) -> dict[str, Any]:
    """Three spectra without units, with errors."""
    ivar = demo_arrays["ivar"][:3].astype(float)
    return {
        "wavelength": demo_arrays["wavelength"],
        "flux": demo_arrays["flux"][:3].astype(float),
        "sigma": 1.0 / np.sqrt(np.where(ivar > 0.0, ivar, 1e-6)),
    }


def source(spectra: object) -> dict[str, Any]:
    """Return the arrays that are lent to Rust."""
    held = popfit.spectra.as_spectra(spectra)._source
    assert isinstance(held, dict)
    return held


@pytest.mark.parametrize("prefix", ["", "b_"])
def test_errors_are_converted_to_the_unit_of_the_flux(plain: dict[str, Any], prefix: str) -> None:
    units = required("astropy.units")
    flux, sigma = plain["flux"] * units.Jy, (plain["sigma"] * units.Jy).to(units.mJy)
    arrays = {"wavelength": plain["wavelength"], "flux": flux, "sigma": sigma, "ivar": sigma**-2}
    given = {f"{prefix}{name}": array for name, array in arrays.items()}
    if prefix:  # another arm has a unit of its own
        given |= {"r_wavelength": plain["wavelength"], "r_flux": flux.to(units.uJy), "r_sigma": sigma}
        np.testing.assert_allclose(source(given)["r_sigma"], plain["sigma"] * 1e6, rtol=1e-12)
    np.testing.assert_allclose(source(given)[f"{prefix}sigma"], plain["sigma"], rtol=1e-12)
    np.testing.assert_allclose(source(given)[f"{prefix}ivar"], plain["sigma"] ** -2.0, rtol=1e-12)


def test_chi2_does_not_depend_on_the_unit_of_sigma(demo_model: popfit.SpectralModel, plain: dict[str, Any]) -> None:
    units = required("astropy.units")
    reference = popfit.fit(demo_model, plain, device="cpu")
    given = plain | {"flux": plain["flux"] * units.Jy, "sigma": (plain["sigma"] * units.Jy).to(units.mJy)}
    table = popfit.fit(demo_model, given, device="cpu")
    np.testing.assert_allclose(table["chi2"], reference["chi2"], rtol=1e-5)
    same = plain | {"flux": plain["flux"] * units.Jy, "sigma": plain["sigma"] * units.Jy}
    assert_same_rows(popfit.fit(demo_model, same, device="cpu"), reference)
    assert np.shares_memory(source(same)["sigma"], same["sigma"])


def test_errors_in_units_that_the_flux_does_not_have_are_refused(plain: dict[str, Any]) -> None:
    units = required("astropy.units")
    with pytest.raises(units.UnitConversionError):
        source(plain | {"flux": plain["flux"] * units.Jy, "sigma": plain["sigma"] * units.K})
    with pytest.raises(popfit.InputError, match="sigma has the unit mJy, but flux has none") as caught:
        source(plain | {"sigma": plain["sigma"] * units.mJy})
    assert caught.value.argument == "sigma"
    unknown = units.Unit("blah", parse_strict="silent")
    column = required("astropy.table").Column
    with pytest.raises(popfit.InputError, match=r"sigma has the unit blah, flux Jy.* give plain numbers"):
        source(plain | {"flux": plain["flux"] * units.Jy, "sigma": column(plain["sigma"], unit=unknown)})
    with pytest.raises(popfit.InputError, match="wavelength has the unit blah, which astropy does not know"):
        source(plain | {"wavelength": column(plain["wavelength"], unit=unknown)})
    alone = {"wavelength": plain["wavelength"], "sigma": plain["sigma"] * units.Jy}
    with pytest.raises(popfit.InputError, match="no array `flux`"):
        source(alone)
    # errors without a unit are in that of the flux
    assert source(plain | {"flux": plain["flux"] * units.Jy})["sigma"] is plain["sigma"]


def test_columns_of_plain_tables_have_their_units(plain: dict[str, Any]) -> None:
    units, tables = required("astropy.units"), required("astropy.table")
    grids = np.tile(plain["wavelength"] / 10.0, (3, 1))
    table = tables.Table(
        {
            "wavelength": tables.Column(grids, unit="nm"),
            "flux": tables.Column(plain["flux"], unit="Jy"),
            "sigma": tables.MaskedColumn(plain["sigma"] * 1e3, mask=plain["flux"] < 0.0, unit="mJy"),
        }
    )
    file = io.BytesIO()
    table.write(file, format="fits")
    file.seek(0)
    for one in (table, tables.Table.read(file, format="fits")):
        found = source(one)
        np.testing.assert_allclose(found["wavelength"], np.tile(plain["wavelength"], (3, 1)), rtol=1e-12)
        np.testing.assert_allclose(found["sigma"], plain["sigma"], rtol=1e-12)
    table["wavelength"].unit = units.K
    with pytest.raises(units.UnitConversionError):
        source(table)


def test_columns_for_the_model_are_in_its_units_or_refused(
    plain: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    units = required("astropy.units")
    three = np.array([1.0, 2.0, 3.0])
    usual = {
        "teff": three * units.K,
        "feh": units.Quantity(three, "dex"),
        "logg": units.Dex(three, units.dex(units.cm / units.s**2)),
        "start_velocity": three * units.km / units.s,
        "alpha": three * units.dimensionless_unscaled,
    }
    found = source(plain | usual)
    for name in usual:
        assert found[name].tolist() == [1.0, 2.0, 3.0]
    for name, unit in (("TEFF_PHOT", "kK"), ("prior_velocity", "m / s"), ("feh", "%")):
        with pytest.raises(popfit.InputError, match=f"{name} has the unit {unit}; give plain numbers") as caught:
            source(plain | {name: three * units.Unit(unit)})
        assert caught.value.argument == name
    with caplog.at_level(logging.INFO, logger="popfit"):
        assert source(plain | {"RA": three * units.deg})["RA"].tolist() == [1.0, 2.0, 3.0]
    assert "RA has the unit deg" in caplog.text


def test_masked_values_of_columns_are_nan(plain: dict[str, Any]) -> None:
    hidden = [False, True, False]
    found = source(
        plain
        | {
            "prior_teff": np.ma.masked_array([1.0, 2.0, 3.0], hidden),
            "single": np.ma.masked_array(np.ones(3, np.float32), hidden),
            "count": np.ma.masked_array([1, 2, 3], hidden),
            "name": np.ma.masked_array(["one", "two", "three"], hidden),
            "whole": np.ma.masked_array([1, 2, 3], False),
        }
    )
    assert found["single"].dtype == np.float32
    for name in ("prior_teff", "single", "count"):
        assert np.isnan(found[name]).tolist() == hidden, name
    assert found["name"] == ((3,), ["one", "", "three"])
    assert found["whole"].tolist() == [1, 2, 3]


def test_masked_columns_of_astropy_are_nan(plain: dict[str, Any]) -> None:
    tables, masked = required("astropy.table"), required("astropy.utils.masked").Masked
    units = required("astropy.units")
    hidden = [True, False, False]
    for values in (
        tables.MaskedColumn([1.0, 2.0, 3.0], mask=hidden, unit="K"),
        masked([1.0, 2.0, 3.0] * units.K, mask=hidden),
    ):
        found = source(plain | {"prior_teff": values})["prior_teff"]
        assert np.isnan(found).tolist() == hidden and found[1:].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("name", ["id", "ids", "wavelength", "mask"])
def test_masked_values_that_every_spectrum_needs_are_refused(plain: dict[str, Any], name: str) -> None:
    values = {"wavelength": plain["wavelength"], "mask": np.zeros(plain["flux"].shape, bool)}.get(name, np.arange(3))
    hidden = np.zeros(values.shape, bool)
    hidden.flat[:2] = True
    with pytest.raises(popfit.InputError, match=f"{name.removesuffix('s')}: 2 values are masked"):
        source(plain | {name: np.ma.masked_array(values, hidden)})


def test_columns_that_end_like_arrays_of_an_arm_are_columns(plain: dict[str, Any]) -> None:
    units = required("astropy.units")
    spectra = popfit.spectra.as_spectra(
        plain | {"velocity_sigma": np.ones(3) * units.km / units.s, "central_wavelength": np.arange(3.0)}
    )
    assert source(spectra)["velocity_sigma"].tolist() == [1.0, 1.0, 1.0]
    assert source(spectra[1:])["central_wavelength"].tolist() == [1.0, 2.0]
