"""Models of curves as formulas."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from popfit import _popfit
from popfit._checks import close_name
from popfit._compiled import CompiledModel
from popfit._errors import InputError
from popfit._tracing import NotTraceableError, trace_symbolically

#: Formulas that stay compiled.
KEPT_FORMULAS = 64


class Formula(CompiledModel):
    """A model of curves, y = f(x; parameters), as a formula.

    Parameters
    ----------
    text : str
        A formula such as ``"a*exp(-k*x) + c"``; the book lists its functions.
    predictors : sequence of str
        Names of the predictors.
    parameters : sequence of str, optional
        Names of the parameters in their order; by default all other names, in the order of the text.

    Raises
    ------
    InputError
        If the text is no formula; the message shows the place.

    Examples
    --------
    >>> import popfit
    >>> decay = popfit.Formula("a*exp(-k*x) + c")
    >>> decay.parameters
    ('a', 'k', 'c')
    >>> decay([0.0, 1.0], 2.0, 0.5, 1.0).round(3)
    array([3.   , 2.213])
    """

    def __init__(self, text: str, predictors: Sequence[str] = ("x",), parameters: Sequence[str] | None = None) -> None:
        self._model = _compiled(_text(text), _names("predictors", predictors), _parameters(parameters))

    @classmethod
    def _of(cls, model: _popfit.CurveModel) -> Formula:
        """Return the formula of a compiled model."""
        formula = cls.__new__(cls)
        formula._model = model
        return formula

    @staticmethod
    def builtin(name: str) -> Formula:
        """Return a formula that popfit knows by its name, such as "gauss1d", "voigt" or "polynomial(3)".

        Raises
        ------
        InputError
            If there is none of this name.
        """
        try:
            return Formula._of(_popfit.CurveModel.builtin(_text(name)))
        except InputError as error:
            raise InputError(f"{error}{close_name(name, _popfit.CurveModel.builtins())}", argument="name") from error

    @staticmethod
    def builtins() -> list[str]:
        """Return the names of the formulas that popfit knows."""
        return _popfit.CurveModel.builtins()

    @staticmethod
    def trace(function: Callable[..., Any], predictors: Sequence[str] = ("x",)) -> Formula:
        """Return a function of numpy, ``function(x, a, b, …)``, as a formula.

        The function is called with stand-ins for x (for several predictors a tuple of them) and its parameters, whose
        names are those of its signature. `popfit.curve_fit` and `popfit.CurveFitter` trace the functions that they are
        given; there x is numpy's own array, and what depends on it alone may be anything.

        Raises
        ------
        InputError
            If the function does what formulas cannot express; the message says what.

        Examples
        --------
        >>> import numpy as np, popfit
        >>> popfit.Formula.trace(lambda x, a, k: a * np.exp(-k * x)).text
        'a*exp(((-k)*x))'
        """
        names = parameter_names(function)
        try:
            text = trace_symbolically(function, tuple(predictors), names)
        except NotTraceableError as error:
            raise InputError(f"the function is no formula: {error}", argument="function") from error
        return Formula(text, predictors, names)

    @property
    def text(self) -> str:
        """The formula's text."""
        text = self._model.text
        assert text is not None
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text and the names."""
        return Formula, (self.text, self.predictors, self.parameters)

    def __eq__(self, other: object) -> bool:
        """Return True for a formula of the same text and names."""
        return isinstance(other, Formula) and self.__reduce__()[1] == other.__reduce__()[1]

    def __hash__(self) -> int:
        """Return the hash of the text and the names."""
        return hash(self.__reduce__()[1])

    def __repr__(self) -> str:
        """Return the text and the names."""
        return f"<popfit.Formula {self.text}; {', '.join(self.predictors)}; {', '.join(self.parameters)}>"


@functools.lru_cache(KEPT_FORMULAS)
def _compiled(text: str, predictors: tuple[str, ...], parameters: tuple[str, ...] | None) -> _popfit.CurveModel:
    """Return a formula in Rust; those of the last texts stay compiled."""
    return _popfit.CurveModel.formula(text, list(predictors), None if parameters is None else list(parameters))


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters, those behind its first argument.

    Raises
    ------
    ValueError
        If there are none, as where a function takes ``*parameters``.
    """
    signature = inspect.signature(function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(name for name, parameter in signature.parameters.items() if parameter.kind in kinds)
    if len(names) < 2:
        raise ValueError("Unable to determine number of fit parameters.")
    return names[1:]


def _text(text: object) -> str:
    """Return a text; raises `InputError` if it is none."""
    if not isinstance(text, str):
        raise InputError(f"{type(text).__name__}; give a text such as 'a*exp(-k*x)'", argument="text")
    return str(text)


def _names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return names as Python's texts; a single text is one name."""
    names = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument}: {names!r}; give names", argument=argument)
    return tuple(str(name) for name in names)


def _parameters(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of parameters, if they are given."""
    return None if names is None else _names("parameters", names)
