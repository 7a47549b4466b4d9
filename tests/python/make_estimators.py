"""Prints the numbers of tests/curves/estimators/golden.rs: what scipy and lmfit make of one curve (pip install lmfit).

Data are rounded, so that both sides read the same; nothing is random but for the seed below.
"""

import lmfit
import numpy as np
import scipy
from scipy import optimize, special, stats


def student(dof):
    """-2 ln of Student's t, for f_scale = sqrt(dof): rho, rho', rho''"""
    height = (dof + 1) / dof
    return lambda z: height * np.stack([np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2])


# scipy's loss and f_scale, popfit's variant and its number
LOSSES = [
    ("huber", 1.5, "Huber", 1.5), ("soft_l1", 0.8, "SoftL1", 0.8), ("cauchy", 1.0, "Cauchy", 1.0),
    ("arctan", 2.0, "Arctan", 2.0), (student(3.0), 3.0**0.5, "Student", 3.0),
]
START = [3.0, 1.0, 0.0]
TIGHT = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 10000}

random = np.random.default_rng(20261121)
x = np.round(np.linspace(0.0, 4.0, 25), 6)
y = np.round(4.0 * np.exp(-0.8 * x) + 0.5 + 0.1 * random.normal(size=25), 4)
y[[4, 11, 19]] += [1.2, -0.9, 2.5]
y = np.round(y, 4)
sigma = np.round(0.1 + 0.02 * x, 6)
counts = random.poisson(6.0 * np.exp(-1.2 * x) + 0.4).astype(float)


def model(p):
    return p[0] * np.exp(-p[1] * x) + p[2]


def slopes(p):
    e = np.exp(-p[1] * x)
    return np.stack([e, -p[0] * x * e, np.ones_like(x)], axis=1)


def rust(name, values):
    values = np.atleast_1d(values)
    print(f"pub const {name}: [f64; {len(values)}] = [{', '.join(repr(float(v)) for v in values)}];")


def robust(loss, scale):
    """Parameters, errors as curve_fit has them, and chi2 = 2 cost."""
    fit = optimize.least_squares(
        lambda p: (model(p) - y) / sigma, START, lambda p: slopes(p) / sigma[:, None], loss=loss, f_scale=scale, **TIGHT
    )
    assert fit.success
    pcov = np.linalg.inv(fit.jac.T @ fit.jac) * 2 * fit.cost / (len(x) - 3)
    return fit.x, np.sqrt(np.diag(pcov)), 2 * fit.cost


def poisson():
    """The root of the likelihood's gradient, found from scipy's minimum."""
    deviance = lambda p: 2 * np.sum(model(p) - counts + special.xlogy(counts, counts / model(p)))
    near = optimize.minimize(deviance, [5.0, 1.0, 0.5], method="Nelder-Mead", options={"fatol": 1e-12, "maxiter": 9999})
    fit = optimize.root(lambda p: slopes(p).T @ (counts / model(p) - 1), near.x, method="hybr", tol=1e-15)
    covariance = np.linalg.inv(slopes(fit.x).T @ (slopes(fit.x) / model(fit.x)[:, None]))
    assert np.allclose(fit.x, near.x, rtol=1e-4), (fit.x, near.x)
    return fit.x, np.sqrt(np.diag(covariance)), deviance(fit.x)


def profile(best, chi2, p, value, data):
    """Least chi2 with parameter p at `value`."""
    others = [q for q in range(3) if q != p]
    whole = lambda q: np.insert(q, p, value)
    fit = optimize.least_squares(
        lambda q: (model(whole(q)) - data) / sigma,
        best[others],
        lambda q: (slopes(whole(q)) / sigma[:, None])[:, others],
        method="lm", **TIGHT,
    )
    return 2 * fit.cost - chi2


def limits(best, errors, chi2, data, level):
    """Where the profile of each parameter rises by `level`: below and above."""
    found = []
    for p in range(3):
        for sign in (-1, 1):
            rise = lambda v: profile(best, chi2, p, v, data) - level
            reach = best[p] + sign * errors[p] * 12
            found.append(optimize.brentq(rise, best[p], reach, xtol=1e-13, rtol=1e-13))
    return found


def minimizer(data, tied):
    parameters = lmfit.Parameters()
    parameters.add("a", START[0])
    parameters.add("k", START[1], vary=not tied)
    parameters.add("c", START[2], expr="0.1*a + k/20" if tied else None)
    vector = lambda q: np.array([q["a"].value, q["k"].value, q["c"].value])
    columns = lambda q: (slopes(vector(q)) / sigma[:, None])
    if tied:
        jacobian = lambda q: columns(q)[:, [0]] + 0.1 * columns(q)[:, [2]]
    else:
        jacobian = columns
    fitter = lmfit.Minimizer(lambda q: (model(vector(q)) - data) / sigma, parameters)
    return fitter, fitter.leastsq(Dfun=jacobian, ftol=1e-15, xtol=1e-15, gtol=0.0)


def report(name, result):
    lines = [line.rstrip() for line in lmfit.fit_report(result).split("\n")]
    lines = [line for line in lines if "fitting method" not in line and "function evals" not in line]
    text = "\\n".join(lines)
    print(f'pub const {name}: &str = "{text}\\n";')


print(f"//! Written by tests/python/make_estimators.py: numpy {np.__version__}, scipy {scipy.__version__}, lmfit {lmfit.__version__}.")
print("#![allow(clippy::excessive_precision, clippy::unreadable_literal)]\n")
print("use popfit::Estimator;\n")
for name, values in [("X", x), ("Y", y), ("SIGMA", sigma), ("COUNTS", counts)]:
    rust(name, values)
print("\n/// Estimator; parameters a, k, c; errors; chi2.")
print(f"pub const ROBUST: [(Estimator, [f64; 3], [f64; 3], f64); {len(LOSSES)}] = [")
for loss, scale, name, number in LOSSES:
    best, errors, cost = robust(loss, scale)
    print(f"    (Estimator::{name}({number!r}), {best.tolist()!r}, {errors.tolist()!r}, {float(cost)!r}),")
print("];")
best, errors, cost = poisson()
print("\n/// Parameters and errors of COUNTS, and twice the log of the likelihood ratio.")
rust("POISSON", best)
rust("POISSON_ERRORS", errors)
rust("POISSON_CHI2", cost)

clean = y.copy()
clean[[4, 11, 19]] -= [1.2, -0.9, 2.5]
clean = np.round(clean, 4)
rust("CLEAN", clean)
fitter, result = minimizer(clean, tied=False)
best = np.array([result.params[n].value for n in "akc"])
best = optimize.least_squares(lambda p: (model(p) - clean) / sigma, best, lambda p: slopes(p) / sigma[:, None], method="lm", **TIGHT).x
chi2 = float(np.sum(((model(best) - clean) / sigma) ** 2))
errors = np.sqrt(np.diag(np.linalg.inv((slopes(best) / sigma[:, None]).T @ (slopes(best) / sigma[:, None]))))
print("\n/// Limits of CLEAN at 1 and 3 sigma by the F-test, below and above for a, k, c; then by Δχ² = 4.")
intervals = lmfit.conf_interval(fitter, result, sigmas=[1, 3])
for s in (1, 3):
    tail = special.erfc(s / np.sqrt(2))
    found = limits(best, errors, chi2, clean, chi2 / (len(x) - 3) * stats.f.isf(tail, 1, len(x) - 3))
    rust(f"LIMITS_{s}", found)
    place = {1: (1, 3), 3: (0, 4)}[s]
    theirs = [intervals[n][i][1] for n in "akc" for i in place]
    assert np.allclose(theirs, found, rtol=2e-4), (theirs, found)
rust("LIMITS_ABSOLUTE", limits(best, errors, chi2, clean, 4.0))
rust("CRITERIA", [result.aic, result.bic])
correlation = [result.params["a"].correl["k"], result.params["a"].correl["c"], result.params["k"].correl["c"]]
rust("CORRELATION", correlation)
report("REPORT", result)
report("TIED_REPORT", minimizer(clean, tied=True)[1])

# the tables of src/curves/results/report.rs and probability.rs, as comments
NUMBERS = [0.0, 1.0, -1.5, 2.34567890123456, 12.3456789, -123456.789, 1e7, 123456789.0, 1.5e-3, -2.25e-5, 1e-12, 6.02214076e23]
for number in NUMBERS + [9.9999999e9, 1e-120, 0.1, 99999.99]:
    print(f'// gformat, .7g: ({number!r}, "{lmfit.printfuncs.gformat(number)}", "{number:.7g}")')
for number, dof in [(1, 3), (2, 17), (3, 50), (5, 1000)]:
    print(f"// F threshold: ({number}, {dof}, {float(stats.f.isf(special.erfc(number / np.sqrt(2)), 1, dof))!r})")
