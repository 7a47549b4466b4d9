"""Rows of spectra keep their numbers, however they are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import ROOT, assert_same_rows

import popfit


@pytest.fixture
def spectra(demo_arrays: dict[str, Any]) -> popfit.Spectra:
    """Spectra of arrays without identifiers, with a column of numbers and one of texts."""
    return popfit.Spectra.from_arrays(
        demo_arrays["wavelength"],
        demo_arrays["flux"],
        demo_arrays["ivar"],
        columns={"number": np.arange(64.0), "name": np.array([f"star {row}" for row in range(64)])},
    )


def test_slices_keep_row_numbers(demo_model: popfit.SpectralModel, spectra: popfit.Spectra) -> None:
    assert spectra[2:5].ids.tolist() == [2, 3, 4]
    assert spectra[2:10][1:3].ids.tolist() == [3, 4]
    table = popfit.fit(demo_model, spectra[2:5], device="cpu")
    assert table["id"].tolist() == [2, 3, 4]
    whole = popfit.fit(demo_model, spectra, device="cpu")
    assert_same_rows(table, whole[2:5], without=("row",))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (3, [3]),
        (np.int64(-1), [63]),
        ([5, 2, 2, -1], [5, 2, 2, 63]),
        (np.array([7, 8, 9], np.uint8), [7, 8, 9]),
        (np.arange(64) % 20 == 1, [1, 21, 41, 61]),
        (slice(60, None, 2), [60, 62]),
        (slice(3, 0, -1), [3, 2, 1]),
        ([], []),
        (np.zeros(64, bool), []),
    ],
)
def test_rows_are_taken_by_index_indices_and_mask(spectra: popfit.Spectra, rows: Any, expected: list[int]) -> None:
    taken = spectra[rows]
    assert len(taken) == len(expected) and taken.ids.tolist() == expected
    arrays, all_arrays = taken._source, spectra._source
    assert isinstance(arrays, dict) and isinstance(all_arrays, dict)
    assert (arrays["flux"] == all_arrays["flux"][expected]).all()  # type: ignore[index]
    assert arrays["number"].tolist() == expected  # type: ignore[union-attr]
    assert arrays["name"] == ((len(expected),), [f"star {row}" for row in expected])
    assert arrays["wavelength"] is all_arrays["wavelength"]


def test_rows_that_follow_each_other_are_not_copied(spectra: popfit.Spectra) -> None:
    for rows in (3, slice(2, 5), [2, 3], np.arange(64) > 60):
        assert np.shares_memory(spectra[rows]._source["flux"], spectra._source["flux"])  # type: ignore[index]


def test_rows_that_are_none_are_refused(spectra: popfit.Spectra) -> None:
    with pytest.raises(IndexError):
        spectra[64]
    with pytest.raises(IndexError):
        spectra[[1, 64]]
    with pytest.raises(IndexError, match="a mask of 3 rows for 64 spectra"):
        spectra[np.ones(3, bool)]
    for wrong in (1.5, True, "3", np.ones((64, 1), bool), np.linspace(0.0, 1.0, 5000)):
        with pytest.raises(TypeError, match="rows of spectra are taken by") as caught:
            spectra[wrong]  # type: ignore[index]
        assert len(str(caught.value)) < 200


def test_rows_of_files_are_taken_where_they_follow_each_other() -> None:
    spectra = popfit.Spectra.open(ROOT / "data" / "spectra.npz")
    assert spectra[3].ids.tolist() == spectra.ids[3:4].tolist()
    assert spectra[np.arange(64) >= 60].ids.tolist() == spectra.ids[60:].tolist()
    assert len(spectra[[]]) == 0
    with pytest.raises(TypeError, match=r"spectra\[3:4\]"):
        spectra[[1, 3]]


def test_shared_wavelengths_stay_whole_where_there_are_as_many_spectra_as_pixels() -> None:
    grid, ones = np.array([1.0, 2.0, 3.0]), np.ones((3, 3))
    spectra = popfit.Spectra.from_arms({"b": {"wavelength": grid, "flux": ones, "ivar": ones, "medium": "air"}})
    assert spectra[1:]._source["b_wavelength"].tolist() == [1.0, 2.0, 3.0]  # type: ignore[index,union-attr]
    own = popfit.Spectra.from_arrays(np.tile(grid, (3, 1)), ones, ones)
    assert own[1:]._source["wavelength"].shape == (2, 3)  # type: ignore[index,union-attr]
    assert spectra[[2, 0]]._source["b_medium"] == ((), ["air"])  # type: ignore[index]
