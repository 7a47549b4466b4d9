"""A drop-in replacement for ``scipy.optimize``: ``from popfit.scipy import curve_fit, least_squares``.

`curve_fit` is `popfit.curve_fit`, for one curve or for a million, and `least_squares` solves one problem or as many;
every other name is scipy's own.
"""

from __future__ import annotations

from typing import Any

from popfit._curve_fit import curve_fit
from popfit._least_squares import least_squares
from popfit._rival import Difference, rival_attribute

__all__ = ["DIFFERENCES", "curve_fit", "least_squares"]

#: Differences from scipy.
DIFFERENCES = (
    Difference(
        "ydata, `x0` of two dimensions", "ValueError", "every row is a curve or a problem, and all are fitted at once"
    ),
    Difference(
        "derivatives", "differences, or `jac`", "exact ones of the formula that the function is traced to; else scipy's"
    ),
    Difference("`method`", "chooses the solver", "chooses scipy's checks; the solver is popfit's"),
    Difference(
        "`x_scale`, `diag`, `factor`, `epsfcn`, `diff_step`, `tr_solver`, `tr_options`, `verbose`, `workers`",
        "steer the solver and its differences",
        "no effect, with a warning",
    ),
    Difference(
        "`callback`, `jac_sparsity`, a function as `loss`",
        "",
        "scipy does it, with a warning; `curve_fit` refuses it for many curves",
    ),
    Difference(
        "`maxfev`, `max_nfev`",
        "limit of calls of the function",
        "limit of linearisations, four for each call: popfit counts those in single precision, too",
    ),
    Difference("`nfev`, `njev`", "calls of the functions", "evaluations and linearisations of the formula"),
    Difference(
        "`ftol`, `xtol`, `gtol` of 1e-8, the defaults of `least_squares`",
        "are tolerances",
        "popfit's own, tighter ones",
    ),
    Difference(
        "`least_squares` with the losses cauchy and arctan",
        "one start",
        "two: a fit under soft_l1 leads to the second; the lower cost counts",
    ),
    Difference(
        "`sigma` with correlations",
        "a matrix (points, points), of which the lower half is read",
        "also one for each curve, (curves, points, points); a matrix that is not symmetric is a ValueError",
    ),
    Difference("an infinite `sigma`", "a point of weight 0, which counts as a degree of freedom", "masks its point"),
    Difference("masked arrays", "masks are ignored", "masked points of `ydata`, or of arrays in `args`, do not count"),
    Difference("`sigma` of 0 or below, NaN", "infinite or mirrored weights", "ValueError"),
)


def __getattr__(name: str) -> Any:
    """Return what scipy.optimize calls so."""
    return rival_attribute(__name__, "scipy.optimize", name)
