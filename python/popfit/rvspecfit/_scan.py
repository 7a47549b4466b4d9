"""Objectives of one star at many points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from popfit.model import SpectralModel
from popfit.rvspecfit._models import Floats, make_spectra

#: Copies of a star that are evaluated at once.
_COPIES = 128


def scan(
    model: SpectralModel, star: Sequence[Any], points: Floats, key: Literal["chi2", "objective"], *, mask: bool = False
) -> Floats:
    """Return χ² or objective (n,) of a star at points (n, P) of a model of `build_model`."""
    labels = [name for name in model.parameters if name not in ("velocity", "vsini")]
    values = [np.empty(0)]
    for begin in range(0, len(points), _COPIES):
        some = np.ascontiguousarray(points[begin : begin + _COPIES])
        copies = make_spectra([star] * len(some), labels, mask=mask)
        values.append(np.asarray(model.objective(copies, some)[key], dtype=np.float64))
    return np.concatenate(values)


def lowest_point(x: Floats, y: Floats) -> np.float64:
    """Return the vertex of the parabola through the lowest point and its neighbours, or that point at an end."""
    k = int(np.argmin(y))
    if k in (0, len(x) - 1):
        return np.float64(x[k])
    curvature, slope, _ = np.polyfit(x[k - 1 : k + 2] - x[k], y[k - 1 : k + 2], 2)
    return np.float64(x[k] - 0.5 * slope / curvature) if curvature > 0.0 else np.float64(x[k])
