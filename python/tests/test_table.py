"""Tables: columns, rows, files, other libraries, notebooks."""

from __future__ import annotations

import html.parser
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, assert_same_rows, required

import popfit

RESULTS = (ROOT / "docs" / "src" / "results.md").read_text()


@pytest.fixture(scope="module")
def table(demo_model: popfit.SpectralModel) -> popfit.FitTable:
    """Fits of the demonstration's spectra."""
    return popfit.fit(demo_model, ROOT / "data" / "spectra.npz", device="cpu")


def test_columns_have_units_and_meanings_of_the_book(table: popfit.FitTable) -> None:
    assert table.units["velocity"] == "km/s"
    for name in ("id", "status", "chi2", "dof", "flags"):
        assert table.meanings[name] in RESULTS


def test_rows_are_taken_by_index_slice_and_mask(table: popfit.FitTable) -> None:
    assert table[3]["teff"] == table["teff"][3]
    with pytest.raises(IndexError, match="row 100 of a table of 64"):
        table[100]
    assert table[-1]["id"] == table["id"][63]
    hot = table[table["teff"] > 6000.0]
    assert len(hot) == int((table["teff"] > 6000.0).sum())
    assert_same_rows(table[2:5], table[[2, 3, 4]])
    with pytest.raises(IndexError):
        table[64]
    with pytest.raises(KeyError, match="did you mean 'teff'"):
        table["tef"]


def test_covariances_are_those_of_errors_and_correlations(table: popfit.FitTable) -> None:
    covariance = table.covariance(0)
    assert covariance.shape == (5, 5)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), [table[f"{p}_err"][0] for p in table.parameters])
    a, b = covariance[1, 2], table["correlation_teff_logg"][0] * table["teff_err"][0] * table["logg_err"][0]
    assert a == pytest.approx(b)
    assert (np.linalg.eigvalsh(covariance) > 0).all()


@pytest.mark.parametrize("ending", ["parquet", "fits", "csv"])
def test_files_bring_the_table_back(table: popfit.FitTable, tmp_path: Any, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    table.write(path)
    assert_same_rows(popfit.FitTable.read(path), table)
    with pytest.raises(FileExistsError):
        table.write(path)
    table[:5].write(path, overwrite=True)
    assert len(popfit.FitTable.read(path)) == 5


def test_missing_and_damaged_files_are_named(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        popfit.FitTable.read(tmp_path / "nothing.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 this is no table PAR1")
    with pytest.raises(popfit.InputError) as caught:
        popfit.FitTable.read(tmp_path / "junk.parquet")
    assert caught.value.path == str(tmp_path / "junk.parquet")
    with pytest.raises(FileNotFoundError):
        popfit.Spectra.open(tmp_path / "nothing.npz")
    with pytest.raises(FileNotFoundError):
        popfit.SpectralModel.from_file(tmp_path / "nothing.toml")


def test_other_libraries_read_the_table_by_arrow(table: popfit.FitTable) -> None:
    pyarrow = required("pyarrow")
    arrow = pyarrow.table(table)
    assert arrow.column_names == table.columns
    assert arrow.schema.field("teff").metadata[b"unit"] == b"K"
    np.testing.assert_array_equal(arrow["teff"].to_numpy(), table["teff"])
    assert pyarrow.table(table).num_rows == 64  # a new stream each time
    polars = required("polars")
    assert polars.DataFrame(table)["status_text"].to_list() == table["status_text"].tolist()
    duckdb = required("duckdb")
    assert duckdb.sql("select count(*) from arrow where teff > 6000").fetchall() == [
        (int((table["teff"] > 6000).sum()),)
    ]
    pandas = required("pandas")
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(table)["id"].tolist() == table["id"].tolist()


def test_pandas_astropy_and_numpy_have_the_columns(table: popfit.FitTable) -> None:
    pandas = required("pandas")
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == table.columns
    units = required("astropy.units")
    quantities = table.to_astropy()
    assert quantities["velocity"].unit == units.km / units.s
    array = table.to_numpy()
    assert array.dtype.names == tuple(table.columns)
    np.testing.assert_array_equal(array["chi2"], table["chi2"])


@pytest.fixture(scope="module")
def exposed(table: popfit.FitTable) -> popfit.FitTable:
    """Five rows with columns of exposures: lists of different lengths, of which one is empty."""
    velocities = [np.array([1.5, np.nan]), np.array([]), np.array([0.1]), np.arange(3.0), np.full(2, -7.25)]
    columns = [
        *table[:5]._rust_columns(),
        ("exposures", "", "Exposures that were fitted together", np.array([2, 0, 1, 3, 2])),
        ("velocity_exposures", "km/s", "Velocity of each exposure, NaN without data", velocities),
        ("velocity_exposures_err", "km/s", "Standard error of velocity_exposures", [0.1 * one for one in velocities]),
        (
            "p_constant_velocity",
            "",
            "Probability of velocities as different as these if all are equal",
            np.array([0.5, np.nan, np.nan, 1e-9, 0.25]),
        ),
    ]
    return popfit.FitTable._of(columns, table[:5].messages, table.metadata)


def _assert_same_lists(lists: Any, others: Any) -> None:
    """Assert that two columns have the same lists."""
    assert len(lists) == len(others)
    for one, other in zip(lists, others, strict=True):
        np.testing.assert_array_equal(np.asarray(one, dtype=float), other)


@pytest.mark.parametrize("ending", ["parquet", "fits", "csv"])
def test_files_bring_lists_back(exposed: popfit.FitTable, tmp_path: Any, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    exposed.write(path)
    lists = popfit.FitTable.read(path)["velocity_exposures"]
    assert lists.dtype == object and all(one.dtype == np.float64 for one in lists)
    _assert_same_lists(lists, exposed["velocity_exposures"])
    exposed[:0].write(path, overwrite=True)
    assert len(popfit.FitTable.read(path)) == 0
    # lists of equal lengths are no array of two dimensions
    exposed[[0, 4]].write(path, overwrite=True)
    _assert_same_lists(popfit.FitTable.read(path)["velocity_exposures"], exposed["velocity_exposures"][[0, 4]])
    copy = pickle.loads(pickle.dumps(exposed))
    _assert_same_lists(copy["velocity_exposures_err"], exposed["velocity_exposures_err"])


def test_pyarrow_and_polars_read_lists(exposed: popfit.FitTable, tmp_path: Any) -> None:
    parquet = required("pyarrow.parquet")
    pyarrow = required("pyarrow")
    exposed.write(tmp_path / "table.parquet")
    for arrow in (pyarrow.table(exposed), parquet.read_table(tmp_path / "table.parquet")):
        assert arrow.schema.field("velocity_exposures").type.value_type == pyarrow.float64()
        assert arrow.schema.field("velocity_exposures").metadata[b"unit"] == b"km/s"
        _assert_same_lists(arrow["velocity_exposures"].to_pylist(), exposed["velocity_exposures"])
    polars = required("polars")
    _assert_same_lists(polars.DataFrame(exposed)["velocity_exposures"].to_list(), exposed["velocity_exposures"])
    frame = exposed.to_pandas()
    _assert_same_lists(frame["velocity_exposures"], exposed["velocity_exposures"])
    assert exposed.to_numpy()["velocity_exposures"].dtype == object
    # what pyarrow writes is read, too
    parquet.write_table(pyarrow.table(exposed), tmp_path / "pyarrow.parquet")
    again = popfit.FitTable.read(tmp_path / "pyarrow.parquet")
    _assert_same_lists(again["velocity_exposures"], exposed["velocity_exposures"])


def test_astropy_reads_and_writes_lists(exposed: popfit.FitTable, tmp_path: Any) -> None:
    fits = required("astropy.io.fits")
    tables = required("astropy.table")
    units = required("astropy.units")
    path = tmp_path / "table.fits"
    exposed.write(path)
    with fits.open(path, checksum=True) as file:
        file.verify("exception")
        results = file["RESULTS"]
        assert results.columns["velocity_exposures"].format == "1QD(3)"
        assert results.header["PCOUNT"] == 2 * 8 * 8
        _assert_same_lists(results.data["velocity_exposures"], exposed["velocity_exposures"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="'dex' did not parse as fits unit")
        table = tables.Table.read(path, "RESULTS")
        table.write(tmp_path / "astropy.fits")
    for read in (table, exposed.to_astropy()):
        assert read["velocity_exposures"].unit == units.km / units.s
        _assert_same_lists(read["velocity_exposures"], exposed["velocity_exposures"])
    # what astropy writes is read, too
    again = popfit.FitTable.read(tmp_path / "astropy.fits")
    _assert_same_lists(again["velocity_exposures_err"], exposed["velocity_exposures_err"])


def test_notebooks_get_html_without_scripts(table: popfit.FitTable, demo_model: popfit.SpectralModel) -> None:
    for shown in (table, table[:0], demo_model, popfit.devices()):
        text = shown._repr_html_()
        assert "<script" not in text and "<table" in text
        checker = _Balance()
        checker.feed(text)
        assert checker.open == []


class _Balance(html.parser.HTMLParser):
    """Counts elements that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("br", "rect"):
            assert self.open.pop() == tag


def test_the_summary_counts_statuses_and_says_what_flags_mean(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]
) -> None:
    wrong = demo_arrays | {"ivar": 1.0 / np.sqrt(demo_arrays["ivar"])}
    wrong["ivar"][~np.isfinite(wrong["ivar"])] = 0.0
    with pytest.warns(popfit.PopfitWarning, match="Is `ivar` really 1/σ²"):
        summary = popfit.fit(demo_model, wrong, device="cpu").summary
    assert summary["spectra"] == 64
    assert any("ivar" in sentence for sentence in summary["flags"])


def test_plots_show_data_and_model(table: popfit.FitTable) -> None:
    matplotlib = required("matplotlib")
    matplotlib.use("Agg")
    axes = table.plot(0)
    assert len(axes) == 1
    data, model = (line.get_ydata() for line in axes[0].get_lines())
    good = np.isfinite(data)
    scatter = np.std(data[good] - model[good]) / np.std(data[good])
    assert scatter < 0.5
    assert "teff" in axes[0].get_title()
    matplotlib.pyplot.close("all")


def test_reports_are_pages(table: popfit.FitTable, tmp_path: Any) -> None:
    path = table.report(tmp_path / "page")
    with open(path) as page:
        text = page.read()
    assert text.startswith("<!doctype html>") and "popfit.FitTable" in text and "[Fe/H]" in text
    with pytest.raises(FileExistsError):
        table.report(tmp_path / "page")
