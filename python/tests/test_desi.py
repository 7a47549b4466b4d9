"""DESI's files as a step of a pipeline: the tables in memory are those of the command's files."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, required

import popfit
import popfit.desi

fits = required("astropy.io.fits")

DESI = ROOT / "tests" / "data" / "desi"
COADD = DESI / "coadd-synth-505.fits.gz"


@pytest.fixture(scope="module")
def model() -> popfit.SpectralModel:
    """Model of three arms."""
    networks = {name: popfit.Emulator.open(DESI / f"{name}.safetensors") for name in "brz"}
    return popfit.SpectralModel(
        networks, velocity=(-1500, 1500), vsini=(0, 300), continuum={"kind": "rbf", "terms": 10}
    )


@pytest.fixture(scope="module")
def command_files(model: popfit.SpectralModel, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of the files that ``popfit fit --format rvtab`` writes."""
    folder = tmp_path_factory.mktemp("rvtab")
    popfit.fit_files(model, COADD, folder / "rvtab_505.fits", format="rvtab", device="cpu")
    return folder


def assert_same_hdus(tables: dict[str, Any], path: pathlib.Path, without: tuple[str, ...] = ()) -> None:
    """Assert that tables are those of a file."""
    with fits.open(path) as file:
        for hdu in file[1:]:
            if hdu.name in without:
                continue
            one = tables[hdu.name]
            assert one.dtype.isnative and len(one) == len(hdu.data)
            if one.dtype.names is None:
                np.testing.assert_array_equal(one, hdu.data)
                continue
            assert list(one.dtype.names) == hdu.columns.names
            for name in one.dtype.names:
                np.testing.assert_array_equal(one[name], hdu.data[name], err_msg=f"{hdu.name}.{name}")


def test_tables_are_those_of_the_command(
    model: popfit.SpectralModel, command_files: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tables = popfit.desi.proc(str(COADD), model, threads=1, device="cpu")
    assert list(tables) == ["RVTAB", "FIBERMAP", "SCORES", "METADATA"]
    assert_same_hdus(tables, command_files / "rvtab_505.fits", ("METADATA",))
    assert tables["RVTAB"]["SUCCESS"].dtype == bool and tables["RVTAB"]["TARGETID"].dtype == np.int64
    assert os.listdir(tmp_path) == []  # nothing is left, and nothing was written
    both = popfit.desi.proc([COADD], model, device="cpu", models=True)
    assert_same_hdus(both, command_files / "rvmod_505.fits")
    assert both["B_MODEL"].shape == (24, 2751) and both["RVTAB"].tobytes() == tables["RVTAB"].tobytes()


def test_files_are_written_if_asked_for(model: popfit.SpectralModel, tmp_path: pathlib.Path) -> None:
    targets = [int(one) for one in fits.getdata(COADD, "FIBERMAP")["TARGETID"][[3, 5]]]
    for name, beside in (("rvtab_1.fits", "rvmod_1.fits"), ("stars.fits", "stars_rvmod.fits")):
        call: dict[str, Any] = {"output": tmp_path / name, "select": {"target_ids": targets}, "device": "cpu"}
        tables = popfit.desi.proc(COADD, model, models=True, **call)
        assert tables["RVTAB"]["TARGETID"].tolist() == targets and len(tables["Z_MODEL"]) == 2
        assert_same_hdus(tables, tmp_path / name)
        assert_same_hdus(tables, tmp_path / beside)
        with pytest.raises(FileExistsError):
            popfit.desi.proc(COADD, model, **call)
        popfit.desi.proc(COADD, model, overwrite=True, **call)


def test_several_files_are_one_table(model: popfit.SpectralModel, tmp_path: pathlib.Path) -> None:
    (tmp_path / "coadd-2.fits.gz").symlink_to(COADD)
    call: dict[str, Any] = {"select": {"min_sn": 20.0}, "device": "cpu"}
    one = popfit.desi.proc(COADD, model, **call)
    two = popfit.desi.proc([COADD, tmp_path / "coadd-2.fits.gz"], model, **call)
    for name in ("RVTAB", "FIBERMAP"):
        assert two[name].tobytes() == 2 * one[name].tobytes()


def test_what_is_wrong_is_said(model: popfit.SpectralModel, tmp_path: pathlib.Path) -> None:
    (tmp_path / "text.fits").write_text("no FITS")
    for file, error, match in [
        (tmp_path / "none.fits", FileNotFoundError, r"none\.fits"),
        (tmp_path / "text.fits", popfit.InputError, r"text\.fits"),
        ([], popfit.InputError, "an empty list"),
        (1, TypeError, "give a path"),
    ]:
        with pytest.raises(error, match=match):
            popfit.desi.proc(file, model, device="cpu")
    for given, error, match in [
        ({"device": "gpu:nothing-of-this-name"}, popfit.Error, "no adapter named nothing"),
        ({"threads": 0}, popfit.InputError, "threads"),
        ({"models": "yes"}, popfit.InputError, "models"),
        ({"output": tmp_path / "a.parquet"}, popfit.InputError, r"must end in \.fits"),
        ({"format": "table"}, TypeError, "no argument 'format'"),
        ({"starts": 0}, popfit.InputError, "starts"),
    ]:
        with pytest.raises(error, match=match):
            popfit.desi.proc(COADD, model, **({"device": "cpu"} | given))


def test_no_fibre_is_an_error(model: popfit.SpectralModel) -> None:
    with pytest.raises(popfit.InputError):
        popfit.desi.proc(COADD, model, select={"target_ids": 1}, device="cpu")
