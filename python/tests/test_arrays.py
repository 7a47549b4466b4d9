"""Arrays of any type, order and container give the bits of float64 in C order, or an error that names them."""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_rows, required
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import popfit
from popfit._arrays import lendable

DTYPES = ["<f8", ">f8", "<f4", ">f4", "<f2", ">f2", "<i8", ">i8", "<i4", ">i2", "<u8", ">u4", "u1", "i1", "?"]


def small(arrays: dict[str, Any], rows: int = 3) -> dict[str, Any]:
    """Return the first spectra, as float64."""
    return {
        "wavelength": arrays["wavelength"],
        "flux": arrays["flux"][:rows].astype(float),
        "ivar": arrays["ivar"][:rows].astype(float),
    }


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    order=st.sampled_from("CF"),
    stride=st.sampled_from([1, 2, -1]),
    offset=st.booleans(),
    readonly=st.booleans(),
)
def test_numbers_survive_their_type_order_and_place(
    dtype: str, shape: list[int], order: str, stride: int, offset: bool, readonly: bool
) -> None:
    count = int(np.prod(shape)) * abs(stride)
    values = (np.arange(count) % 2 if dtype == "?" else np.arange(count) % 100).astype(dtype)
    array = values[::stride].reshape(shape, order=order)
    if offset:  # not aligned
        raw = np.zeros(array.nbytes + 1, np.uint8)
        unaligned = raw[1:].view(dtype).reshape(shape)
        unaligned[...] = array
        array = unaligned
    array.flags.writeable = not readonly
    lent = lendable("flux", array)
    assert isinstance(lent, np.ndarray)
    assert lent.flags.c_contiguous and lent.flags.aligned and lent.dtype.isnative
    assert lent.shape == array.shape
    assert (lent.astype(float) == array.astype(float)).all()
    if dtype in ("<f8", "<f4", "<i8", "<u8", "?") and array.flags.c_contiguous and array.flags.aligned:
        assert np.shares_memory(lent, array) or array.size == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["f8", ">f8", "fortran", "strided", "list", "longdouble", "readonly", "pandas"]),
    mask=st.sampled_from(["none", "bool", "int16", ">i4", "uint64", "masked"]),
    rows=st.integers(1, 3),
)
def test_fits_do_not_depend_on_how_arrays_are_held(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], kind: str, mask: str, rows: int
) -> None:
    plain = small(demo_arrays, rows)
    bad = np.zeros(plain["flux"].shape, bool)
    bad[:, 500:520] = mask != "none"
    reference = popfit.fit(demo_model, plain | {"mask": bad}, device="cpu")
    flux: Any = plain["flux"]
    if kind == "strided":
        wide = np.repeat(flux, 2, axis=1)
        flux = wide[:, ::2]
    elif kind == "pandas":
        import pandas

        flux = pandas.DataFrame(flux)
    else:
        convert: dict[str, Any] = {
            "f8": lambda a: a,
            ">f8": lambda a: a.astype(">f8"),
            "fortran": np.asfortranarray,
            "list": lambda a: a.tolist(),
            "longdouble": lambda a: a.astype(np.longdouble),
            "readonly": _read_only,
        }
        flux = convert[kind](flux)
    arrays = {**plain, "flux": flux}
    if mask == "masked":
        arrays["flux"] = np.ma.masked_array(np.asarray(plain["flux"]), bad)
    elif mask != "none":
        arrays["mask"] = bad.astype(bool if mask == "bool" else mask) if mask != "bool" else bad
    assert_same_rows(popfit.fit(demo_model, arrays, device="cpu"), reference)


def _read_only(array: Any) -> Any:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.ones((3, 4), complex), "complex128; give real numbers"),
        (np.array([[object()]]), "Python objects"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        ([[datetime.date(2020, 1, 1)]], "Python objects"),
    ],
)
def test_other_types_are_refused_by_name(demo_arrays: dict[str, Any], values: Any, text: str) -> None:
    with pytest.raises(popfit.InputError, match=text) as caught:
        popfit.Spectra.from_arrays(demo_arrays["wavelength"], values, demo_arrays["ivar"])
    assert caught.value.argument == "flux"


def test_wrong_shapes_are_refused_with_both(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    arrays = small(demo_arrays)
    arrays["flux"] = arrays["flux"][:, :10]
    with pytest.raises(popfit.InputError, match=r"\(3, 10\)") as caught:
        popfit.fit(demo_model, arrays, device="cpu")
    assert caught.value.argument in ("ivar", "flux", "wavelength")
    with pytest.raises(popfit.InputError, match="flux"):
        popfit.fit(demo_model, {"wavelength": arrays["wavelength"], "ivar": arrays["ivar"]}, device="cpu")


def test_near_misses_of_names_are_refused(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    arrays = small(demo_arrays)
    with pytest.raises(popfit.InputError, match="did you mean `mask`"):
        popfit.fit(demo_model, arrays | {"MASK": np.zeros(arrays["flux"].shape, bool)}, device="cpu")


def test_large_conversions_are_warned_of() -> None:
    values = np.zeros((2, 13_000_000), dtype=">f4")
    with pytest.warns(popfit.PopfitWarning, match="flux: >f4 is copied, 208 MB"):
        lendable("flux", values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lendable("flux", np.zeros((2, 13_000_000), dtype="<f4"))


def test_large_conversions_are_warned_of_at_the_callers_line(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popfit._arrays.LARGE_CONVERSION_BYTES", 10)
    arrays = small(demo_arrays)
    arrays["flux"] = arrays["flux"].astype(">f4")
    for call in (
        lambda: popfit.fit(demo_model, arrays, device="cpu"),
        lambda: demo_model.guess(arrays),
        lambda: popfit.Spectra.from_arrays(**arrays),
        lambda: lendable("flux", arrays["flux"]),
    ):
        with pytest.warns(popfit.PopfitWarning, match="flux: >f4 is copied") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("medium", ["air", "Air", " AIR "])
def test_conversions_of_wavelengths_that_were_asked_for_are_not_warned_of(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], medium: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        popfit.fit(demo_model, small(demo_arrays) | {"medium": medium}, device="cpu")


def test_ids_are_another_name_of_id(demo_arrays: dict[str, Any]) -> None:
    arrays = small(demo_arrays)
    assert popfit.spectra.as_spectra(arrays | {"ids": [7, 8, 9]}).ids.tolist() == [7, 8, 9]
    with pytest.raises(popfit.InputError, match="id and ids"):
        popfit.spectra.as_spectra(arrays | {"ids": [7, 8, 9], "id": [1, 2, 3]})


def test_spectra_of_three_dimensions_are_refused(demo_arrays: dict[str, Any]) -> None:
    with pytest.raises(popfit.InputError, match=r"shape \(2, 3, 4\), not \(spectra, pixels\)"):
        popfit.Spectra.from_arrays(np.arange(1.0, 5.0), np.ones((2, 3, 4)), np.ones((2, 3, 4)))


def test_one_spectrum_is_a_population_of_one(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    one = popfit.Spectra.from_arrays(demo_arrays["wavelength"], demo_arrays["flux"][0], demo_arrays["ivar"][0], ids=7)
    assert len(one) == 1
    table = popfit.fit(demo_model, one, device="cpu")
    assert table["id"].tolist() == [7]


def test_spectra_of_astropy_give_the_same_rows(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    units = required("astropy.units")
    table_class = required("astropy.table").Table
    plain = small(demo_arrays)
    reference = popfit.fit(demo_model, plain, device="cpu")
    quantities = {
        "wavelength": (plain["wavelength"] / 10.0) * units.nm,
        "flux": plain["flux"] * units.Jy,
        "ivar": plain["ivar"] / units.Jy**2,
    }
    nanometres = popfit.fit(demo_model, quantities, device="cpu")
    np.testing.assert_allclose(nanometres["teff"], reference["teff"], rtol=1e-6)
    with pytest.raises(units.UnitConversionError):
        popfit.fit(demo_model, quantities | {"wavelength": plain["wavelength"] * units.K}, device="cpu")
    table = table_class({"flux": plain["flux"], "ivar": plain["ivar"]}, meta={"wavelength": plain["wavelength"]})
    assert_same_rows(popfit.fit(demo_model, table, device="cpu"), reference)
    table.meta["Medium"] = "air"
    with pytest.raises(popfit.InputError, match="did you mean 'medium'"):
        popfit.fit(demo_model, table, device="cpu")


def test_threads_of_the_environment_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPFIT_THREADS", "three")
    with pytest.raises(popfit.InputError, match="POPFIT_THREADS=three"):
        popfit.get_threads()
    monkeypatch.setenv("POPFIT_THREADS", "3")
    assert popfit.get_threads() == 3
    popfit.set_threads(2)
    assert popfit.get_threads() == 2
    popfit.set_threads(None)


def test_ragged_rows_are_named() -> None:
    with pytest.raises(popfit.InputError, match=r"flux: .*; give rows of equal length") as caught:
        popfit.Spectra.from_arrays([1.0, 2.0], [[1.0, 2.0], [1.0]], ivar=[[1.0, 1.0], [1.0, 1.0]])
    assert caught.value.argument == "flux"
