"""Fits of populations of curves: `CurveFitter` and `CurveFits`."""

from __future__ import annotations

import copy
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import required, run_python
from hypothesis import given, settings
from hypothesis import strategies as st

import popfit

X = np.linspace(-5.0, 5.0, 40)
START = [6.0, 0.1, 1.2, 0.3]


def gauss(x: Any, a: Any, m: Any, s: Any, c: Any) -> Any:
    return a * np.exp(-((x - m) ** 2) / (2.0 * s**2)) + c


def untraceable_gauss(x: Any, a: Any, m: Any, s: Any, c: Any) -> Any:
    return float(a) * np.exp(-((x - m) ** 2) / (2.0 * s**2)) + c


def curves(count: int, seed: int = 1, x: Any = X) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return noisy Gauss functions and their parameters."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform([5.0, -1.0, 0.8, 0.0], [9.0, 1.0, 1.5, 1.0], (count, 4))
    return gauss(x, *truth.T[:, :, np.newaxis]) + 0.2 * rng.normal(size=(count, X.size)), truth


@pytest.fixture(scope="module")
def fits() -> popfit.CurveFits:
    """Results of 50 curves."""
    return popfit.CurveFitter(gauss, absolute_sigma=True).fit(X, curves(50)[0], START, sigma=0.2)


def test_pulls(fits: popfit.CurveFits) -> None:
    pulls = (fits.parameters - curves(50)[1]) / fits.errors
    assert fits.converged.all() and 0.8 < pulls.std() < 1.2
    assert fits.covariance is not None
    np.testing.assert_allclose(np.sqrt(np.diagonal(fits.covariance, axis1=1, axis2=2)), fits.errors, rtol=1e-3)
    assert fits.dof.tolist() == [36] * 50 and 0.8 < (fits.chi2 / fits.dof).mean() < 1.2


def test_columns_and_rows(fits: popfit.CurveFits) -> None:
    assert fits.names == ("a", "m", "s", "c") and len(fits) == 50
    np.testing.assert_array_equal(fits["m"], fits.parameters[:, 1])
    np.testing.assert_array_equal(fits["m_err"], fits.errors[:, 1])
    row = fits[7]
    assert row["a"] == fits.parameters[7, 0] and row["status_text"] in ("gtol", "ftol", "xtol", "ftol_xtol")
    some = fits[fits["a"] > 7.0]
    assert 0 < len(some) < 50 and (some["a"] > 7.0).all()
    np.testing.assert_array_equal(some.predict(), fits.predict()[fits["a"] > 7.0])
    assert len(fits[-3:]) == 3 and len(list(fits[:2])) == 2
    with pytest.raises(popfit.InputError, match="did you mean 'm_err'"):
        fits["m_er"]


def test_best_fit_curves_and_residuals(fits: popfit.CurveFits) -> None:
    y = curves(50)[0]
    np.testing.assert_allclose(fits.predict(), gauss(X, *fits.parameters.T[:, :, np.newaxis]), rtol=1e-12)
    np.testing.assert_allclose((fits.residuals() ** 2).sum(axis=1), fits.chi2, rtol=1e-6)
    np.testing.assert_allclose(fits.residuals(), (y - fits.predict()) / 0.2, rtol=1e-12)
    finer = np.linspace(-6.0, 6.0, 100)
    np.testing.assert_allclose(fits.predict(finer), gauss(finer, *fits.parameters.T[:, :, np.newaxis]), rtol=1e-12)


def test_errors_of_best_fit_curves(fits: popfit.CurveFits) -> None:
    x = np.linspace(-6.0, 6.0, 30)
    formula = popfit.Formula("a*exp(-(x - m)^2/(2*s^2)) + c", parameters=list(fits.names))
    assert fits.covariance is not None
    for points in (None, x):
        found = fits.prediction_errors(points)
        at = X if points is None else points
        for k in (0, 17):
            jacobian = formula.jacobian(at, *fits.parameters[k])
            wanted = np.sqrt(np.einsum("ip,pq,iq->i", jacobian, fits.covariance[k], jacobian))
            np.testing.assert_allclose(found[k], wanted, rtol=1e-6)
    without = popfit.CurveFitter(gauss).fit(X, curves(2)[0], START, covariance=False)
    with pytest.raises(popfit.InputError, match="covariance=True"):
        without.prediction_errors()


def test_confidence_intervals(fits: popfit.CurveFits) -> None:
    limits = fits[:5].confidence_intervals(["m"], [1.0, 2.0])
    assert limits.shape == (5, 1, 2, 2)
    np.testing.assert_allclose(limits[:, 0, 0, 0], fits["m"][:5] - fits["m_err"][:5], atol=0.1 * fits["m_err"][0])
    assert (limits[:, 0, 1, 1] > limits[:, 0, 0, 1]).all()
    with pytest.raises(popfit.InputError, match="no parameter 'mm'"):
        fits.confidence_intervals(["mm"])


def test_other_libraries(fits: popfit.CurveFits) -> None:
    frame = fits.to_pandas()
    assert frame.shape[0] == 50 and frame["a"][3] == fits["a"][3] and "message" in frame
    assert fits.to_astropy()["s_err"][3] == fits["s_err"][3]
    table = required("pyarrow").table(fits)
    assert table.num_rows == 50 and table["status_text"][0].as_py() == fits["status_text"][0]
    assert required("polars").DataFrame(fits)["a"][3] == fits["a"][3]
    html = fits._repr_html_()
    assert "<b>50</b> curves" in html and "script" not in html and "50 converged" in repr(fits)


def test_a_plot(fits: popfit.CurveFits) -> None:
    matplotlib = required("matplotlib")
    matplotlib.use("Agg")
    axes = fits.plot(3)
    assert len(axes.lines) >= 1 and "a " in axes.get_title()
    matplotlib.pyplot.close("all")


def test_pickles(fits: popfit.CurveFits) -> None:
    again = pickle.loads(pickle.dumps(fits))
    np.testing.assert_array_equal(again.parameters, fits.parameters)
    with pytest.raises(popfit.InputError, match="without their data"):
        again.predict()
    formula = popfit.Formula("a*exp(-k*x)", parameters=["k", "a"])
    assert pickle.loads(pickle.dumps(formula)) == formula and hash(formula)
    fitter = pickle.loads(pickle.dumps(popfit.CurveFitter("a*exp(-k*x) + c", bounds={"k": (0, 9)}, fixed=["c"])))
    assert fitter.fit([0.0, 1.0, 2.0], [3.0, 1.5, 0.75], [1.0, 1.0, 0.0])["k"][0] == pytest.approx(np.log(2.0))
    cloudpickle = required("cloudpickle")
    assert len(cloudpickle.loads(cloudpickle.dumps(popfit.CurveFitter(lambda x, a: a * x))).parameters) == 1


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_layouts_and_types(data: st.DataObject) -> None:
    """An array of any type, order and stride gives the bits of the same numbers in float64, C order."""
    count = data.draw(st.integers(1, 5))
    y = np.round(16.0 * curves(count, data.draw(st.integers(0, 99)))[0])
    fitter = popfit.CurveFitter(gauss)
    wanted = fitter.fit(X, y, START)
    kind = data.draw(st.sampled_from(["<i2", ">f8", "<f4", "<f8", ">i4", "<f2", "u1"]))
    if kind == "u1":
        y = np.abs(y)
        wanted = fitter.fit(X, y, START)
    given_y: Any = y.astype(kind)
    layout = data.draw(st.sampled_from(["plain", "fortran", "strided", "list", "reversed"]))
    if layout == "fortran":
        given_y = np.asfortranarray(given_y)
    elif layout == "strided":
        given_y = np.repeat(given_y, 2, axis=1)[:, ::2]
    elif layout == "list":
        given_y = given_y.tolist()
    elif layout == "reversed":
        given_y = given_y[:, ::-1].copy()[:, ::-1]
    found = fitter.fit(X.tolist() if layout == "list" else X, given_y, np.array(START, dtype=">f8"))
    assert found.parameters.tobytes() == wanted.parameters.tobytes()


def test_masks_and_infinite_sigmas() -> None:
    y, _ = curves(6)
    wanted = popfit.CurveFitter(gauss).fit(X[5:], y[:, 5:], START)
    spoiled = y.copy()
    spoiled[:, :5] = [np.nan, np.inf, 1e30, -5.0, 0.0]
    mask = np.zeros(y.shape, dtype=bool)
    mask[:, :5] = True
    sigma = np.ones(X.size)
    sigma[:5] = np.inf
    fitter = popfit.CurveFitter(gauss)
    for found in (
        fitter.fit(X, spoiled, START, mask=mask),
        fitter.fit(X, spoiled, START, mask=mask[0]),
        fitter.fit(X, np.ma.masked_array(spoiled, mask), START),
        fitter.fit(X, np.nan_to_num(spoiled), START, sigma=sigma),
    ):
        np.testing.assert_allclose(found.parameters, wanted.parameters, rtol=1e-6)
        np.testing.assert_array_equal(found.dof, wanted.dof)
    assert np.isnan(fitter.fit(X, spoiled, START, mask=mask).residuals()[:, :5]).all()


def test_a_curve_that_cannot_be_fitted_is_a_row() -> None:
    y, _ = curves(4)
    y[2, 7] = np.nan
    fits = popfit.CurveFitter(gauss).fit(X, y, START)
    assert fits.converged.tolist() == [True, True, False, True]
    assert fits["status_text"][2] == "bad_input" and "y is NaN at point 7" in fits.messages[2]
    assert np.isnan(fits.errors[2]).all()


def test_points_of_each_curve() -> None:
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(-5.0, 5.0, (30, X.size)), axis=1)
    _, truth = curves(30)
    y = gauss(x, *truth.T[:, :, np.newaxis])
    for model in (gauss, popfit.Formula("a*exp(-(x - m)^2/(2*s^2)) + c", parameters=["a", "m", "s", "c"])):
        fits = popfit.CurveFitter(model).fit(x, y, START, x_per_curve=True)
        np.testing.assert_allclose(fits.parameters, truth, rtol=1e-6)
        np.testing.assert_allclose(fits[3:9].residuals(), 0.0, atol=1e-5)

    def plane(xy: Any, a: Any, b: Any, c: Any) -> Any:
        return a * xy[0] + b * np.cos(xy[1]) + c

    xy = rng.uniform(-1.0, 1.0, (30, 2, X.size))
    y = plane(np.moveaxis(xy, 1, 0), *truth.T[:3, :, np.newaxis])
    fits = popfit.CurveFitter(plane).fit(xy, y, [1.0, 1.0, 1.0], x_per_curve=True)
    np.testing.assert_allclose(fits.parameters, truth[:, :3], rtol=1e-7)


def test_bounds_ties_priors_and_fixed_parameters() -> None:
    y, truth = curves(20)
    fits = popfit.CurveFitter(gauss, bounds={"a": (None, 7.0), "s": (0.0, np.inf)}).fit(X, y, START)
    assert fits["a"].max() <= 7.0 and (fits.flags[fits["a"] == 7.0] != 0).all()
    lower = np.column_stack([np.full((20, 1), -np.inf), truth[:, 1:2] + 0.3, np.full((20, 2), -np.inf)])
    starts = np.column_stack([np.full(20, 6.0), truth[:, 1] + 0.4, np.full(20, 1.2), np.full(20, 0.3)])
    fits = popfit.CurveFitter(gauss).fit(X, y, starts, bounds=(lower, np.inf))
    np.testing.assert_allclose(fits["m"], truth[:, 1] + 0.3)
    fits = popfit.CurveFitter(gauss, fixed=["c"], ties={"s": "1.2 + 0*a"}).fit(X, y, START)
    np.testing.assert_allclose(fits["c"], 0.3)
    np.testing.assert_allclose(fits["s"], 1.2)
    assert fits.dof.tolist() == [38] * 20
    fits = popfit.CurveFitter(gauss, priors={"m": (0.5, 1e-6)}).fit(X, y, START, sigma=0.2)
    np.testing.assert_allclose(fits["m"], 0.5, atol=1e-4)
    assert fits.dof.tolist() == [37] * 20


def test_starts_by_name_and_for_each_curve() -> None:
    y, truth = curves(9)
    fitter = popfit.CurveFitter(gauss)
    wanted = fitter.fit(X, y, truth)
    found = fitter.fit(X, y, {"a": truth[:, 0], "s": truth[:, 2], "c": truth[:, 3], "m": truth[:, 1]})
    assert wanted.parameters.tobytes() == found.parameters.tobytes()
    with pytest.raises(popfit.InputError, match=r"no parameter 'sigma'.*a, m, s, c"):
        fitter.fit(X, y, {"sigma": 1.0})
    far = popfit.CurveFitter(gauss, bounds={"a": (0.0, 1.0)}).fit(X, y, START)
    assert set(far["status_text"]) == {"bad_input"} and "start" in far.messages[0]
    with pytest.raises(popfit.InputError, match="no start of m, c"):
        fitter.fit(X, y, {"a": 1.0, "s": 1.0})


def test_robust_and_poisson() -> None:
    y, truth = curves(20)
    y[:, ::9] += 30.0
    robust = popfit.CurveFitter(gauss, estimator=("cauchy", 1.0)).fit(X, y, START, sigma=0.2)
    assert np.median(np.abs(robust.parameters - truth)) < 0.1
    counts = np.random.default_rng(3).poisson(20.0 * np.exp(-0.3 * X)[np.newaxis].repeat(8, 0))
    rates = popfit.CurveFitter("a*exp(-k*x)", estimator="poisson").fit(X, counts, [10.0, 0.1])
    np.testing.assert_allclose(rates["k"], 0.3, atol=0.05)
    with pytest.raises(popfit.InputError, match="sigma"):
        popfit.CurveFitter("a*exp(-k*x)", estimator="poisson").fit(X, counts, [10.0, 0.1], sigma=1.0)


def test_no_curves_and_one_curve() -> None:
    fits = popfit.CurveFitter(gauss).fit(X, np.empty((0, X.size)), START)
    assert len(fits) == 0 and fits.parameters.shape == (0, 4) and fits.covariance is not None
    assert fits["a_err"].dtype == np.float64 and len(fits.to_pandas()) == 0
    y, _ = curves(1)
    assert popfit.CurveFitter(gauss).fit(X, y[0], START).parameters.shape == (1, 4)


def test_accuracy() -> None:
    y, _ = curves(500)
    fitter = popfit.CurveFitter(gauss)
    quick, exact = fitter.fit(X, y, START), fitter.fit(X, y, START, exact=True)
    assert (np.abs(quick.parameters - exact.parameters) < 0.001 * exact.errors).all()
    single = fitter.fit(X, y.astype(np.float32), START, covariance=False)
    assert single.covariance is None and (np.abs(single.parameters - exact.parameters) < 0.01 * exact.errors).all()


def test_a_function_that_is_no_formula() -> None:
    y, _ = curves(6)
    wanted = popfit.CurveFitter(gauss).fit(X, y, START, exact=True)
    with pytest.warns(popfit.PopfitWarning, match=r"no formula: it takes a parameter for a plain number.*np.exp"):
        found = popfit.CurveFitter(untraceable_gauss).fit(X, y, START)
    assert (np.abs(found.parameters - wanted.parameters) < 0.001 * wanted.errors).all()
    np.testing.assert_allclose(found.predict(X[:7]), gauss(X[:7], *found.parameters.T[:, :, np.newaxis]), rtol=1e-12)
    with pytest.raises(popfit.InputError, match="only parameters of formulas are tied"):
        popfit.CurveFitter(untraceable_gauss, ties={"s": "2*a"}).fit(X, y, START)


def test_a_formula_that_holds_near_the_start_alone() -> None:
    """A function that looks at numbers behind numpy's back is found out at its results."""

    def sly(x: Any, a: Any, k: Any) -> Any:
        known = [one for one in (a, k) if isinstance(one, float)]
        return a * np.exp(-k * x) if not known or known[1] < 1.5 else a / (1.0 + k * x)

    x = np.linspace(0.0, 3.0, 30)
    with pytest.warns(popfit.PopfitWarning, match="at some results"):
        fits = popfit.CurveFitter(sly).fit(x, 3.0 / (1.0 + 9.0 * x), [1.0, 1.2])
    assert len(fits) == 1


@pytest.mark.filterwarnings("ignore::popfit.PopfitWarning")
def test_a_function_that_fails() -> None:
    def fails(x: Any, a: Any) -> Any:
        float(a)
        if a > 1.5:
            raise ZeroDivisionError("no such number")
        return a * x

    fits = popfit.CurveFitter(fails).fit(X, np.array([X, 2.0 * X]), [1.0])
    assert fits.converged.tolist()[0]
    assert not fits.converged[1] or fits["a"][1] <= 1.5
    assert "no such number" in fits.messages[1] or fits.converged[1]


@pytest.mark.filterwarnings("ignore::popfit.PopfitWarning")
def test_a_function_that_calls_popfit() -> None:
    inner = popfit.CurveFitter("a*x")

    def nested(x: Any, a: Any) -> Any:
        return inner.fit(x, float(a) * x, [1.0])["a"][0] * x

    fits = popfit.CurveFitter(nested).fit(X, np.array([2.0 * X] * 4), [1.0], threads=2)
    np.testing.assert_allclose(fits["a"], 2.0)


def test_threads_give_the_same_bits() -> None:
    y, _ = curves(300)
    fitter = popfit.CurveFitter(gauss)
    wanted = fitter.fit(X, y, START).parameters.tobytes()
    found: list[bytes] = []
    workers = [
        threading.Thread(target=lambda: found.append(fitter.fit(X, y, START, threads=2).parameters.tobytes()))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [wanted] * 4


def test_progress_and_timeout() -> None:
    y, _ = curves(2000)
    seen: list[tuple[int, int]] = []
    popfit.CurveFitter(gauss).fit(X, y, START, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2000, 2000)
    fits = popfit.CurveFitter(gauss).fit(X, y, START, timeout=0.0)
    assert set(fits["status_text"]) == {"interrupted"}
    np.testing.assert_array_equal(fits.parameters[5], START)

    def stops(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        popfit.CurveFitter(gauss).fit(X, y, START, progress=stops)


INTERRUPTED = """
import signal, sys, threading, time
import numpy as np, popfit, warnings
warnings.simplefilter("ignore")
def slow(x, a, k):
    time.sleep(0.002)
    return float(a) * np.exp(-k * x)
x = np.linspace(0.0, 3.0, 20)
y = np.exp(-np.outer(np.linspace(0.5, 2.0, 2000), x))
threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT)).start()
began = time.monotonic()
try:
    popfit.CurveFitter(slow).fit(x, y, [1.0, 1.0])
except popfit.Interrupted as stop:
    print(f"{time.monotonic() - began:.3f}", len(stop.fits), int((stop.fits["status_text"] == "interrupted").sum()))
"""


def test_an_interrupt_ends_calls_of_functions(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    seconds, count, interrupted = run_python(script).stdout.split()
    assert float(seconds) < 2.5 and count == "2000" and int(interrupted) > 0


MEMORY = """
import numpy as np, popfit
def high_water():
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
x = np.arange(25.0)
y = np.empty((400_000, 25), np.float32)
y[:] = np.exp(-0.2 * x)
y *= np.random.default_rng(0).uniform(1.0, 3.0, (400_000, 1)).astype(np.float32)
fitter = popfit.CurveFitter(lambda x, a, k: a * np.exp(-k * x))
fitter.fit(x, y[:5000], [1.0, 0.1])
before = high_water()["VmRSS"]
fits = fitter.fit(x, y, [1.0, 0.1])
results = sum(getattr(fits, name).nbytes for name in fits._ROWS)
print((high_water()["VmHWM"] - before) * 1024 - results, y.nbytes + results)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_memory(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "memory.py"
    script.write_text(MEMORY)
    beyond, held = map(int, run_python(script).stdout.split())
    assert beyond < 0.1 * held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_is_refused() -> None:
    code = (
        "import os, popfit, numpy as np\n"
        "x = np.arange(5.0)\n"
        "popfit.CurveFitter('a*x').fit(x, 2*x, [1.0])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        popfit.CurveFitter('a*x').fit(x, 2*x, [1.0])\n"
        "    except popfit.ForkError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "7"


@pytest.mark.parametrize(
    ("arguments", "argument", "message"),
    [
        ({"y": np.zeros((2, 3, 4))}, "y", r"shape \(2, 3, 4\)"),
        ({"y": np.zeros((2, 4), complex)}, "y", "complex128; give real numbers"),
        ({"y": np.array([["a"] * 40])}, "y", "texts|real numbers"),
        ({"x": X[:-1]}, "x", r"returns the shape \(39,\), for 40 points.*x_per_curve"),
        ({"y": np.zeros((3, 0)), "x": X[:0]}, "y", "no points"),
        ({"p0": np.ma.masked_array(START, [0, 1, 0, 0])}, "p0", "masked"),
        ({"y": curves(1)[0][0], "x_per_curve": True}, "x_per_curve", "y is one curve"),
        ({"sigma": np.ones(7)}, "sigma", r"shape \(7,\); give \(1,\) or \(40,\) or \(3, 40\)"),
        ({"mask": np.zeros((2, 40), bool)}, "mask", r"shape \(2, 40\)"),
        ({"mask": np.zeros(40)}, "mask", "give truth values"),
        ({"p0": [1.0, 2.0]}, "p0", r"shape \(2,\); give \(4,\) or \(3, 4\)"),
        ({"bounds": (np.zeros(3), np.ones(3))}, "bounds", r"shape \(3,\); give \(4,\) or \(3, 4\)"),
        ({"bounds": 3.0}, "bounds", "pair"),
        ({"timeout": -1.0}, "timeout", "number of seconds"),
        ({"threads": 0}, "threads", "1 to 1024"),
        ({"progress": 3}, "progress", "True, False or a function"),
        ({"covariance": 1}, "covariance", "True or False"),
        ({"x_per_curve": True}, "x", "with x_per_curve give"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], argument: str, message: str) -> None:
    given_arguments = {"x": X, "y": curves(3)[0], "p0": START, **arguments}
    with pytest.raises(popfit.InputError, match=message) as caught:
        popfit.CurveFitter(gauss).fit(**given_arguments)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("settings", "argument", "message"),
    [
        ({"bounds": {"q": (0, 1)}}, "bounds", "no parameter 'q'"),
        ({"bounds": {"a": 3.0}}, "bounds", "a lower and an upper bound"),
        ({"fixed": ["aa"]}, "fixed", "no parameter 'aa'; did you mean 'a'"),
        ({"ties": {"a": 3.0}}, "ties", "an expression"),
        ({"priors": {"a": (0.0, np.nan)}}, "priors", "two numbers"),
        ({"estimator": "hubr"}, "estimator", "did you mean 'huber'"),
        ({"estimator": ("poisson", 2.0)}, "estimator", "no scale"),
        ({"estimator": ("huber", -2.0)}, "estimator", "above 0"),
        ({"solver": "simplex"}, "solver", "nelder-mead"),
        ({"xtol": -1.0}, "xtol", "number from 0"),
        ({"max_rounds": 0}, "max_rounds", "integer from 1"),
        ({"device": 3}, "device", "give"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], argument: str, message: str) -> None:
    with pytest.raises(popfit.InputError, match=message) as caught:
        popfit.CurveFitter(gauss, **settings)
    assert caught.value.argument == argument


def test_formulas() -> None:
    formula = popfit.Formula("a*exp(-k*x) + c")
    x = np.linspace(0.0, 2.0, 9)
    np.testing.assert_allclose(formula(x, 2.0, 0.5, 0.1), 2.0 * np.exp(-0.5 * x) + 0.1, rtol=1e-14)
    jacobian = formula.jacobian(x, 2.0, 0.5, 0.1)
    wanted = np.stack([np.exp(-0.5 * x), -2.0 * x * np.exp(-0.5 * x), np.ones(9)], axis=1)
    np.testing.assert_allclose(jacobian, wanted, rtol=1e-13)
    assert popfit.Formula.builtin("gauss1d").parameters == ("a", "m", "s", "c") and "voigt" in popfit.Formula.builtins()
    plane = popfit.Formula("a*x + b*y", ["x", "y"])
    np.testing.assert_allclose(plane([x, 2.0 * x], 3.0, 4.0), 11.0 * x)
    with pytest.raises(popfit.InputError, match="2 parameters, not 3"):
        formula(x, 1.0, 2.0)
    with pytest.raises(popfit.InputError, match="gauss1d"):
        popfit.Formula.builtin("gaus1d")
    with pytest.raises(popfit.InputError) as caught:
        popfit.Formula("a*expp(-k*x)")
    assert caught.value.column == 3
    with pytest.raises(popfit.InputError, match="names its own"):
        popfit.CurveFitter(formula, parameters=["u", "v", "w"])


def test_shapes_of_predictors() -> None:
    plane = popfit.Formula("a*x + b*y", ["x", "y"])
    xy = np.random.default_rng(1).normal(size=(2, 30))
    fitter = popfit.CurveFitter(plane)
    np.testing.assert_allclose(fitter.fit(xy, 2.0 * xy[0] - xy[1], [1.0, 1.0]).parameters, [[2.0, -1.0]])
    for wrong in (xy.T, xy[0], xy[:, :7]):
        with pytest.raises(popfit.InputError, match="x has the shape"):
            fitter.fit(wrong, 2.0 * xy[0] - xy[1], [1.0, 1.0])
        if wrong.shape != (2, 7):
            with pytest.raises(popfit.InputError, match="for the predictors x, y"):
                plane(wrong, 1.0, 2.0)
    with pytest.raises(popfit.InputError, match="give x_per_curve=True"):
        popfit.CurveFitter("a*x").fit(np.tile(X, (3, 1)), np.tile(X, (3, 1)), [1.0])


def test_functions_that_take_points_together() -> None:
    """Each curve's own smallest x counts, not that of all curves."""
    x = np.tile(np.linspace(0.0, 5.0, 20), (301, 1))
    x[7] += 3.0
    x[9, 4] = -2.0
    truth = np.random.default_rng(2).uniform(1.0, 2.0, (301, 2))
    reductions = (lambda x: x.min(), lambda x: x.max(), lambda x: x[0], lambda x: np.asarray(x).mean(), lambda x: x[3])
    for reduced in reductions:

        def function(x: Any, a: Any, k: Any, reduced: Any = reduced) -> Any:
            return a * np.exp(-k * (x - reduced(x)))

        y = np.array([function(row, *p) for row, p in zip(x, truth, strict=True)])
        fits = popfit.CurveFitter(function, parameters=["a", "k"]).fit(x, y, [1.0, 1.0], x_per_curve=True)
        np.testing.assert_allclose(fits.parameters, truth, rtol=1e-6)


def test_functions_whose_rows_are_not_their_own() -> None:
    def switches(x: Any, a: Any, k: Any) -> Any:
        return (1.1 if np.max(k) > 1.5 else 1.0) * a * np.exp(-k * x)

    x = np.linspace(0.1, 5.0, 40)
    truth = np.array([[2.0, 1.0], [2.0, 1.2], [3.0, 2.5], [1.5, 0.8]])
    y = np.array([switches(x, *p) for p in truth])
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        fits = popfit.CurveFitter(switches).fit(x, y, [1.0, 1.0])
    np.testing.assert_allclose(fits.parameters, truth, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:the function is no formula")
@pytest.mark.parametrize("pause", [0.0, 0.001])
def test_short_calls_take_turns_and_long_ones_run_together(pause: float) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def decay(x: Any, a: Any, k: Any) -> Any:
        inside.append(1)
        seen.append(len(inside))
        try:
            time.sleep(pause)
            return np.asarray(a, dtype=float) * np.exp(-k * x)
        finally:
            inside.pop()

    x = np.linspace(0.1, 3.0, 30)
    truth = np.random.default_rng(3).uniform([2.0, 0.5], [3.0, 1.5], (2048, 2))
    fits = popfit.CurveFitter(decay).fit(x, truth[:, :1] * np.exp(-truth[:, 1:] * x), [2.5, 1.0], threads=2)
    np.testing.assert_allclose(fits.parameters, truth, rtol=1e-5)
    together = np.mean(np.array(seen) > 1)
    assert together > 0.3 if pause else together < 0.1


def test_names_that_formulas_have_taken() -> None:
    x = np.linspace(0.1, 3.0, 30)
    y = np.array([2.0 * np.exp(-x), 3.0 * np.exp(-1.5 * x)])
    tied = popfit.CurveFitter(lambda x, b, e: b * np.exp(-e * x), ties={"b": "2*e"}).fit(x, y, [1.0, 1.0])
    np.testing.assert_allclose(tied["b"], 2.0 * tied["e"])
    np.testing.assert_allclose(tied["b"], [2.0, 3.0], rtol=1e-6)
    assert tied.confidence_intervals().shape == (2, 1, 3, 2)
    bounded = popfit.CurveFitter(lambda x, a, gamma: a * np.exp(-gamma * x), bounds={"gamma": (0, 9)}).fit(x, y, [1, 1])
    assert bounded.confidence_intervals(sigmas=[1.0]).shape == (2, 2, 1, 2)
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        called = popfit.CurveFitter(lambda x, x0, k: float(x0) * np.exp(-k * x)).fit(x, y, [1.0, 1.0])
    np.testing.assert_allclose(called["x0"], [2.0, 3.0], rtol=1e-6)
    odd = popfit.CurveFitter(lambda x, chi2, k: chi2 * np.exp(-k * x)).fit(x, y, [1.0, 1.0])
    np.testing.assert_allclose(odd["chi2"], [2.0, 3.0], rtol=1e-6)


def test_functions_of_other_points_than_y_has() -> None:
    t = np.linspace(0.1, 5.0, 40)
    both = np.concatenate([3.0 * np.exp(-0.7 * t), 3.0 * t])
    fitter = popfit.CurveFitter(lambda t, a, k: np.concatenate([a * np.exp(-k * t), a * t]))
    with pytest.warns(popfit.PopfitWarning, match="numpy.concatenate"):
        fits = fitter.fit(t, both, [1.0, 1.0])
    np.testing.assert_allclose(fits.parameters, [[3.0, 0.7]], rtol=1e-6)


def test_a_run_that_is_cancelled_ends_no_other_one() -> None:
    y, _ = curves(20_000)
    formula = popfit.Formula("a*exp(-(x - m)^2/(2*s^2)) + c", parameters=["a", "m", "s", "c"])
    failed: list[int] = []

    def fit_on(stop: threading.Event) -> None:
        while not stop.is_set():
            failed.append(int((~popfit.CurveFitter(formula).fit(X, y, START, exact=True).converged).sum()))

    def raises(done: int, total: int) -> None:
        raise RuntimeError("enough")

    stop = threading.Event()
    worker = threading.Thread(target=fit_on, args=(stop,))
    worker.start()
    for _ in range(5):
        with pytest.raises(RuntimeError, match="enough"):
            popfit.CurveFitter(formula).fit(X, y, START, exact=True, progress=raises)
    stop.set()
    worker.join()
    assert failed and not any(failed)


@pytest.mark.filterwarnings("ignore::popfit.PopfitWarning")
def test_a_keyboard_interrupt_of_the_function_ends_the_run() -> None:
    def interrupted(x: Any, a: Any) -> Any:
        if float(a) > 1.5:
            raise KeyboardInterrupt
        return a * x

    def interrupted_together(x: Any, a: Any) -> Any:
        if np.max(np.asarray(a, dtype=float)) > 1.5:
            raise KeyboardInterrupt
        return a * x

    for function in (interrupted, interrupted_together):
        with pytest.raises(KeyboardInterrupt):
            popfit.CurveFitter(function).fit(X, np.array([X, 2.0 * X]), [1.0])


def test_copies_and_own_x(fits: popfit.CurveFits) -> None:
    for copied in (copy.copy(fits), copy.deepcopy(fits)):
        np.testing.assert_array_equal(copied.residuals(), fits.residuals())
    again = pickle.loads(pickle.dumps(popfit.CurveFitter("a*x").fit(X, [2.0 * X], [1.0])))
    np.testing.assert_allclose(again.predict([1.0, 2.0]), [[2.0, 4.0]])
    assert fits[:0].residuals().shape == (0, X.size) and fits[:0].predict([1.0, 2.0]).shape == (0, 2)
    x = X.copy()
    kept = popfit.CurveFitter(gauss).fit(x, curves(2)[0], START)
    wanted = kept.predict()
    x[:] = 0.0
    np.testing.assert_array_equal(kept.predict(), wanted)
    with pytest.raises(popfit.InputError, match="rows: None"):
        fits[None]  # type: ignore[call-overload]
    assert fits[np.array(2)]["a"] == fits["a"][2]


def test_infinite_sigmas_and_masked_x() -> None:
    y, _ = curves(3)
    sigma = np.full(X.size, 0.2)
    sigma[4] = np.inf
    fits = popfit.CurveFitter(gauss).fit(X, y, START, sigma=sigma)
    assert np.isnan(fits.residuals()[:, 4]).all() and fits.jacobian().shape == (39, 4)
    wanted = popfit.Formula.builtin("gauss1d").jacobian(np.delete(X, 4), *fits.parameters[2]) / 0.2
    np.testing.assert_allclose(fits.jacobian(2), wanted, rtol=1e-9, atol=1e-9)
    masked = popfit.CurveFitter(gauss).fit(np.ma.masked_array(X, np.arange(40) == 4), y, START, sigma=0.2)
    np.testing.assert_allclose(masked.parameters, fits.parameters, rtol=1e-6)
    np.testing.assert_array_equal(masked.dof, fits.dof)


LEAKS = """
import signal, threading
handler = signal.getsignal(signal.SIGINT)
import numpy as np, popfit
def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
x = np.linspace(0.0, 3.0, 20)
def fit(points=1):
    popfit.CurveFitter("a*exp(-k*x)").fit(x, np.tile(2.0 * np.exp(-x), (points, 1)), [1.0, 1.0])
def on_threads(count):
    for _ in range(count):
        worker = threading.Thread(target=fit)
        worker.start()
        worker.join()
on_threads(100)
for k in range(100):
    fit(100)
before = resident()
for k in range(1000):
    fit(1 + k % 100)
on_threads(300)
assert signal.getsignal(signal.SIGINT) is handler
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_nothing_grows(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "leaks.py"
    script.write_text(LEAKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_ARENA_MAX", "1")
        assert int(run_python(script).stdout) < 1000
