"""lmfit's built-in models, whose ``fit`` is popfit's: ``from popfit.lmfit.models import GaussianModel``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import lmfit.models  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np

from popfit._rival import rival_attribute
from popfit.lmfit.model import Model

__all__ = ["Model", "SplineModel", "lmfit_models"]


class SplineModel(Model, lmfit.models.SplineModel):  # type: ignore[misc,unused-ignore]
    """A cubic spline with fixed knots."""

    def _function(self) -> Callable[..., Any]:
        """Return the spline as the sum of its basis functions, in which its parameters are linear."""

        def spline(x: Any, knots: Any = None, order: Any = None, **coefficients: Any) -> Any:
            from scipy.interpolate import splev  # type: ignore[import-untyped,unused-ignore]

            knots, order = self.knots if knots is None else knots, self.order if order is None else order
            units = np.eye(len(knots))
            basis = [splev(x, (knots, units[k], order)) for k in range(self.nknots)]
            return sum(coefficients[f"s{k}"] * basis[k] for k in range(self.nknots))

        return spline


def _with_popfits_fit(kind: Any) -> Any:
    """Return a subclass of one of lmfit's models that is a `Model` of popfit, too."""
    return type(kind.__name__, (Model, kind), {"__module__": __name__, "__doc__": kind.__doc__})


def _subclasses() -> dict[str, Any]:
    """Return popfit's models by the names of lmfit's."""
    found: dict[Any, Any] = {lmfit.Model: Model, lmfit.models.SplineModel: SplineModel}
    names: dict[str, Any] = {}
    for name, kind in vars(lmfit.models).items():
        if inspect.isclass(kind) and issubclass(kind, lmfit.Model):
            if kind not in found:
                found[kind] = _with_popfits_fit(kind)
            names[name] = found[kind]
    return names


globals().update(_subclasses())
#: Models by their short names.
lmfit_models = {name: globals()[kind.__name__] for name, kind in lmfit.models.lmfit_models.items()}


def __getattr__(name: str) -> Any:
    """Return what lmfit.models calls so."""
    return rival_attribute(__name__, "lmfit.models", name)
