"""Banded covariances of the noise: arrays as numpy and astropy have them, and the rows of a file's fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import popfit
from popfit.spectra import as_spectra

STARS = ROOT / "tests" / "data" / "banded" / "stars.npz"


def model() -> popfit.SpectralModel:
    arm = {"emulator": str(ROOT / "data" / "emulator.safetensors"), "pixels": "sample"}
    return popfit.SpectralModel({"b": arm}, velocity=(-1000, 1000), continuum={"kind": "rbf", "terms": 10})


def arrays() -> dict[str, Any]:
    """Return the arrays of the file, without its ids."""
    with np.load(STARS) as stored:
        return {name: stored[name] for name in ("wavelength", "flux", "covariance", "mask")}


def test_arrays_have_the_rows_of_their_file() -> None:
    from_file = popfit.fit(model(), STARS, device="cpu")
    given = arrays()
    wavelength, flux = given.pop("wavelength"), given.pop("flux")
    made = popfit.Spectra.from_arrays(wavelength, flux, **given)
    for spectra in (made, as_spectra(arrays())):
        table = popfit.fit(model(), spectra, device="cpu")
        for name in ("teff", "teff_err", "chi2"):
            assert (table[name] == from_file[name]).all()
    # with the inverse variances beside it, and without the covariance
    ivar = 1 / given["covariance"][:, 0].astype(float)
    with_ivar = popfit.Spectra.from_arrays(wavelength, flux, ivar, **given)
    assert (popfit.fit(model(), with_ivar, device="cpu")["teff"] == from_file["teff"]).all()
    diagonal = popfit.fit(model(), popfit.Spectra.from_arrays(wavelength, flux, ivar, mask=given["mask"]), device="cpu")
    assert diagonal["teff"][5] == from_file["teff"][5] and diagonal["teff"][0] != from_file["teff"][0]


def test_rows_and_single_spectra_keep_their_matrix() -> None:
    spectra = as_spectra(arrays())
    table = popfit.fit(model(), spectra, device="cpu")
    chosen = popfit.fit(model(), spectra[[6, 2]], device="cpu")
    assert (chosen["teff"] == table["teff"][[6, 2]]).all()
    given = arrays()
    one = as_spectra({name: array if name == "wavelength" else array[2] for name, array in given.items()})
    assert popfit.fit(model(), one, device="cpu")["teff"][0] == table["teff"][2]


def test_units_are_those_of_the_flux() -> None:
    units = pytest.importorskip("astropy.units")
    given = arrays()
    flux, covariance = given["flux"] * units.Jy, given["covariance"].astype(float) * units.Jy**2
    plain = as_spectra(given | {"covariance": given["covariance"].astype(float)})._source
    converted = as_spectra(given | {"flux": flux, "covariance": covariance.to(units.mJy**2)})._source
    assert isinstance(plain, dict) and isinstance(converted, dict)
    np.testing.assert_allclose(converted["covariance"], plain["covariance"], rtol=1e-12)


def test_wrong_shapes_and_names_are_refused() -> None:
    given = arrays()
    for shape in ((8, 721), (7, 6, 720), (8, 0, 720)):
        with pytest.raises(popfit.InputError, match="covariance"):
            as_spectra(given | {"covariance": np.ones(shape)})
    with pytest.raises(popfit.InputError, match="each spectrum needs its own matrix"):
        as_spectra(given | {"covariance": given["covariance"][0]})
    cov = given.pop("covariance")
    with pytest.raises(popfit.InputError, match="did you mean `covariance`"):
        as_spectra(given | {"cov": cov, "ivar": 1 / cov[:, 0]})
