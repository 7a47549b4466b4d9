"""Labels that the spectra of a cluster share."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import popfit

SHARED = {"column": "cluster", "labels": ["feh"]}
STARS = ROOT / "tests/data/shared/stars.npz"


def model(**settings: Any) -> popfit.SpectralModel:
    """Return the demo's model with further settings."""
    network = popfit.Emulator.open(ROOT / "data/emulator.safetensors")
    continuum = {"kind": "rbf", "terms": 10}
    arm = {"emulator": network, "pixels": "sample"}
    return popfit.SpectralModel({"": arm}, velocity=(-1000, 1000), continuum=continuum, **settings)


def test_clusters_share_their_labels_in_files_and_arrays() -> None:
    sharing = model(shared=SHARED)
    assert sharing.shared == SHARED and model().shared is None
    assert pickle.loads(pickle.dumps(sharing)).shared == SHARED
    table = popfit.fit(sharing, STARS, device="cpu")
    with np.load(STARS) as stored:
        arrays = dict(stored)
    cluster = arrays["cluster"]
    for value, count in zip(*np.unique(cluster, return_counts=True), strict=True):
        members = cluster == value
        assert (table["shared_members"][members] == (0 if value < 0 else count)).all()
        assert (len(set(table["feh"][members])) == 1) == (value >= 0)
    p = table["shared_p"]
    assert (np.isnan(p) == (cluster < 0)).all() and p[cluster == 2].max() < 1e-4 < p[cluster == 1].min()
    # texts name clusters, too
    names = np.array(["M 67", "M 71", "NGC 188", ""])[cluster]
    again = popfit.fit(sharing, {**arrays, "cluster": names}, device="cpu")
    assert (again["feh"] == table["feh"]).all() and (again["shared_members"] == table["shared_members"]).all()


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ("cluster", "shared: 'cluster'; give a dict"),
        ({}, "give a dict"),
        ({"column": "cluster"}, "labels"),
        ({"column": "cluster", "labels": ["fhe"]}, "did you mean `feh`"),
        ({**SHARED, "group": 1}, "unknown key `shared.group`"),
    ],
)
def test_what_makes_no_sense_is_named(shared: Any, message: str) -> None:
    with pytest.raises(popfit.InputError, match=message):
        model(shared=shared)


def test_spectra_without_the_column_are_refused() -> None:
    with np.load(STARS) as stored:
        arrays = {name: array for name, array in stored.items() if name != "cluster"}
    with pytest.raises(popfit.InputError, match="no column `cluster`"):
        popfit.fit(model(shared=SHARED), arrays, device="cpu")
