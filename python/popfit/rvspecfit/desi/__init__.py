"""Fits of DESI's files, as ``rvspecfit.desi`` has them."""

from __future__ import annotations

from typing import Any

from popfit._rival import rival_attribute
from popfit.rvspecfit.desi import desi_fit


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.desi", name)


__all__ = ["desi_fit"]
