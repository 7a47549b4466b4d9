"""Models of curves as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import split_mask
from popfit._checks import is_number
from popfit._compiled import CompiledModel
from popfit._curve_data import plain_numbers
from popfit._errors import InputError

#: Largest number of dimensions.
MAX_AXES = 3


class Spline(CompiledModel):
    """A tabulated template as a model of curves: a·S(x − x0, y − y0, z − z0) + c.

    S is the natural cubic spline through the table's values, and goes on as a straight line beyond the table's ends.
    The parameters are a, x0, c in one dimension, a, x0, y0, c in two, and a, x0, y0, z0, c in three.

    Parameters
    ----------
    values : array, (points along x), (along x, along y) or (along x, along y, along z)
        The template, at least two points along each axis.
    first : float or sequence of float
        First point of each axis.
    step : float or sequence of float
        Distance of the points of each axis.

    Raises
    ------
    InputError
        If the values or the axes are not as above.

    Examples
    --------
    >>> import numpy as np, popfit
    >>> x = np.arange(-5.0, 5.1, 0.5)
    >>> template = popfit.Spline(np.exp(-(x**2)), first=-5.0, step=0.5)
    >>> template.parameters
    ('a', 'x0', 'c')
    >>> fits = popfit.CurveFitter(template).fit(x, 3.0 * np.exp(-((x - 0.5) ** 2)) + 1.0, [1.0, 0.0, 0.0])
    >>> fits.parameters.round(3)
    array([[3. , 0.5, 1. ]])
    """

    def __init__(
        self, values: Any, *, first: float | Sequence[float] = 0.0, step: float | Sequence[float] = 1.0
    ) -> None:
        numbers, mask = split_mask(values)
        if mask is not None and mask.any():
            raise InputError("values: some are masked; fill them first", argument="values")
        table = np.array(plain_numbers("values", numbers), dtype=np.float64)
        if not 1 <= table.ndim <= MAX_AXES or min(table.shape) < 2:
            raise InputError(
                f"values have the shape {table.shape}; give at least two along each of 1 to {MAX_AXES} axes",
                argument="values",
            )
        starts, steps = _each("first", first, table.ndim), _each("step", step, table.ndim)
        if min(steps) <= 0.0:
            raise InputError(f"step: {step!r}; give distances above 0", argument="step")
        axes = list(zip(starts, steps, table.shape, strict=True))
        self._table, self._starts, self._steps = table, starts, steps
        self._model = _popfit.CurveModel.spline(axes, table.ravel())

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The template's values."""
        return self._table.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the table and its axes."""
        return _restore, (self._table, self._starts, self._steps)

    def __eq__(self, other: object) -> bool:
        """Return True for a spline of the same table and axes."""
        return (
            isinstance(other, Spline)
            and np.array_equal(self._table, other._table)
            and (self._starts, self._steps) == (other._starts, other._steps)
        )

    def __hash__(self) -> int:
        """Return the hash of the table and its axes."""
        return hash((self._table.shape, self._table.tobytes(), self._starts, self._steps))

    def __repr__(self) -> str:
        """Return the table's shape."""
        return f"<popfit.Spline of {' × '.join(map(str, self._table.shape))} values; {', '.join(self.parameters)}>"


def _restore(values: Any, first: tuple[float, ...], step: tuple[float, ...]) -> Spline:
    """Return a spline that was pickled."""
    return Spline(values, first=first, step=step)


def _each(argument: str, numbers: Any, axes: int) -> tuple[float, ...]:
    """Return one number for each axis."""
    given = tuple(numbers) if isinstance(numbers, list | tuple | np.ndarray) else (numbers,) * axes
    if len(given) != axes or not all(map(is_number, given)):
        raise InputError(f"{argument}: {numbers!r}; give a number for each of the {axes} axes", argument=argument)
    return tuple(map(float, given))
