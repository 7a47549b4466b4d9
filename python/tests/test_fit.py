"""Fits give the rows of the command, to the bit, whatever the spectra are held in."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, assert_same_rows, required

import popfit

#: Columns that say where a spectrum is from.
PLACE = ("file",)


def test_files_give_the_rows_of_the_command(demo_model: popfit.SpectralModel, command_table: popfit.FitTable) -> None:
    table = popfit.fit(demo_model, ROOT / "data" / "spectra.npz", device="cpu")
    assert_same_rows(table, command_table)


def test_paths_of_models_and_dicts_of_arrays_give_the_same_rows(
    demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    table = popfit.fit(str(ROOT / "data" / "model.toml"), demo_arrays, device="cpu")
    assert_same_rows(table, command_table, PLACE)


def test_opened_spectra_give_the_same_rows(demo_model: popfit.SpectralModel, command_table: popfit.FitTable) -> None:
    spectra = popfit.Spectra.open(ROOT / "data" / "spectra.npz")
    assert_same_rows(popfit.fit(demo_model, spectra, device="cpu"), command_table)
    part = popfit.fit(demo_model, spectra[10:20], device="cpu")
    assert_same_rows(part, command_table[10:20])


def test_slices_of_arrays_give_the_same_rows(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    spectra = popfit.spectra.as_spectra(demo_arrays)
    part = popfit.fit(demo_model, spectra[10:20], device="cpu")
    assert_same_rows(part, command_table[10:20], (*PLACE, "row"))


def test_files_on_the_disk_give_the_bytes_of_the_command(
    demo_model: popfit.SpectralModel, command_table: popfit.FitTable, tmp_path: Any
) -> None:
    output = tmp_path / "table.parquet"
    summary = popfit.fit_files(demo_model, ROOT / "data" / "spectra.npz", output, device="cpu")
    assert summary["spectra"] == 64
    assert_same_rows(popfit.FitTable.read(output), command_table)
    with pytest.raises(FileExistsError):
        popfit.fit_files(demo_model, ROOT / "data" / "spectra.npz", output, device="cpu")


def test_best_fit_spectra_in_a_file_are_those_of_predict(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], tmp_path: Any
) -> None:
    output, models = tmp_path / "table.fits", tmp_path / "models.fits"
    popfit.fit_files(demo_model, ROOT / "data" / "spectra.npz", output, models=models, device="cpu")
    table = popfit.FitTable.read(output)
    parameters = np.column_stack([table[name] for name in demo_model.parameters])
    expected = demo_model.predict(demo_arrays, parameters)["b"]["model"]
    with required("astropy.io.fits").open(models, checksum=True) as hdus:
        np.testing.assert_array_equal(hdus["B_MODEL"].data, expected.astype(np.float32))
        np.testing.assert_array_equal(hdus["B_WAVELENGTH"].data, demo_arrays["wavelength"])
        np.testing.assert_array_equal(hdus["SPECTRA"].data["id"], table["id"])


def test_threads_and_batches_do_not_change_a_bit(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    table = popfit.fit(demo_model, demo_arrays, device="cpu", threads=1, batch_size=7)
    assert_same_rows(table, command_table, PLACE)


def test_models_of_python_are_those_of_files(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    network = popfit.Emulator.open(ROOT / "data" / "emulator.safetensors")
    continuum = {"kind": "rbf", "terms": 10}
    built = popfit.SpectralModel({"b": network}, velocity=(-1000, 1000), continuum=continuum, marginalise=True)
    assert built.parameters == demo_model.parameters
    assert built.bounds == demo_model.bounds
    assert_same_rows(popfit.fit(built, demo_arrays, device="cpu"), command_table, PLACE)
    keys = {
        "arm": [{"name": "b", "emulator": network}],
        "continuum": continuum | {"marginalise": True},
        "velocity": {"range": [-1000.0, 1000.0]},
    }
    assert_same_rows(popfit.fit(keys, demo_arrays, device="cpu"), command_table, PLACE)


def test_a_bad_spectrum_is_a_row_with_a_status(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    flux = demo_arrays["flux"][:3].copy()
    flux[1, 1000] = np.nan
    arrays = {"wavelength": demo_arrays["wavelength"], "flux": flux, "ivar": demo_arrays["ivar"][:3]}
    table = popfit.fit(demo_model, arrays, device="cpu")
    assert table["status_text"].tolist()[1] == "non_finite_input"
    assert "1000" in table.messages[1]
    assert table.converged.tolist() == [True, False, True]
    with pytest.raises(popfit.InputError, match="row 1"):
        popfit.fit(demo_model, arrays, device="cpu", strict=True)


def test_no_spectra_give_a_table_without_rows(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    arrays = {
        name: demo_arrays[name] if name == "wavelength" else demo_arrays[name][:0]
        for name in ("wavelength", "flux", "ivar")
    }
    table = popfit.fit(demo_model, arrays, device="cpu")
    assert len(table) == 0
    assert table.columns == command_table.columns
    scanned = popfit.fit(demo_model, arrays, device="cpu", velocity_scan="fixed", released_errors=True)
    assert {"velocity_posterior", "velocity_skewness", "teff_err_released"} <= set(scanned.columns)
    assert table["teff"].dtype == np.float64


def test_progress_comes_to_the_callers_thread_and_its_exception_ends_the_run(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]
) -> None:
    import threading

    seen: list[tuple[int, int, int]] = []
    popfit.fit(
        demo_model,
        demo_arrays,
        device="cpu",
        progress=lambda done, total: seen.append((done, total, threading.get_ident())),
    )
    assert seen[-1] == (64, 64, threading.get_ident())

    def fail(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        popfit.fit(demo_model, demo_arrays, device="cpu", progress=fail)


def test_wrong_settings_are_named(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    for settings, text in [
        ({"solver": "lmm"}, "lm"),
        ({"velocity_scan": "of"}, "off"),
        ({"precision": "f63"}, "f64"),
        ({"starts": -1}, "starts"),
        ({"starts": 65}, "starts"),
        ({"select": {"objtype": "TGT"}}, "objtype"),
        ({"select": {"arms": ["c"]}}, "no arm"),
        ({"device": "gpu:nothing-of-this-name"}, "no adapter named nothing"),
        ({"select": {"target_id": [1]}}, "target_ids"),
        ({"threads": 0}, "threads"),
        ({"timeout": -1.0}, "timeout"),
    ]:
        with pytest.raises(popfit.Error, match=text):
            popfit.fit(demo_model, demo_arrays, **({"device": "cpu"} | settings))


def test_a_timeout_leaves_rows_that_say_so(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    table = popfit.fit(demo_model, demo_arrays, device="cpu", timeout=0.0)
    assert set(table["status_text"]) == {"interrupted"}


def test_notes_are_records_of_the_logger(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="popfit"):
        popfit.fit(demo_model, demo_arrays | {"medium": "air"}, device="cpu")
    assert any("air" in record.message for record in caplog.records)


def test_runs_that_fail_are_told(demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]) -> None:
    broken = demo_arrays | {"flux": demo_arrays["flux"].copy()}
    broken["flux"][:, 100] = np.nan
    broken["mask"] = np.zeros(broken["flux"].shape, dtype=bool)
    with pytest.warns(popfit.PopfitWarning, match=r"no fit converged; .*pixel 100: flux is NaN"):
        table = popfit.fit(demo_model, broken, device="cpu")
    assert len(table.summary["causes"]) == 5 and "flux is NaN" in table._repr_html_()


def test_no_files_are_refused(demo_model: popfit.SpectralModel, tmp_path: pathlib.Path) -> None:
    with pytest.raises(popfit.InputError, match="did a pattern match no file") as caught:
        popfit.fit_files(demo_model, [], tmp_path / "t.parquet")
    assert caught.value.argument == "files"


def test_files_get_a_table_each(demo_model: popfit.SpectralModel, tmp_path: pathlib.Path) -> None:
    spectra = ROOT / "data" / "spectra.npz"
    files = [tmp_path / "in" / folder / "spectra.npz" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(spectra.read_bytes())
    missing = tmp_path / "in" / "gone.npz"
    run: dict[str, Any] = {"format": "fits", "per_file": True, "device": "cpu", "starts": 1}
    with pytest.warns(popfit.PopfitWarning, match="gone.npz"):
        summary = popfit.fit_files(demo_model, [*files, missing], tmp_path / "out", **run)
    assert summary["written_files"] == 2 and summary["spectra"] == 128
    assert list(summary["failed_files"]) == [str(missing)]
    popfit.fit_files(demo_model, files[0], tmp_path / "alone.fits", device="cpu", starts=1)
    assert (tmp_path / "out" / "a" / "spectra.fits").read_bytes() == (tmp_path / "alone.fits").read_bytes()
    with pytest.raises(FileExistsError):
        popfit.fit_files(demo_model, files, tmp_path / "out", **run)
    (tmp_path / "out" / "b" / "spectra.fits").unlink()
    summary = popfit.fit_files(demo_model, files, tmp_path / "out", skip_existing=True, **run)
    assert (summary["written_files"], summary["skipped_files"], summary["failed_files"]) == (1, 1, {})
    with pytest.raises(popfit.InputError, match="skip_existing"):
        popfit.fit_files(demo_model, files, tmp_path / "out", resume=True, **run)
