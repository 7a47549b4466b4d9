"""Keys of a model file, made of the values of Python, numpy and astropy that `popfit.SpectralModel` takes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from popfit._arrays import without_unit
from popfit._checks import check_integer, is_number
from popfit._errors import InputError


def parameter_keys(name: str, given: object) -> dict[str, Any]:
    """Return the model file's table of a velocity or vsini."""
    if isinstance(given, Mapping):
        return dict(plain_value(given, "km/s"))
    plain = plain_value(given, "km/s")
    if is_number(plain):
        return {"fixed": float(plain)}
    pair = number_pair(plain)
    if pair is None:
        raise InputError(
            f"{name}: {given!r}; give a number, a pair (low, high) in km/s, or a dict with the keys of [{name}]",
            argument=name,
        )
    return {"range": pair}


def labels_keys(labels: object, units: Mapping[str, str]) -> dict[str, Any]:
    """Return the model file's tables of labels, whose units are the networks'."""
    if not isinstance(labels, Mapping):
        raise InputError(f'labels: {type(labels).__name__}; give a dict such as {{"teff": 5000}}', argument="labels")
    keys: dict[str, Any] = {}
    for name, given in labels.items():
        unit = units.get(name, "")
        if isinstance(given, Mapping):
            keys[name] = plain_value(given, unit)
            continue
        plain = plain_value(given, unit)
        bounds = number_pair(plain)
        if bounds is not None:
            keys[name] = {"bounds": bounds}
            continue
        if not is_number(plain):
            raise InputError(
                f"labels: {name}: {given!r}; give a number, a range, or a dict with the keys of [labels.{name}]",
                argument="labels",
            )
        keys[name] = {"fixed": float(plain)}
    return keys


def mask_intervals(mask: object) -> list[list[float]]:
    """Return intervals in Å of one or several pairs of numbers or quantities."""
    plain = plain_value(mask, "Angstrom")
    if not isinstance(plain, list):
        raise InputError(f"mask: {mask!r}; give intervals (low, high) in Å", argument="mask")
    pair = number_pair(plain)
    intervals = [number_pair(one) for one in plain] if pair is None else [pair]
    for given, interval in zip(plain, intervals, strict=False):
        if interval is None:
            raise InputError(f"mask: {given!r}; give intervals (low, high) in Å", argument="mask")
    return [interval for interval in intervals if interval is not None]


def plain_value(value: object, unit: str) -> Any:
    """Return a value with its quantities in `unit`, its sequences and arrays as lists, and its mappings as dicts."""
    value = without_unit(value, unit)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain_value(one, unit) for one in value]
    if isinstance(value, Mapping):
        return {key: plain_value(one, unit) for key, one in value.items()}
    return value


def number_pair(values: object) -> list[float] | None:
    """Return a list of two numbers as floats; None for anything else."""
    if not isinstance(values, list) or len(values) != 2 or not all(map(is_number, values)):
        return None
    return [float(value) for value in values]


def continuum_keys(continuum: object, marginalise: bool) -> dict[str, Any]:
    """Return the model file's table of the continuum."""
    if isinstance(continuum, Mapping):
        keys = dict(continuum)
    elif isinstance(continuum, str):
        keys = {"kind": continuum}
    elif continuum is None:
        keys = {}
    else:
        try:
            keys = {"terms": check_integer("continuum", continuum, 1, 2**31)}
        except InputError:
            raise InputError(
                f"continuum: {continuum!r}; give a kind, a number of terms (an integer from 1), or a dict with the "
                "keys of [continuum]",
                argument="continuum",
            ) from None
    return {**keys, "marginalise": True} if marginalise else keys


def json_text(keys: Mapping[str, Any]) -> str:
    """Return keys as JSON, arrays and numbers of numpy among them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic) and not hasattr(value, "unit"):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise InputError(f"model: {type(value).__name__} {value!r} is no value of a model file", argument="model")

    return json.dumps(keys, default=plain)
