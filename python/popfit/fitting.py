"""Fits of populations of spectra."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from popfit import _popfit
from popfit._checks import check_choice, check_integer, check_switch, close_name, is_number, timeout_seconds
from popfit._errors import InputError, Interrupted, PopfitWarning
from popfit._progress import Progress, check_progress, progress_function
from popfit.devices import Device, name_missing_driver, thread_count
from popfit.model import DEFAULT_SEED, MAX_SEED, SpectralModel, as_model
from popfit.spectra import Path, Spectra, as_spectra
from popfit.table import FitTable

_logger = logging.getLogger("popfit")

#: Keys of `select`, with what the command calls them.
SELECTION_KEYS = {
    "arms": "--arms",
    "target_ids": "--target-id",
    "objtype": "--objtype",
    "min_sn": "--min-sn",
    "any_fiberstatus": "--any-fiberstatus",
}


def fit(
    model: SpectralModel | Path | Mapping[str, Any],
    spectra: object,
    *,
    device: str | Device = "auto",
    starts: int | None = None,
    seed: int = DEFAULT_SEED,
    solver: str | None = None,
    max_rounds: int | None = None,
    precision: str = "f32",
    velocity_scan: str | None = None,
    released_errors: bool | None = None,
    exposures: str | None = None,
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
    device : str or Device
        "auto", "all", "cpu", "gpu", "gpu:N", "gpu:pci=PLACE" or "gpu:NAME", or one of `popfit.devices`.
    starts : int, optional
        Starts of each spectrum, 1 to 64. By default the model's, else as many as compete.
    seed : int
        Seed of the first guess, 0 or more.
    solver : {"lm", "nelder-mead", "lm+nelder-mead"}, optional
        Levenberg–Marquardt, Nelder–Mead, or the first polished by the second; by default the model's, else "lm".
    max_rounds : int, optional
        Rounds that a fit may take; by default 60 for "lm", 1500 for "nelder-mead".
    precision : {"f32", "f64", "mixed"}
        Numbers that fits compute with. "f64" is for the CPU. "mixed" computes output layers as products of 16-bit
        numbers, for GPUs.
    velocity_scan : {"off", "fixed", "refitted"}, optional
        Scan of the velocity for its posterior, with labels and vsini fixed or fitted anew at every velocity; by default
        the model's, else "off".
    released_errors : bool, optional
        True for columns NAME_err_released, errors that do not take parameters at a bound for known; by default the
        model's, else False.
    exposures : {"join", "separate"}, optional
        What spectra are that have the same id, in one file or among arrays: exposures of one object, which are fitted
        together, or objects of their own. By default spectra of files are joined if the model has `exposures`, and
        others are what `Spectra.join_exposures` has made of them.
    strict : bool
        True to raise an exception at a spectrum that cannot be fitted. By default it is a row with a status.
    select : mapping, optional
        Selection of the spectra of files: "arms" (names), "target_ids" (an integer or several), "objtype" (a text),
        "min_sn" (a number), "any_fiberstatus" (True for DESI's fibres with a bad FIBERSTATUS, too), as the options of
        the command. Arrays take "arms" alone.
    max_memory : int, optional
        Bytes that all populations on a device may take.
    batch_size : int, optional
        Spectra that are fitted at once.
    cpu_fallback : bool, optional
        True to let the CPU fit what a GPU fails to fit twice; by default so for "auto" and "all".
    timeout : float, optional
        Seconds after which fits that have not ended get the status "interrupted"; None and infinity are no limit.
    threads : int, optional
        Threads of this run, 1 to 1024; by default those of `popfit.get_threads`.
    progress : bool or callable
        True shows a bar; a function is called with the numbers of finished and of all fits, on this thread.

    Returns
    -------
    FitTable
        One row for each spectrum, in their order; for each object, if exposures are joined.

    Warns
    -----
    PopfitWarning
        If no fit converged, if a fifth of ten or more carry a flag that asks for something, or if an array is not used.

    Raises
    ------
    InputError
        If model, spectra or settings are wrong; its `faults` are all wrong settings.
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
    settings = _settings(
        device=device,
        starts=starts,
        seed=seed,
        solver=solver,
        max_rounds=max_rounds,
        precision=precision,
        velocity_scan=velocity_scan,
        released_errors=released_errors,
        exposures=exposures,
        strict=strict,
        select=select,
        max_memory=max_memory,
        batch_size=batch_size,
        cpu_fallback=cpu_fallback,
        limits=(timeout, threads, progress),
    )
    model = _selected_model(model, settings["arms"])
    if settings["exposures"] is not None:
        model = model.with_exposures((model.exposures or "shared") if settings["exposures"] == "join" else None)
    source: Any
    if isinstance(spectra, Iterator):
        spectra = list(spectra)
    paths = _paths(spectra)
    held: Spectra | None = None
    if paths is None:
        held = as_spectra(spectra)
        if settings["exposures"] == "join":
            held = held.join_exposures()
        source = held._lent
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
    _warn_of_results(table.summary)
    return table


def fit_files(
    model: SpectralModel | Path | Mapping[str, Any],
    files: Path | Sequence[Path],
    output: Path,
    *,
    format: str = "table",
    per_file: bool = False,
    skip_existing: bool = False,
    input_root: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    models: Path | None = None,
    report: Path | None = None,
    device: str | Device = "auto",
    starts: int | None = None,
    seed: int = DEFAULT_SEED,
    solver: str | None = None,
    max_rounds: int | None = None,
    precision: str = "f32",
    velocity_scan: str | None = None,
    released_errors: bool | None = None,
    exposures: str | None = None,
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
        As in `fit`, but for the default of `velocity_scan`, which is "fixed" for the format "rvtab".
    files : path or sequence of paths
        Files of spectra, fitted one after another into one table.
    output : path
        Table to write; its name ends in .parquet, .fits or .csv. With `per_file`, a folder.
    format : {"table", "parquet", "fits", "csv", "rvtab"}
        popfit's table, of the kind that the name of `output` says or of this one, or that of rvspecfit.
    per_file : bool
        True for a table for each file NAME, in folders as those of the files: rvtab_NAME.fits and rvmod_NAME.fits for
        the format "rvtab", else NAME.parquet, .fits or .csv. A bad file does not stop the others: a warning names it.
    skip_existing : bool
        True to pass over files whose outputs are all there, which goes on with a run with `per_file`.
    input_root : path, optional
        With `per_file`, the folder below which `output` repeats the folders of the files, instead of the deepest one
        that has all of them.
    resume : bool
        True to go on with an interrupted run: what it has fitted is not fitted again.
    overwrite : bool
        True to replace files that exist.
    models : path, optional
        File for the best-fit spectra; its name ends in .fits. With `per_file`, a folder for models_NAME.fits.
    report : path, optional
        Folder of an HTML page about the run.

    Returns
    -------
    dict
        ``spectra``, ``converged`` and ``seconds``; ``statuses``, their numbers by name; ``bad_inputs``, causes of rows
        without a fit; ``flags``, sentences on flags that many rows carry; ``text``, the command's closing line. With
        `per_file` also ``written_files``, ``skipped_files`` and ``left_files`` (of a run that was ended early), their
        numbers, and ``failed_files``, causes by file.

    Raises
    ------
    FileExistsError
        If an output exists, and none of `overwrite`, `resume` and `skip_existing` is given.
    InputError, DeviceError
        As in `fit`.
    Interrupted
        At Ctrl-C; `resume` goes on.
    """
    settings = _settings(
        device=device,
        starts=starts,
        seed=seed,
        solver=solver,
        max_rounds=max_rounds,
        precision=precision,
        velocity_scan=velocity_scan,
        released_errors=released_errors,
        exposures=exposures,
        strict=strict,
        select=select,
        max_memory=max_memory,
        batch_size=batch_size,
        cpu_fallback=cpu_fallback,
        limits=(timeout, threads, progress),
    )
    model = _selected_model(model, settings["arms"])
    paths = _paths_of_files(files)
    written = {
        "path": os.fspath(output),
        "format": format,
        "per_file": per_file,
        "skip_existing": skip_existing,
        "input_root": None if input_root is None else os.fspath(input_root),
        "resume": resume,
        "overwrite": overwrite,
        "models": None if models is None else os.fspath(models),
        "report": None if report is None else os.fspath(report),
    }
    with progress_function(progress, "spectra") as on_progress:
        watch = _watch(on_progress, timeout, threads)
        try:
            summary, notes, stopped = _popfit.fit_files(model._model, paths, written, settings, watch)
        except KeyboardInterrupt as interrupt:  # before a table was written
            raise Interrupted(str(interrupt.__cause__ or "the run was interrupted")) from interrupt
    _tell(notes)
    _raise_stopped(stopped, None)
    _warn_of_results(summary | {"causes": summary["bad_inputs"]})
    return summary


def _warn_of_results(summary: Mapping[str, Any]) -> None:
    """Warn of a run without a fit that converged, and of flags that many rows of a larger run carry."""
    texts = list(summary["flags"]) if summary["spectra"] >= MANY_SPECTRA else []
    is_whole = "interrupted" not in summary["statuses"]
    if summary["spectra"] and not summary["converged"] and is_whole:
        texts.insert(0, "; ".join(["no fit converged", *summary["causes"][:1]]))
    if texts and _warns_of_results.get():
        warnings.warn("\n".join(texts), PopfitWarning, stacklevel=3)


@contextlib.contextmanager
def without_result_warnings() -> Iterator[None]:
    """Let runs end without a warning of their results: a drop-in has what it replaces says."""
    before = _warns_of_results.set(False)
    try:
        yield
    finally:
        _warns_of_results.reset(before)


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


def _selected_model(model: object, arms: list[str] | None) -> SpectralModel:
    """Return the model of a run, with the arms that are selected."""
    found = as_model(model)
    return found if arms is None else found.with_arms(arms)


def _watch(progress: Progress | None, timeout: float | None, threads: int | None) -> dict[str, Any]:
    """Return what a run takes from its caller, for Rust."""
    return {"progress": progress, "timeout": timeout_seconds(timeout), "threads": thread_count(threads)}


#: Settings of a run: the type, and of integers the smallest and the largest value, of texts those that are known.
_SETTINGS: dict[str, tuple[Any, ...]] = {
    "device": (Device,),
    "starts": (int, 1, 64),
    "seed": (int, 0, MAX_SEED),
    "solver": (str, "lm", "nelder-mead", "lm+nelder-mead"),
    "max_rounds": (int, 1, 2**32 - 1),
    "precision": (str, "f32", "f64", "mixed"),
    "velocity_scan": (str, "off", "fixed", "refitted"),
    "released_errors": (bool,),
    "exposures": (str, "join", "separate"),
    "strict": (bool,),
    "max_memory": (int, 1, 2**64 - 1),
    "batch_size": (int, 1, 2**31 - 1),
    "cpu_fallback": (bool,),
}
#: Whether runs of this thread or task warn of their results.
_warns_of_results: contextvars.ContextVar[bool] = contextvars.ContextVar("_warns_of_results", default=True)
#: Spectra of a run from which on its flags are a warning: of few, they are a matter of single rows.
MANY_SPECTRA = 10
#: Settings that None does not leave to the model or the device.
_REQUIRED = ("device", "seed", "precision", "strict")


def _settings(
    *,
    select: Mapping[str, Any] | None,
    limits: tuple[float | None, int | None, object] = (None, None, False),
    **settings: Any,
) -> dict[str, Any]:
    """Return the settings of a run for Rust, as Python's own types; timeout, threads and progress are checked alone.

    Raises
    ------
    InputError
        If settings have wrong types or values: `faults` has a sentence for each of them.
    """
    faults: list[InputError] = []
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        try:
            checked[name] = None if value is None and name not in _REQUIRED else _setting(name, value)
        except InputError as fault:
            faults.append(fault)
    timeout, threads, progress = limits
    checks: list[Callable[[], object]] = [
        lambda: checked.update(_selection({} if select is None else select)),
        lambda: timeout_seconds(timeout),
        lambda: thread_count(threads),
        lambda: check_progress(progress),
    ]
    for check in checks:
        try:
            check()
        except InputError as fault:
            faults.append(fault)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        messages = [fault.faults[0] for fault in faults]
        text = "".join(f"\n  {message}" for message in messages)
        raise InputError(f"{len(faults)} settings are invalid:{text}", argument=faults[0].argument, faults=messages)
    return checked


def _setting(name: str, value: Any) -> Any:
    """Return one setting as Python's own type; raises `InputError` if it is wrong."""
    kind, *limits = _SETTINGS[name]
    if kind is int:
        return check_integer(name, value, *limits)
    if kind is bool:
        return check_switch(name, value)
    if kind is str:
        return check_choice(name, value, limits)
    if value != "cpu":
        name_missing_driver()
    if isinstance(value, Device):
        return value.selector
    if isinstance(value, str):
        return str(value)
    raise InputError(
        f'{name}: {value!r}; give "auto", "all", "cpu", "gpu", "gpu:N", "gpu:pci=PLACE", "gpu:NAME" or a popfit.Device',
        argument=name,
    )


def _selection(select: object) -> dict[str, Any]:
    """Return which spectra of files are read, for Rust; raises `InputError` if it is wrong."""
    if not isinstance(select, Mapping):
        raise InputError(
            f"select: {type(select).__name__}; give a dict with the keys {', '.join(SELECTION_KEYS)}", argument="select"
        )
    for key in select:
        if key not in SELECTION_KEYS:
            meant = close_name(key, SELECTION_KEYS)
            raise InputError(
                f"select: unknown key {key!r}{meant} (known: {', '.join(SELECTION_KEYS)})", argument="select"
            )
    arms, target_ids, objtype, min_sn, any_fiberstatus = (select.get(key) for key in SELECTION_KEYS)

    def wrong(key: str, wanted: str) -> InputError:
        return InputError(f"select: {key}: {select[key]!r}; give {wanted}", argument="select")

    if isinstance(arms, str):
        arms = [arms]
    if arms is not None and not (_is_list(arms) and all(isinstance(arm, str) for arm in arms)):
        raise wrong("arms", "a list of names")
    if target_ids is not None:
        given = target_ids if _is_list(target_ids) else [target_ids]
        try:
            target_ids = [check_integer("target_ids", one, -(2**63), 2**63 - 1) for one in given]
        except InputError:
            raise wrong("target_ids", "an integer or a list of integers of 64 bits") from None
    if objtype is not None and not isinstance(objtype, str):
        raise wrong("objtype", 'a text such as "TGT"')
    if min_sn is not None and not is_number(min_sn):
        raise wrong("min_sn", "a number")
    try:
        any_fiberstatus = any_fiberstatus is not None and check_switch("any_fiberstatus", any_fiberstatus)
    except InputError:
        raise wrong("any_fiberstatus", "True or False") from None
    return {
        "any_fiberstatus": any_fiberstatus,
        "arms": None if arms is None else [str(arm) for arm in arms],
        "target_ids": target_ids,
        "objtype": objtype,
        "min_sn": None if min_sn is None else float(min_sn),
    }


def _is_list(values: object) -> bool:
    """Return True for a sequence, set or one-dimensional array that is no text."""
    if isinstance(values, str | bytes | Mapping):
        return False
    return getattr(values, "ndim", 1) == 1 and isinstance(values, Iterable)


def _paths(spectra: object) -> list[str] | None:
    """Return the paths of files if `spectra` is one or several, else None."""
    if isinstance(spectra, str | os.PathLike):
        return [os.fspath(spectra)]
    if isinstance(spectra, Sequence) and spectra and all(isinstance(one, str | os.PathLike) for one in spectra):
        return [os.fspath(one) for one in spectra]
    return None


def _paths_of_files(files: object) -> list[str]:
    """Return the paths of files of spectra; raises `InputError` if there are none, `TypeError` if they are no paths."""
    files = list(files) if isinstance(files, Iterator) else files
    if isinstance(files, Sequence) and not files:
        raise InputError("files: an empty list; did a pattern match no file?", argument="files")
    paths = _paths(files)
    if paths is None:
        raise TypeError("files: give a path or a sequence of paths; popfit.fit takes arrays")
    return paths


def _raise_stopped(stopped: BaseException | None, table: FitTable | None) -> None:
    """Raise what ended a run early: `Interrupted` for Ctrl-C, else the exception of the function for progress."""
    if isinstance(stopped, KeyboardInterrupt):
        raise Interrupted("the run was interrupted", table=table) from stopped
    if stopped is not None:
        raise stopped
