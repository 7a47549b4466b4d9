"""A Dask cluster with one worker process for each GPU of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import distributed
from distributed.system import MEMORY_LIMIT

from popfit._checks import check_switch, close_name
from popfit._errors import DeviceError, InputError
from popfit.devices import Device, Devices
from popfit.devices import devices as list_devices

#: Environment variable with the adapters that a process sees.
VISIBLE_DEVICES = "POPFIT_VISIBLE_DEVICES"
#: Kinds of adapters that get a worker unless others are asked for, as with ``device="all"``.
HARDWARE = ("discrete", "integrated")


class LocalGPUCluster(distributed.LocalCluster):
    """A Dask cluster on this machine with one worker process for each GPU.

    Each worker is a spawned process with one thread and the resource ``{"GPU": 1}``. It sees one adapter alone, because
    its ``POPFIT_VISIBLE_DEVICES`` names this one: ``device="gpu"`` is another card in each worker. Vulkan does not
    look at ``CUDA_VISIBLE_DEVICES``, and neither does this class. A worker that dies is started again with its adapter.

    Parameters
    ----------
    devices : sequence of Device or str, optional
        Adapters, one for each worker: members of `popfit.devices`, or selectors such as "gpu:1" or
        "gpu:pci=0000:81:00.0". An adapter that is listed twice gets two workers. By default each discrete and
        integrated GPU that this process sees has one.
    software : bool
        True for a worker for each software adapter, too.
    **options
        Further arguments of ``distributed.LocalCluster``, such as ``dashboard_address``, ``local_directory`` and
        ``env`` (environment variables of all workers). The memory limit of a worker is its share of this machine's
        memory unless ``memory_limit`` is given.

    Raises
    ------
    DeviceError
        If this process sees no adapter that gets a worker.
    InputError
        If `devices` names an adapter that this process does not see.

    Examples
    --------
    >>> import distributed, popfit
    >>> from popfit.dask import LocalGPUCluster
    >>> def fit_survey(model, files, output):
    ...     with LocalGPUCluster() as cluster, distributed.Client(cluster) as client:
    ...         return popfit.dask.fit(model, files, output, client=client, device="gpu")
    >>> LocalGPUCluster(["gpu:999"])
    Traceback (most recent call last):
    popfit._errors.InputError: devices: 'gpu:999' is no adapter that this process sees: ...
    """

    def __init__(
        self, devices: Sequence[Device | str] | None = None, *, software: bool = False, **options: Any
    ) -> None:
        for fixed in ("n_workers", "threads_per_worker", "processes", "worker_class"):
            if fixed in options:
                raise TypeError(
                    f"LocalGPUCluster has no argument {fixed!r}: it has one worker process for each adapter"
                )
        present = list_devices()
        adapters = _choose_adapters(present, devices, check_switch("software", software))
        seen = _adapters_of(present)
        #: Adapter of each worker, by the name of the worker.
        self.adapters: dict[int, Device] = dict(enumerate(adapters))
        self._entries = [_visible_entry(one, seen, os.environ.get(VISIBLE_DEVICES, "")) for one in adapters]
        self._environment: Mapping[str, Any] = options.pop("env", None) or {}
        options.setdefault("memory_limit", MEMORY_LIMIT // len(adapters))
        start: Any = super().__init__
        start(n_workers=0, threads_per_worker=1, processes=True, **options)
        cluster: Any = self
        cluster.scale(len(adapters))
        if not self.asynchronous:
            cluster.sync(self._correct_state)

    def new_worker_spec(self) -> dict[int, dict[str, Any]]:
        """Return the name and the specification of a worker for the first adapter that has none.

        Raises
        ------
        InputError
            If each adapter has its worker: such a cluster does not grow.
        """
        free = [name for name in self.adapters if name not in self.worker_spec]
        if not free:
            raise InputError(
                f"scale: each of the {len(self.adapters)} adapters has its worker; list one twice in devices=[…] "
                "for two workers of it",
                argument="n",
            )
        environment = {**self._environment, VISIBLE_DEVICES: self._entries[free[0]]}
        options = {**self.new_spec["options"], "env": environment, "resources": {"GPU": 1}}
        return {free[0]: {**self.new_spec, "options": options}}


def _adapters_of(present: Devices) -> list[Device]:
    """Return the adapters among the devices: all but the processor."""
    return [one for one in present if one.kind != "cpu"]


def _choose_adapters(present: Devices, wanted: Sequence[Device | str] | None, software: bool) -> list[Device]:
    """Return the adapters that get a worker each."""
    seen = _adapters_of(present)
    if wanted is None:
        # Two adapters of one name under two backends are the same card; under one backend they are two cards.
        backends = {one.name: one.backend for one in reversed(seen)}
        distinct = [one for one in seen if one.backend == backends[one.name]]
        found = [one for one in distinct if one.kind in HARDWARE or (software and one.software)]
        if not found:
            raise DeviceError(_describe_absence(present, seen))
        return found
    if isinstance(wanted, str | Device):
        wanted = [wanted]
    if not len(wanted):
        raise InputError("devices: an empty list; a cluster needs an adapter", argument="devices")
    return [_find_adapter(one, seen) for one in wanted]


def _find_adapter(wanted: Device | str, seen: Sequence[Device]) -> Device:
    """Return the adapter that a device or a selector names."""
    selector = wanted.selector if isinstance(wanted, Device) else wanted
    if not isinstance(selector, str):
        raise InputError(f"devices: {wanted!r}; give members of popfit.devices(), or selectors", argument="devices")
    kind, _, name = selector.partition(":")
    place = name.removeprefix("pci=")
    for one in seen if kind == "gpu" and name else ():
        if name.isdecimal():
            is_meant = one.selector == selector
        elif place != name:
            is_meant = one.pci is not None and _parse_place(one.pci) == _parse_place(place) is not None
        else:
            is_meant = name.lower() in one.name.lower()
        if is_meant:
            return one
    known = ", ".join(f"{one.selector} ({one.name})" for one in seen) or "none at all"
    raise InputError(
        f"devices: {selector!r} is no adapter that this process sees: {known}"
        f"{close_name(selector, [one.selector for one in seen])}",
        argument="devices",
    )


def _parse_place(place: str) -> list[int] | None:
    """Return the numbers of a place on the PCI bus, with domain 0 where it has none; None if it is no place."""
    try:
        numbers = [int(part, 16) for part in place.replace(".", ":").split(":")]
    except ValueError:
        return None
    return [0, *numbers] if len(numbers) == 3 else numbers


def _visible_entry(adapter: Device, seen: Sequence[Device], visible: str) -> str:
    """Return the entry of ``POPFIT_VISIBLE_DEVICES`` that names an adapter in another process.

    Parameters
    ----------
    adapter : Device
        The adapter.
    seen : sequence of Device
        All adapters that this process sees, in its order.
    visible : str
        This process' own ``POPFIT_VISIBLE_DEVICES``, whose entries number the adapters; empty without one.

    Raises
    ------
    InputError
        If the variable names an adapter twice, so that its entries are not the adapters one by one.
    """
    if adapter.pci:
        return adapter.pci
    index = next(k for k, one in enumerate(seen) if one.selector == adapter.selector)
    if not visible.strip():
        return str(index)
    entries = [entry.strip() for entry in visible.split(",")]
    if len(entries) != len(seen):
        raise InputError(f"{VISIBLE_DEVICES}={visible}: name each adapter once", argument="devices")
    return entries[index]


def _describe_absence(present: Devices, seen: Sequence[Device]) -> str:
    """Return a message that no GPU is there, what is there instead, and why."""
    others = ", ".join(f"{one.selector} ({one.name}, {one.kind})" for one in seen)
    hint = f" It sees {others}: give software=True, or devices=[…], for workers of these." if seen else ""
    return " ".join(["LocalGPUCluster: this process sees no discrete or integrated GPU." + hint, *present.notes])
