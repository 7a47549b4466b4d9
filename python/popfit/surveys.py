"""Fits of more spectra than one process can fit: a plan divides a run into parts, and any number of workers fit them.

`plan` writes a plan into a folder that all workers see; each calls `Plan.fit_part` (or the command ``popfit fit --plan
FOLDER --take``); `Plan.merge` makes of the parts the table that one run makes, byte for byte. A part is whole once it
is there, so that nothing is fitted twice, and a worker that dies costs its part alone. `popfit.dask` does all of this
on a Dask cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popfit import _popfit
from popfit._checks import check_integer, check_switch
from popfit._errors import InputError, Interrupted
from popfit._progress import Progress, progress_function
from popfit.devices import Device
from popfit.fitting import _paths_of_files, _selected_model, _settings, _tell, _watch
from popfit.model import DEFAULT_SEED, SpectralModel
from popfit.spectra import Path

__all__ = ["FailedPart", "FittedPart", "Plan", "plan"]

#: Spectra of a part, about.
PART_ROWS = 20_000
#: Errors after which a part is left alone.
ATTEMPTS = 3


@dataclass(frozen=True)
class FittedPart:
    """What came of a part: small enough for any scheduler, whatever the number of spectra.

    Attributes
    ----------
    part : int
        Index of the part.
    name : str
        Name of its table in the folder of the plan; it has the hash of all that the rows depend on.
    spectra : int
        Number of its spectra.
    statuses : dict of str to int
        Numbers of rows by status; empty if the part was there already.
    is_new : bool
        False if the part was there already.
    """

    part: int
    name: str
    spectra: int
    statuses: dict[str, int]
    is_new: bool


@dataclass(frozen=True)
class FailedPart:
    """A part that failed as often as it may.

    Attributes
    ----------
    part : int
        Index of the part.
    files : list of str
        Its files.
    causes : list of str
        Its errors, the last one last.
    """

    part: int
    files: list[str]
    causes: list[str]


class Plan:
    """A run over files in parts: the folder that has the manifest and the parts.

    Parameters
    ----------
    folder : path
        Folder in which `plan` or the command ``popfit plan`` has written a manifest.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    InputError
        If the manifest is damaged, or another version of popfit wrote it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import popfit, popfit.surveys
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> table = popfit.demo(folder)  # doctest: +ELLIPSIS
    parameter ...
    >>> plan = popfit.surveys.plan(folder / "model.toml", folder / "spectra.npz", folder / "run", parts=2)
    >>> plan.sizes
    [32, 32]
    >>> [plan.fit_part(part, device="cpu").is_new for part in plan.missing()]
    [True, True]
    >>> plan.merge(folder / "results.parquet")
    64
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.abspath(os.fsdecode(folder))
        self._plan = _popfit.Plan.open(self._folder)
        self._sizes = self._plan.parts
        self._workers: dict[tuple[Any, ...], _popfit.PlanWorker] = {}

    @property
    def folder(self) -> str:
        """Absolute path of the folder."""
        return self._folder

    @property
    def sizes(self) -> list[int]:
        """Number of spectra of each part."""
        return list(self._sizes)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self._sizes)

    def __repr__(self) -> str:
        """Return the folder, and how many of the parts are there."""
        parts = len(self)
        return f"Plan({self._folder!r}: {parts - len(self.missing())} of {parts} parts)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder alone: the plan is on the disk."""
        return (Plan, (self._folder,))

    def missing(self) -> list[int]:
        """Return the indices of the parts that are not there yet."""
        return self._plan.missing_parts()

    def path(self, part: int) -> str:
        """Return the path of a part's table, whether it is there or not."""
        return os.fspath(self._plan.part_path(self._index(part)))

    def fit_part(
        self,
        part: int,
        *,
        device: str | Device = "auto",
        max_memory: int | None = None,
        batch_size: int | None = None,
        cpu_fallback: bool | None = None,
        threads: int | None = None,
        progress: bool | Progress = False,
    ) -> FittedPart:
        """Fit a part and write its table, unless that is there already.

        The first call opens the model and the device, which later calls use again.

        Parameters
        ----------
        part : int
            Index of the part.
        device, max_memory, batch_size, cpu_fallback, threads, progress
            As in `popfit.fit`. The other settings are the plan's.

        Returns
        -------
        FittedPart
            Its name, hash and counts.

        Raises
        ------
        InputError
            If there is no such part, or a file is another than when the plan was made.
        DeviceError
            If the device is missing or fails.
        Interrupted
            At Ctrl-C; of the part nothing is left.
        """
        part = self._index(part)
        worker = self._worker(device, max_memory, batch_size, cpu_fallback)
        with progress_function(progress, "spectra") as on_progress:
            try:
                fitted = worker.fit_part(part, _watch(on_progress, None, threads))
            except KeyboardInterrupt as interrupt:
                raise Interrupted("the fit of the part was interrupted; nothing of it is left") from interrupt
        spectra, statuses = (self._sizes[part], {}) if fitted is None else fitted
        return FittedPart(part, os.path.basename(self.path(part)), spectra, statuses, fitted is not None)

    def warm_up(self, *, device: str | Device = "auto", **settings: Any) -> None:
        """Open the model and the device as the first `fit_part` with these settings does."""
        names = ("max_memory", "batch_size", "cpu_fallback")
        if unknown := set(settings) - set(names):
            raise TypeError(f"warm_up has no argument {min(unknown)!r}")
        self._worker(device, *(settings.get(name) for name in names))

    def record_failure(self, part: int, error: BaseException | str) -> None:
        """Keep an error of a part beside the plan, with those before."""
        self._plan.record_failure(self._index(part), str(error))

    def record_loss(self, part: int, worker: str) -> None:
        """Keep that a part's worker, of this name, was lost."""
        self._plan.record_loss(self._index(part), worker)

    def has_failed(self, part: int, attempts: int = ATTEMPTS) -> bool:
        """Return True if a part has failed `attempts` times."""
        return self._plan.has_failed(self._index(part), check_integer("attempts", attempts, 1, 2**31 - 1))

    def failures(self, attempts: int = ATTEMPTS) -> list[FailedPart]:
        """Return the parts that have failed `attempts` times, and write them into ``_failed.json`` in the folder."""
        listed = self._plan.list_failures(check_integer("attempts", attempts, 1, 2**31 - 1))
        return [FailedPart(part, [os.fspath(file) for file in files], causes) for part, files, causes in listed]

    def merge(self, output: Path, *, overwrite: bool = False, mixed_devices: bool = False) -> int:
        """Write the parts as one table, in their order: byte for byte that of one run on a device of their kind.

        Parameters
        ----------
        output : path
            The table, whose name ends in .parquet, .fits or .csv.
        overwrite : bool
            True to replace a table that exists.
        mixed_devices : bool
            True to accept parts that devices of different kinds made, whose rows may differ in their last bits.

        Returns
        -------
        int
            Number of rows.

        Raises
        ------
        InputError
            If parts are missing, damaged, or made by devices of different kinds.
        FileExistsError
            If the table exists, and `overwrite` is False.
        """
        rows, _ = self._plan.merge(
            os.fspath(output), check_switch("overwrite", overwrite), check_switch("mixed_devices", mixed_devices)
        )
        return rows

    def dataset(self) -> Any:
        """Return the parts that are there as a `pyarrow.dataset.Dataset`, in their order, without merging them."""
        import pyarrow.dataset  # type: ignore[import-untyped,unused-ignore]

        there = set(range(len(self))) - set(self.missing())
        return pyarrow.dataset.dataset([self.path(part) for part in sorted(there)], format="parquet")

    def _index(self, part: int) -> int:
        """Return the index of a part as Python's integer; raises `InputError` if there is none."""
        return check_integer("part", part, 0, len(self) - 1)

    def _worker(
        self, device: str | Device, max_memory: int | None, batch_size: int | None, cpu_fallback: bool | None
    ) -> _popfit.PlanWorker:
        """Return the open worker of these settings."""
        settings = _settings(
            **_SETTINGS_OF_PLANS,
            device=device,
            max_memory=max_memory,
            batch_size=batch_size,
            cpu_fallback=cpu_fallback,
            select=None,
        )
        key = tuple(settings[name] for name in ("device", "max_memory", "batch_size", "cpu_fallback"))
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers.setdefault(key, _popfit.PlanWorker.open(self._folder, settings))
        return worker


#: Settings that a worker takes from its plan: these are not looked at.
_SETTINGS_OF_PLANS: dict[str, Any] = {
    "starts": None,
    "seed": DEFAULT_SEED,
    "solver": None,
    "max_rounds": None,
    "precision": "f32",
    "velocity_scan": None,
    "released_errors": None,
    "exposures": None,
    "strict": False,
}


def plan(
    model: SpectralModel | Path | Mapping[str, Any],
    files: Path | Sequence[Path],
    folder: Path,
    *,
    parts: int | None = None,
    part_rows: int | None = None,
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
    threads: int | None = None,
) -> Plan:
    """Divide a run over files into parts, and write its manifest into a folder.

    All files are opened and checked as before a run, and read once for the hashes of their contents. Planning the same
    run in the same folder again changes nothing.

    Parameters
    ----------
    model : SpectralModel, path or mapping
        The model, whose networks are in files, because each worker opens them.
    files : path or sequence of paths
        Files of spectra, in the order of the rows. Workers find them from the folder in which the plan is made.
    folder : path
        Folder for manifest and parts, which all workers see; it is made if it is missing.
    parts : int, optional
        At most this many parts of about the same size: small files stay whole.
    part_rows : int, optional
        Instead of `parts`: about this many spectra per part, by default 20,000.
    starts, seed, solver, max_rounds, precision, velocity_scan, released_errors, exposures, strict, select, threads
        As in `popfit.fit`.

    Returns
    -------
    Plan
        The plan, of which nothing is fitted yet.

    Raises
    ------
    InputError
        If model, files or settings are wrong, or the folder has another plan.
    Interrupted
        At Ctrl-C.
    """
    settings = _settings(
        device="cpu",
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
        max_memory=None,
        batch_size=None,
        cpu_fallback=None,
        limits=(None, threads, False),
    )
    parts = None if parts is None else check_integer("parts", parts, 1, 2**63 - 1)
    part_rows = None if part_rows is None else check_integer("part_rows", part_rows, 1, 2**63 - 1)
    if parts is not None and part_rows is not None:
        raise InputError("part_rows: give it or parts, not both", argument="part_rows")
    model = _selected_model(model, settings["arms"])
    paths = _paths_of_files(files)
    place = os.fsdecode(folder)
    watch = _watch(None, None, threads)
    try:
        notes = _popfit.make_plan(model._model, paths, place, settings, parts, part_rows or PART_ROWS, watch)
    except KeyboardInterrupt as interrupt:
        raise Interrupted("the plan was interrupted; nothing was written") from interrupt
    _tell(notes)
    return Plan(place)
