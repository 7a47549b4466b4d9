"""Prints the table of src/math/probability.rs: tail probabilities of chi-square (pip install scipy mpmath).

A row holds the degrees of freedom, then chi-square and its probability for the lower tail and for the upper tail. scipy chooses chi-square
near the probabilities below, mpmath computes the probability there in 60 digits. scipy's own cdf agrees to 1e-9 up to 100,000 degrees
of freedom; at ten million it is 0.8 % off near 1e-6 (scipy 1.17.1).
"""

import mpmath as mp
import scipy
from scipy import stats

DOF = [1, 2, 3, 7, 19, 20, 100, 2574, 15_873, 1_000_000, 10_000_000]
PROBABILITIES = [0.3, 1e-6, 1e-30]
mp.mp.dps = 60


def lower(chi2, dof):
    """P(dof/2, chi2/2) by its series, whose terms are all positive."""
    a, x = mp.mpf(dof) / 2, mp.mpf(chi2) / 2
    term, total, n = mp.mpf(1), mp.mpf(1), a
    while term > total * mp.mpf(10) ** -55:
        n += 1
        term *= x / n
        total += term
    return total * mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1))


def pairs(quantile, tail, dof):
    found = [(float(chi2), float(tail(chi2, dof))) for chi2 in (quantile(p, dof) for p in PROBABILITIES)]
    return "[" + ", ".join(f"({chi2!r}, {p!r})" for chi2, p in found) + "]"


print(f"// quantiles of scipy {scipy.__version__}, probabilities of mpmath {mp.__version__}")
for dof in DOF:
    low, high = pairs(stats.chi2.ppf, lower, dof), pairs(stats.chi2.isf, lambda x, dof: 1 - lower(x, dof), dof)
    if dof <= 20_000:
        for p in PROBABILITIES:
            assert abs(lower(stats.chi2.ppf(p, dof), dof) / p - 1) < 1e-9, (dof, p)
            assert abs((1 - lower(stats.chi2.isf(p, dof), dof)) / p - 1) < 1e-9, (dof, p)
    print(f"({float(dof)!r}, {low}, {high}),")
