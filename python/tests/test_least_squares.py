"""`least_squares` beside scipy's, for one problem and for many."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import required
from hypothesis import given, settings
from hypothesis import strategies as st

import popfit
from popfit.scipy import least_squares

optimize = required("scipy.optimize")
T = np.linspace(0.0, 4.0, 40)
LOSSES = ("linear", "soft_l1", "huber", "cauchy", "arctan")
FIELDS = "x cost fun jac grad optimality active_mask nfev njev status message success".split()


def decay(x: Any, t: Any, y: Any) -> Any:
    return x[0] * np.exp(-x[1] * t) + x[2] - y


def untraceable(x: Any, t: Any, y: Any) -> Any:
    return decay([float(one) for one in x], t, y)


def rosenbrock(x: Any) -> Any:
    return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def decays(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Return starts and noisy decays."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform([2.0, 0.5, 0.0], [4.0, 2.0, 1.0], (count, 3))
    curves = decay(truth.T[:, :, np.newaxis], T, 0.0)
    return truth * rng.uniform(0.8, 1.2, truth.shape), curves + 0.05 * rng.normal(size=curves.shape)


def assert_as_scipy(found: Any, wanted: Any) -> None:
    """Assert that a result is scipy's, or one of a lower cost."""
    assert list(found) == FIELDS and found.success and found.status in (1, 2, 3, 4) and type(found) is type(wanted)
    for name in FIELDS:
        assert np.shape(found[name]) == np.shape(wanted[name]), name
        assert name in ("status", "message") or isinstance(found[name], type(wanted[name])), name
    assert found.cost <= wanted.cost * (1.0 + 1e-9) + 1e-20
    size = np.abs(wanted.jac).max()
    errors = np.sqrt(2.0 * wanted.cost / wanted.fun.size) / size
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-6, atol=0.05 * errors + 1e-9)
    # the derivatives of scipy are differences, at a result of its own
    np.testing.assert_allclose(found.jac, wanted.jac, atol=1e-2 * size)
    assert found.optimality <= max(wanted.optimality, 1e-6 * size)
    np.testing.assert_array_equal(found.active_mask, wanted.active_mask)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
@pytest.mark.parametrize("loss", LOSSES)
def test_one_problem(loss: str, method: str) -> None:
    x0, y = decays(20)
    y[:, ::9] += 1.0
    if method == "lm" and loss != "linear":
        with pytest.raises(ValueError, match="supports only 'linear' loss"):
            least_squares(decay, x0[0], args=(T, y[0]), loss=loss, method=method)
        return
    elsewhere = 0
    for k in range(20):
        call = functools.partial(optimize.least_squares, decay, x0[k], args=(T,), loss=loss, method=method)
        wanted = call(kwargs={"y": y[k]}, f_scale=0.1, gtol=1e-12, xtol=1e-12, ftol=1e-12)
        found = least_squares(decay, x0[k], args=(T,), kwargs={"y": y[k]}, loss=loss, method=method, f_scale=0.1)
        if loss == "arctan" and abs(found.cost - wanted.cost) > 0.01 * wanted.cost:
            elsewhere += found.cost > wanted.cost  # this loss has several minima
            continue
        assert_as_scipy(found, wanted)
    assert elsewhere <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_cost_gradient_and_scaled_jacobian_are_scipys(loss: str) -> None:
    """Tolerances that every start meets: both answers are those of the start."""
    x0, y = decays(1)
    call: dict[str, Any] = {"args": (T, y[0]), "loss": loss, "f_scale": 0.03, "bounds": (-0.5, 5.0)}
    jac = "3-point"
    at_start = optimize.least_squares(decay, x0[0], jac, max_nfev=1, **call)
    found = least_squares(decay, np.tile(x0[0], (2, 1)), jac, **call)
    again = optimize.least_squares(decay, found.x[1], jac, max_nfev=1, **call)
    for name in ("cost", "fun", "jac", "grad"):
        np.testing.assert_allclose(found[name][1], again[name], rtol=1e-6, atol=1e-7 * np.abs(again.jac).max())
    np.testing.assert_allclose(found.optimality[1], again.optimality, atol=1e-7)
    one = least_squares(decay, x0[0], jac, max_nfev=1, **call)
    assert one.nfev == 1 and one.status == 0 and one.cost == at_start.cost


@pytest.mark.parametrize("method", ["trf", "dogbox"])
def test_bounds(method: str) -> None:
    x0, y = decays(12)
    lower, upper = np.array([0.0, 0.0, 0.4]), np.array([10.0, 1.2, 0.45])
    x0 = np.clip(x0, lower + 1e-3, upper - 1e-3)
    # scipy's trf keeps a distance from bounds
    strict = {"ftol": 1e-13, "xtol": 1e-13, "gtol": 1e-13, "method": method}
    many = least_squares(decay, x0, bounds=(lower, upper), args=(T, y), method=method)
    own = least_squares(decay, x0, bounds=(np.tile(lower, (12, 1)), upper[2] + 9.0 * (upper > 9.0) + 0.75), args=(T, y))
    assert own.x.shape == (12, 3) and (own.x >= lower).all()
    active = 0
    for k in range(12):
        wanted = optimize.least_squares(decay, x0[k], bounds=(lower, upper), args=(T, y[k]), **strict)
        found = least_squares(decay, x0[k], bounds=optimize.Bounds(lower, upper), args=(T, y[k]), method=method)
        for one in (found.x, many.x[k]):
            np.testing.assert_allclose(one, wanted.x, rtol=1e-4)
        assert max(found.cost, many.cost[k]) <= wanted.cost * (1.0 + 1e-9)
        assert max(found.optimality, many.optimality[k]) < 1e-6
        np.testing.assert_array_equal(
            found.active_mask, np.where(found.x == lower, -1, np.where(found.x == upper, 1, 0))
        )
        np.testing.assert_array_equal(found.active_mask, many.active_mask[k])
        active += np.abs(found.active_mask).sum()
    assert active > 12


def test_optimality_before_the_minimum() -> None:
    x0, y = decays(1)
    start, bounds = x0[0] * [1.0, 4.0, 1.0], (-0.1, 12.0)
    short = {"bounds": bounds, "args": (T, y[0]), "max_nfev": 2, "gtol": None}
    found = least_squares(decay, start, **short)
    distance = np.where(found.grad > 0.0, found.x + 0.1, 12.0 - found.x)
    np.testing.assert_allclose(found.optimality, np.abs(found.grad * distance).max())
    found = least_squares(decay, start, method="dogbox", **short)
    np.testing.assert_allclose(found.optimality, np.abs(found.grad).max())
    assert found.optimality > 1e-3


def test_a_small_gradient_is_the_first_reason() -> None:
    x0, y = decays(20)
    found = least_squares(lambda x, y: 1e-9 * decay(x, T, y), x0, args=(y,))
    assert (found.status == 1).all() and set(found.message) == {"`gtol` termination condition is satisfied."}
    found = least_squares(lambda x, y: 1e-9 * decay(x, T, y), x0, args=(y,), gtol=None)
    assert (found.status != 1).any() and found.success.all()
    # scipy stops where it starts
    wanted = optimize.least_squares(lambda x: 1e-9 * decay(x, T, y[0]), x0[0])
    assert found.cost[0] < 0.99 * wanted.cost


def test_losses_with_several_minima() -> None:
    rng = np.random.default_rng(1)
    _, y = decays(60, seed=3)
    y[:, ::9] += 1.0
    x0 = rng.uniform([1.0, 0.2, 0.0], [6.0, 4.0, 1.5], (60, 3))
    found = least_squares(decay, x0, args=(T, y), loss="arctan", f_scale=0.1)
    costs = [optimize.least_squares(decay, x0[k], args=(T, y[k]), loss="arctan", f_scale=0.1).cost for k in range(60)]
    assert np.count_nonzero(found.cost > np.multiply(costs, 1.001)) <= 1
    assert np.count_nonzero(found.cost < np.multiply(costs, 0.999)) >= 5


@pytest.mark.parametrize("loss", LOSSES)
def test_many_problems(loss: str) -> None:
    x0, y = decays(200, seed=1)
    y[:, ::9] += 1.0
    found = least_squares(decay, x0, args=(T, y), loss=loss, f_scale=0.1)
    assert list(found) == FIELDS and found.success.all() and len(found.message) == 200
    assert found.jac.shape == (200, 40, 3) and found.fun.shape == (200, 40) and found.active_mask.shape == (200, 3)
    for k in range(0, 200, 10):
        wanted = optimize.least_squares(decay, x0[k], args=(T, y[k]), loss=loss, f_scale=0.1)
        row = type(found)({name: values[k] for name, values in found.items()})
        row.update(message=str(row.message))
        assert row.cost <= wanted.cost * (1.0 + 1e-9)
        np.testing.assert_allclose(row.x, wanted.x, atol=1e-3)
        one = least_squares(decay, x0[k], args=(T, y[k]), loss=loss, f_scale=0.1)
        np.testing.assert_allclose(row.cost, one.cost, rtol=1e-9)
        np.testing.assert_allclose(row.fun, one.fun, atol=1e-4)
        np.testing.assert_allclose(row.jac, one.jac, atol=1e-2)


def test_never_worse_than_a_loop_of_scipy() -> None:
    """300 random Gauss functions: nowhere a higher cost than scipy's."""
    rng = np.random.default_rng(11)
    t = np.linspace(-5.0, 5.0, 60)

    def gauss(x: Any, t: Any, y: Any) -> Any:
        return x[0] * np.exp(-((t - x[1]) ** 2) / (2.0 * x[2] ** 2)) + x[3] - y

    truth = rng.uniform([1.0, -3.0, 0.3, -1.0], [9.0, 3.0, 2.0, 1.0], (300, 4))
    y = gauss(truth.T[:, :, np.newaxis], t, 0.0) + rng.normal(size=(300, 60)) * rng.uniform(0.05, 0.5, (300, 1))
    x0 = truth * rng.uniform(0.6, 1.4, truth.shape)
    found = least_squares(gauss, x0, args=(t, y))
    wanted = [optimize.least_squares(gauss, x0[k], args=(t, y[k])) for k in range(300)]
    costs = np.array([one.cost for one in wanted])
    assert (found.cost <= costs * (1.0 + 1e-6)).all()
    same = np.flatnonzero(found.cost >= costs * (1.0 - 1e-9))
    assert same.size > 250
    for k in same:
        np.testing.assert_allclose(np.abs(found.x[k]), np.abs(wanted[k].x), atol=2e-3)


COEFFICIENTS = np.random.default_rng(5).uniform(0.5, 1.5, (40, 3))


@pytest.mark.parametrize(
    ("fun", "own"),
    [
        (lambda x, y, c: decay(x, T, y) * c, COEFFICIENTS[:, :1]),
        (lambda x, y, c: x[0] * np.exp(-c[0] * x[1] * T) + x[2] - y, COEFFICIENTS[:, :1]),
        (lambda x, y, c: c[0] * x[0] * np.exp(-x[1] * T) + c[1] * x[2] - y + c[2], COEFFICIENTS),
        (lambda x, y, c: np.append(y, 0.0)[:40] * 0.0 + x[0] * c[1] - c[0], COEFFICIENTS[:, [0, 0]]),
        (lambda x, y, c: decay(x, c[0], y) + c[1], np.stack([np.tile(T, (40, 1)), np.ones((40, 40))], axis=1)),
        (lambda x, y, c: x[0] * np.exp(-x[1] * T) + x[2] - y / y.mean(), COEFFICIENTS),
        (lambda x, y, c: x[0] * np.exp(-x[1] * T) + x[2] - y / y.max(), COEFFICIENTS),
        (lambda x, y, c: [x[0] * np.exp(-x[1] * a) + x[2] - b for a, b in zip(T, y, strict=True)], COEFFICIENTS),
        (lambda x, y, c: c @ x - y[:7], np.random.default_rng(6).normal(size=(40, 7, 3))),
        (lambda x, y, c: (x - c) * np.arange(1.0, 4.0), COEFFICIENTS),
        (lambda x, y, c: np.array([10.0 * (x[1] - c[0] * x[0] ** 2), 1.0 - x[0], x[2]]), COEFFICIENTS),
    ],
)
def test_arguments_of_each_problem(fun: Any, own: Any) -> None:
    """40 problems of 40 points: T is an array of one dimension, and therefore shared."""
    x0, y = decays(40)
    shared = least_squares(fun, x0, args=(y,), kwargs={"c": own})
    assert shared.success.all()
    for k in range(0, 40, 7):
        with warnings.catch_warnings(action="ignore"):
            wanted = optimize.least_squares(fun, x0[k], args=(y[k],), kwargs={"c": own[k]})
        assert shared.cost[k] <= wanted.cost * (1.0 + 1e-8) + 1e-15
        np.testing.assert_allclose(shared.fun[k] @ shared.fun[k], 2.0 * shared.cost[k], atol=1e-20)
        np.testing.assert_allclose(shared.fun[k], fun(shared.x[k], y[k], own[k]), atol=1e-9)


def test_arrays_of_one_dimension_are_shared() -> None:
    x0, y = decays(40)
    by_argument = least_squares(decay, x0, args=(T, y))
    by_closure = least_squares(lambda x, y: decay(x, T, y), x0, args=(y,))
    by_rows = least_squares(decay, x0, args=(np.tile(T, (40, 1)), y))
    np.testing.assert_allclose(by_argument.x, by_closure.x)
    np.testing.assert_allclose(by_argument.x, by_rows.x)
    with pytest.raises(ValueError, match="broadcast") as caught:
        least_squares(lambda x, y, c: decay(x, T, y) * c, x0[:7], args=(y[:7], np.ones(7)))
    assert "Numbers of each problem are an array (problems, 1)" in caught.value.__notes__[0]


def test_many_starts_of_one_problem() -> None:
    x0 = np.random.default_rng(0).uniform(-2.0, 2.0, (50, 2))
    found = least_squares(rosenbrock, x0)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-7)
    assert found.success.all() and (found.cost < 1e-18).all()
    np.testing.assert_allclose(found.jac[7], [[-20.0, 10.0], [-1.0, 0.0]], rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from(LOSSES))
def test_random_linear_problems(parameters: int, more: int, seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(parameters + more, parameters))
    y = rng.normal(size=parameters + more)

    def fun(x: Any) -> Any:
        return matrix @ x - y

    found = least_squares(fun, np.zeros(parameters), loss=loss, f_scale=2.0)
    wanted = optimize.least_squares(fun, np.zeros(parameters), loss=loss, f_scale=2.0)
    assert found.cost <= wanted.cost * (1.0 + 1e-7) + 1e-15
    many = least_squares(lambda x, y: matrix @ x - y, np.zeros((2, parameters)), args=(np.stack([y, y + 1.0]),))
    best = np.linalg.lstsq(matrix, y, rcond=None)[0]
    np.testing.assert_allclose(many.cost[0], 0.5 * (fun(best) ** 2).sum(), rtol=1e-8, atol=1e-12)


def test_the_exceptions_are_scipys() -> None:
    x0, y = decays(3)
    calls: list[dict[str, Any]] = [
        {"args": (T, np.where(T > 2.0, np.nan, y[0]))},
        {"method": "newton"},
        {"loss": "hinge"},
        {"jac": "oops"},
        {"jac": lambda x, t, y: np.ones((2, 3))},
        {"tr_solver": "best"},
        {"max_nfev": 0},
        {"verbose": 7},
        {"x_scale": -1.0},
        {"x_scale": [1.0, 2.0]},
        {"ftol": None, "xtol": None, "gtol": None},
        {"method": "lm", "bounds": (0.0, 9.0)},
        {"method": "lm", "loss": "huber"},
        {"method": "lm", "ftol": None},
        {"bounds": (5.0, 0.0)},
        {"bounds": (4.5, 5.0)},
        {"bounds": (0.0, [5.0, 5.0])},
        {"bounds": (0.0, 1.0, 2.0)},
        {"x0": x0[0] + 0j},
        {"args": (T,)},
        {"kwargs": {"no_such": 3}},
        {"fun": lambda x, t, y: np.outer(x, y)},
        {"method": "lm", "fun": lambda x, t, y: x[:2]},
    ]
    for call in calls:
        call = {"fun": decay, "x0": x0[0], "args": (T, y[0]), **call}
        with pytest.raises((ValueError, TypeError)) as wanted:
            optimize.least_squares(**call)
        with pytest.raises((ValueError, TypeError)) as found:
            least_squares(**call)
        assert found.type is wanted.type and str(found.value) == str(wanted.value), call
        is_of_settings = not {"args", "kwargs", "bounds", "x0", "fun"} & call.keys() - {"fun", "x0", "args"}
        if is_of_settings and call["fun"] is decay and call["args"][0] is T and len(call["args"]) == 2:
            if call["x0"].dtype == complex or callable(call.get("jac")) or np.isnan(call["args"][1]).any():
                continue
            with pytest.raises(ValueError) as of_many:
                least_squares(**{**call, "x0": x0, "args": (T, y)})
            assert str(of_many.value) == str(wanted.value)
    with pytest.raises(ValueError, match="Method 'lm' doesn't support bounds"):
        least_squares(decay, x0, args=(T, y), method="lm", bounds=(0.0, 9.0))


def test_wrong_arrays_of_many_problems() -> None:
    x0, y = decays(3)
    calls: list[tuple[dict[str, Any], str, str]] = [
        ({"x0": x0 + 0j}, "x0", "complex128"),
        ({"x0": [["a", "b", "c"]]}, "x0", "texts"),
        ({"x0": np.zeros((2, 2, 2))}, "x0", r"the shape \(2, 2, 2\)"),
        ({"x0": np.zeros((3, 0))}, "x0", r"the shape \(3, 0\)"),
        ({"x0": np.ma.masked_less(x0, 1.0)}, "x0", "masked"),
        ({"bounds": ([0.0, 0.0], 9.0)}, "bounds", r"give \(3,\) or \(3, 3\)"),
        ({"bounds": (1.0, 2.0, 3.0)}, "bounds", "pair"),
        ({"fun": lambda x, t, y: np.outer(x, y)}, "fun", r"the shape \(3, 40\)"),
        ({"fun": lambda x, t, y: decay(x, t, 1j * y)}, "fun", "complex"),
        ({"args": (np.ma.masked_less([1.0, 2.0], 1.5), y), "fun": lambda x, t, y: x[0] * T - y}, "args[0]", "mask"),
    ]
    for call, argument, message in calls:
        with pytest.raises(popfit.InputError, match=message) as caught:
            least_squares(**{"fun": decay, "x0": x0, "args": (T, y), **call})
        assert caught.value.argument == argument


def test_problems_that_fail_are_rows() -> None:
    x0, y = decays(8)
    y[3, 4] = np.nan
    x0[5] = 20.0
    found = least_squares(decay, x0, args=(T, y), bounds=(-np.inf, 9.0))
    failed = np.array([3, 5])
    assert np.flatnonzero(~found.success).tolist() == failed.tolist() and (found.status[failed] < 0).all()
    assert "NaN" in found.message[3] and "outside" in found.message[5]
    assert np.isnan(found.x[failed]).all() and np.isnan(found.cost[failed]).all()
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        found = least_squares(untraceable, x0, args=(T, y), bounds=(-np.inf, 9.0))
    assert np.flatnonzero(~found.success).tolist() == failed.tolist() and (found.status[failed] == -1).all()
    assert found.message[3] == "Residuals are not finite in the initial point."
    assert found.message[5] == "Initial guess is outside of provided bounds"
    found = least_squares(decay, x0[:3] * 3.0, args=(T, y[:3]), max_nfev=1)
    assert (found.status == 0).all() and found.message[0] == optimize.least_squares(
        decay, x0[0] * 3.0, args=(T, y[0]), max_nfev=1
    ).message


def test_zero_problems() -> None:
    found = least_squares(decay, np.zeros((0, 3)), args=(T, np.zeros((0, 40))))
    assert list(found) == FIELDS and found.x.shape == (0, 3) and found.message == [] and found.status.dtype == int
    with pytest.raises(ValueError, match="`method` must be"):
        least_squares(decay, np.zeros((0, 3)), method="newton")


def test_masked_arguments() -> None:
    x0, y = decays(6)
    y[:, 4] = np.nan
    masked = np.ma.masked_invalid(y)
    for fun in (decay, untraceable):
        with warnings.catch_warnings(action="ignore" if fun is untraceable else "error"):
            many = least_squares(fun, x0, args=(T, masked))
            shared = least_squares(fun, x0, args=(np.ma.masked_where(T == T[4], T), y))
            one = least_squares(fun, x0[2], args=(T, masked[2]), jac=lambda x, t, y: np.ones((40, 3)))
        wanted = optimize.least_squares(decay, x0[2], args=(np.delete(T, 4), np.delete(y[2], 4)))
        for found in (many, shared):
            np.testing.assert_allclose(found.x[2], wanted.x, atol=1e-5)
            np.testing.assert_allclose(found.cost[2], wanted.cost)
            assert (found.fun[:, 4] == 0.0).all() and (found.jac[:, 4] == 0.0).all()
        np.testing.assert_allclose(one.x, wanted.x, atol=1e-5)
        assert one.fun[4] == 0.0


def test_residuals_that_leave_out_points_themselves() -> None:
    x0, y = decays(4)
    y[2, 4] = np.nan

    def fun(x: Any, t: Any, y: Any) -> Any:
        return np.where(np.isfinite(y), decay(x, t, y), 0.0)

    with pytest.warns(popfit.PopfitWarning, match="1 of 4 problems failed"):
        found = least_squares(fun, x0, args=(T, y))
    wanted = optimize.least_squares(fun, x0[2], args=(T, y[2]))
    assert found.success.all()
    np.testing.assert_array_equal(found.x[2], wanted.x)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fun": untraceable}, "no formula: it takes a parameter for a plain number"),
        ({"fun": lambda x, t, y: np.cumsum(decay(x, t, y))}, "no formula: it calls numpy.cumsum"),
        ({"fun": lambda x, t, y: decay(x, t, y).astype(np.float32)}, "not those of its formula"),
        ({"fun": lambda x, t, y: decay(x, t, y)[:20]}, "elements"),
        ({"fun": lambda x, t, y: x[:2] - 0.1}, "fewer residuals than parameters"),
        ({"loss": lambda z: np.array([z, np.ones_like(z), np.zeros_like(z)])}, "loss=a function"),
        ({"callback": lambda x: None}, "callback="),
        ({"jac_sparsity": np.ones((40, 3))}, "jac_sparsity="),
        ({"f_scale": -0.1, "loss": "huber"}, "f_scale=-0.1"),
    ],
)
def test_what_scipy_solves(changes: dict[str, Any], reason: str) -> None:
    x0, y = decays(4)
    call = {"fun": decay, "x0": x0[1], "args": (T, y[1]), **changes}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = least_squares(**call)
    assert [one.category for one in caught] == [popfit.PopfitWarning] and reason in str(caught[0].message)
    assert caught[0].filename == __file__
    wanted = optimize.least_squares(**call)
    for name in ("x", "cost", "fun", "status", "nfev"):
        np.testing.assert_array_equal(found[name], wanted[name])
    with pytest.warns(popfit.PopfitWarning, match="does it, slowly") as caught_of_many:
        many = least_squares(**{**call, "x0": x0, "args": (T, y)})
    assert len(caught_of_many) == 1 and many.success.all()
    np.testing.assert_array_equal(many.x[1], wanted.x)
    dense = wanted.jac.toarray() if hasattr(wanted.jac, "toarray") else wanted.jac
    np.testing.assert_array_equal(many.jac[1], dense)


def test_a_function_that_changes() -> None:
    x0, y = decays(1)
    calls = itertools.count()

    def fun(x: Any) -> Any:
        return decay(x, T, y[0]) + (next(calls) > 8)

    with pytest.warns(popfit.PopfitWarning, match="at some results its values are not those of its formula"):
        assert least_squares(fun, x0[0]).success


def test_complex_residuals() -> None:
    x0, y = decays(1)
    with pytest.warns(popfit.PopfitWarning, match="complex residuals"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        least_squares(lambda x: decay(x, T, y[0]) + 0j, x0[0])


def test_many_parameters_and_sparse_derivatives() -> None:
    sparse = required("scipy.sparse")
    rng = np.random.default_rng(2)
    matrix, y = rng.normal(size=(60, 33)), rng.normal(size=60)
    with pytest.warns(popfit.PopfitWarning, match="more than 32 parameters"):
        least_squares(lambda x: matrix @ x - y, np.zeros(33))
    with pytest.warns(popfit.PopfitWarning, match="jac returns no dense array"):
        found = least_squares(lambda x: x - 1.0, [3.0, 4.0], lambda x: sparse.csr_array(np.eye(2)))
    assert sparse.issparse(found.jac)
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        many = least_squares(
            lambda x: np.array([float(x[0]), x[0] + x[1]]) - 1.0,
            [[3.0, 4.0]] * 2,
            lambda x: sparse.csr_array(np.tri(2, 2)),
        )
    np.testing.assert_array_equal(many.jac, [np.tri(2, 2)] * 2)


def test_residuals_of_several_lengths() -> None:
    y = np.arange(12.0).reshape(3, 4)

    def fun(x: Any, y: Any) -> Any:
        return float(x[0]) - y[y < 10.0]

    with pytest.warns(popfit.PopfitWarning), pytest.raises(popfit.InputError, match="2 residuals for problem 2, and 4"):
        least_squares(fun, np.zeros((3, 1)), args=(y,))


def test_what_has_no_effect() -> None:
    x0, y = decays(2)
    steering = {"x_scale": [1.0, 2.0, 3.0], "diff_step": 0.1, "tr_solver": "exact", "verbose": 2, "workers": 2}
    for start, own in ((x0[0], y[0]), (x0, y)):
        with pytest.warns(popfit.PopfitWarning, match="diff_step, tr_solver, verbose, workers, x_scale: no effect"):
            found = least_squares(decay, start, args=(T, own), **steering)
        assert np.all(found.success)


def test_degenerate_problems() -> None:
    _, y = decays(1)
    for fun in (lambda x: (x[0] + x[1]) * T - y[0], lambda x: x[0] * T - y[0]):
        found = least_squares(fun, [1.0, 1.0])
        wanted = optimize.least_squares(fun, [1.0, 1.0])
        assert found.success and found.cost <= wanted.cost * (1.0 + 1e-9)
        many = least_squares(fun, np.ones((3, 2)))
        np.testing.assert_allclose(many.cost, wanted.cost)
    # the Jacobian vanishes at the minimum
    found = least_squares(lambda x: x**2 + 5.0, 2.0)
    assert found.success and found.cost == 12.5 and found.x.shape == (1,)
    at_solution = least_squares(rosenbrock, [1.0, 1.0])
    assert at_solution.status == 1 and at_solution.cost == 0.0


def test_tolerances_and_limits() -> None:
    x0, y = decays(20)
    start = x0 * [1.0, 4.0, 1.0]
    tight = least_squares(decay, start, args=(T, y))
    loose = least_squares(decay, start, args=(T, y), ftol=1e-2, xtol=None, gtol=None)
    assert loose.success.all() and loose.nfev.sum() < tight.nfev.sum() and (loose.cost >= tight.cost).all()
    short = least_squares(decay, start[0], args=(T, y[0]), max_nfev=2, gtol=None)
    assert (
        short.status == 0
        and short.njev == 8
        and short.message
        == loose.message[0].replace(loose.message[0], "The maximum number of function evaluations is exceeded.")
    )


def test_functions_that_use_x_as_an_array() -> None:
    x0, y = decays(1)

    def unpacks(x: Any) -> Any:
        a, k, c = x
        return a * np.exp(-k * T) + c - y[0]

    def slices(x: Any) -> Any:
        assert x.shape == (3,) and len(x) == 3
        return x[0] * np.exp(-x[1:2] * T) + np.polyval(x[2:], T) - y[0]

    def changes(x: Any) -> Any:
        x[2] += 0.0
        x *= 1.0
        return decay(x, T, y[0])

    wanted = least_squares(decay, x0[0], args=(T, y[0]))
    for fun in (unpacks, slices, changes):
        np.testing.assert_allclose(least_squares(fun, x0[0].tolist()).x, wanted.x, rtol=1e-7)


def test_branches_warn_once() -> None:
    x0, y = decays(3)

    def fun(x: Any, t: Any, y: Any) -> Any:
        return (x[0] if x[0] > 0.0 else 0.0) * np.exp(-x[1] * t) + x[2] - y

    with pytest.warns(popfit.PopfitWarning, match="branches on its parameters") as caught:
        found = least_squares(fun, x0, args=(T, y))
    assert len(caught) == 1 and found.success.all()


def test_the_signature_is_scipys() -> None:
    ours, theirs = (inspect.signature(one).parameters for one in (least_squares, optimize.least_squares))
    assert [(name, one.kind) for name, one in ours.items()] == [(name, one.kind) for name, one in theirs.items()]
    assert all(ours[name].default == one.default for name, one in theirs.items() if name != "bounds")


def test_what_is_handed_to_scipy_is_what_it_asks_for() -> None:
    def residuals(p: Any, t: Any, y: Any) -> Any:
        return np.concatenate([p[0] * np.exp(-p[1] * t) - y])

    t = np.linspace(0.0, 4.0, 20)
    y = np.ma.masked_greater(3.0 * np.exp(-0.7 * t), 2.9)
    with pytest.warns(popfit.PopfitWarning, match="no formula"):
        solved = least_squares(residuals, [1.0, 1.0], "cs", args=(t, y))
    np.testing.assert_allclose(solved.x, [3.0, 0.7], atol=1e-6)


def test_rows_that_are_lists_and_problems_without_points() -> None:
    t = np.linspace(0.0, 4.0, 20)
    y = 3.0 * np.exp(-np.outer([0.5, 0.7, 0.9], t))

    def residuals(p: Any, t: Any, y: Any) -> Any:
        return p[0] * np.exp(-p[1] * t) - y

    np.testing.assert_allclose(least_squares(residuals, np.ones((3, 2)), args=(t, y.tolist())).x[:, 1], [0.5, 0.7, 0.9])
    mask = np.zeros(y.shape, bool)
    mask[0] = True
    solved = least_squares(residuals, np.ones((3, 2)), args=(t, np.ma.masked_array(y, mask)))
    assert solved.status[0] < 0 and not solved.success[0] and np.isnan(solved.x[0]).all() and solved.success[1:].all()
    with pytest.raises(popfit.InputError, match="f_scale"):
        least_squares(residuals, np.ones((3, 2)), args=(t, y), loss="huber", f_scale=[1.0, 2.0])
