"""Fits of populations of spectra."""

from __future__ import annotations

import logging
import os
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from popfit import _popfit
from popfit._errors import InputError, Interrupted, PopfitWarning
from popfit._progress import Progress, progress_function
from popfit.devices import get_threads
from popfit.model import SpectralModel, as_model
from popfit.spectra import Path, Spectra, as_spectra
from popfit.table import FitTable

_logger = logging.getLogger("popfit")

#: Seed of the first guess, as the command has it.
DEFAULT_SEED = 3

#: Keys of `select`, with what the command calls them.
SELECTION_KEYS = {"arms": "--arms", "target_ids": "--target-id", "objtype": "--objtype", "min_sn": "--min-sn"}


def fit(
    model: SpectralModel | Path | Mapping[str, Any],
    spectra: object,
    *,
    device: str = "auto",
    starts: int | None = None,
    seed: int = DEFAULT_SEED,
    solver: str | None = None,
    max_rounds: int | None = None,
    precision: str = "f32",
    velocity_scan: str | None = None,
    released_errors: bool | None = None,
    strict: bool = False,
    select: Mapping[str, Any] | None = None,
    max_memory: int | None = None,
    batch_size: int | None = None,
    cpu_fallback: bool | None = None,
    timeout: float | None = None,
    threads: int | None = None,
    progress: bool | Progress = False,
) -> FitTable:
    """Fit a model to a population of spectra, all at once.

    Parameters
    ----------
    model : SpectralModel, path or dict
        The model, its file, or a dict with a model file's keys.
    spectra : path, sequence of paths, Spectra, mapping of arrays, or other libraries' spectra
        What is fitted; `popfit.spectra.as_spectra` lists the kinds. Arrays are lent, not copied.
    device : str
        "auto", "all", "cpu", "gpu", "gpu:N" or "gpu:NAME".
    starts : int, optional
        Starts of each spectrum, 1 to 64. By default the model's, else as many as compete.
    seed : int
        Seed of the first guess.
    solver : {"lm", "nm", …}, optional
        Solver; by default the model's, else Levenberg–Marquardt.
    max_rounds : int, optional
        Rounds that a fit may take.
    precision : {"f32", "mixed"}
        "mixed" makes the first rounds' output layers of 16-bit numbers, for GPUs.
    velocity_scan : {"off", "fixed", "refitted"}, optional
        Whether the velocity is scanned for its posterior; by default the model's, else "off".
    released_errors : bool, optional
        Whether there are columns NAME_err_released, errors that do not take parameters at a bound for known.
    strict : bool
        Whether a spectrum that cannot be fitted raises an exception. By default it is a row with a status.
    select : mapping, optional
        Which spectra of files are fitted: "arms", "target_ids", "objtype", "min_sn".
    max_memory : int, optional
        Bytes that all populations on a device may take.
    batch_size : int, optional
        Spectra that are fitted at once.
    cpu_fallback : bool, optional
        Whether the CPU fits what a GPU fails to fit twice; by default for "auto" and "all".
    timeout : float, optional
        Seconds after which fits that have not ended get the status "interrupted".
    threads : int, optional
        Threads of this run; by default those of `popfit.get_threads`.
    progress : bool or callable
        True shows a bar; a function is called with the numbers of finished and of all fits, on this thread.

    Returns
    -------
    FitTable
        One row for each spectrum, in their order.

    Raises
    ------
    InputError
        If model, spectra or settings are wrong.
    DeviceError
        If the device is missing or fails.
    Interrupted
        At Ctrl-C; its attribute `table` has what was fitted.

    Examples
    --------
    >>> import popfit
    >>> model, spectra = popfit.demo_data()
    >>> table = popfit.fit(model, spectra, device="cpu")
    >>> len(table), int(table.converged.sum())
    (64, 64)
    >>> table["teff"].shape
    (64,)
    """
    model = _selected_model(model, select)
    settings = _settings(
        device=device,
        starts=starts,
        seed=seed,
        solver=solver,
        max_rounds=max_rounds,
        precision=precision,
        velocity_scan=velocity_scan,
        released_errors=released_errors,
        strict=strict,
        select=select,
        max_memory=max_memory,
        batch_size=batch_size,
        cpu_fallback=cpu_fallback,
    )
    source: Any
    if isinstance(spectra, Iterator):
        spectra = list(spectra)
    paths = _paths(spectra)
    held: Spectra | None = None
    if paths is None:
        held = as_spectra(spectra)
        source = held._source
        of_rows = sorted(set(select or {}) - {"arms"})
        if of_rows:
            raise InputError(
                f"select: {of_rows[0]!r} selects spectra of files; select rows of arrays before the fit",
                argument="select",
            )
    else:
        source = paths
    begin = time.perf_counter()
    with progress_function(progress, "spectra") as on_progress:
        answer = _popfit.fit(model._model, source, settings, _watch(on_progress, timeout, threads))
    table = FitTable._of(answer["columns"], answer["messages"], answer["metadata"])
    table._remember(model, held if held is not None else paths, answer["flags"], time.perf_counter() - begin)
    notes = answer["notes"]
    if held is not None:
        in_air = held._in_air  # the first note says that wavelengths were converted, as was asked
        kinds = ["note" if in_air and k == 0 else "warning" for k in range(len(answer["array_notes"]))]
        notes += [*zip(kinds, answer["array_notes"], strict=True), *_unused_arrays(model, held)]
    _tell(notes)
    _raise_stopped(answer["stopped"], table)
    return table


def fit_files(
    model: SpectralModel | Path | Mapping[str, Any],
    files: Path | Sequence[Path],
    output: Path,
    *,
    format: str = "table",
    resume: bool = False,
    overwrite: bool = False,
    report: Path | None = None,
    device: str = "auto",
    starts: int | None = None,
    seed: int = DEFAULT_SEED,
    solver: str | None = None,
    max_rounds: int | None = None,
    precision: str = "f32",
    velocity_scan: str | None = None,
    released_errors: bool | None = None,
    strict: bool = False,
    select: Mapping[str, Any] | None = None,
    max_memory: int | None = None,
    batch_size: int | None = None,
    cpu_fallback: bool | None = None,
    timeout: float | None = None,
    threads: int | None = None,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Fit the spectra of files and write a table, as the command ``popfit fit`` does, of any length.

    Spectra are read, fitted and written in batches, and what is fitted is kept beside `output`, so that `resume` goes
    on with a run that was interrupted or killed.

    Parameters
    ----------
    model, device, starts, …
        As in `fit`.
    files : path or sequence of paths
        Files of spectra, fitted one after another into one table.
    output : path
        Table to write; its name ends in .parquet, .fits or .csv.
    format : {"table", "rvtab"}
        popfit's table, or that of rvspecfit.
    resume : bool
        Whether to go on with an interrupted run.
    overwrite : bool
        Whether existing files are replaced.
    report : path, optional
        Folder of an HTML page about the run.

    Returns
    -------
    dict
        ``spectra``, ``converged`` and ``seconds``; ``statuses``, their numbers by name; ``flags``, sentences on flags
        that many rows carry; ``text``, the command's closing line.

    Raises
    ------
    FileExistsError
        If an output exists, and neither `overwrite` nor `resume` is given.
    InputError, DeviceError
        As in `fit`.
    Interrupted
        At Ctrl-C; `resume` goes on.
    """
    model = _selected_model(model, select)
    settings = _settings(
        device=device,
        starts=starts,
        seed=seed,
        solver=solver,
        max_rounds=max_rounds,
        precision=precision,
        velocity_scan=velocity_scan,
        released_errors=released_errors,
        strict=strict,
        select=select,
        max_memory=max_memory,
        batch_size=batch_size,
        cpu_fallback=cpu_fallback,
    )
    paths = _paths(list(files) if isinstance(files, Iterator) else files)
    if paths is None:
        raise TypeError("files: give a path or a sequence of paths; popfit.fit takes arrays")
    outputs = (os.fspath(output), format, resume, overwrite, None if report is None else os.fspath(report))
    with progress_function(progress, "spectra") as on_progress:
        summary, notes, stopped = _popfit.fit_files(
            model._model, paths, outputs, settings, _watch(on_progress, timeout, threads)
        )
    _tell(notes)
    _raise_stopped(stopped, None)
    return summary


def _tell(notes: list[tuple[str, str]]) -> None:
    """Log notes, and warn of those on which the user should act."""
    for kind, text in notes:
        if kind == "warning":
            warnings.warn(text, PopfitWarning, stacklevel=3)
        else:
            _logger.info(text)


def _unused_arrays(model: SpectralModel, spectra: Spectra) -> list[tuple[str, str]]:
    """Return warnings of arms and resolution matrices that the model does not use."""
    settings = {arm["name"]: arm for arm in tomllib.loads(model.text)["arm"]}
    only = next(iter(settings)) if len(settings) == 1 else None
    notes = []
    for name, has_resolution in spectra._resolutions.items():
        arm = settings.get(name) or (settings[only] if only is not None and not name else None)
        if arm is None:
            notes.append(("warning", f"arm {name!r} of the spectra is not in the model"))
        elif has_resolution and arm.get("line_spread") != "file":
            notes.append(
                ("warning", f'resolution of arm {arm["name"]!r} is not used: set line_spread = "file" in the model')
            )
    return notes


def _selected_model(model: object, select: Mapping[str, Any] | None) -> SpectralModel:
    """Return the model of a run, with the arms that are selected."""
    found = as_model(model)
    arms = None if select is None else select.get("arms")
    return found if arms is None else found.with_arms([str(arm) for arm in arms])


def _watch(progress: Progress | None, timeout: float | None, threads: int | None) -> dict[str, Any]:
    """Return what a run takes from its caller, for Rust."""
    return {"progress": progress, "timeout": timeout, "threads": get_threads() if threads is None else threads}


def _settings(*, select: Mapping[str, Any] | None, **settings: Any) -> dict[str, Any]:
    """Return the settings of a run for Rust, checked as far as Python's types go."""
    selection = dict(select or {})
    unknown = set(selection) - set(SELECTION_KEYS)
    if unknown:
        raise InputError(
            f"select: unknown key {sorted(unknown)[0]!r} (known: {', '.join(SELECTION_KEYS)})", argument="select"
        )
    for name in ("starts", "seed", "max_rounds", "max_memory", "batch_size"):
        value = settings[name]
        if value is not None and value < 0:
            raise InputError(f"{name}: {value}; give a number that is not negative", argument=name)
    target_ids = selection.get("target_ids")
    settings["arms"] = None if selection.get("arms") is None else [str(arm) for arm in selection["arms"]]
    settings["target_ids"] = None if target_ids is None else [int(one) for one in target_ids]
    settings["objtype"] = selection.get("objtype")
    settings["min_sn"] = selection.get("min_sn")
    return settings


def _paths(spectra: object) -> list[str] | None:
    """Return the paths of files if `spectra` is one or several, else None."""
    if isinstance(spectra, str | os.PathLike):
        return [os.fspath(spectra)]
    if isinstance(spectra, Sequence) and spectra and all(isinstance(one, str | os.PathLike) for one in spectra):
        return [os.fspath(one) for one in spectra]
    return None


def _raise_stopped(stopped: BaseException | None, table: FitTable | None) -> None:
    """Raise what ended a run early: `Interrupted` for Ctrl-C, else the exception of the function for progress."""
    if isinstance(stopped, KeyboardInterrupt):
        raise Interrupted("the run was interrupted", table=table) from stopped
    if stopped is not None:
        raise stopped
