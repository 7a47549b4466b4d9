"""Fits of DESI's coadds, as ``rvspecfit.desi.desi_fit`` has them; the tables are those of ``--format rvtab``."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from popfit import fitting
from popfit._errors import Error, InputError, PopfitWarning
from popfit._rival import rival_attribute, rival_function
from popfit.rvspecfit._models import MOST_TERMS, Continuum, Settings, build_model, complete_config
from popfit.rvspecfit.desi._files import ARMS, add_cards, draw_fits, lacks_hdus, read_fibres, write_empty
from popfit.rvspecfit.utils import read_config

_logger = logging.getLogger("popfit")

#: Terms of the continuum in each arm.
_TERMS = 10
#: Interval in Å of the dichroic, whose pixels do not count, and the factor of the median that errors are raised to.
_DICHROIC, _ERROR_FLOOR = (4300.0, 4450.0), 0.3


def proc_desi(
    fname: str,
    tab_ofname: str,
    mod_ofname: str,
    fig_prefix: str | None,
    config: Mapping[str, Any],
    fit_targetid: int | Sequence[int] | None = None,
    objtypes: Sequence[str] | None = None,
    doplot: bool = True,
    minsn: float | None = -1e9,
    expid_range: tuple[int | None, int | None] | None = None,
    poolex: Any = None,
    fitarm: Sequence[str] | None = None,
    cmdline: str | None = None,
    zbest_select: bool = False,
    zbest_include: bool = False,
    use_resolution_matrix: bool | None = False,
    ccf_init: bool = True,
    npoly: int | None = 10,
    *,
    device: str = "auto",
    threads: int | None = None,
) -> int:
    """Fit the stars of a coadd of DESI, and write tables of parameters and of model spectra.

    Parameters
    ----------
    fname : str
        File of spectra.
    tab_ofname, mod_ofname : str
        Tables to write, RVTAB and the models. Existing files are replaced.
    fig_prefix : str or None
        Prefix of the figures' files.
    config : mapping
        The configuration; see `popfit.rvspecfit.utils.read_config`. The library has the setups desi_b, desi_r, desi_z.
    fit_targetid : int or sequence of int, optional
        TARGETIDs that are fitted.
    doplot : bool
        Whether to draw the fits.
    minsn : float, optional
        Smallest signal-to-noise ratio, that of the best arm.
    poolex : optional
        Ignored: popfit has threads of its own.
    fitarm : sequence of {"b", "r", "z"}, optional
        Arms that are fitted; all without it.
    cmdline : str, optional
        Text for the keyword RVS_CMD.
    objtypes, expid_range, zbest_select, zbest_include, use_resolution_matrix
        Goes to rvspecfit itself.
    ccf_init : bool
        popfit's first guess is always a correlation with templates.
    npoly : int, optional
        Terms of the continuum in each arm.
    device, threads
        As in `popfit.fit`.

    Returns
    -------
    int
        Number of fitted fibres; -1 if `fname` is not a readable file of DESI.
    """
    terms = npoly or _TERMS
    beyond = {
        "objtypes": objtypes is not None,
        "expid_range": expid_range is not None,
        "zbest_select=True": zbest_select,
        "zbest_include=True": zbest_include,
        "use_resolution_matrix=True": bool(use_resolution_matrix),
        f"npoly={npoly}": terms > MOST_TERMS,
    }
    for argument, given in beyond.items():
        if given:
            function = rival_function("rvspecfit.desi.desi_fit", "proc_desi", argument)
            choices = (fit_targetid, objtypes, doplot, minsn, expid_range, poolex, fitarm, cmdline, zbest_select)
            more = (zbest_include, use_resolution_matrix, ccf_init, npoly)
            return int(function(fname, tab_ofname, mod_ofname, fig_prefix, config, *choices, *more))
    if not ccf_init:
        warnings.warn("ccf_init=False has no effect: popfit's first guess needs no grid", PopfitWarning, stacklevel=2)
    arms = ARMS if fitarm is None else tuple(arm for arm in ARMS if arm in fitarm)
    if not arms:
        raise InputError(f"fitarm: none of the arms {', '.join(ARMS)} in {fitarm!r}", argument="fitarm")
    if doplot and fig_prefix is None:
        raise InputError("fig_prefix: give a prefix for the figures, or doplot=False", argument="fig_prefix")

    from astropy.io import fits  # type: ignore[import-untyped,unused-ignore]

    _logger.info("Processing %s", fname)
    try:
        file = fits.open(fname)
    except OSError as error:
        _logger.error("Cannot read file %s: %s", fname, error)
        return -1
    with file:
        missing = lacks_hdus(file)
        if missing:
            _logger.error("Not valid file: %s: no HDU %s", fname, ", ".join(missing))
            return -1
        fibres = read_fibres(file, arms, fit_targetid, minsn)
        configuration = complete_config(config)
        cards = _cards(configuration, cmdline)
        if not fibres.selected.any():
            _logger.warning("No fibers selected in file %s", fname)
            write_empty(file, arms, fibres, tab_ofname, mod_ofname, cards)
            return 0
        velocity = (float(configuration["min_vel"]), float(configuration["max_vel"]))
        vsini = (0.0, float(configuration["max_vsini"]))
        settings = Settings(
            Continuum(terms, True), velocity, vsini, arms=arms, mask=(_DICHROIC,), error_floor=_ERROR_FLOOR
        )
        model = build_model([f"desi_{arm}" for arm in arms], configuration, settings)
        select: dict[str, Any] = {"target_ids": fibres.target_ids}
        if fibres.least_signal is not None:
            select["min_sn"] = fibres.least_signal
        # rvspecfit lets both tables have any name, popfit names one after the other
        with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(tab_ofname))) as folder:
            table, models = os.path.join(folder, "rvtab.fits"), os.path.join(folder, "rvmod.fits")
            with fitting.without_result_warnings():
                summary = fitting.fit_files(
                    model, fname, table, format="rvtab", select=select, device=device, threads=threads
                )
            for path in (table, models):
                add_cards(path, cards)
            if doplot and fig_prefix is not None:
                draw_fits(file, table, models, arms, fig_prefix)
            os.replace(models, mod_ofname)
            os.replace(table, tab_ofname)
    return int(summary["spectra"])


def proc_many(
    files: Sequence[str],
    output_dir: str,
    output_tab_prefix: str,
    output_mod_prefix: str,
    figure_dir: str | None = None,
    figure_prefix: str | None = None,
    config_fname: str | None = None,
    nthreads: int = 1,
    fit_targetid: int | Sequence[int] | None = None,
    objtypes: Sequence[str] | None = None,
    minsn: float | None = -1e9,
    doplot: bool = True,
    expid_range: tuple[int | None, int | None] | None = None,
    skipexisting: bool = False,
    fitarm: Sequence[str] | None = None,
    cmdline: str | None = None,
    zbest_select: bool = False,
    zbest_include: bool = False,
    ccf_init: bool = True,
    subdirs: bool = True,
    ccf_continuum_normalize: bool = True,
    process_status_file: str | None = None,
    use_resolution_matrix: bool | None = None,
    npoly: int | None = None,
    throw_exceptions: bool | None = None,
    *,
    device: str = "auto",
) -> None:
    """Fit the stars of many coadds of DESI.

    Parameters
    ----------
    files : sequence of str
        Files of spectra.
    output_dir : str
        Folder of the tables.
    output_tab_prefix, output_mod_prefix : str
        Prefixes of the tables' names, before ``_FILE``.
    figure_dir, figure_prefix : str, optional
        Folder of the figures, and prefix of their names.
    config_fname : str, optional
        File of the configuration.
    nthreads : int
        Threads of a run.
    skipexisting : bool
        Whether to pass over files whose tables exist.
    subdirs : bool
        Whether `output_dir` gets the last two folders of each file's path.
    ccf_continuum_normalize : bool
        Joins the configuration; popfit's first guess does not use it.
    process_status_file : str, optional
        File that gets a line for each file: its path, status, number of fibres and seconds.
    throw_exceptions : bool, optional
        Whether a file that fails ends the call. Otherwise the others follow.
    fit_targetid, objtypes, minsn, doplot, expid_range, fitarm, cmdline, zbest_select, zbest_include, ccf_init, npoly
        As in `proc_desi`, and so `use_resolution_matrix`.
    device
        As in `popfit.fit`.
    """
    config = read_config(config_fname, {"ccf_continuum_normalize": ccf_continuum_normalize})
    if process_status_file is not None:
        open(process_status_file, "w").close()
    for file in files:
        name = os.path.basename(file).removesuffix(".gz")
        below = _last_folders(file) if subdirs else ""
        folder = os.path.join(output_dir, below)
        os.makedirs(folder, exist_ok=True)
        table = os.path.join(folder, f"{output_tab_prefix}_{name}")
        models = os.path.join(folder, f"{output_mod_prefix}_{name}")
        if skipexisting and os.path.exists(table) and os.path.exists(models):
            _logger.info("skipping, products already exist %s", file)
            _write_status(process_status_file, file, "EXISTING", -1, 0.0)
            continue
        figures = None
        if figure_dir is not None:
            figures = os.path.join(figure_dir, below, figure_prefix or "")
        begin = time.perf_counter()
        status, fitted = "FAILURE", 0
        try:
            fitted = proc_desi(
                file,
                table,
                models,
                figures,
                config,
                fit_targetid,
                objtypes,
                doplot and figures is not None,
                minsn,
                expid_range,
                None,
                fitarm,
                cmdline,
                zbest_select,
                zbest_include,
                use_resolution_matrix,
                ccf_init,
                npoly,
                device=device,
                threads=nthreads,
            )
            status = "SUCCESS" if fitted >= 0 else "FAILURE"
        except (Error, OSError):
            _logger.exception("%s: the fit failed", file)
            if throw_exceptions:
                raise
        finally:
            _write_status(process_status_file, file, status, max(fitted, 0), time.perf_counter() - begin)
    _logger.info("Successfully finished processing")


def _cards(config: Mapping[str, Any], cmdline: str | None) -> dict[str, str]:
    """Return the cards that rvspecfit adds to the headers of its tables."""
    cards = {"RVS_CONF": config.get("config_file_path"), "RVS_CMD": cmdline}
    return {key: str(value) for key, value in cards.items() if value is not None}


def _last_folders(path: str) -> str:
    """Return the last two folders of a path.

    Raises
    ------
    InputError
        If it has fewer.
    """
    folders = os.path.dirname(path).split("/")
    if len(folders) < 2:
        raise InputError(f"{path}: subdirs=True needs a path of at least two folders, DIR1/DIR2/FILE", argument="files")
    return os.path.join(*folders[-2:])


def _write_status(path: str | None, file: str, status: str, fitted: int, seconds: float) -> None:
    """Add a line about a file to the file of statuses, in rvspecfit's words."""
    if path is not None:
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"{file} ProcessStatus.{status} {fitted} {seconds:.2f}\n")


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.desi.desi_fit", name)
