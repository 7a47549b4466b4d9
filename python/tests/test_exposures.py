"""Exposures: spectra of one object, made of arrays, of files and of rvspecfit's SpecData. Nothing is fitted here."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, run_python

import popfit
from popfit import surveys
from popfit.rvspecfit.spec_fit import SpecData
from popfit.spectra import as_spectra, spectra_of_spec_data

IDS = [30, 10, 30, 20, 20, 10, 40, 30, 10]
OBJECTS, COUNTS = [30, 10, 20, 40], [3, 3, 2, 1]
#: Rows of the exposures, object by object.
ORDER = [0, 2, 7, 1, 5, 8, 3, 4, 6]


def arrays(ids: Any = IDS) -> dict[str, Any]:
    """Return nine spectra on grids of their own, with a column."""
    flux = np.arange(27.0).reshape(9, 3)
    return {"wavelength": 5000.0 + flux, "flux": flux, "ivar": np.ones((9, 3)), "id": ids, "TEFF0": np.arange(9.0)}


@pytest.mark.parametrize("ids", [IDS, [str(one) for one in IDS], np.array(IDS, dtype=np.uint64)])
def test_spectra_of_one_id_are_exposures_of_one_object(ids: Any) -> None:
    joined = as_spectra(arrays(ids)).join_exposures()
    assert len(joined) == 4 and joined.ids.tolist() == [type(np.asarray(ids)[0].item())(one) for one in OBJECTS]
    assert joined.exposures is not None and joined.exposures.tolist() == COUNTS
    assert joined.join_exposures() is joined
    assert isinstance(joined._source, dict)
    assert (joined._source["flux"] == arrays()["flux"][ORDER]).all()
    assert repr(joined).startswith("<popfit.Spectra: 4 objects of 9 spectra")
    # rows are those of objects
    two = joined[[2, 0]]
    assert len(two) == 2 and two.ids.tolist() == joined.ids[[2, 0]].tolist()
    taken: Any = two._source
    assert taken["TEFF0"].tolist() == [3.0, 4.0, 0.0, 2.0, 7.0]
    last = joined[1:][-1]
    assert last.exposures is not None and last.exposures.tolist() == [1]
    for held in (joined, two, last):
        again = pickle.loads(pickle.dumps(held))
        assert again.ids.tolist() == held.ids.tolist() and str(again.exposures) == str(held.exposures)
    assert as_spectra(arrays(ids)).exposures is None


def test_arrays_in_order_are_not_copied() -> None:
    given = arrays([1, 1, 2, 2, 2, 3, 3, 3, 3])
    joined = as_spectra(given).join_exposures()
    assert isinstance(joined._source, dict)
    assert np.shares_memory(joined._source["flux"], given["flux"])
    assert np.shares_memory(joined[1:3]._source["flux"], given["flux"])  # type: ignore[index]
    without_ids = as_spectra({name: array for name, array in given.items() if name != "id"}).join_exposures()
    assert without_ids.exposures is not None and without_ids.exposures.tolist() == [1] * 9


def test_exposures_of_files_are_joined(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "spectra.npz"
    np.savez(path, **arrays())
    plain = popfit.Spectra.open(path)
    joined = plain.join_exposures()
    assert (len(plain), plain.exposures, len(joined)) == (9, None, 4)
    assert joined.exposures is not None and joined.exposures.tolist() == COUNTS
    assert joined.ids.tolist() == OBJECTS
    # tables have the row of the first exposure
    assert [joined._index_of(row) for row in (0, 1, 3, 6, 2)] == [0, 1, 2, 3, None]
    part = plain[3:].join_exposures()[1:3]
    assert part.ids.tolist() == [10, 40] and part._index_of(6) == 1
    for held in (joined, joined[2:], part):
        again = pickle.loads(pickle.dumps(held))
        assert again.ids.tolist() == held.ids.tolist() and str(again.exposures) == str(held.exposures)


def exposure(name: str, begin: float, pixels: int, flux: float) -> SpecData:
    """Return a spectrum of constant flux on a grid of its own."""
    return SpecData(name, begin + np.arange(float(pixels)), np.full(pixels, flux), np.ones(pixels))


def test_lists_with_several_spectra_of_an_arm_are_exposures() -> None:
    first = [exposure("b", 4000.0, 5, 1.0), exposure("r", 6000.0, 4, 2.0), exposure("b", 4000.5, 7, 3.0)]
    second = [exposure("r", 6001.0, 4, 4.0)]
    held = as_spectra([first, second])
    assert len(held) == 2 and held.arms == {"b": 7, "r": 4}
    assert held.exposures is not None and held.exposures.tolist() == [2, 1]
    assert isinstance(held._source, dict)
    source: dict[str, Any] = held._source
    assert np.isfinite(source["b_sigma"]).sum(axis=1).tolist() == [5, 7, 0]
    assert np.isfinite(source["r_sigma"]).sum(axis=1).tolist() == [4, 0, 4]
    assert (np.diff(source["b_wavelength"], axis=1) > 0).all(), "grids go on beyond their ends"
    assert source["b_flux"][1].tolist() == [3.0] * 7
    one_star = as_spectra(first)
    assert len(one_star) == 1 and one_star.exposures is not None and one_star.exposures.tolist() == [2]
    columns = spectra_of_spec_data([first, second], ids=["x", "y"], columns={"TEFF0": [1.0, 2.0]})
    assert columns.ids.tolist() == ["x", "y"]
    assert columns._source["TEFF0"].tolist() == [1.0, 1.0, 2.0]  # type: ignore[index, union-attr]
    assert as_spectra([first[:2], second]).exposures is None


def test_models_say_whether_exposures_are_fitted_together(demo_model: popfit.SpectralModel) -> None:
    network = demo_model.arms["b"] if "b" in demo_model.arms else next(iter(demo_model.arms.values()))
    each = popfit.SpectralModel(network, velocity=(-500, 500), exposures="each")
    assert each.exposures == "each" and "exposures" in each.text
    assert pickle.loads(pickle.dumps(each)).exposures == "each"
    assert demo_model.exposures is None
    shared = demo_model.with_exposures("shared")
    assert shared.exposures == "shared" and shared.parameters == demo_model.parameters
    assert shared.with_exposures(None).exposures is None and shared.with_exposures("shared") is shared
    with pytest.raises(popfit.InputError, match='give "shared" or "each"') as caught:
        popfit.SpectralModel(network, exposures="both")
    assert caught.value.argument == "exposures"
    with pytest.raises(popfit.InputError, match="velocity is free"):
        popfit.SpectralModel(network, exposures="each")


def test_joined_spectra_need_a_model_that_fits_them_together(demo_model: popfit.SpectralModel) -> None:
    spectra = popfit.demo_data()[1][:2].join_exposures()
    with pytest.raises(popfit.InputError, match="build the model with exposures"):
        popfit.fit(demo_model, spectra, device="cpu")
    with pytest.raises(popfit.InputError, match="build the model with exposures"):
        popfit.fit(demo_model.with_exposures("shared"), spectra, exposures="separate", device="cpu")
    with pytest.raises(popfit.InputError, match='exposures: \'both\'; give "join" or "separate"'):
        popfit.fit(demo_model, spectra, exposures="both", device="cpu")


def test_plans_count_objects(tmp_path: pathlib.Path) -> None:
    with np.load(ROOT / "data" / "spectra.npz") as given:
        ids = np.arange(64) % 20
        np.savez(tmp_path / "spectra.npz", **{**given, "id": ids})
    files = [tmp_path / "spectra.npz"]
    model = ROOT / "data" / "model.toml"
    separate = surveys.plan(model, files, tmp_path / "separate", part_rows=8)
    joined = surveys.plan(model, files, tmp_path / "joined", part_rows=8, exposures="join")
    assert sum(separate._sizes) == 64 and sum(joined._sizes) == 20
    again = surveys.plan(model, files, tmp_path / "joined", part_rows=8, exposures="join")
    assert again._sizes == joined._sizes
    # the command makes the same plan, and the plan is another one
    arguments = ["-m", "popfit", "plan", model, files[0], "-o", tmp_path / "joined", "--part-rows", "8"]
    run_python(*arguments, "--exposures", "join")
    with pytest.raises(AssertionError, match="another plan"):
        run_python(*arguments)
