"""A drop-in replacement for ``scipy.optimize``: ``from popfit.scipy import curve_fit``.

`curve_fit` is `popfit.curve_fit`, for one curve or for a million; every other name is scipy's own.
"""

from __future__ import annotations

from typing import Any

from popfit._curve_fit import curve_fit
from popfit._rival import Difference, rival_attribute

__all__ = ["DIFFERENCES", "curve_fit"]

#: Differences from scipy.
DIFFERENCES = (
    Difference("ydata of two dimensions", "ValueError", "every row is a curve, and all are fitted at once"),
    Difference(
        "derivatives", "differences, or `jac`", "exact ones of the formula that the function is traced to; else scipy's"
    ),
    Difference("`method`", "chooses the solver", "chooses scipy's checks; the solver is popfit's"),
    Difference(
        "`x_scale`, `diag`, `factor`, `epsfcn`, `diff_step`, `tr_solver`, `verbose`",
        "steer the solver",
        "no effect, with a warning",
    ),
    Difference(
        "`sigma` with correlations, `callback`, a function as `loss`",
        "",
        "scipy does it for one curve, with a warning; refused for many",
    ),
    Difference(
        "`maxfev`, `max_nfev`",
        "limit of calls of the function",
        "limit of linearisations, four for each call: popfit counts those in single precision, too",
    ),
    Difference("an infinite `sigma`", "a point of weight 0, which counts as a degree of freedom", "masks its point"),
    Difference("masked arrays", "masks are ignored", "masked points of `ydata` do not count"),
    Difference("`sigma` of 0 or below, NaN", "infinite or mirrored weights", "ValueError"),
)


def __getattr__(name: str) -> Any:
    """Return what scipy.optimize calls so."""
    return rival_attribute(__name__, "scipy.optimize", name)
