"""How many digits of Lanczos1's certified standard deviations a fit of f64 data can have: least squares in 60-digit decimals.

Its residuals are 1e-13 of its data, so that rounding y to f64 changes them by a share of 1e-3. Prints the digits of the worst parameter
and of the worst standard deviation, of the data as NIST prints them and of the same data rounded to f64. Standard library alone.

    python3 tests/python/check_lanczos1.py
"""

import json
from decimal import Decimal, getcontext
from pathlib import Path

getcontext().prec = 60
DATA = Path(__file__).parents[2] / "crates" / "testing" / "nist.json"


def inverse(matrix):
    """Of a symmetric positive matrix, by Gauss and Jordan."""
    n = len(matrix)
    rows = [list(row) + [Decimal(int(i == j)) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i])]
    return [row[n:] for row in rows]


def fit(x, y, b):
    """Gauss-Newton from the certified parameters; parameters and standard deviations."""
    for _ in range(8):
        residuals, jacobian = [], []
        for t, value in zip(x, y):
            decays = [(-b[2 * k + 1] * t).exp() for k in range(3)]
            residuals.append(value - sum(b[2 * k] * decays[k] for k in range(3)))
            jacobian.append([f for k in range(3) for f in (decays[k], -b[2 * k] * t * decays[k])])
        covariance = inverse([[sum(row[i] * row[j] for row in jacobian) for j in range(6)] for i in range(6)])
        slope = [sum(row[i] * r for row, r in zip(jacobian, residuals)) for i in range(6)]
        b = [b[i] + sum(covariance[i][j] * slope[j] for j in range(6)) for i in range(6)]
    variance = sum(r * r for r in residuals) / (len(x) - 6)
    return b, [(variance * covariance[i][i]).sqrt() for i in range(6)]


def digits(found, certified):
    return min(float(-(abs(f - c) / abs(c)).log10()) for f, c in zip(found, certified))


def main():
    problems = json.loads(DATA.read_text(), parse_float=Decimal, parse_int=Decimal)["problems"]
    problem = next(p for p in problems if p["name"] == "Lanczos1")
    for what, rounded in [("as printed", lambda v: v), ("rounded to f64", lambda v: Decimal(float(v)))]:
        x, y = ([rounded(v) for v in column] for column in (problem["predictors"]["x"], problem["y"]))
        parameters, errors = fit(x, y, problem["certified"])
        print(f"{what}: {digits(parameters, problem['certified']):.1f} digits of the parameters, "
              f"{digits(errors, problem['certified_sd']):.1f} of the standard deviations")


main()
