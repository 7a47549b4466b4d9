"""First guesses by cross-correlation, as ``rvspecfit.fitter_ccf`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from popfit._errors import InputError
from popfit._rival import rival_attribute
from popfit.rvspecfit._models import (
    Continuum,
    Settings,
    as_star,
    build_model,
    complete_config,
    has_resolution,
    make_spectra,
)
from popfit.rvspecfit._scan import lowest_point, scan

#: Step of the velocity grid in km/s if the configuration says none.
_DEFAULT_STEP = 2.0
#: Terms of the continuum of a first guess.
_TERMS = 10


def fit(specdata: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Guess velocity, labels and rotation of a star by comparing it with a library of templates.

    Parameters
    ----------
    specdata : SpecData or sequence of SpecData
        Spectra of the star, one of each setup. Bad pixels do not count.
    config : mapping
        The configuration. With a ``max_vsini`` of 0 no template rotates.

    Returns
    -------
    dict
        ``best_par``, labels by name; ``best_vel``, the velocity in km/s; ``best_vsini``, in km/s, or None without
        rotation; ``vel_grid`` and ``best_ccf``, velocities within ±``max_vel`` and χ² of the best template there.

    Raises
    ------
    RuntimeError
        If the guess fails.
    """
    config = complete_config(config)
    star = as_star(specdata)
    largest = float(config["max_vel"] or 1000.0)
    step = float(config["vel_step0"] or _DEFAULT_STEP)
    grid = np.linspace(-largest, largest, 2 * int(largest / step) + 1)
    vsini = (0.0, float(config["max_vsini"])) if config["max_vsini"] else None
    settings = Settings(Continuum(_TERMS, True), (-largest, largest), vsini, has_resolution([star]))
    model = build_model([one.name for one in star], config, settings)
    labels = [name for name in model.parameters if name not in ("velocity", "vsini")]
    spectra = make_spectra([star], labels, mask=True)
    guess = model.guess(spectra)[0]
    if len(guess["starts"]) == 0:
        raise GuessError(f"Cross-correlation step failed: {guess['message']}", argument="specdata")
    start = np.asarray(guess["starts"][int(np.argmin(guess["chi2"]))], dtype=np.float64)
    best = dict(zip(model.parameters, start, strict=True))

    # χ² along the velocity, with the labels of the best start
    points = np.tile(start, (len(grid), 1))
    points[:, 0] = grid
    chi2 = scan(model, star, points, "chi2", mask=True)
    return {
        "best_par": {label: best[label] for label in labels},
        "best_vel": lowest_point(grid, chi2),
        "best_ccf": chi2,
        "best_vsini": best.get("vsini"),
        "vel_grid": grid,
    }


class GuessError(InputError, RuntimeError):
    """A first guess that failed."""


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.fitter_ccf", name)
