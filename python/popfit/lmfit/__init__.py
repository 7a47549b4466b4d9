"""A drop-in replacement for lmfit: ``from popfit.lmfit import Model``, ``from popfit.lmfit.models import …``.

Fits of models by least squares are popfit's, with exact derivatives; `fit_many` fits any number of curves at once.
Other methods, and every other name, are lmfit's own.
"""

from __future__ import annotations

from typing import Any

from popfit._rival import Difference, rival_attribute
from popfit.lmfit import model, models
from popfit.lmfit._many import LmfitMany, fit_many
from popfit.lmfit.model import CompositeModel, Model, ModelResult

__all__ = ["DIFFERENCES", "CompositeModel", "LmfitMany", "Model", "ModelResult", "fit_many", "model", "models"]

#: What differs from lmfit.
DIFFERENCES = (
    Difference("many curves", "a loop", "`fit_many`"),
    Difference("derivatives", "finite differences", "exact ones of the formula that the model is traced to"),
    Difference(
        "`min`, `max`",
        "a transformation, whose derivative is 0 at a bound: a fit may stop there, without errors",
        "bounds of the solver; errors are those of the exact Jacobian, as if there were no bound",
    ),
    Difference(
        "parameters that the data do not determine",
        "often errors, of what rounding leaves of the differences",
        "no errors: `errorbars` is False",
    ),
    Difference("`eval_uncertainty`", "finite differences", "exact derivatives, unless `dscale` is given"),
    Difference(
        "`nfev`, `max_nfev`",
        "calls of the model",
        "a linearisation, with its exact derivatives, counts as `nvarys` + 1",
    ),
    Difference(
        "`least_squares`: `x`, `fun`, `jac`, `grad`, …",
        "scipy's",
        "the same names with popfit's numbers; `status` and `message` are popfit's and leastsq's",
    ),
    Difference("`lmdif_message`, `ier`", "MINPACK's", "popfit's status, as the code of MINPACK that it stands for"),
    Difference(
        "other methods, `iter_cb`, `fit_kws` beside `ftol`, `xtol` and `gtol`, complex data, `_residual` overridden",
        "",
        "lmfit does it, with a warning",
    ),
    Difference(
        "models that are no formulas, fits that do not converge",
        "",
        "lmfit does it, with a warning; `fit_many` calls the function",
    ),
    Difference("`minimize`, `Minimizer`", "", "lmfit's own"),
)


def __getattr__(name: str) -> Any:
    """Return what lmfit calls so."""
    return rival_attribute(__name__, "lmfit", name)
