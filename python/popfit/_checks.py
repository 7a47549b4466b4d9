"""Checks of the numbers, names and arrays that users give."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit._arrays import lendable
from popfit._errors import InputError

#: Longest time that a run is limited to, in seconds; a longer one is no limit.
LONGEST_TIMEOUT = 1e9


def check_integer(name: str, value: Any, smallest: int, largest: int) -> int:
    """Return an integer of Python or numpy as Python's.

    Raises
    ------
    InputError
        If `value` is no integer (a truth value is none), or not from `smallest` to `largest`.
    """
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
        if smallest <= number <= largest:
            return number
    except TypeError:
        pass
    raise InputError(f"{name}: {value!r}; give an integer from {smallest} to {largest}", argument=name)


def is_number(value: object) -> bool:
    """Return True for a finite real number of Python or numpy, which a truth value is not."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_switch(name: str, value: Any) -> bool:
    """Return a truth value of Python or numpy as Python's.

    Raises
    ------
    InputError
        If `value` is none.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(f"{name}: {value!r}; give True or False", argument=name)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return a text that is one of several.

    Raises
    ------
    InputError
        If `value` is none of them.
    """
    if isinstance(value, str) and value in choices:
        return str(value)
    quoted = [f'"{choice}"' for choice in choices]
    raise InputError(
        f"{name}: {value!r}; give {', '.join(quoted[:-1])} or {quoted[-1]}{close_name(value, choices)}", argument=name
    )


def close_name(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known name that is most like `name`, or nothing if none is like it."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {found[0]!r}?" if found else ""


def check_real_array(argument: str, name: str, values: object) -> npt.NDArray[Any]:
    """Return values as an array of real numbers, that Rust can be lent.

    Raises
    ------
    InputError
        If `values` are no real numbers. The message says `name`, which may be a part of the `argument`.
    """
    try:
        array = lendable(name, values)
    except InputError as error:
        error.argument = argument
        raise
    if isinstance(array, tuple):
        raise InputError(f"{name}: texts; give real numbers", argument=argument)
    return array


def timeout_seconds(timeout: float | None) -> float | None:
    """Return the seconds after which a run ends, or None if it has no limit.

    Raises
    ------
    InputError
        If `timeout` is no number, or negative.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not timeout >= 0:
        raise InputError(f"timeout: {timeout!r}; give a number of seconds from 0, or None", argument="timeout")
    return float(timeout) if timeout <= LONGEST_TIMEOUT else None
