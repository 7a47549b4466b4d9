"""Devices that fits can run on, and the number of threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from popfit import _popfit
from popfit._checks import check_integer
from popfit._errors import InputError

#: Largest number of threads of a run.
MAX_THREADS = 1024


@dataclass(frozen=True)
class Device:
    """A device: give its `selector` to `popfit.fit`."""

    selector: str
    #: Name of the processor or adapter.
    name: str
    #: ``"cpu"``, ``"discrete"``, ``"integrated"``, ``"virtual"``, ``"software"`` or ``"other"``.
    kind: str
    #: True for an adapter that a program on the CPU plays.
    software: bool
    #: Address on the PCI bus, where the driver tells it.
    pci: str | None
    #: Bytes of memory, where they are known.
    memory: int | None
    #: Interface through which the adapter is used, such as ``"Vulkan"``.
    backend: str
    #: Name and version of the adapter's driver.
    driver: str
    #: Limits of buffers and workgroups, as text.
    limits: str
    #: Kernels that this adapter gets, as text.
    kernels: str


@dataclass(frozen=True, repr=False)
class Devices(Sequence[Device]):
    """The devices of this machine, as a sequence."""

    #: Selector of the device that ``device="auto"`` takes; None if the environment asks for one that is not there.
    auto: str | None
    #: Reason why ``"auto"`` takes it.
    auto_reason: str
    #: Notes on GPUs that are missing, and what to do about it.
    notes: list[str]
    _devices: list[Device]

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self._devices)

    def __iter__(self) -> Iterator[Device]:
        """Return an iterator over the devices."""
        return iter(self._devices)

    @overload
    def __getitem__(self, index: int) -> Device: ...

    @overload
    def __getitem__(self, index: slice) -> list[Device]: ...

    def __getitem__(self, index: int | slice) -> Device | list[Device]:
        """Return one device, or several as a list."""
        return self._devices[index]

    def __repr__(self) -> str:
        """Return a line for each device, and the notes."""
        return "\n".join([*map(self._line, self), *self.notes])

    def _line(self, device: Device) -> str:
        """Return selector, name, kind and driver of a device."""
        mark = " (auto)" if device.selector == self.auto else ""
        return f"{device.selector}{mark}: {', '.join(filter(None, (device.name, device.kind, device.driver)))}"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from html import escape

        head = "<tr><th>device</th><th>name</th><th>kind</th><th>driver</th><th>memory</th></tr>"
        rows = "".join(
            f"<tr><td>{escape(one.selector)}{' (auto)' if one.selector == self.auto else ''}</td>"
            f"<td>{escape(one.name)}</td><td>{escape(one.kind)}</td><td>{escape(one.driver)}</td>"
            f"<td>{'' if one.memory is None else f'{one.memory / 2**30:.1f} GiB'}</td></tr>"
            for one in self
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{head}{rows}</table>{notes}"


def devices() -> Devices:
    """Return the devices of this machine, and why a GPU may be missing.

    Examples
    --------
    >>> import popfit
    >>> [device.selector for device in popfit.devices()][0]
    'cpu'
    """
    name_missing_driver()
    found, auto, auto_reason, notes = _popfit.devices()
    return Devices(auto, auto_reason, notes, [Device(**entry) for entry in found])


@functools.cache
def name_missing_driver() -> None:
    """Let the Vulkan loader find an NVIDIA card whose driver has no manifest, as in containers made for CUDA."""
    manifest = _popfit.driver_to_add()
    if manifest is not None:
        earlier = os.environ.get("VK_ADD_DRIVER_FILES")
        os.environ["VK_ADD_DRIVER_FILES"] = f"{earlier}:{manifest}" if earlier else manifest


_threads: int | None = None


def set_threads(n: int | None) -> None:
    """Set the number of threads of all runs that do not say their own.

    Parameters
    ----------
    n : int or None
        Number of threads, 1 to 1024; None for that of the environment.

    Raises
    ------
    InputError
        If `n` is no integer from 1 to 1024.

    Examples
    --------
    >>> import popfit
    >>> popfit.set_threads(2)
    >>> popfit.get_threads()
    2
    >>> popfit.set_threads(None)
    """
    global _threads
    _threads = None if n is None else check_integer("threads", n, 1, MAX_THREADS)


def get_threads() -> int:
    """Return the number of threads of a run that does not say its own.

    It is that of `set_threads`, else of the environment variables POPFIT_THREADS or RAYON_NUM_THREADS, else the number
    of processors that this process may use.

    Raises
    ------
    InputError
        If the environment has no integer from 1 to 1024; 0 stands for the number of processors.
    """
    if _threads is not None:
        return _threads
    for variable in ("POPFIT_THREADS", "RAYON_NUM_THREADS"):
        text = os.environ.get(variable, "").strip()
        if text and text != "0":
            number = int(text) if text.isdecimal() and len(text) < 10 else 0
            if not 1 <= number <= MAX_THREADS:
                raise InputError(
                    f"{variable}={text}: give a number of threads from 1 to {MAX_THREADS}", argument="threads"
                )
            return number
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(processors or 1, MAX_THREADS)


def thread_count(threads: int | None) -> int:
    """Return the number of threads of a run: `threads` if it is given, else that of `get_threads`.

    Raises
    ------
    InputError
        If `threads` is no integer from 1 to 1024.
    """
    return get_threads() if threads is None else check_integer("threads", threads, 1, MAX_THREADS)
