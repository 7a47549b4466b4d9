"""What drop-in replacements share: tables of differences, and the way to the packages that they replace."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

from popfit._arrays import warn_caller


class Difference(NamedTuple):
    """One row of a table of differences."""

    #: Function, argument or result that differs.
    subject: str
    #: What the package does that is replaced.
    rival: str
    #: What popfit does.
    popfit: str


def markdown_table(rival: str, differences: Sequence[Difference]) -> str:
    """Return a table of differences in Markdown, as the book has it."""
    lines = [f"| | {rival} | popfit |", "|---|---|---|"]
    lines += [f"| {one.subject} | {one.rival} | {one.popfit} |" for one in differences]
    return "\n".join(lines)


def rival_function(module: str, name: str, reason: str) -> Any:
    """Return what `module` calls `name`, for a call that popfit cannot answer, with one warning.

    Parameters
    ----------
    module : str
        Module of the package that is replaced, such as "rvspecfit.vel_fit".
    name : str
        Name of its function.
    reason : str
        Argument, with its value, that popfit has no answer to, or another reason.

    Raises
    ------
    NotImplementedError
        If the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise NotImplementedError(
            f"{reason}: popfit does not do this, and {package}, which does, cannot be imported: {error}"
        ) from error
    warn_caller(f"{reason}: popfit does not do this; {module}.{name} does it, slowly")
    return found


def rival_attribute(here: str, there: str, name: str) -> Any:
    """Return an attribute of the module `there`, which the module `here` replaces and does not have.

    Raises
    ------
    AttributeError
        If `there` does not have it either, or cannot be imported.
    """
    missing = f"module {here!r} has no attribute {name!r}"
    if name.startswith("__"):
        raise AttributeError(missing)
    try:
        module = importlib.import_module(there)
    except ImportError as error:
        raise AttributeError(f"{missing}, and {there}, which may have it, cannot be imported: {error}") from error
    if hasattr(module, name):
        return getattr(module, name)
    # a module of a package is no attribute before it has been imported
    if hasattr(module, "__path__") and importlib.util.find_spec(f"{there}.{name}") is not None:
        return importlib.import_module(f"{there}.{name}")
    raise AttributeError(f"{missing}, and {there} has none either")
