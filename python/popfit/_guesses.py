"""Starts of parameters that a user does not give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit._arrays import split_mask
from popfit._compiled import CompiledModel, predictor_rows
from popfit._errors import InputError
from popfit.formula import Formula

Array = npt.NDArray[Any]


def complete_starts(model: Any, p0: Any, x: Any, y: Any, mask: Any, x_per_curve: bool) -> Any:
    """Return starts of all parameters by their names: given ones, and guesses of the others from each curve.

    Parameters
    ----------
    model : Formula or Spline
        The model.
    p0 : mapping or None
        Starts of some parameters.
    x, y, mask, x_per_curve
        As `CurveFitter.fit` takes them.

    Raises
    ------
    InputError
        If the model is not the formula of a built-in one.
    """
    given = {} if p0 is None else dict(p0)
    missing = ", ".join(name for name in model.parameters if name not in given)
    if not isinstance(model, Formula):
        raise InputError(f"p0: no start of {missing}, and only built-in formulas have guesses", argument="p0")
    values, own_mask = split_mask(y)
    masks = [one for one in (own_mask, mask) if one is not None]
    values = np.array(values, dtype=np.float64)
    for one in masks:
        values = np.where(one, np.nan, values)
    points = x if x_per_curve else predictor_rows(np.atleast_1d(x), len(model.predictors))
    if not x_per_curve and len(model.predictors) == 1:
        points = np.reshape(points, -1)
    try:
        guesses = model.guess(points, values, x_per_curve=x_per_curve)
    except InputError as error:
        raise InputError(f"p0: no start of {missing}: {error}", argument=error.argument or "p0") from error
    return dict(zip(model.parameters, guesses.T, strict=True)) | given


def lacks_starts(model: Any, p0: Any) -> bool:
    """Return True if a model that Rust evaluates alone has parameters without starts."""
    if not isinstance(model, CompiledModel):
        return False
    return p0 is None or (isinstance(p0, Mapping) and any(name not in p0 for name in model.parameters))
