"""Fits on Dask: surveys, with one task for each part of a plan, and curves along an axis of arrays, block by block.

`fit` fits files on a cluster, and `LocalGPUCluster` is one with a worker for each GPU. `fit_blocks` fits dask arrays.

Dask may run a task several times and forgets all of them when its scheduler dies, so the *output* of a survey is
idempotent: a part that is there is done, and calling `fit` again goes on. Nothing but names, hashes and counts passes
the scheduler; spectra and rows go from and to the disk, which all workers see.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from popfit._blocks import BlockFits, fit_blocks
from popfit._checks import check_integer, check_switch
from popfit._errors import DeviceError, Error, ExistingFileError, InputError
from popfit._gpu_cluster import LocalGPUCluster
from popfit.devices import Device
from popfit.model import SpectralModel
from popfit.spectra import Path
from popfit.surveys import ATTEMPTS, FailedPart, FittedPart, Plan, plan

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["BlockFits", "LocalGPUCluster", "PartsFailed", "fit", "fit_blocks", "fit_plan"]

#: Tasks that wait in the scheduler for each thread of the cluster.
TASKS_PER_THREAD = 4
#: How often a part is tried, however its workers end: clusters stop workers that do nothing wrong.
MAX_TRIES = 20

#: Plans that this process has opened: a worker opens the model and the device once, for all of its tasks.
_plans: dict[str, Plan] = {}


class PartsFailed(Error):
    """Some parts failed as often as they may; all others are there.

    Attributes
    ----------
    failed : list of FailedPart
        The parts, with their files and causes.
    plan : Plan
        The plan.
    """

    def __init__(self, plan: Plan, failed: list[FailedPart]) -> None:
        self.plan = plan
        self.failed = failed
        causes = "".join(f"\n  part {part.part} ({', '.join(part.files)}): {part.causes[-1]}" for part in failed[:5])
        more = f"\n  … and {len(failed) - 5} more" if len(failed) > 5 else ""
        super().__init__(
            f"{len(failed)} of {len(plan)} parts failed; the others are in {plan.folder}, and fitting again goes on "
            f"with what is missing:{causes}{more}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plan and the parts."""
        return (PartsFailed, (self.plan, self.failed))


def fit(
    model: SpectralModel | Path | Mapping[str, Any],
    files: Path | Sequence[Path],
    output: Path,
    *,
    client: Client | None = None,
    folder: Path | None = None,
    device: str | Device = "auto",
    parts: int | None = None,
    part_rows: int | None = None,
    retries: int = ATTEMPTS,
    overwrite: bool = False,
    mixed_devices: bool = False,
    resources: Mapping[str, float] | None = None,
    **settings: Any,
) -> Any:
    """Fit files of spectra on a Dask cluster, into the table that one run of `popfit.fit_files` writes.

    Parameters
    ----------
    model, files, parts, part_rows
        As in `popfit.surveys.plan`.
    output : path
        The table, whose name ends in .parquet, .fits or .csv.
    client : distributed.Client, optional
        The cluster; the current client unless given.
    folder : path, optional
        Folder for plan and parts, which all workers see; the name of `output` with ``.parts`` unless given. Its parts
        stay, and fitting again goes on with those that are missing.
    device : str or Device
        Device of each worker, as in `popfit.fit`; "gpu" with `LocalGPUCluster`, whose workers see one adapter each.
    retries : int
        How often a part is tried before it counts as failed.
    overwrite : bool
        True to replace a table that exists.
    mixed_devices : bool
        True to accept parts of devices of different kinds.
    resources : mapping, optional
        Dask's resources that a task asks for, such as ``{"GPU": 1}``.
    **settings
        Settings of the fits, as in `popfit.surveys.plan`. The threads of a worker are shared by its tasks.

    Returns
    -------
    pyarrow.dataset.Dataset
        The parts, as one table that is not in memory; the path of `output` where pyarrow is missing.

    Raises
    ------
    PartsFailed
        If parts failed; the others are there, and fitting again goes on.
    InputError
        If model, files or settings are wrong.
    FileExistsError
        If the table exists, and `overwrite` is False.
    """
    output = os.fsdecode(output)
    if os.path.splitext(output)[1].lower() not in (".parquet", ".fits", ".csv"):
        raise InputError(f"output: {output!r}; its name ends in .parquet, .fits or .csv", argument="output")
    overwrite = check_switch("overwrite", overwrite)
    mixed_devices = check_switch("mixed_devices", mixed_devices)
    client = _client_of(client)
    if os.path.exists(output) and not overwrite:
        message = f"{output}: this file exists already; give overwrite=True, or another name"
        raise ExistingFileError(message, path=output)
    made = plan(
        model,
        files,
        f"{output}.parts" if folder is None else folder,
        parts=parts,
        part_rows=part_rows,
        **settings,
    )
    fit_plan(made, client=client, device=device, retries=retries, resources=resources)
    made.merge(output, overwrite=overwrite, mixed_devices=mixed_devices)
    try:
        return made.dataset()
    except ImportError:
        return output


def fit_plan(
    plan: Plan | Path,
    *,
    client: Client | None = None,
    device: str | Device = "auto",
    retries: int = ATTEMPTS,
    resources: Mapping[str, float] | None = None,
) -> list[FittedPart]:
    """Fit the missing parts of a plan on a Dask cluster; the arguments are those of `fit`.

    Returns
    -------
    list of FittedPart
        What came of each part that was missing, in the order in which they ended.

    Raises
    ------
    PartsFailed
        If parts failed; the others are there.
    """
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    plan = plan if isinstance(plan, Plan) else Plan(plan)
    attempts = check_integer("retries", retries, 1, 2**31 - 1)
    client = _client_of(client)
    selector = device.selector if isinstance(device, Device) else device
    try:
        fitted = _fit_missing(client, plan, selector, attempts, resources)
    except (FutureCancelledError, CommClosedError) as error:
        message = "the cluster is gone, or has lost its tasks; what is fitted is on the disk, and fitting again goes on"
        raise Error(message) from error
    failed = plan.failures(attempts)
    if plan.missing():
        raise PartsFailed(plan, failed)
    return fitted


def _fit_missing(
    client: Any, plan: Plan, device: str, attempts: int, resources: Mapping[str, float] | None
) -> list[FittedPart]:
    """Fit the missing parts of a plan, each until it is there or has failed so many times."""
    import distributed

    tasks_per_machine = _tasks_per_machine(client)
    tries: Counter[int] = Counter()
    errors: Counter[int] = Counter()
    numbers = itertools.count()
    part_of_key: dict[str, int] = {}
    unfit: set[str] = set()  # workers that cannot fit any part

    def submit(part: int) -> Any:
        name = os.path.basename(plan.path(part))
        tries[part] += 1
        key = f"popfit-{name}-{next(numbers)}"  # a key that ended with an error is not run again
        part_of_key[key] = part
        task = (plan.folder, part, name, device, tasks_per_machine)
        fit = sorted(set(client.scheduler_info(n_workers=-1)["workers"]) - unfit) if unfit else None
        # others may take it if these are gone: workers that are started anew have other addresses
        where = {"workers": fit, "allow_other_workers": True} if fit else {}
        return client.submit(_fit_part, *task, key=key, pure=False, resources=dict(resources or {}) or None, **where)

    # 1. Keep the scheduler busy, but not full: a survey may have a million parts.
    waiting = iter(plan.missing())
    tasks = TASKS_PER_THREAD * max(sum(client.nthreads().values()), 1)
    as_completed: Any = distributed.as_completed
    running = as_completed([submit(part) for part in itertools.islice(waiting, tasks)])
    # 2. Take what has ended, and submit the same part again, or the next.
    fitted: list[FittedPart] = []
    for future in running:
        part = part_of_key.pop(future.key)
        result = _result_of(future)
        if isinstance(result, FittedPart):
            fitted.append(result)
        elif result is None:
            plan.record_loss(part, "a worker of Dask")
        elif isinstance(result, _UnfitWorker):
            unfit.add(result.address)
            tries[part] -= 1
            if not set(client.scheduler_info(n_workers=-1)["workers"]) - unfit:
                raise Error(f"no worker can fit parts; the last, {result.address}: {result.cause}")
        else:
            errors[part] += 1
        is_open = not isinstance(result, FittedPart) and errors[part] < attempts and tries[part] < MAX_TRIES
        following = part if is_open else next(waiting, None)
        if following is not None:
            running.add(submit(following))
    return fitted


@dataclass(frozen=True)
class _UnfitWorker:
    """A worker that can fit no part: its device, its model's files or the plan's folder fail."""

    address: str
    cause: str


def _fit_part(
    folder: str, part: int, name: str, device: str, tasks_per_machine: int
) -> FittedPart | _UnfitWorker | str:
    """Fit the part of this name on a worker; an error of the part is kept beside the plan, and its text returned."""
    try:
        plan = _plans.get(folder)
        if plan is None or os.path.basename(plan.path(part)) != name:  # the folder has another plan by now
            plan = _plans[folder] = Plan(folder)
        plan.warm_up(device=device)
    except (Error, OSError) as error:
        return _UnfitWorker(_address(), str(error))
    try:
        return plan.fit_part(part, device=device, threads=max(1, _cores() // tasks_per_machine))
    except (Error, OSError) as error:
        if isinstance(error, DeviceError) or _is_in(getattr(error, "path", None), folder):
            return _UnfitWorker(_address(), str(error))
        plan.record_failure(part, error)
        return str(error)


def _address() -> str:
    """Return the address of the worker that runs this task."""
    import distributed

    address: str = distributed.get_worker().address
    return address


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_in(path: object, folder: str) -> bool:
    """Return True if a path is that of a file that workers write into the folder of a plan."""
    if not isinstance(path, str | os.PathLike):
        return False
    parent, name = os.path.split(os.path.abspath(os.fspath(path)))
    return parent == folder and name.lstrip(".").startswith(("part-", "failed-"))


def _client_of(client: Client | None) -> Client:
    """Return the client, or the current one."""
    import distributed

    if client is None:
        found: Client = distributed.get_client()
        return found
    if not isinstance(client, distributed.Client):
        raise InputError(f"client: {client!r}; give a distributed.Client", argument="client")
    return client


def _result_of(future: Any) -> FittedPart | _UnfitWorker | str | None:
    """Return the result of a task, or None if the workers that had it were lost."""
    from distributed import KilledWorker

    error = future.exception()
    if error is None:
        result: FittedPart | _UnfitWorker | str = future.result()
        return result
    if isinstance(error, KilledWorker):
        return None
    raise error


def _tasks_per_machine(client: Client) -> int:
    """Return the largest number of tasks that run on one machine at once."""
    tasks: Counter[str] = Counter()
    for worker in client.scheduler_info(n_workers=-1)["workers"].values():
        tasks[worker["host"]] += worker["nthreads"]
    return max(tasks.values(), default=1)
