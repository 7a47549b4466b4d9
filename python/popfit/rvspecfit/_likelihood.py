"""−2 ln L of one star, with its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popfit.model import SpectralModel
from popfit.rvspecfit._models import (
    Continuum,
    Floats,
    counts_every_pixel,
    find_arm,
    make_spectra,
    uncounted_errors,
)


class Likelihood:
    """−2 ln L of one star at given parameters, and its best-fit models.

    Attributes
    ----------
    chisq : float
        −2 ln L, with the priors of the model.
    models, raw_models : list of array, (pixels,)
        For each SpecData the template times the continuum, and the template alone; empty if only χ² was asked for.
    message : str
        Reason why there is no likelihood, else empty.
    normal_matrix : array, (P, P), or None
        Half of the Gauss–Newton Hessian of the objective, if it was asked for.
    """

    def __init__(
        self,
        chisq: float,
        models: list[Floats],
        raw_models: list[Floats],
        message: str,
        normal_matrix: Floats | None = None,
    ) -> None:
        self.chisq = chisq
        self.models = models
        self.raw_models = raw_models
        self.message = message
        self.normal_matrix = normal_matrix

    def describe(self, star: Sequence[Any]) -> dict[str, Any]:
        """Return the dict of `get_chisq` for spectra, whose bad pixels do not count in χ²."""
        chisq_array, npix_array = [], []
        for one, model in zip(star, self.models, strict=True):
            good = ~np.asarray(one.badmask, dtype=bool)
            chisq_array.append((((model - one.spec) / one.espec)[good] ** 2).sum())
            npix_array.append(good.sum())
        return {
            "chisq": self.chisq,
            "logl": -0.5 * self.chisq,
            "chisq_array": chisq_array,
            "red_chisq_array": [chi2 / pixels for chi2, pixels in zip(chisq_array, npix_array, strict=True)],
            "npix_array": npix_array,
            "models": self.models,
            "raw_models": self.raw_models,
        }


def evaluate(
    model: SpectralModel,
    continuum: Continuum,
    star: Sequence[Any],
    parameters: Floats,
    columns: Mapping[str, Floats] | None = None,
    *,
    chisq_alone: bool = False,
    derivatives: bool = False,
) -> Likelihood:
    """Return the likelihood of a star at parameters (1, P) of a model of `build_model`."""
    names = [name for name in model.parameters if name not in ("velocity", "vsini")]
    spectra = make_spectra([star], names, columns)
    found = model.objective(spectra, parameters, gradient=derivatives)
    chisq = float(found["objective"][0]) - continuum.determinant_offset * len(star)
    if chisq_alone and counts_every_pixel(model, star, parameters[0]):
        return Likelihood(chisq, [], [], str(found["messages"][0]))
    arms = model.predict(spectra, parameters)
    models, raw_models = [], []
    for one in star:
        arm = {
            name: np.asarray(find_arm(arms, one.name)[name][0][: len(one.lam)], dtype=np.float64)
            for name in ("model", "continuum")
        }
        models.append(arm["model"])
        raw_models.append(arm["model"] / arm["continuum"])
    chisq += uncounted_errors(star, arms)
    normal_matrix = np.asarray(found["normal_matrix"][0], dtype=np.float64) if derivatives else None
    return Likelihood(chisq, models, raw_models, str(found["messages"][0]), normal_matrix)
