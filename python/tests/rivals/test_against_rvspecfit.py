"""rvspecfit 0.9.0 itself beside `popfit.rvspecfit`: the same calls, with the import line changed."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, SYNB

from popfit.rvspecfit import spec_fit, utils, vel_fit

rvspecfit = pytest.importorskip("rvspecfit", reason="rvspecfit is not installed")

LABELS = ["teff", "logg", "feh", "alpha"]
NPOLY = {"npoly": 10}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of rvspecfit, and the configuration of a library with the demo's network for both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(pathlib.Path(__file__).parent))
        folder = tmp_path_factory.mktemp("rvspecfit")
        importlib.import_module("numpy_network").write_library(folder, "b", ROOT / "data" / "emulator.safetensors")
        (folder / "b.safetensors").symlink_to(ROOT / "data" / "emulator.safetensors")
        (folder / "config.yaml").write_text(f"template_lib: {folder}\n")
        modules = {name: importlib.import_module(f"rvspecfit.{name}") for name in ("spec_fit", "vel_fit", "utils")}
        yield modules, str(folder / "config.yaml")


def read_star(name: str, n: int) -> tuple[tuple[Any, ...], dict[str, float]]:
    """Return the arguments of a star's SpecData, and its start."""
    with np.load(SYNB / name / "spectra.npz") as arrays:
        sigma = 1.0 / np.sqrt(arrays["ivar"][n].astype(np.float64))
        spectrum = ("b", arrays["wavelength"], arrays["flux"][n], sigma, arrays["mask"][n])
    with np.load(SYNB / name / "rvspecfit.npz") as reference:
        start = dict(zip(LABELS, reference["start_par"][n].tolist(), strict=True))
        if name == "free_vsini":
            start["vsini"] = float(reference["start_vsini"][n])
    return spectrum, start


def test_configurations(theirs: Any) -> None:
    modules, path = theirs
    assert dict(utils.read_config(path)) == dict(modules["utils"].read_config(path))


@pytest.mark.parametrize(("name", "n"), [("fixed_vsini", 0), ("fixed_vsini", 64), ("free_vsini", 0)])
def test_the_dict_of_a_star(theirs: Any, name: str, n: int) -> None:
    modules, path = theirs
    spectrum, start = read_star(name, n)
    wanted = modules["vel_fit"].process(
        [modules["spec_fit"].SpecData(*spectrum)], start, config=modules["utils"].read_config(path), options=NPOLY
    )
    found = vel_fit.process([spec_fit.SpecData(*spectrum)], start, config=utils.read_config(path), options=NPOLY)
    assert list(found) == [*wanted, "vel_err_joint"]
    for key, value in wanted.items():
        assert type(found[key]) is type(value), key
    assert found["chisq"] <= wanted["chisq"] + 0.01
    # at the same minimum the same numbers
    assert wanted["chisq"] - found["chisq"] < 0.05
    assert abs(found["vel"] - wanted["vel"]) < 0.05 * wanted["vel_err"]
    np.testing.assert_allclose(found["vel_err"], wanted["vel_err"], rtol=0.02)
    for label in LABELS:
        assert abs(found["param"][label] - wanted["param"][label]) < 0.2 * found["param_err"][label]
    np.testing.assert_allclose(found["chisq_array"], wanted["chisq_array"], rtol=1e-4)
    assert found["npix_array"] == wanted["npix_array"]
    for key in ("yfit", "raw_models"):
        assert found[key][0].shape == wanted[key][0].shape and found[key][0].dtype == wanted[key][0].dtype
        np.testing.assert_allclose(found[key][0], wanted[key][0], rtol=2e-2)


def test_likelihoods(theirs: Any) -> None:
    modules, path = theirs
    spectrum, start = read_star("fixed_vsini", 3)
    one, other = spec_fit.SpecData(*spectrum), modules["spec_fit"].SpecData(*spectrum)
    labels = tuple(start[name] for name in LABELS)
    ours, config = utils.read_config(path), modules["utils"].read_config(path)
    for options in ({"npoly": 2}, {"npoly": 3}, {"npoly": 15}, {}):
        for rotation in (None, (30.0,)):
            found = spec_fit.get_chisq([one], 20.0, labels, rotation, options=options, config=ours)
            wanted = modules["spec_fit"].get_chisq([other], 20.0, labels, rotation, options=options, config=config)
            assert abs(found - wanted) < 1e-5 * abs(wanted) + 0.02
    # SpecData of either package
    again = spec_fit.get_chisq([other], 20.0, labels, options=NPOLY, config=ours)
    assert again == spec_fit.get_chisq([one], 20.0, labels, options=NPOLY, config=ours)
    for options in ({"npoly": 5}, {"npoly": 15}):
        ours_alone = spec_fit.get_chisq_continuum([one], options)
        theirs_alone = modules["spec_fit"].get_chisq_continuum([other], options)
        for key, value in theirs_alone.items():
            np.testing.assert_allclose(ours_alone[key], value, rtol=1e-6)
