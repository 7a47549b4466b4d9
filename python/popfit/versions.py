"""Versions of what popfit runs with, for reports of faults."""

from __future__ import annotations

import sys

from popfit import _popfit
from popfit.devices import devices, get_threads

#: Packages whose versions matter.
PACKAGES = ("numpy", "astropy", "specutils", "rvspecfit", "torch", "pandas", "pyarrow", "polars", "matplotlib", "tqdm")


def show_versions() -> None:
    """Print the versions of popfit, Python, the system and related packages, and the devices.

    Examples
    --------
    >>> import popfit
    >>> popfit.show_versions()  # doctest: +ELLIPSIS
    popfit ...
    """
    import importlib.metadata
    import platform

    print(f"popfit {_popfit.VERSION}")
    print(f"Python {sys.version.split()[0]}, {platform.platform()}")
    for package in PACKAGES:
        try:
            print(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    print(devices())
    print(f"threads: {get_threads()}")
