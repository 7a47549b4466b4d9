"""Functions of numpy as formulas."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import required
from hypothesis import given, settings
from hypothesis import strategies as st

import popfit
from popfit._curve_models import Xdata, model_of_function
from popfit._tracing import NotTraceableError, trace

X = np.linspace(0.3, 7.0, 50)
#: Line shapes of lmfit that are no formulas, and why.
UNTRACEABLE_SHAPES = {
    "bose": "calls float()",
    "dho": "calls float()",
    "exponential": "calls float()",
    "fermi": "calls float()",
    "pearson4": "the logarithm of the gamma function of complex numbers",
    "thermal_distribution": "calls float()",
}
#: Models of astropy that are no formulas, and why.
UNTRACEABLE_MODELS = {
    "AiryDisk2D": "Bessel functions",
    "BlackBody": "quantities",
    "Const1D": "looks at the parameter's size",
    "Const2D": "looks at the parameter's size",
    "GeneralSersic2D": "the inverse of the incomplete gamma function",
    "KingProjectedAnalytic1D": "writes into parts of a result",
    "NFW": "quantities",
    "Sersic1D": "the inverse of the incomplete gamma function",
    "Sersic2D": "the inverse of the incomplete gamma function",
    "SmoothlyBrokenPowerLaw1D": "looks at the largest value of a result",
    "Voigt1D": "looks at the shape of a result",
}


def traced(function: Callable[..., Any], *parameters: float, x: Any = X, points: int = X.size) -> Any:
    """Return a function as a model, which is checked against the function itself."""
    names = [f"p{k}" for k in range(len(parameters))]
    return model_of_function(function, names, Xdata(x, False, 1, points), np.array(parameters), warns_of_branches=False)


UFUNCS_OF_ONE = (
    "abs absolute arccos arcsin arctan arcsinh arctanh cbrt conjugate cos cosh deg2rad degrees exp exp2 expm1 fabs log "
    "log10 log1p log2 negative positive rad2deg radians reciprocal sign sin sinc sinh sqrt square tan tanh"
).split()
UFUNCS_OF_TWO = (
    "add arctan2 copysign divide fmax fmin heaviside hypot logaddexp maximum minimum multiply power subtract".split()
)
SPECIAL_OF_ONE = "erf erfc erfcx expit gamma gammaln logit".split()


@pytest.mark.parametrize("name", UFUNCS_OF_ONE)
def test_functions_of_one_argument(name: str) -> None:
    traced(lambda x, a, b: getattr(np, name)(a * x / 8.0) + b, 0.6, 0.1)


def test_arccosh() -> None:
    traced(lambda x, a: np.arccosh(1.0 + a * x), 0.6)


@pytest.mark.parametrize("name", UFUNCS_OF_TWO)
def test_functions_of_two_arguments(name: str) -> None:
    traced(lambda x, a, b: getattr(np, name)(a * x, b + 0.1 * x), 0.6, 1.1)
    traced(lambda x, a: getattr(np, name)(x, a), 1.3)


@pytest.mark.parametrize("name", SPECIAL_OF_ONE)
def test_functions_of_scipy(name: str) -> None:
    special = required("scipy.special")
    traced(lambda x, a, b: getattr(special, name)(a * x / 8.0) + b, 0.6, 0.1)


def test_complex_functions() -> None:
    special = required("scipy.special")
    traced(lambda x, m, s, g: special.wofz((x - m + 1j * g) / (s * np.sqrt(2.0))).real, 3.0, 0.7, 0.4)
    traced(lambda x, m, s, g: np.imag(special.wofz((x - m + 1j * g) / s)), 3.0, 0.7, 0.4)
    traced(lambda x, m, s, g: special.voigt_profile(x - m, s, g), 3.0, 0.7, 0.4)
    traced(lambda x, q, g: np.abs((q + 1j * x) ** 2 / (x - 3.0 + 1j * g)), 0.7, 0.4)
    traced(lambda x, w, d: (np.exp((1j * w - d) * x) * (2.0 - 1j)).real, 2.0, 0.3)


def test_comparisons_and_conditions() -> None:
    traced(lambda x, a, k: np.where((x > k) & (x < 2.0 * k), a * x, a), 2.0, 1.7)
    traced(lambda x, a, k: a * np.where((x < k) + (x < 2.0 * k), 2.0, 1.0) + a * ((x < k) + (x < 2.0 * k)), 2.0, 1.7)
    traced(lambda x, a, k: np.where(np.logical_or(x < k, ~(x < 3.0 * k)), a * x, -a), 2.0, 1.7)
    traced(lambda x, a, k: np.select([x < k, x < 2.0 * k], [a, a * x], default=k), 2.0, 1.7)
    traced(lambda x, a, k: np.clip(a * x, k, 3.0), 2.0, 1.7)
    traced(lambda x, a, k: np.nan_to_num(np.sqrt(x - k)) * a, 2.0, 1.7)


def test_what_depends_on_x_alone_is_a_predictor() -> None:
    jumps = np.cumsum(np.random.default_rng(1).normal(size=X.size))
    found = traced(lambda x, a, b: a * np.gradient(x**3) + b * jumps, 0.6, 0.1)
    assert found.x.shape == (2, X.size) and found.model.text == "(p0*x1)+(p1*x2)"
    assert traced(lambda x, a, b: a * np.exp(-x / b) + x, 0.6, 1.1).x.shape == (1, X.size)
    # what is not used is no predictor
    assert traced(lambda x, a: (a * np.cos(x), a * x)[1], 0.6).x.shape == (1, X.size)


def test_images_and_lists() -> None:
    grid = np.meshgrid(np.arange(7.0), np.arange(5.0))

    def spot(xy: Any, a: Any, x0: Any, y0: Any, s: Any) -> Any:
        return (a * np.exp(-((xy[0] - x0) ** 2 + (xy[1] - y0) ** 2) / (2.0 * s**2))).ravel()

    assert traced(spot, 3.0, 2.0, 2.5, 1.2, x=grid, points=35).x.shape == (2, 35)
    traced(lambda x, *p: np.polyval(p, x), 1.0, 2.0, 3.0)
    traced(lambda x, *p: np.polynomial.polynomial.polyval(x, p), 1.0, 2.0, 3.0)
    traced(lambda x, a, b: np.array([a * np.exp(-b * t) for t in x]), 1.0, 2.0)
    traced(lambda x, a, b: np.vander(x, 2) @ np.array([a, b]), 1.0, 2.0)
    traced(lambda x, a, b: np.sum([a * x, b * x**2], axis=0), 1.0, 2.0)


def test_sums_in_place() -> None:
    def lines(x: Any, *p: Any) -> Any:
        y = np.zeros_like(x)
        for a, m in zip(p[::2], p[1::2], strict=True):
            y += a * np.exp(-((x - m) ** 2))
        return y

    traced(lines, 1.0, 2.0, 0.5, 4.0)


def test_branches_are_followed_both_ways() -> None:
    def piecewise(x: Any, a: Any, b: Any) -> Any:
        if b < 0:
            return a * x
        return a * np.exp(-x / b) if a > 1.0 else a / (1.0 + b * x)

    found = trace(piecewise, X, ["a", "b"], X.size)
    assert found.has_branches and found.text.count("select") == 2
    for a, b in ((2.0, -1.0), (2.0, 1.0), (0.5, 1.0)):
        values = popfit.Formula(found.text, found.predictors, found.parameters)(X, a, b)
        np.testing.assert_allclose(values, piecewise(X, a, b), rtol=1e-13)
    traced(lambda x, a, s: a * np.exp(-x / max(1e-15, abs(s))), 2.0, 1.0)


def test_a_branching_function_is_warned_of() -> None:
    with pytest.warns(popfit.PopfitWarning, match="branches on its parameters"):
        popfit.curve_fit(lambda x, a, s: a * np.exp(-x / max(1e-15, s)), X, 2.0 * np.exp(-X / 1.5), p0=[1.0, 1.0])


def loops(x: Any, a: Any) -> Any:
    while a > 1.0:
        a = a / 2.0
    return a * x


def writes(x: Any, a: Any) -> Any:
    y = a * x
    y[x > 2.0] = 0.0
    return y


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, a: math.exp(a) * x, "math.exp"),
        (lambda x, a: float(a) * x, "plain number"),
        (lambda x, a: int(a) * x, "plain number"),
        (loops, "too often"),
        (writes, "writes into parts"),
        (lambda x, a: np.cumsum(a * x), "numpy.cumsum"),
        (lambda x, a: (a * x)[::-1], "elements"),
        (lambda x, a: a * x + 1j * a, "complex"),
        (lambda x, a: np.floor(a * x), "floor"),
        (lambda x, a: a * x[:10], "shape"),
        (lambda x, a: a * np.nan + x, "nan"),
        (lambda x, a: a * np.log(a * 0.0 - 1.0) + x, "not a finite number"),
        (lambda x, a: a.nonsense * x, "nonsense"),
        (lambda x, a: "text", "text|str"),
        (lambda x, a: sum((a * x) ** k * np.sin(k * a * x) for k in range(1000)), "characters"),
    ],
)
def test_what_is_no_formula(function: Any, reason: str) -> None:
    with pytest.raises(NotTraceableError, match=reason):
        traced(function, 1.7)


def test_values_of_several_expressions() -> None:
    traced(lambda x, a: np.array([a * t if t > 1.0 else a + t for t in x]), 1.7)
    traced(lambda x, a, b: np.array([10.0 * (b - a**2), 1.0 - a, a * b]), 1.7, 0.3, points=3)
    traced(lambda x, a, b: np.array([[a, b]]) - x[:6].reshape(3, 2), 1.7, 0.3, points=6)
    found = trace(lambda x, a, b: [a, b, a][int(x[0]) :], np.zeros(1), ["a", "b"], 3)
    assert found.text == "select((x == 0), a, b)"
    with pytest.raises(NotTraceableError, match="more than 16 expressions"):
        trace(lambda x, *p: p, X, [f"p{k}" for k in range(17)], 17)


def test_a_function_with_a_memory_is_no_formula() -> None:
    calls = iter(range(1000))
    with pytest.raises(NotTraceableError, match="not those of its formula"):
        traced(lambda x, a: a * x + next(calls), 1.7)


def test_names_that_mean_something_else() -> None:
    found = trace(lambda x, gamma, e, x1, x2: gamma * x + e * x**2 + x1 - x2, X, ["gamma", "e", "x1", "x2"], X.size)
    assert found.parameters == ("gamma_", "e_", "x1", "x2")
    assert not set(found.parameters) & set(found.predictors)
    fits = popfit.CurveFitter(lambda x, gamma: gamma * x, bounds={"gamma": (0, 9)}).fit(X, 2.0 * X, [1.0])
    assert fits.names == ("gamma",) and fits["gamma"][0] == pytest.approx(2.0)


def test_line_shapes_of_lmfit() -> None:
    shapes = required("lmfit.lineshapes")
    untraceable = set()
    for name in shapes.functions:
        function = getattr(shapes, name)
        arguments = inspect.signature(function).parameters
        names = [one for one in arguments if one not in ("x", "y", "form")]
        defaults = [arguments[one].default for one in names]
        start = 0.31 + np.array([float(one) if isinstance(one, int | float) else 1.0 for one in defaults])
        is_plane = "y" in arguments

        def shape(x: Any, *p: Any, f: Any = function, known: Any = names, is_plane: bool = is_plane) -> Any:
            return f(*(x if is_plane else (x,)), **dict(zip(known, p, strict=True)))

        x = Xdata(np.array([X, X[::-1]]) if is_plane else X, False, 1, X.size)
        try:
            with warnings.catch_warnings(action="ignore"):
                model_of_function(shape, names, x, start)
        except NotTraceableError:
            untraceable.add(name)
    assert untraceable == set(UNTRACEABLE_SHAPES)


def test_models_of_astropy() -> None:
    models = required("astropy.modeling.models")
    fittable = required("astropy.modeling").FittableModel
    untraceable, count = set(), 0
    for name in sorted(dir(models)):
        if not name[0].isupper() or name.endswith("Base"):
            continue
        kind = getattr(models, name)
        if not (inspect.isclass(kind) and issubclass(kind, fittable)) or inspect.isabstract(kind):
            continue
        degrees: dict[str, int] = {}
        signature = inspect.signature(kind).parameters
        degrees |= {one: 2 for one in ("degree", "x_degree", "y_degree") if one in signature}
        try:
            model = kind(**degrees)
        except TypeError:
            continue  # needs more than a degree
        names = list(model.param_names)
        if not names:
            continue
        start = 0.13 + np.array([float(np.ravel(getattr(model, one).value)[0]) for one in names])
        is_plane = model.n_inputs == 2

        def function(x: Any, *p: Any, model: Any = model, is_plane: bool = is_plane) -> Any:
            return model.evaluate(*(x if is_plane else (x,)), *p)

        x = Xdata(np.array([X, X[::-1]]) if is_plane else X, False, 1, X.size)
        count += 1
        try:
            with warnings.catch_warnings(action="ignore"):
                model_of_function(function, names, x, start)
        except NotTraceableError:
            untraceable.add(name)
    assert untraceable == set(UNTRACEABLE_MODELS)
    assert count - len(untraceable) >= 37


def expressions(depth: int) -> st.SearchStrategy[str]:
    """Return random expressions of x, the parameters a, b and numbers."""
    leaves = st.sampled_from(["x", "a", "b", "2.0", "0.5", "-1.5", "np.cos(x)"])
    if depth == 0:
        return leaves
    inner = expressions(depth - 1)
    unary = st.builds("np.{}({})".format, st.sampled_from(["sin", "tanh", "exp", "arctan", "abs", "square"]), inner)
    binary = st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
    chosen = st.builds("np.where({} < {}, {}, {})".format, inner, inner, inner, inner)
    branch = st.builds("({} if a > {} else {})".format, inner, st.sampled_from(["1.0", "b"]), inner)
    return st.one_of(leaves, unary, binary, chosen, branch)


#: Parameters, as numbers of numpy: they divide by zero without an exception.
POINT = np.array([1.2, 0.7])


@settings(max_examples=200, deadline=None)
@given(expressions(3))
def test_random_expressions(text: str) -> None:
    function: Callable[..., Any] = eval(f"lambda x, a, b: {text} + 0.0 * x", {"np": np})
    with np.errstate(all="ignore"):
        try:
            found = traced(function, *POINT)
        except NotTraceableError as error:
            # only what rounding, an overflow or a division by zero decides may differ
            reasons = ("not those of its formula", "computes with", "divides by zero")
            assert any(reason in str(error) for reason in reasons), (text, error)
            values = function(X, *POINT)
            assert not np.all(np.abs(values) < 1e6) or "<" in text or ">" in text or "/" in text
            return
        values = found.model.values(found.x.ravel(), POINT)
        np.testing.assert_allclose(values, function(X, *POINT), rtol=1e-9, atol=1e-9)
