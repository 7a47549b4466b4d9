"""Spectra in the cells of frames: of pandas, of nested-pandas and of LSDB."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, required

import popfit

pandas = required("pandas")
import popfit.lsdb  # noqa: E402

fit_partition = popfit.lsdb.fit_partition
ROWS = 12
PLACES = ("file", "row")


def frame_of(arrays: dict[str, Any], prefix: str = "") -> Any:
    """Return a frame whose cells have the first spectra."""
    cells = {f"{prefix}{name}": list(arrays[name][:ROWS]) for name in ("flux", "ivar")}
    cells[f"{prefix}wavelength"] = [arrays["wavelength"]] * ROWS
    return pandas.DataFrame(cells | {"ra": np.linspace(10.0, 20.0, ROWS), "dec": np.full(ROWS, -3.0)}).set_index(
        np.arange(100, 100 + ROWS)
    )


def assert_same_columns(results: Any, table: popfit.FitTable) -> None:
    """Assert that a frame has a table's columns, to the bit, but for those that say where a spectrum is."""
    assert [name for name in results.columns if name in table] == [name for name in table.columns if name not in PLACES]
    for name in table.columns:
        if name not in ("id", *PLACES):
            np.testing.assert_array_equal(results[name].to_numpy(), table[name], err_msg=name)


@pytest.fixture(scope="module")
def wanted(demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel) -> popfit.FitTable:
    """Fits of the first spectra as arrays."""
    spectra = popfit.Spectra.from_arrays(*(demo_arrays[name] for name in ("wavelength", "flux", "ivar")))
    return popfit.fit(demo_model, spectra[:ROWS], device="cpu")


def test_cells_of_arrays_and_of_lists(
    demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel, wanted: popfit.FitTable
) -> None:
    frame = frame_of(demo_arrays)
    results = fit_partition(frame, demo_model, None, device="cpu", keep=["ra"])
    assert_same_columns(results, wanted)
    assert results.columns[0] == "ra" and results.index.equals(frame.index)
    assert results["id"].tolist() == frame.index.tolist()
    listed = frame.assign(flux=[cell.tolist() for cell in frame["flux"]], name=[f"s{k}" for k in range(ROWS)])
    results = fit_partition(listed, demo_model, None, device="cpu", ids="name")
    assert_same_columns(results, wanted) is None and results["id"].tolist() == listed["name"].tolist()
    # one grid for all, a standard error in place of the inverse variance, and a prefix
    with np.errstate(divide="ignore"):
        sigma = [1.0 / np.sqrt(cell.astype(float)) for cell in frame["ivar"]]
    own = pandas.DataFrame({"b_flux": list(frame["flux"]), "b_error": sigma}, index=frame.index)
    results = fit_partition(own, demo_model, "b", wavelength=demo_arrays["wavelength"], sigma="error", device="cpu")
    np.testing.assert_allclose(results["velocity"], wanted["velocity"], atol=1e-3)


def test_spectra_of_different_lengths(demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel) -> None:
    frame = frame_of(demo_arrays)
    for row, cut in ((1, slice(40, None)), (2, slice(-90)), (3, slice(0))):
        for name in ("wavelength", "flux", "ivar"):
            frame.at[100 + row, name] = frame.at[100 + row, name][cut]
    flux = frame.at[105, "flux"]
    frame.at[105, "flux"] = np.where(np.arange(len(flux)) % 50 == 7, np.nan, flux)
    frame.at[106, "ivar"] = None
    results = fit_partition(frame, demo_model, None, device="cpu")
    assert len(results) == ROWS and (results["status"].drop([103, 106]) > 0).all()
    assert (results["status"][[103, 106]] <= 0).all()
    for row in (1, 2):  # each as if it were fitted alone
        alone = fit_partition(frame.iloc[[row]], demo_model, None, device="cpu")
        apart = abs(alone["velocity"].iloc[0] - results["velocity"].iloc[row]) / results["velocity_err"].iloc[row]
        assert apart < 0.05 and alone["dof"].iloc[0] == results["dof"].iloc[row]
    frame.at[100, "flux"] = frame.at[100, "flux"][1:]
    with pytest.raises(popfit.InputError, match="row 0: arrays of different lengths"):
        fit_partition(frame, demo_model, None, device="cpu")


def test_empty_partitions_have_the_same_columns(demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel) -> None:
    frame = frame_of(demo_arrays)
    results = fit_partition(frame, demo_model, None, device="cpu", keep=["ra", "dec"])
    empty = fit_partition(frame[:0], demo_model, None, device="gpu:0", keep=["ra", "dec"])
    assert len(empty) == 0 and empty.dtypes.equals(results.dtypes)
    absent = frame.assign(flux=[None] * ROWS)
    with pytest.warns(popfit.PopfitWarning, match="no fit converged"):
        results = fit_partition(absent, demo_model, None, device="cpu")
    assert (results["status"] <= 0).all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"flux": "fluxx"}, "no column 'fluxx'; did you mean 'flux'"),
        ({"spectrum": "spectrum"}, "neither a nested column 'spectrum' nor a column 'spectrum_flux'"),
        ({"spectrum": {"z": None}}, "no arm 'z'"),
        ({"keep": ["velocity"]}, "no column 'velocity'"),
        ({"ids": "star"}, "no column 'star'"),
        ({"exposures": "join"}, "each row of a partition is one spectrum"),
    ],
)
def test_what_is_wrong_is_named(
    given: dict[str, Any], match: str, demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel
) -> None:
    with pytest.raises(popfit.InputError, match=match):
        fit_partition(frame_of(demo_arrays), demo_model, **({"spectrum": None, "device": "cpu"} | given))


def test_partitions_of_dask(
    demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel, wanted: popfit.FitTable
) -> None:
    """Partitions travel to other processes: the function and the model can be pickled, and cells are not texts."""
    delayed = required("dask").delayed
    frame = frame_of(demo_arrays)
    fit = pickle.loads(pickle.dumps(fit_partition))
    parts = [delayed(fit)(frame[k : k + 5], demo_model, None, device="cpu") for k in range(0, ROWS, 5)]
    assert_same_columns(pandas.concat(required("dask").compute(*parts)), wanted)
    with pytest.raises(popfit.InputError, match="catalog: DataFrame"):
        popfit.lsdb.fit(frame, demo_model)


def nested(frame: Any) -> Any:
    """Return a frame with the spectra of another as a nested column."""
    nested_pandas = pytest.importorskip("nested_pandas")
    flat = pandas.concat(
        [
            pandas.DataFrame(
                {name: row[name] for name in ("wavelength", "flux", "ivar")}, index=[index] * len(row.flux)
            )
            for index, row in frame.iterrows()
            if row["flux"] is not None
        ]
    )
    return nested_pandas.NestedFrame(frame[["ra", "dec"]]).join_nested(flat, "spectrum")


def test_nested_frames(demo_arrays: dict[str, Any], demo_model: popfit.SpectralModel, wanted: popfit.FitTable) -> None:
    frame = nested(frame_of(demo_arrays))
    assert_same_columns(fit_partition(frame, demo_model, device="cpu"), wanted)
    assert_same_columns(fit_partition(frame[3:7], demo_model, device="cpu"), wanted[3:7])
    with pytest.raises(popfit.InputError, match="no field 'fluxx' in the column 'spectrum'; did you mean 'flux'"):
        fit_partition(frame, demo_model, flux="fluxx", device="cpu")


@pytest.mark.filterwarnings("ignore")
def test_a_catalog_of_lsdb(demo_arrays: dict[str, Any], wanted: popfit.FitTable) -> None:
    lsdb = pytest.importorskip("lsdb")
    frame = frame_of(demo_arrays)
    frame["ra"] = np.linspace(0.0, 300.0, ROWS)
    frame["star"] = np.arange(ROWS)
    catalog = lsdb.from_dataframe(
        nested(frame).assign(star=frame["star"]), ra_column="ra", dec_column="dec", lowest_order=1, highest_order=3
    )
    assert catalog.npartitions > 2
    fits = popfit.lsdb.fit(catalog, ROOT / "data" / "model.toml", ids="star", device="cpu", threads=1)
    assert isinstance(fits, lsdb.catalog.Catalog) and list(fits.columns[:2]) == ["ra", "dec"]
    results = fits.compute().sort_values("id")
    assert results["id"].tolist() == list(range(ROWS))
    assert_same_columns(results, wanted)
    assert len(fits.cone_search(frame["ra"].iloc[4], -3.0, 3600.0).compute()) == 1
