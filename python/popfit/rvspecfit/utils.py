"""Configurations, as ``rvspecfit.utils`` reads them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from popfit._rival import rival_attribute
from popfit.spectra import Path

_logger = logging.getLogger("popfit")

#: Keys of a configuration, and what they are without one.
_DEFAULTS: dict[str, Any] = {
    "min_vel": -1000,
    "max_vel": 1000,
    "vel_step0": 5,
    "max_vsini": 500,
    "min_vsini": 1e-2,
    "min_vel_step": 0.2,
    "second_minimizer": True,
    "template_lib": "templ_data/",
}


class frozendict(Mapping[str, Any]):
    """A mapping that cannot change, and that has a hash if its values have one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._dict: dict[str, Any] = dict(*args, **kwargs)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key."""
        return self._dict[key]

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the keys."""
        return iter(self._dict)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._dict)

    def __hash__(self) -> int:
        """Return a hash that does not depend on the order of the keys."""
        return hash(frozenset(self._dict.items()))

    def __repr__(self) -> str:
        """Return the values by their keys."""
        return f"<frozendict {self._dict!r}>"

    def copy(self, **add_or_replace: Any) -> frozendict:
        """Return a copy with some values added or replaced."""
        return frozendict(self._dict, **add_or_replace)


def get_default_config() -> dict[str, Any]:
    """Return the configuration that holds where a file has none."""
    return dict(_DEFAULTS)


def read_config(fname: Path | None = None, override_options: Mapping[str, Any] | None = None) -> frozendict:
    """Read a configuration file (YAML).

    Parameters
    ----------
    fname : path, optional
        The file; without it ``config.yaml`` of the working folder, and the defaults if there is none.
    override_options : mapping, optional
        Values that take the place of the file's.

    Returns
    -------
    frozendict
        The values by their keys, ``config_file_path`` among them.

    Raises
    ------
    RuntimeError
        If a file was named that does not exist.
    ImportError
        If PyYAML is missing.
    """
    path = "config.yaml" if fname is None else os.fspath(fname)
    values: dict[str, Any] = {}
    if os.path.exists(path):
        values = _read_yaml(path)
        if not values:
            _logger.warning("%s: the file is empty; the default configuration holds", path)
    elif fname is not None:
        raise RuntimeError(f"Configuration file '{path}' not found.")
    else:
        _logger.warning("%s: no such file; the default configuration holds", path)
    config = {**_DEFAULTS, **values, "config_file_path": os.path.abspath(path)}
    for key, value in (override_options or {}).items():
        if key in config and config[key] != value:
            _logger.warning("option %s takes the place of the value in the configuration file", key)
        config[key] = value
    frozen: frozendict = freezeDict(config)
    return frozen


def freezeDict(d: Any) -> Any:
    """Return a dict as a `frozendict`, with the dicts in it, a list as a tuple, and other values as they are."""
    if isinstance(d, dict):
        return frozendict({key: freezeDict(value) for key, value in d.items()})
    return tuple(d) if isinstance(d, list) else d


def _read_yaml(path: str) -> dict[str, Any]:
    """Return the values of a YAML file."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"{path}: configuration files need PyYAML (pip install pyyaml); a dict needs nothing"
        ) from error
    with open(path, encoding="utf-8") as file:
        values = yaml.safe_load(file)
    if values is not None and not isinstance(values, dict):
        raise RuntimeError(f"{path}: no configuration: give lines such as `template_lib: templates/`")
    return values or {}


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.utils", name)
