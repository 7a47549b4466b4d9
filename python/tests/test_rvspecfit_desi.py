"""Files: configurations, and coadds, of which `popfit.rvspecfit` writes the command's tables."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, assert_same_rows, required

import popfit
from popfit.rvspecfit import utils, vel_fit
from popfit.rvspecfit.desi import desi_fit
from popfit.rvspecfit.desi._files import read_fibres
from popfit.rvspecfit.spec_fit import SpecData

fits = required("astropy.io.fits")

DESI = ROOT / "tests" / "data" / "desi"
COADD = DESI / "coadd-synth-505.fits.gz"


@pytest.fixture(scope="module")
def command_tables(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of the tables that the command writes, with the model file of rvs_desi_fit's settings."""
    folder = tmp_path_factory.mktemp("rvtab")
    arms = "".join(f'[[arm]]\nname = "{arm}"\nemulator = "{DESI / arm}.safetensors"\n' for arm in "brz")
    (folder / "desi.toml").write_text(
        f'{arms}[continuum]\nkind = "rbf"\nterms = 10\nmarginalise = true\n[velocity]\nrange = [-1000.0, 1000.0]\n'
        "[vsini]\nrange = [0.0, 500.0]\n[spectra]\nmask = [[4300.0, 4450.0]]\nerror_floor = 0.3\n"
    )
    model = popfit.SpectralModel.from_file(folder / "desi.toml")
    popfit.fit_files(model, COADD, folder / "rvtab_505.fits", format="rvtab", device="cpu")
    return folder


def assert_same_table(one: Any, two: Any) -> None:
    """Assert that two HDUs have the same columns, to the bit."""
    assert one.columns.names == two.columns.names
    for name in one.columns.names:
        assert one.data[name].tobytes() == two.data[name].tobytes(), name


def test_a_coadd_gives_the_commands_tables(config: Any, command_tables: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table, models = str(tmp_path / "one.fits"), str(tmp_path / "two.fits")
    fitted = desi_fit.proc_desi(str(COADD), table, models, None, config, doplot=False, cmdline="fit it", device="cpu")
    assert fitted == 24
    with fits.open(table) as own, fits.open(command_tables / "rvtab_505.fits") as command:
        assert_same_table(own["RVTAB"], command["RVTAB"])
        assert own[0].header["RVS_CMD"] == "fit it"
        assert own[0].header["RVS_CONF"] == config["config_file_path"]
        assert len(own["FIBERMAP"].data) == len(own["SCORES"].data) == 24
    with fits.open(models) as own, fits.open(command_tables / "rvmod_505.fits") as command:
        for arm in "BRZ":
            np.testing.assert_array_equal(own[f"{arm}_MODEL"].data, command[f"{arm}_MODEL"].data)
    with fits.open(DESI / "rvtab_coadd-synth-505.fits") as theirs, fits.open(table) as own:
        assert set(theirs["RVTAB"].columns.names) <= set(own["RVTAB"].columns.names)
        apart = np.abs(own["RVTAB"].data["VRAD"] - theirs["RVTAB"].data["VRAD"]) / theirs["RVTAB"].data["VRAD_ERR"]
        assert (apart < 0.3).sum() >= 22
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.fits", "two.fits"]


def test_selections_and_figures(config: Any, tmp_path: pathlib.Path) -> None:
    with fits.open(COADD) as file:
        targets = [int(one) for one in file["FIBERMAP"].data["TARGETID"][[3, 5]]]
    required("matplotlib")
    outputs = (str(tmp_path / "tab.fits"), str(tmp_path / "mod.fits"), str(tmp_path / "plots" / "fig"))
    fitted = desi_fit.proc_desi(str(COADD), *outputs, config, fit_targetid=targets, fitarm=["b", "z"], device="cpu")
    assert fitted == 2
    with fits.open(outputs[0]) as table:
        assert table["RVTAB"].data["TARGETID"].tolist() == targets
        assert "SN_R" not in table["RVTAB"].columns.names
    figures = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert len(figures) == 2 and all(name.startswith("fig_") and name.endswith(".png") for name in figures)
    assert figures[0].split("_")[2] in map(str, targets)
    # no fibre: empty tables and 0
    assert desi_fit.proc_desi(str(COADD), *outputs, config, fit_targetid=1, device="cpu") == 0
    with fits.open(outputs[0]) as table, fits.open(outputs[1]) as models:
        assert len(table["FIBERMAP"].data) == 0 and table["RVTAB"].header["NAXIS2"] == 0
        assert models["B_WAVELENGTH"].data.size == 2751
    assert desi_fit.proc_desi(str(COADD), *outputs, config, minsn=1e6, device="cpu") == 0


def test_fibres_of_a_bad_status_are_left_out(tmp_path: pathlib.Path) -> None:
    """The bits of a restricted range (3) and of many bad columns (20) do no harm, alone or together."""
    statuses = [0, 1 << 3, 1 << 20, 1 << 3 | 1 << 20, 1 << 2, 1 << 3 | 1 << 9]
    with fits.open(COADD) as file:
        for name in ("COADD_FIBERSTATUS", "FIBERSTATUS"):
            fibermap = file["FIBERMAP"].data[: len(statuses)].copy()
            fibermap["COADD_FIBERSTATUS"] = statuses
            hdu = fits.BinTableHDU(fibermap, name="FIBERMAP")
            hdu.columns.change_name("COADD_FIBERSTATUS", name)
            fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(tmp_path / f"{name}.fits")
            with fits.open(tmp_path / f"{name}.fits") as written:
                fibres = read_fibres(written, ("b", "r", "z"), None, None)
            assert fibres.selected.tolist() == [True, True, True, True, False, False]


def test_files_that_are_none(config: Any, tmp_path: pathlib.Path, caplog: Any) -> None:
    outputs = (str(tmp_path / "tab.fits"), str(tmp_path / "mod.fits"), None)
    assert desi_fit.proc_desi(str(tmp_path / "none.fits"), *outputs, config, doplot=False) == -1
    (tmp_path / "text.fits").write_text("no FITS")
    assert desi_fit.proc_desi(str(tmp_path / "text.fits"), *outputs, config, doplot=False) == -1
    fits.PrimaryHDU().writeto(tmp_path / "empty.fits")
    assert desi_fit.proc_desi(str(tmp_path / "empty.fits"), *outputs, config, doplot=False) == -1
    assert "B_WAVELENGTH" in caplog.text
    with pytest.raises(popfit.InputError, match="fitarm"):
        desi_fit.proc_desi(str(COADD), *outputs, config, doplot=False, fitarm=["x"])


def test_many_files(config: Any, library: pathlib.Path, tmp_path: pathlib.Path, caplog: Any) -> None:
    (tmp_path / "in" / "12" / "1234").mkdir(parents=True)
    file = tmp_path / "in" / "12" / "1234" / "coadd-1.fits.gz"
    file.symlink_to(COADD)
    with fits.open(COADD) as coadd:
        target = int(coadd["FIBERMAP"].data["TARGETID"][7])
    status = tmp_path / "status.txt"
    arguments: dict[str, Any] = {
        "config_fname": str(library / "config.yaml"),
        "fit_targetid": target,
        "process_status_file": str(status),
        "device": "cpu",
    }
    names = [str(file), str(tmp_path / "in" / "12" / "1234" / "none.fits")]
    desi_fit.proc_many(names, str(tmp_path / "out"), "rvtab", "rvmod", **arguments)
    folder = tmp_path / "out" / "12" / "1234"
    assert sorted(path.name for path in folder.iterdir()) == ["rvmod_coadd-1.fits", "rvtab_coadd-1.fits"]
    lines = [line.split() for line in status.read_text().splitlines()]
    assert [line[:3] for line in lines] == [
        [names[0], "ProcessStatus.SUCCESS", "1"],
        [names[1], "ProcessStatus.FAILURE", "0"],
    ]
    desi_fit.proc_many(names[:1], str(tmp_path / "out"), "rvtab", "rvmod", skipexisting=True, **arguments)
    assert status.read_text().split()[1] == "ProcessStatus.EXISTING"


def read_stars(count: int) -> list[list[SpecData]]:
    """Return the first stars of the coadd, with three SpecData each."""
    stars: list[list[SpecData]] = [[] for _ in range(count)]
    with fits.open(COADD) as file:
        for arm in "brz":
            grid, flux, ivar, mask = (
                file[f"{arm.upper()}_{kind}"].data for kind in ("WAVELENGTH", "FLUX", "IVAR", "MASK")
            )
            for n, star in enumerate(stars):
                bad = (mask[n] > 0) | (ivar[n] <= 0)
                sigma = np.where(bad, 1000.0 * np.median(flux[n]), 1.0 / np.sqrt(np.where(bad, 1.0, ivar[n])))
                star.append(SpecData(f"desi_{arm}", grid, flux[n], sigma, bad))
    return stars


def test_arms_in_any_order_and_arms_that_are_missing(config: Any) -> None:
    blue, red, near = read_stars(3)
    start = {"teff": 5500.0, "logg": 3.0, "feh": -0.5, "alpha": 0.1, "vsini": 5.0}
    found = vel_fit.process(blue, start, options={"npoly": 10}, config=config)
    assert [len(one) for one in found["yfit"]] == [len(one.lam) for one in blue]
    assert found["npix_array"] == [(~one.badmask).sum() for one in blue]
    assert (np.array(found["chisq_array"]) < 1.2 * np.array(found["npix_array"])).all()
    turned = vel_fit.process([blue[2], blue[0], blue[1]], start, options={"npoly": 10}, config=config)
    assert [len(one) for one in turned["yfit"]] == [len(blue[k].lam) for k in (2, 0, 1)]
    assert abs(turned["chisq"] - found["chisq"]) < 0.05
    # a star without an arm is fitted without it, alone and among others
    several = [blue, red[:2], near[1:]]
    table = vel_fit.process_many(several, options={"npoly": 10}, config=config, vsini=True, device="cpu")
    alone = vel_fit.process_many([red[:2]], options={"npoly": 10}, config=config, vsini=True, device="cpu")
    assert table.converged.all()
    assert abs(table["objective"][1] - alone["objective"][0]) < 0.05
    assert table["dof"][0] > table["dof"][1]


def test_the_stars_of_a_coadd_are_the_commands_rows(config: Any) -> None:
    stars, arrays = [], {}
    with fits.open(COADD) as file:
        for arm in "brz":
            name = arm.upper()
            grid = file[f"{name}_WAVELENGTH"].data.astype(np.float64)
            flux, ivar = (file[f"{name}_{kind}"].data.astype(np.float64) for kind in ("FLUX", "IVAR"))
            mask = (file[f"{name}_MASK"].data > 0) | (ivar <= 0)
            sigma = np.full(ivar.shape, np.inf)
            sigma[ivar > 0] = 1.0 / np.sqrt(ivar[ivar > 0])
            arrays[f"desi_{arm}"] = {"wavelength": grid, "flux": flux, "sigma": sigma, "mask": mask}
            stars.append([SpecData(f"desi_{arm}", grid, *one) for one in zip(flux, sigma, mask, strict=True)])
    table = vel_fit.process_many(
        list(zip(*stars, strict=True)), options={"npoly": 10}, config=config, mask="apply", vsini=True, device="cpu"
    )
    model = popfit.SpectralModel(
        {
            f"desi_{arm}": {"emulator": popfit.Emulator.open(DESI / f"{arm}.safetensors"), "pixels": "sample"}
            for arm in "brz"
        },
        velocity=(-1000, 1000),
        vsini=(0, 500),
        continuum={"kind": "rbf", "terms": 10},
        marginalise=True,
    )
    assert_same_rows(table, popfit.fit(model, popfit.Spectra.from_arms(arrays), device="cpu"))


def test_configurations(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with pytest.raises(RuntimeError, match="not found"):
        utils.read_config(tmp_path / "none.yaml")
    monkeypatch.chdir(tmp_path)
    assert utils.read_config()["max_vsini"] == 500 and "config.yaml" in caplog.text
    (tmp_path / "config.yaml").write_text("min_vel: -300\nsetups: [a, b]\n")
    config = utils.read_config(override_options={"min_vel": -200})
    assert config["min_vel"] == -200 and config["setups"] == ("a", "b")
    assert config["config_file_path"] == str(tmp_path / "config.yaml")
    assert {config: 1}[utils.read_config(override_options={"min_vel": -200})] == 1
