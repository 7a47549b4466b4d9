#!/usr/bin/env python3
"""Rates of the Python package on curves, beside scipy, xarray and other packages in the same run.

    benches/python_curves.py [--curves 100000] [--rivals 300] [--rounds 5]

It needs the package (`pip install .`), numpy and scipy; xarray, lmfit, astropy with dask, jax and nlsq have rows where
they are installed. Each round measures popfit on all curves and the others on as many as `--rivals`, in turn; medians
are printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

import popfit
import popfit.gpufit as gf

X = np.linspace(-5.0, 5.0, 60)
START = [7.0, 0.1, 1.0, 0.5]


def gauss(x: Any, a: Any, m: Any, s: Any, c: Any) -> Any:
    """Return a Gauss function."""
    return a * np.exp(-((x - m) ** 2) / (2.0 * s**2)) + c


def noisy_curves(count: int) -> np.ndarray:
    """Return noisy Gauss functions."""
    rng = np.random.default_rng(1)
    truth = rng.uniform([5.0, -1.0, 0.7, 0.0], [10.0, 1.0, 1.5, 1.0], (count, 4))
    return gauss(X, *truth.T[:, :, np.newaxis]) + 0.2 * rng.normal(size=(count, X.size))


def spots(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Poisson images of a spot of 5 × 5 pixels and starts, as in Gpufit's first example."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:5, :5]
    image = 10.0 * np.exp(-((x - 2.0) ** 2 + (y - 2.0) ** 2) / 2.0) + 5.0
    starts = np.array([10.0, 2.0, 2.0, 1.0, 5.0]) * rng.uniform(0.9, 1.1, (count, 5))
    return rng.poisson(image.ravel(), (count, 25)).astype(np.float32), starts.astype(np.float32)


def seconds(call: Callable[[], object]) -> float:
    """Return the time that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def is_installed(*modules: str) -> bool:
    """Return whether all of these can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def scipy_loop(curves: np.ndarray) -> None:
    """Fit curves one by one by scipy."""
    for y in curves:
        optimize.curve_fit(gauss, X, y, p0=START)


def jax_fits(curves: np.ndarray) -> Callable[[], object]:
    """Return a fit of all curves by Levenberg–Marquardt in JAX: f64, 20 iterations, covariances; compiled."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    x = jnp.asarray(X)

    def residuals(p: Any, y: Any) -> Any:
        return p[0] * jnp.exp(-((x - p[1]) ** 2) / (2.0 * p[2] ** 2)) + p[3] - y

    def fit(y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            p, cost, damping = state
            r, jacobian = residuals(p, y), jax.jacfwd(residuals)(p, y)
            normal, gradient = jacobian.T @ jacobian, jacobian.T @ r
            trial = p - jnp.linalg.solve(normal + damping * jnp.diag(jnp.diag(normal)), gradient)
            trial_cost = jnp.sum(residuals(trial, y) ** 2)
            is_better = trial_cost < cost
            p = jnp.where(is_better, trial, p)
            return (p, jnp.where(is_better, trial_cost, cost), jnp.where(is_better, 0.1, 10.0) * damping), None

        start = jnp.array(START)
        begin = (start, jnp.sum(residuals(start, y) ** 2), 1e-3)
        (p, cost, _), _ = jax.lax.scan(step, begin, length=20)
        jacobian = jax.jacfwd(residuals)(p, y)
        return p, jnp.linalg.inv(jacobian.T @ jacobian) * cost / (X.size - 4)

    compiled = jax.jit(jax.vmap(fit))
    given = jnp.asarray(curves)
    jax.block_until_ready(compiled(given))
    return lambda: jax.block_until_ready(compiled(given))


def drop_in_rows(curves: np.ndarray) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the calls of popfit's drop-ins for packages that are installed."""
    rows: dict[str, tuple[Callable[[], object], int]] = {}
    start = dict(zip("amsc", START, strict=True))
    if is_installed("lmfit"):
        from popfit import lmfit

        model = lmfit.Model(gauss)
        params = model.make_params(**start)
        rows["popfit.lmfit.fit_many"] = (lambda: lmfit.fit_many(model, curves, params, x=X), len(curves))
    if is_installed("xarray"):
        import xarray

        importlib.import_module("popfit.xarray")
        cube = xarray.DataArray(curves, dims=("star", "x"), coords={"x": X})
        rows["popfit.xarray"] = (lambda: cube.popfit.curvefit("x", gauss, p0=start), len(curves))
    if is_installed("astropy"):
        from astropy.modeling import models

        from popfit import astropy

        compound = models.Gaussian1D(7.0, 0.1, 1.0) + models.Const1D(0.5)
        settings = {"model": compound, "fitter": astropy.TRFLSQFitter(), "fitting_axes": 1, "world": (X,)}
        rows["popfit.astropy"] = (lambda: astropy.parallel_fit_dask(data=curves, **settings), len(curves))
    return rows


def rival_rows(curves: np.ndarray) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the calls of other packages that are installed, and how many curves each fits."""
    rows: dict[str, tuple[Callable[[], object], int]] = {"scipy, a loop": (lambda: scipy_loop(curves), len(curves))}
    if is_installed("lmfit"):
        import lmfit

        model = lmfit.Model(gauss)
        params = model.make_params(**dict(zip("amsc", START, strict=True)))
        rows["lmfit, a loop"] = (lambda: [model.fit(y, params, x=X) for y in curves], len(curves))
    if is_installed("xarray"):
        import xarray

        cube = xarray.DataArray(curves, dims=("star", "x"), coords={"x": X})
        p0 = dict(zip("amsc", START, strict=True))
        rows["xarray's curvefit"] = (lambda: cube.curvefit("x", gauss, p0=p0), len(curves))
    if is_installed("astropy", "dask"):
        from astropy.modeling import fitting, models

        start = models.Gaussian1D(7.0, 0.1, 1.0) + models.Const1D(0.5)
        rows["astropy's parallel_fit_dask"] = (
            lambda: fitting.parallel_fit_dask(
                model=start,
                fitter=fitting.TRFLSQFitter(),
                data=curves,
                fitting_axes=1,
                world=(X,),
                scheduler="synchronous",
            ),
            len(curves),
        )
    if is_installed("nlsq"):
        import nlsq

        nlsq_fit = nlsq.CurveFit()
        import jax.numpy as jnp

        def nlsq_gauss(x: Any, a: Any, m: Any, s: Any, c: Any) -> Any:
            return a * jnp.exp(-((x - m) ** 2) / (2.0 * s**2)) + c

        rows["NLSQ, a loop"] = (lambda: [nlsq_fit.curve_fit(nlsq_gauss, X, y, p0=START) for y in curves], len(curves))
    return rows


def measure(calls: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, list[float]]:
    """Measure calls in turn, print their medians and return their times per curve."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (call, count) in calls.items():
            times[name].append(seconds(call) / count)
    base = statistics.median(times["popfit.curve_fit"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"  {name:28} {1e6 * middle:10.3f} µs per curve  {middle / base:8.1f} ×")
    return times


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--curves", type=int, default=100_000)
    parser.add_argument("--rivals", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    curves = noisy_curves(arguments.curves)
    own = {"popfit.curve_fit": (lambda: popfit.curve_fit(gauss, X, curves, p0=START), len(curves))}
    print(f"{len(curves)} curves of {X.size} points, 4 parameters, with covariances")
    times = measure({**own, **drop_in_rows(curves), **rival_rows(curves[: arguments.rivals])}, arguments.rounds)
    if is_installed("jax"):  # last, since its threads go on
        print("beside JAX")
        measure({**own, "JAX, jit(vmap(LM))": (jax_fits(curves), len(curves))}, arguments.rounds)
    # one curve
    formula = popfit.Formula("a*exp(-(x - m)^2/(2*s^2)) + c", parameters=list("amsc"))
    single = {
        "formula": lambda: popfit.curve_fit(formula, X, curves[0], p0=START),
        "function": lambda: popfit.curve_fit(gauss, X, curves[0], p0=START),
        "scipy": lambda: optimize.curve_fit(gauss, X, curves[0], p0=START),
    }
    for name, call in single.items():
        print(f"one curve, {name:20} {1e3 * statistics.median(seconds(call) for _ in range(200)):8.3f} ms")
    # a start of 0, whose unit follows from the data
    from_zero = seconds(lambda: popfit.curve_fit(gauss, X, curves, p0=[7.0, 0.0, 1.0, 0.5])) / len(curves)
    print(f"popfit.curve_fit, a start of 0 {1e6 * from_zero:9.3f} µs per curve")
    # Gpufit's example
    data, starts = spots(1_000_000)
    points = np.array([np.arange(25) % 5, np.arange(25) // 5], dtype=np.float64)
    fitter = popfit.CurveFitter(popfit.Formula.builtin("gauss2d"), ftol=gf.TOLERANCE, max_rounds=50)
    through = statistics.median(seconds(lambda: gf.fit(data, None, gf.ModelID.GAUSS_2D, starts)) for _ in range(3))
    direct = statistics.median(seconds(lambda: fitter.fit(points, data, starts, covariance=False)) for _ in range(3))
    print(
        f"popfit.gpufit, 10⁶ spots {len(data) / through / 1e6:.2f} M/s, CurveFitter {len(data) / direct / 1e6:.2f} M/s"
    )
    # a function that is no formula
    some = curves[:10_000]
    untraceable = popfit.CurveFitter(lambda x, a, m, s, c: gauss(x, np.asarray(a, dtype=float), m, s, c))
    called = seconds(lambda: untraceable.fit(X, some, START)) / len(some)
    alone = statistics.median(times["scipy, a loop"])
    print(f"a function that is no formula {1e6 * called:.1f} µs per curve, {alone / called:.2f} × scipy's loop")
    scalar = popfit.CurveFitter(lambda x, a, m, s, c: gauss(x, float(a), m, s, c))
    each = seconds(lambda: scalar.fit(X, some[:1000], START)) / 1000
    print(f"one of plain numbers, called for each evaluation {1e6 * each:.0f} µs, {alone / each:.2f} × scipy's loop")


if __name__ == "__main__":
    main()
