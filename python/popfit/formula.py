"""Models of curves as formulas."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._checks import close_name, is_number
from popfit._compiled import CompiledModel
from popfit._errors import InputError
from popfit._tracing import NotTraceableError, trace_symbolically
from popfit.devices import thread_count

Array = npt.NDArray[Any]

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
    def builtin(name: str, prefix: str = "") -> Formula:
        """Return a formula that popfit knows by its name, such as "gauss1d", "voigt" or "polynomial(3)".

        Parameters
        ----------
        name : str
            The name; `builtins` lists all.
        prefix : str
            Text in front of the name of each parameter, so that formulas can be added.

        Raises
        ------
        InputError
            If there is none of this name.

        Examples
        --------
        >>> import popfit
        >>> peaks = popfit.Formula.builtin("lorentz", "l1_") + popfit.Formula("l2_a*l2_g^2/((x - l2_m)^2 + l2_g^2)")
        >>> peaks.parameters
        ('l1_a', 'l1_m', 'l1_g', 'l1_c', 'l2_a', 'l2_g', 'l2_m')
        """
        try:
            formula = Formula._of(_popfit.CurveModel.builtin(_text(name)))
        except InputError as error:
            raise InputError(f"{error}{close_name(name, _popfit.CurveModel.builtins())}", argument="name") from error
        return formula.with_prefix(prefix) if prefix else formula

    def with_prefix(self, prefix: str) -> Formula:
        """Return the formula with a text in front of the name of each parameter.

        Raises
        ------
        InputError
            If a name with the prefix cannot be a parameter's.
        """
        return Formula._of(self._model.with_prefix(_text(prefix)))

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

    def guess(self, x: object, y: object, *, x_per_curve: bool = False) -> Array:
        """Guess starts of the parameters from the points of one curve or of many, for the formulas of built-in models.

        What the parameters are called does not matter, nor whether the formula was typed. Points that are masked or not
        finite are left out. Peaks may be dips.

        Parameters
        ----------
        x : array, (points) or (predictors, points)
            Points of all curves; of each, (curves, points) or (curves, predictors, points), with `x_per_curve`.
        y : array, (points) or (curves, points)
            Data.
        x_per_curve : bool
            True if each curve has points of its own.

        Returns
        -------
        array, (P) or (curves, P)
            Starts for `popfit.CurveFitter.fit`. Of several curves, one without a finite number has NaN.

        Raises
        ------
        InputError
            If the formula is none of a built-in model, if the one curve has no finite point, or for wrong shapes.

        Examples
        --------
        >>> import numpy as np, popfit
        >>> x = np.linspace(0.0, 5.0, 30)
        >>> decay = popfit.Formula.builtin("exponential")
        >>> decay.guess(x, decay(x, 3.0, 0.7, 0.5)).round(2)
        array([3. , 0.7, 0.5])
        """
        numbers, rows = _without_mask(y), _without_mask(x)
        if numbers.ndim == 2 and len(numbers) == 0:
            return np.empty((0, len(self.parameters)))
        if numbers.ndim not in (1, 2) or numbers.size == 0:
            raise InputError(f"y has the shape {numbers.shape}; give (points) or (curves, points)", argument="y")
        points, predictors = numbers.shape[-1], len(self.predictors)
        curves = numbers.shape[:-1] if x_per_curve else ()
        if rows.shape not in ((*curves, points), (*curves, predictors, points)) or rows.size != predictors * (
            numbers.size if x_per_curve else points
        ):
            raise InputError(
                f"x has the shape {rows.shape}, for {points} points of the predictors {', '.join(self.predictors)}",
                argument="x",
            )
        found = self._model.guess(rows.ravel(), numbers.ravel(), points, thread_count(None))
        return found[0] if numbers.ndim == 1 else found

    #: numpy's numbers leave operators to the formula.
    __array_ufunc__ = None

    def __add__(self, other: object) -> Formula:
        """Return the sum of two formulas, or of a formula and a number: their parameters need different names."""
        return self._join("+", other)

    def __radd__(self, other: object) -> Formula:
        """Return a number plus the formula."""
        return self._join("+", other, is_left=False)

    def __neg__(self) -> Formula:
        """Return the formula with the other sign."""
        return self._join("*", -1.0, is_left=False)

    def __sub__(self, other: object) -> Formula:
        """Return the formula minus another one or a number."""
        return self._join("-", other)

    def __rsub__(self, other: object) -> Formula:
        """Return a number minus the formula."""
        return self._join("-", other, is_left=False)

    def __mul__(self, other: object) -> Formula:
        """Return the product of two formulas, or of a formula and a number."""
        return self._join("*", other)

    def __rmul__(self, other: object) -> Formula:
        """Return a number times the formula."""
        return self._join("*", other, is_left=False)

    def __truediv__(self, other: object) -> Formula:
        """Return the formula divided by another one or by a number."""
        return self._join("/", other)

    def __rtruediv__(self, other: object) -> Formula:
        """Return a number divided by the formula."""
        return self._join("/", other, is_left=False)

    def _join(self, operator: str, other: object, is_left: bool = True) -> Formula:
        """Return the formula, as the left operand or the right one, joined with another formula or a number."""
        if isinstance(other, Formula):
            return Formula._of(self._model.combine(operator, other._model))
        if not is_number(other):
            return NotImplemented  # type: ignore[no-any-return]
        terms, semicolon, value = self.text.rpartition(";")
        operands = [f"({value.strip()})", f"({float(other)!r})"]  # type: ignore[arg-type]
        joined = f" {operator} ".join(operands if is_left else reversed(operands))
        return Formula(f"{terms}{semicolon} {joined}".strip(), self.predictors, self.parameters)

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


def _without_mask(values: object) -> Array:
    """Return numbers as doubles, NaN where they are masked."""
    return np.ascontiguousarray(np.ma.filled(np.ma.array(values, dtype=np.float64), np.nan))


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
