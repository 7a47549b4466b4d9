"""The command ``popfit``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from popfit import _popfit
from popfit.devices import name_missing_driver


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command ``popfit`` with these arguments, by default this process's, and return its exit code.

    Ctrl-C ends a fit with what it has.

    Examples
    --------
    >>> import popfit
    >>> popfit.main(["schema", "--output", "/nonexistent/schema.json"])
    2
    """
    name_missing_driver()
    return _popfit.run_command(["popfit", *(sys.argv[1:] if argv is None else argv)], False)


def command() -> None:
    """Run the command ``popfit`` as this process, and exit."""
    # The command ends at Ctrl-C by itself; Python would print a traceback over that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_popfit.run_command(["popfit", *sys.argv[1:]], True))
