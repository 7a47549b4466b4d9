"""Fits populations of stellar spectra at once.

popfit measures velocities and labels (effective temperature, surface gravity, metallicity, …) of many stars by χ² fits;
a neural network is the model spectrum. `fit` takes a model and spectra, and returns a table:

>>> import popfit
>>> model, spectra = popfit.demo_data()
>>> table = popfit.fit(model, spectra, device="cpu")
>>> table["velocity"][:3].round(1).shape
(3,)

`fit_files` does the same for files of any size. `curve_fit` and `CurveFitter` fit curves of any model, by the million.
`popfit.rvspecfit`, `popfit.payne`, `popfit.scipy`, `popfit.lmfit`, `popfit.astropy`, `popfit.gpufit` and
`popfit.xarray` are drop-in replacements: change the import, nothing else.
"""

from __future__ import annotations

import atexit
import os

from popfit import _popfit
from popfit._command import main
from popfit._curve_fit import curve_fit
from popfit._errors import DeviceError, Error, ForkError, InputError, InternalError, Interrupted, PopfitWarning
from popfit.curves import CurveFits, CurveFitter
from popfit.demo import demo, demo_data
from popfit.devices import Device, Devices, devices, get_threads, set_threads
from popfit.fitting import fit, fit_files
from popfit.formula import Formula
from popfit.model import Emulator, SpectralModel
from popfit.spectra import Spectra
from popfit.spline import Spline
from popfit.table import FitTable
from popfit.versions import show_versions

__version__: str = _popfit.VERSION
#: How to cite popfit.
__citation__: str = f"popfit, version {__version__}: population fits of spectra with neural-network emulators"

if hasattr(os, "register_at_fork"):
    # Threads and devices do not survive a fork: a child of a process that has fitted is refused, and does not hang.
    os.register_at_fork(after_in_child=_popfit.after_fork)
# Drivers of GPUs must be closed on the main thread, before the interpreter ends.
atexit.register(_popfit.close_devices)

__all__ = [
    "CurveFits",
    "CurveFitter",
    "Device",
    "DeviceError",
    "Devices",
    "Emulator",
    "Error",
    "FitTable",
    "ForkError",
    "Formula",
    "InputError",
    "InternalError",
    "Interrupted",
    "PopfitWarning",
    "Spectra",
    "SpectralModel",
    "Spline",
    "__citation__",
    "__version__",
    "curve_fit",
    "demo",
    "demo_data",
    "devices",
    "fit",
    "fit_files",
    "get_threads",
    "main",
    "set_threads",
    "show_versions",
]
