"""Models of lmfit as functions of their varying parameters alone, which are traced to formulas."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lmfit  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import numpy.typing as npt
from asteval import get_ast_names  # type: ignore[import-not-found,import-untyped,unused-ignore]

from popfit._curve_models import ModelAtPoints, Xdata, model_of_function
from popfit._errors import InputError
from popfit._tracing import NotTraceableError, Traced, TracedComplex, traced_part

Array = npt.NDArray[Any]

#: Smallest size of widths and denominators, as lmfit has it.
TINY = lmfit.lineshapes.tiny


class StandIns(dict[str, Any]):
    """What a model gets in the place of lmfit's Parameters while it is traced: names, and objects with a value."""

    def __init__(self, parameters: Any, values: Mapping[str, Any]) -> None:
        super().__init__({name: _StandIn(self, one) for name, one in parameters.items()})
        for name, value in values.items():
            self[name].known = value
        self.symbols = parameters._asteval

    def update_constraints(self) -> None:
        """Do nothing: expressions are evaluated when they are asked for."""


class _StandIn:
    """A parameter's value: a number, a traced one, or that of its expression."""

    def __init__(self, parameters: StandIns, parameter: Any) -> None:
        self.parameters = parameters
        self.parameter = parameter
        self.known: Any = None if parameter.expr else parameter.value

    @property
    def value(self) -> Any:
        """The parameter's value."""
        if self.known is None:
            self.known = self._of_expression()
        return self.known

    @value.setter
    def value(self, value: Any) -> None:
        self.known = value

    def _of_expression(self) -> Any:
        """Return the value of the expression, between the parameter's bounds."""
        interpreter = self.parameters.symbols
        tree = interpreter.parse(self.parameter.expr)
        inputs = {name: self.parameters[name].value for name in get_ast_names(tree) if name in self.parameters}
        before = {name: interpreter.symtable[name] for name in inputs}
        interpreter.symtable.update(inputs)
        try:
            value = interpreter.eval(tree, show_errors=False, raise_errors=True)
        finally:
            interpreter.symtable.update(before)
        if np.isfinite(self.parameter.min):
            value = np.maximum(value, self.parameter.min)
        return np.minimum(value, self.parameter.max) if np.isfinite(self.parameter.max) else value


class ModelFunction:
    """A model, or another function of Parameters, as a function of the varying parameters' values.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(parameters, **keywords)``, such as the method ``eval`` of a model.
    parameters : lmfit.Parameters
        Values of parameters that do not vary, and expressions.
    names : sequence of str
        The varying parameters.
    """

    def __init__(self, evaluate: Callable[..., Any], parameters: Any, names: Sequence[str]) -> None:
        self.evaluate = evaluate
        self.parameters = parameters
        self.names = tuple(names)

    def __call__(self, keywords: Mapping[str, Any], *values: Any) -> Any:
        """Return the model of these values."""
        return self.evaluate(StandIns(self.parameters, dict(zip(self.names, values, strict=True))), **keywords)

    def traced(self, keywords: Mapping[str, Any], points: int, values: Array) -> ModelAtPoints:
        """Return the formula of one curve.

        Raises
        ------
        NotTraceableError
            If there is none.
        """
        return self.traced_at(Xdata(keywords, False, 1, points), values)

    def traced_at(self, x: Xdata, starts: Array) -> ModelAtPoints:
        """Return the formula of curves with the same points.

        Raises
        ------
        NotTraceableError
            If there is none, or if it has too many parameters.
        """
        try:
            return model_of_function(self, self.names, x, starts, warns_of_branches=False)
        except InputError as error:
            raise NotTraceableError(str(error)) from error


def derivatives(model: ModelAtPoints, values: Array) -> tuple[Array, Array]:
    """Return values (points) and derivatives (P, points) of a traced model."""
    rows = model.model.linearise(model.x.ravel(), np.ascontiguousarray(values, dtype=np.float64))
    return rows[0], rows[1:]


def evaluated(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return a model function of arguments of which some are traced, or None if none is."""
    graphs = [one.graph for one in arguments.values() if isinstance(one, Traced | TracedComplex)]
    if not graphs:
        return None
    return traced_part(graphs[0], lambda: _SHAPES.get(function, function)(**arguments))


def _not_zero(value: Any) -> Any:
    """Return a number whose size is at least `TINY`, with its sign."""
    return np.copysign(np.maximum(TINY, np.abs(value)), value)


def _bose(x: Any, amplitude: Any = 1.0, center: Any = 0.0, kt: Any = 1.0) -> Any:
    """Return the distribution of Bose and Einstein."""
    denominator = np.exp((x - center) / _not_zero(kt)) - 1.0
    return amplitude / np.where(np.abs(denominator) < TINY * TINY, TINY * TINY, denominator)


def _dho(x: Any, amplitude: Any = 1.0, center: Any = 1.0, sigma: Any = 1.0, gamma: Any = 1.0) -> Any:
    """Return the damped harmonic oscillator, with its limit at x = 0."""
    occupation = 1.0 - np.exp(-x / np.maximum(TINY, gamma))
    occupation = np.where(np.abs(occupation) <= TINY, TINY, occupation)
    lines = 1.0 / ((x - center) ** 2 + sigma**2) - 1.0 / ((x + center) ** 2 + sigma**2)
    limit = 4.0 * gamma * center / (center**2 + sigma**2) ** 2
    return amplitude * sigma / np.pi * np.where(np.isclose(x, 0.0), limit, lines / occupation)


def _shapes() -> dict[Any, Callable[..., Any]]:
    """Return lmfit's line shapes, and what is traced in their place.

    They are lmfit's own functions, with numpy's maximum in the place of Python's, so that they do not branch, and
    without `float`. Two write into parts of results, and have functions of their own here.
    """
    shapes = lmfit.lineshapes
    replaced: dict[str, Any] = {"max": np.maximum, "not_zero": _not_zero, "bose": _bose, "dho": _dho}
    names = {**vars(shapes), **replaced}
    for name in shapes.functions:
        function = getattr(shapes, name)
        if name not in replaced and isinstance(function, types.FunctionType):
            names[name] = types.FunctionType(function.__code__, names, name, function.__defaults__)
    return {getattr(shapes, name): names[name] for name in shapes.functions}


_SHAPES = _shapes()

__all__ = ["ModelFunction", "NotTraceableError", "StandIns", "derivatives", "evaluated"]
