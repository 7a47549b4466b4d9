"""Progress of a run: a bar, or the user's function."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from popfit._errors import InputError

#: A function of the numbers of finished and of all fits.
Progress: TypeAlias = Callable[[int, int], object]

#: Width of the plain bar, in characters.
BAR_WIDTH = 40
#: Least time between two redraws of the plain bar, in seconds.
REDRAW_SECONDS = 0.2


def check_progress(progress: object) -> None:
    """Raise `InputError` if `progress` is neither a truth value nor a function."""
    if not (callable(progress) or isinstance(progress, bool)):
        raise InputError(
            f"progress: {progress!r}; give True, False or a function of the numbers of finished and of all fits",
            argument="progress",
        )


@contextlib.contextmanager
def progress_function(progress: bool | Progress, unit: str) -> Iterator[Progress | None]:
    """Yield the function that a run calls: the user's, that of a bar for True, or None for False.

    The bar is tqdm's where it is installed, else a plain one on standard error.

    Raises
    ------
    InputError
        If `progress` is neither a truth value nor a function.
    """
    check_progress(progress)
    if callable(progress):
        yield progress
    elif not progress:
        yield None
    else:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            bar = _PlainBar(unit)
            yield bar.show
            bar.end()
            return
        with tqdm(unit=unit, total=None) as shown:

            def update(done: int, total: int) -> None:
                shown.total = total
                shown.update(done - shown.n)

            yield update


class _PlainBar:
    """A bar on standard error, for terminals alone."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.last = 0.0
        self.text = ""

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or (done < total and now - self.last < REDRAW_SECONDS):
            return
        self.last = now
        filled = BAR_WIDTH * done // max(total, 1)
        self.text = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done:,} of {total:,} {self.unit}"
        print(f"\r{self.text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.text:
            print(file=sys.stderr)
