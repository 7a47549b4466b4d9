"""Models that Rust evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._errors import InputError

Array = npt.NDArray[Any]


class CompiledModel:
    """A model of curves in Rust, y = f(x; parameters): a `Formula` or a `Spline`."""

    _model: _popfit.CurveModel

    @property
    def predictors(self) -> tuple[str, ...]:
        """Names of the predictors."""
        return tuple(self._model.predictors)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, in their order."""
        return tuple(self._model.parameters)

    def __call__(self, x: object, *parameters: float) -> Array:
        """Return the values at the points x, (points) or (predictors, points), for one number per parameter."""
        return self._model.values(*self._point(x, parameters))

    def jacobian(self, x: object, *parameters: float) -> Array:
        """Return the derivatives by the parameters, (points, parameters), as scipy's ``jac`` does."""
        return np.ascontiguousarray(self._model.linearise(*self._point(x, parameters))[1:].T)

    def _point(self, x: object, parameters: Sequence[float]) -> tuple[Array, Array]:
        """Return x and parameters for Rust."""
        if len(parameters) != len(self.parameters):
            raise InputError(
                f"{len(parameters)} parameters, not {len(self.parameters)} ({', '.join(self.parameters)})",
                argument="parameters",
            )
        given = np.asarray(x, dtype=np.float64)
        rows = predictor_rows(np.atleast_1d(given), len(self.predictors))
        if rows.shape[0] != len(self.predictors):
            raise InputError(
                f"x has the shape {given.shape}, for the predictors {', '.join(self.predictors)}", argument="x"
            )
        return np.ascontiguousarray(rows).ravel(), np.array([float(value) for value in parameters])


def predictor_rows(x: Array, predictors: int) -> Array:
    """Return x as rows, one for each predictor: images, (predictors, height, width), are read line by line."""
    if x.ndim == 1 or (predictors == 1 and x.shape[0] != 1):
        return x.reshape(1, -1) if x.ndim == 1 else x
    return x.reshape(x.shape[0], -1)
