"""Runs in parts, from Python."""

import json
import pathlib
import pickle
import shutil

import numpy as np
import pytest
from conftest import ROOT, required

import popfit
import popfit.surveys

DATA = ROOT / "data"
SPECTRA = 64


@pytest.fixture
def files(tmp_path):
    """Three files of the demo's spectra."""
    return [shutil.copy(DATA / "spectra.npz", tmp_path / f"spectra-{file}.npz") for file in range(3)]


def test_a_merged_table_has_the_bytes_of_one_run(files, tmp_path):
    one = tmp_path / "one.parquet"
    popfit.fit_files(DATA / "model.toml", files, one, device="cpu", starts=2, seed=5)
    plan = popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", parts=4, starts=2, seed=5)
    assert plan.sizes == [48, 48, 48, 48] and len(plan) == 4 and plan.missing() == [0, 1, 2, 3]
    for part in (2, 0, 3, 1):
        fitted = plan.fit_part(part, device="cpu", threads=1)
        assert fitted.is_new and fitted.spectra == 48 and sum(fitted.statuses.values()) == 48
        assert fitted.name == pathlib.Path(plan.path(part)).name
    assert not plan.fit_part(2, device="cpu").is_new
    assert plan.missing() == [] and "4 of 4 parts" in repr(plan)
    assert plan.merge(tmp_path / "merged.parquet") == 3 * SPECTRA
    assert (tmp_path / "merged.parquet").read_bytes() == one.read_bytes()
    with pytest.raises(FileExistsError):
        plan.merge(tmp_path / "merged.parquet")
    # parts that are not merged are one table, too
    required("pyarrow")
    teff = plan.dataset().to_table(columns=["teff"])["teff"].to_numpy()
    assert np.array_equal(teff, popfit.FitTable.read(one)["teff"])


def test_a_plan_is_found_again(files, tmp_path):
    plan = popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", part_rows=64)
    again = pickle.loads(pickle.dumps(plan))
    assert again.folder == plan.folder and again.sizes == [64, 64, 64]
    assert len(pickle.dumps(plan)) < 200 + len(plan.folder)
    assert popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", part_rows=64).sizes == plan.sizes
    with pytest.raises(popfit.InputError, match="has another plan"):
        popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", part_rows=64, seed=9)


def test_models_in_memory_are_planned_if_their_networks_are_in_files(files, tmp_path):
    model = popfit.SpectralModel.from_file(DATA / "model.toml")
    popfit.fit_files(model, files, tmp_path / "one.csv", device="cpu")
    plan = popfit.surveys.plan(model, files, tmp_path / "run", parts=2)
    for part in range(2):
        plan.fit_part(part, device="cpu")
    plan.merge(tmp_path / "merged.csv")
    assert (tmp_path / "merged.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    network = popfit.Emulator.open(DATA / "emulator.safetensors")
    in_memory = popfit.SpectralModel(network, continuum={"kind": "rbf", "terms": 10}, velocity=(-1000, 1000))
    with pytest.raises(popfit.InputError, match="networks are in files"):
        popfit.surveys.plan(in_memory, files, tmp_path / "other")
    assert not (tmp_path / "other" / "_manifest.json").exists()


def test_a_part_of_a_bad_file_is_listed_with_its_cause(files, tmp_path):
    plan = popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", parts=3)
    pathlib.Path(files[1]).write_bytes(b"PK")
    for _ in range(popfit.surveys.ATTEMPTS):
        assert not plan.has_failed(1)
        with pytest.raises(popfit.InputError, match=r"spectra-1\.npz") as error:
            plan.fit_part(1, device="cpu")
        plan.record_failure(1, error.value)
    assert plan.has_failed(1) and not plan.has_failed(0)
    (failed,) = plan.failures()
    assert failed.part == 1 and failed.files == [str(files[1])] and len(failed.causes) == 3
    (listed,) = json.loads((tmp_path / "run" / "_failed.json").read_text())
    assert listed["part"] == 1 and listed["causes"] == failed.causes
    plan.fit_part(0, device="cpu")
    with pytest.raises(popfit.InputError, match="2 of 3 parts are missing: 1, 2"):
        plan.merge(tmp_path / "merged.parquet")


def test_wrong_arguments_are_refused(files, tmp_path):
    for wrong, match in [
        ({"parts": 0}, "parts"),
        ({"part_rows": 1.5}, "part_rows"),
        ({"part_rows": 5, "parts": 2}, "not both"),
        ({"starts": 99}, "starts"),
        ({"select": {"target_id": [1]}}, "target_ids"),
    ]:
        with pytest.raises((popfit.InputError, TypeError), match=match):
            popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", **wrong)
    with pytest.raises(popfit.InputError, match="empty list"):
        popfit.surveys.plan(DATA / "model.toml", [], tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(FileNotFoundError, match=r"_manifest\.json"):
        popfit.surveys.Plan(tmp_path)
    plan = popfit.surveys.plan(DATA / "model.toml", files, tmp_path / "run", parts=3)
    for part in (3, -1, "0"):
        with pytest.raises((popfit.InputError, TypeError), match="part"):
            plan.fit_part(part)
    with pytest.raises(TypeError, match="seed"):
        plan.fit_part(0, seed=5)
    with pytest.raises(popfit.InputError, match="gpx"):
        plan.fit_part(0, device="gpx")
