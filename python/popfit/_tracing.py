"""Functions of numpy as formulas.

`trace` calls a user's function once with stand-ins for its parameters, and records what it does with them. What depends
on x alone numpy computes: it becomes one more predictor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: An operation and the numbers of the nodes that it is applied to, or a leaf.
Node = tuple[Any, ...]

#: Paths through a function's branches that are followed.
MAX_PATHS = 16
#: Branches on one path: a loop on a parameter would make ever more.
MAX_DECISIONS = 16
#: Expressions that the values of a function may be computed by.
MAX_EXPRESSIONS = 16
#: Characters that a formula may have.
MAX_CHARACTERS = 10_000

#: Names that formulas give to numpy's and scipy's functions of one argument.
_FUNCTIONS = {
    "absolute": "abs",
    "fabs": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "gammaln": "lgamma",
    **{
        name: name
        for name in ("cbrt cos cosh erf erfc exp expm1 gamma log log10 log1p log2 sign sin sinh sqrt tan tanh".split())
    },
}
#: Names that formulas give to functions of two arguments.
_PAIRS = {
    "arctan2": "atan2",
    "copysign": "copysign",
    "fmax": "max",
    "fmin": "min",
    "heaviside": "heaviside",
    "hypot": "hypot",
    "maximum": "max",
    "minimum": "min",
}
#: Signs of operators of two arguments.
_OPERATORS = {
    "add": "+",
    "divide": "/",
    "equal": "==",
    "float_power": "^",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "multiply": "*",
    "not_equal": "!=",
    "power": "^",
    "subtract": "-",
    "true_divide": "/",
}
_LEAVES = ("number", "predictor", "parameter")
_CONDITIONS = ("==", "!=", "<", "<=", ">", ">=", "and", "or")


class NotTraceableError(Exception):
    """A function that is no formula; the text says why."""


class Trace(NamedTuple):
    """A function as a formula."""

    text: str
    #: Names of the formula's predictors.
    predictors: tuple[str, ...]
    #: Names of the formula's parameters, in the function's order.
    parameters: tuple[str, ...]
    #: Values of each predictor, one for each point; the function has computed them from x.
    columns: list[Array]
    #: True if the function has branches on its parameters.
    has_branches: bool


def trace(function: Callable[..., Any], x: Any, names: Sequence[str], points: int | tuple[int, ...]) -> Trace:
    """Return a function of x and parameters as a formula.

    Parameters
    ----------
    function : callable
        Called with x and one stand-in for each parameter.
    x : object
        What the function gets as its first argument.
    names : sequence of str
        Names of the parameters; those that mean something else in formulas get an underscore.
    points : int or tuple of int
        Number of values that the function returns, or the shape that they have or are broadcast to.

    Raises
    ------
    NotTraceableError
        If the function does what formulas cannot express.
    """
    graph = _Graph()
    parameters = [Traced(graph, graph.node("parameter", k)) for k in range(len(names))]
    root = _follow_paths(graph, lambda: function(x, *parameters))
    used = sorted(graph.nodes[node][1] for node in graph.uses(root) if graph.nodes[node][0] == "predictor")
    columns = _broadcast([graph.columns[k] for k in used], points)
    predictors = distinct_names([f"x{k + 1}" for k in range(len(columns))] if len(columns) > 1 else ["x"], names)
    own = distinct_names(names, predictors)
    if not columns:  # a formula has a predictor, used or not
        columns = [np.zeros(points).ravel()]
    text = _Printer(graph, dict(zip(used, predictors, strict=False)), own).text(root)
    if len(text) > MAX_CHARACTERS:
        raise NotTraceableError(f"its formula would have {len(text)} characters, more than {MAX_CHARACTERS}")
    return Trace(text, tuple(predictors), tuple(own), columns, graph.has_branches)


def trace_symbolically(function: Callable[..., Any], predictors: Sequence[str], names: Sequence[str]) -> str:
    """Return the text of a function as a formula of x, which the function gets as a stand-in, too.

    Raises
    ------
    NotTraceableError
        If the function does what formulas cannot express.
    """
    graph = _Graph()
    rows = [Traced(graph, graph.node("predictor", k)) for k in range(len(predictors))]
    x: Any = rows[0] if len(rows) == 1 else tuple(rows)
    parameters = [Traced(graph, graph.node("parameter", k)) for k in range(len(names))]
    root = _follow_paths(graph, lambda: function(x, *parameters))
    if graph.columns:
        raise NotTraceableError("it uses an array of its own beside x")
    return _Printer(graph, dict(enumerate(predictors)), names).text(root)


class _Graph:
    """Nodes of a formula; equal expressions are one node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.columns: list[Array] = []
        self._numbers: dict[Node, int] = {}
        self._columns_by_bytes: dict[tuple[tuple[int, ...], bytes], int] = {}
        self.has_branches = False
        #: Outcomes of the conditions on this path, by the conditions' nodes.
        self.decisions: dict[int, bool] = {}
        #: Outcomes that this path begins with.
        self.given: list[tuple[int, bool]] = []

    def node(self, operation: str, *arguments: Any) -> int:
        """Return the number of the node of an operation."""
        key = (operation, *arguments)
        if key not in self._numbers:
            self._numbers[key] = len(self.nodes)
            self.nodes.append(key)
        return self._numbers[key]

    def operand(self, value: Any) -> int:
        """Return the node of a stand-in, a number or an array.

        Raises
        ------
        NotTraceableError
            If the value is none of these, or not finite.
        """
        if isinstance(value, Traced):
            return value.node
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise NotTraceableError(f"it computes with {type(value).__name__} ({array.dtype})")
        array = array.astype(np.float64)
        if array.size == 1:
            number = float(array.ravel()[0])
            if not math.isfinite(number):
                raise NotTraceableError(f"it computes with {number}")
            return self.node("number", number)
        key = (array.shape, array.tobytes())
        opposite = (array.shape, (-array).tobytes())
        if key not in self._columns_by_bytes and opposite in self._columns_by_bytes:
            return self.node("negative", self.node("predictor", self._columns_by_bytes[opposite]))
        if key not in self._columns_by_bytes:
            self._columns_by_bytes[key] = len(self.columns)
            self.columns.append(array)
        return self.node("predictor", self._columns_by_bytes[key])

    def apply(self, operation: str, *operands: Any) -> Traced:
        """Return the stand-in of an operation's result."""
        return Traced(self, self.node(operation, *map(self.operand, operands)))

    def uses(self, root: int) -> dict[int, int]:
        """Return how often each node below the root is used."""
        uses = {root: 1}
        # a node comes after what it is made of
        for node in range(root, -1, -1):
            operation, *operands = self.nodes[node]
            if node in uses and operation not in _LEAVES:
                for operand in operands:
                    uses[operand] = uses.get(operand, 0) + 1
        return uses

    def decide(self, condition: int) -> bool:
        """Return the outcome of a condition on this path."""
        if condition not in self.decisions:
            if len(self.decisions) >= MAX_DECISIONS:
                raise NotTraceableError("it branches on its parameters too often, as in a loop")
            depth = len(self.decisions)
            known = self.given[depth] if depth < len(self.given) else (condition, True)
            if known[0] != condition:
                raise NotTraceableError("its branches are not the same from call to call")
            self.decisions[condition] = known[1]
        self.has_branches = True
        return self.decisions[condition]


def _follow_paths(graph: _Graph, call: Callable[[], Any]) -> int:
    """Return the node of a function's result, the results of its paths joined by `select`."""
    pending: list[list[tuple[int, bool]]] = [[]]
    paths: list[tuple[list[tuple[int, bool]], int]] = []
    while pending:
        if len(paths) >= MAX_PATHS:
            raise NotTraceableError(f"it has more than {MAX_PATHS} paths through its branches")
        graph.given, graph.decisions = pending.pop(), {}
        begun = len(graph.given)
        result = _call_once(graph, call)
        taken = list(graph.decisions.items())
        paths.append((taken, result))
        for k in range(begun, len(taken)):
            condition, outcome = taken[k]
            pending.append([*taken[:k], (condition, not outcome)])
    return _join_paths(graph, paths, 0)


def _call_once(graph: _Graph, call: Callable[[], Any]) -> int:
    """Return the node of a function's result on one path."""
    try:
        with np.errstate(all="ignore"):
            result = call()
    except (NotTraceableError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise NotTraceableError(f"{type(error).__name__} in it: {error}") from error
    if isinstance(result, list | tuple):
        result = np.array(result)
    if isinstance(result, np.ndarray) and result.dtype == object and result.size == 1:
        result = result.ravel()[0]
    if isinstance(result, TracedComplex):
        raise NotTraceableError("it returns complex numbers")
    if isinstance(result, np.ndarray) and result.dtype == object:
        return _unify_values(graph, [graph.operand(one) for one in result.ravel()], result.shape)
    return graph.operand(result)


def _unify_values(graph: _Graph, nodes: Sequence[int | None], shape: tuple[int, ...]) -> int:
    """Return the node of values that a function has computed one by one, of an array of this shape.

    Numbers that differ become a predictor. Expressions that differ are joined by `select`, with a predictor that
    numbers them. A value that does not matter has no node.

    Raises
    ------
    NotTraceableError
        If the values are those of too many expressions.
    """
    first = next(node for node in nodes if node is not None)
    if all(node in (first, None) for node in nodes):
        return first
    kinds = [None if node is None else _kind(graph, node) for node in nodes]
    distinct = {kind: k for k, kind in enumerate(dict.fromkeys(kind for kind in kinds if kind is not None))}
    if len(distinct) > MAX_EXPRESSIONS:
        raise NotTraceableError(f"it computes its values one by one, by more than {MAX_EXPRESSIONS} expressions")
    if len(distinct) == 1:
        values = [graph.nodes[first if node is None else node][1:] for node in nodes]
        if graph.nodes[first][0] == "number":
            return graph.operand(np.array(values).reshape(shape))
        columns: list[list[int | None]] = [
            [None if node is None else operands[k] for node, operands in zip(nodes, values, strict=True)]
            for k in range(len(values[0]))
        ]
        return graph.node(graph.nodes[first][0], *(_unify_values(graph, column, shape) for column in columns))
    numbers = graph.operand(np.array([0 if kind is None else distinct[kind] for kind in kinds]).reshape(shape))
    chosen = None
    for kind, k in reversed(distinct.items()):
        of_kind = [node if own == kind else None for node, own in zip(nodes, kinds, strict=True)]
        value = _unify_values(graph, of_kind, shape)
        is_own = graph.node("==", numbers, graph.operand(k))
        chosen = value if chosen is None else graph.node("select", is_own, value, chosen)
    assert chosen is not None
    return chosen


def _kind(graph: _Graph, node: int) -> Node:
    """Return what the nodes of one expression have in common: an operation, or a leaf that is no number."""
    operation, *operands = graph.nodes[node]
    return graph.nodes[node] if operation in ("predictor", "parameter") else (operation, len(operands))


def traced_part(graph: _Graph, call: Callable[[], Any]) -> Traced:
    """Return the result of a part of a function, whose branches are followed by themselves.

    A sum of functions with k branches each has ever more paths; one after another they have 2ᵏ each.
    """
    whole = graph.given, graph.decisions
    try:
        return Traced(graph, _follow_paths(graph, call))
    finally:
        graph.given, graph.decisions = whole


def _join_paths(graph: _Graph, paths: list[tuple[list[tuple[int, bool]], int]], depth: int) -> int:
    """Return the node of paths that agree in their first decisions."""
    if len(paths) == 1:
        return paths[0][1]
    condition = paths[0][0][depth][0]
    sides = {
        outcome: _join_paths(graph, [path for path in paths if path[0][depth][1] == outcome], depth + 1)
        for outcome in (True, False)
    }
    if sides[True] == sides[False]:
        return sides[True]
    return graph.node("select", condition, sides[True], sides[False])


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for a number or an array that depends on parameters."""

    def __init__(self, graph: _Graph, node: int) -> None:
        self.graph = graph
        self.node = node

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Record a ufunc."""
        outputs = kwargs.pop("out", ())
        # `y += …` assigns what is returned
        if method != "__call__" or kwargs or not all(any(one is given for given in inputs) for one in outputs):
            raise NotTraceableError(f"it calls numpy.{ufunc.__name__} with arguments that formulas do not have")
        return _record_ufunc(self.graph, ufunc.__name__, inputs)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Record a function of numpy that is no ufunc."""
        name = function.__name__
        if name not in _ARRAY_FUNCTIONS:
            raise NotTraceableError(f"it calls numpy.{name}, which formulas do not have")
        return _ARRAY_FUNCTIONS[name](self.graph, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return the method that numpy calls for an element of an array of objects."""
        if name in _FUNCTIONS:
            return lambda: _record_ufunc(self.graph, name, [self])
        raise AttributeError(f"a parameter has no attribute {name!r} while its function is traced")

    def __bool__(self) -> bool:
        """Follow a branch."""
        return self.graph.decide(self.graph.operand(_condition(self.graph, self)))

    def __float__(self) -> float:
        """Refuse: a number is not known."""
        raise NotTraceableError(
            "it takes a parameter for a plain number, as float(…) and math.exp(…) do (np.exp does not)"
        )

    __int__ = __index__ = __complex__ = __round__ = __trunc__ = __float__

    def __iter__(self) -> Iterator[Any]:
        """Refuse: numbers of elements are not known."""
        raise NotTraceableError("it takes a parameter, or a result, apart into elements")

    def __getitem__(self, key: Any) -> Any:
        """Refuse: numbers of elements are not known."""
        if key is None or key is Ellipsis or key == ():
            return self
        raise NotTraceableError("it takes elements out of a result")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse: parts of results are not known."""
        raise NotTraceableError("it writes into parts of a result")

    def ravel(self, order: str = "C") -> Traced:
        """Return the same values in one dimension."""
        if order not in ("C", "K", "A"):
            raise NotTraceableError("it reorders a result")
        return self

    flatten = ravel

    def reshape(self, *shape: Any, **kwargs: Any) -> Traced:
        """Return the same values in one dimension."""
        if kwargs or shape not in ((-1,), ((-1,),), ([-1],)):
            raise NotTraceableError("it reshapes a result")
        return self

    def squeeze(self) -> Traced:
        """Return the same values."""
        return self

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Traced:
        """Return the same values, which are floats."""
        if np.dtype(dtype).kind != "f":
            raise NotTraceableError(f"it converts a result to {np.dtype(dtype)}")
        return self

    def copy(self, *_: Any) -> Traced:
        """Return the same values."""
        return self

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return the values between two limits."""
        return _clip(self.graph, self, min, max)

    @property
    def real(self) -> Traced:
        """The same values."""
        return self

    @property
    def imag(self) -> float:
        """Zero."""
        return 0.0

    def conjugate(self) -> Traced:
        """Return the same values."""
        return self

    conj = conjugate


class TracedComplex(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for complex numbers that depend on parameters."""

    def __init__(self, graph: _Graph, real: Any, imag: Any) -> None:
        self.graph = graph
        self.real = real
        self.imag = imag

    __hash__ = object.__hash__

    __array_ufunc__ = Traced.__array_ufunc__
    __array_function__ = Traced.__array_function__

    def conjugate(self) -> TracedComplex:
        """Return the conjugate numbers."""
        return TracedComplex(self.graph, self.real, -self.imag)

    conj = conjugate

    def __complex__(self) -> complex:
        """Refuse: a number is not known."""
        raise NotTraceableError("it takes a parameter for a plain number")


def _record_ufunc(graph: _Graph, name: str, inputs: Sequence[Any]) -> Any:
    """Return the stand-in of a ufunc's result."""
    if any(isinstance(one, np.ndarray) and one.dtype == object for one in inputs):
        return np.frompyfunc(lambda *elements: _record_ufunc(graph, name, elements), len(inputs), 1)(
            *(np.array(one, dtype=object) if isinstance(one, Traced) else one for one in inputs)
        )
    if any(isinstance(one, TracedComplex) or np.iscomplexobj(one) for one in inputs if not isinstance(one, Traced)):
        return _record_complex_ufunc(graph, name, inputs)
    if name in _OPERATORS:
        sign = _OPERATORS[name]
        if sign in "+*" and all(_is_condition(graph, one) for one in inputs):  # as numpy adds truth values
            sign = "or" if sign == "+" else "and"
        if sign in ("and", "or"):
            inputs = [_condition(graph, one) for one in inputs]
        return graph.apply(sign, *inputs)
    if name in _FUNCTIONS:
        return graph.apply(_FUNCTIONS[name], *inputs)
    if name in _PAIRS:
        return graph.apply(_PAIRS[name], *inputs)
    if name in _COMPOSED:
        return _COMPOSED[name](graph, *inputs)
    if name == "wofz":
        return _wofz(graph, inputs[0], 0.0)
    raise NotTraceableError(f"it calls {name}, which formulas do not have")


def _is_condition(graph: _Graph, value: Any) -> bool:
    """Return True for truth values."""
    if isinstance(value, Traced):
        return graph.nodes[value.node][0] in _CONDITIONS
    return np.asarray(value).dtype == np.bool_


def _condition(graph: _Graph, value: Any) -> Any:
    """Return 1 where a value is not 0, else 0."""
    if isinstance(value, Traced) and _is_condition(graph, value):
        return value
    return graph.apply("!=", value, 0.0)


def _select(graph: _Graph, condition: Any, chosen: Any, otherwise: Any) -> Any:
    """Return one of two values at each point."""
    if isinstance(chosen, TracedComplex) or isinstance(otherwise, TracedComplex):
        raise NotTraceableError("it selects complex numbers")
    return graph.apply("select", _condition(graph, condition), chosen, otherwise)


def _expit(graph: _Graph, t: Any) -> Any:
    """Return the logistic function, without an overflow on either side."""
    return 0.5 * (1.0 + graph.apply("tanh", 0.5 * t))


def _logaddexp(graph: _Graph, a: Any, b: Any) -> Any:
    """Return ln(e^a + e^b)."""
    return graph.apply("max", a, b) + graph.apply("log1p", graph.apply("exp", -graph.apply("abs", a - b)))


def _erfcx(graph: _Graph, t: Any) -> Any:
    """Return e^(t²) erfc(t) = Re w(it)."""
    return graph.apply("faddeeva_re", 0.0, t)


#: Functions that formulas express by others.
_COMPOSED: dict[str, Callable[..., Any]] = {
    "conjugate": lambda graph, t: t,
    "deg2rad": lambda graph, t: graph.apply("*", t, math.pi / 180.0),
    "radians": lambda graph, t: graph.apply("*", t, math.pi / 180.0),
    "rad2deg": lambda graph, t: graph.apply("*", t, 180.0 / math.pi),
    "degrees": lambda graph, t: graph.apply("*", t, 180.0 / math.pi),
    "erfcx": _erfcx,
    "exp2": lambda graph, t: graph.apply("^", 2.0, t),
    "expit": _expit,
    "isfinite": lambda graph, t: graph.apply("==", t - t, 0.0),
    "isnan": lambda graph, t: graph.apply("!=", t, t),
    "invert": lambda graph, t: graph.apply("==", t, 0.0),
    "logaddexp": _logaddexp,
    "logical_not": lambda graph, t: graph.apply("==", t, 0.0),
    "logit": lambda graph, t: graph.apply("log", t / (1.0 - t)),
    "negative": lambda graph, t: graph.apply("negative", t),
    "positive": lambda graph, t: t,
    "reciprocal": lambda graph, t: graph.apply("/", 1.0, t),
    "square": lambda graph, t: graph.apply("^", t, 2.0),
    "voigt_profile": lambda graph, t, sigma, gamma: graph.apply("voigt", t, sigma, gamma),
    "xlogy": lambda graph, t, y: _select(graph, graph.apply("==", t, 0.0), 0.0, t * graph.apply("log", y)),
}


def _parts(value: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part of a value."""
    if isinstance(value, Traced):
        return value, 0.0
    if isinstance(value, TracedComplex):
        return value.real, value.imag
    array = np.asarray(value)
    return array.real, (array.imag if np.iscomplexobj(array) else 0.0)


def _product(a: Any, b: Any) -> Any:
    """Return a product, of which plain zeros and ones leave nothing to compute."""
    for one, other in ((a, b), (b, a)):
        if not isinstance(one, Traced) and np.ndim(one) == 0:
            if one == 0.0:
                return 0.0
            if one == 1.0:
                return other
    return a * b


def _sum_of(a: Any, b: Any) -> Any:
    """Return a sum, in which plain zeros are nothing to compute."""
    for one, other in ((a, b), (b, a)):
        if not isinstance(one, Traced) and np.ndim(one) == 0 and one == 0.0:
            return other
    return a + b


def _record_complex_ufunc(graph: _Graph, name: str, inputs: Sequence[Any]) -> Any:
    """Return the stand-in of a ufunc of complex numbers."""
    if name in ("add", "subtract", "multiply", "divide", "true_divide"):
        (a, b), (c, d) = map(_parts, inputs)
        if name == "add":
            return TracedComplex(graph, _sum_of(a, c), _sum_of(b, d))
        if name == "subtract":
            return TracedComplex(graph, _sum_of(a, -c), _sum_of(b, -d))
        if name == "multiply":
            return TracedComplex(
                graph, _sum_of(_product(a, c), -_product(b, d)), _sum_of(_product(a, d), _product(b, c))
            )
        if not isinstance(d, Traced) and not np.any(d):
            return TracedComplex(graph, a / c, b / c)
        size = c * c + d * d
        return TracedComplex(graph, (a * c + b * d) / size, (b * c - a * d) / size)
    real, imag = _parts(inputs[0])
    if name == "negative":
        return TracedComplex(graph, -real, -imag)
    if name == "conjugate":
        return TracedComplex(graph, real, -imag)
    if name == "square" or (name == "power" and isinstance(inputs[1], int | float) and inputs[1] == 2):
        return TracedComplex(graph, real * real - imag * imag, 2.0 * real * imag)
    if name == "absolute":
        return graph.apply("hypot", real, imag)
    if name == "exp":
        size = np.exp(real)
        return TracedComplex(graph, size * np.cos(imag), size * np.sin(imag))
    if name == "wofz":
        return _wofz(graph, real, imag)
    raise NotTraceableError(f"it calls {name} with complex numbers")


def _wofz(graph: _Graph, real: Any, imag: Any) -> TracedComplex:
    """Return the Faddeeva function of complex numbers."""
    return TracedComplex(graph, graph.apply("faddeeva_re", real, imag), graph.apply("faddeeva_im", real, imag))


def _clip(graph: _Graph, values: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """Record numpy.clip."""
    if a_min is not None:
        values = graph.apply("max", values, a_min)
    return values if a_max is None else graph.apply("min", values, a_max)


def _np_select(graph: _Graph, condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    """Record numpy.select: the first condition that holds chooses."""
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = _select(graph, condition, choice, result)
    return result


def _sinc(graph: _Graph, t: Any) -> Any:
    """Record numpy.sinc, sin(πt)/(πt)."""
    angle = math.pi * t
    return _select(graph, t == 0.0, 1.0, graph.apply("sin", angle) / angle)


def _sum(graph: _Graph, values: Any, axis: Any = None, **kwargs: Any) -> Any:
    """Record numpy.sum of a list of stand-ins."""
    if kwargs or not isinstance(values, list | tuple) or axis not in (None, 0):
        raise NotTraceableError("it sums over the points")
    return sum(values)


#: Functions of numpy that are no ufuncs.
_ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "atleast_1d": lambda graph, t: t,
    "clip": _clip,
    "copy": lambda graph, t: t,
    "imag": lambda graph, t: t.imag,
    "nan_to_num": lambda graph, t, **_: _select(graph, t == t, t, 0.0),
    "ones_like": lambda graph, t, **_: 1.0,
    "ravel": lambda graph, t, order="C": t.ravel(order),
    "real": lambda graph, t: t.real,
    "select": _np_select,
    "sinc": _sinc,
    "squeeze": lambda graph, t: t,
    "sum": _sum,
    "where": lambda graph, condition, chosen, otherwise: _select(graph, condition, chosen, otherwise),
    "zeros_like": lambda graph, t, **_: 0.0,
}


def _broadcast(columns: list[Array], points: int | tuple[int, ...]) -> list[Array]:
    """Return the predictors with one value for each point."""
    wanted = points if isinstance(points, tuple) else ()
    try:
        shape = np.broadcast_shapes(wanted, *(column.shape for column in columns)) if columns else np.atleast_1d(points)
    except ValueError as error:
        raise NotTraceableError("it uses arrays of several shapes, as if it reshaped or reduced them") from error
    if math.prod(shape) != np.prod(points):
        raise NotTraceableError(
            f"its values seem to have the shape {shape}, for {points} points (where each curve has points of its own, "
            "give x_per_curve=True)"
        )
    return [np.ascontiguousarray(np.broadcast_to(column, shape)).ravel() for column in columns]


def distinct_names(names: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return names that mean nothing else in formulas and are none of `others`, with underscores where needed."""
    taken = {*others, *_RESERVED}
    own: list[str] = []
    for name in names:
        while name in taken or name in own:
            name += "_"
        own.append(name)
    return own


#: Names of functions, constants and operators of formulas.
_RESERVED = {
    *_FUNCTIONS.values(),
    *_PAIRS.values(),
    *"and e faddeeva_im faddeeva_re if inf ln nan not or pi pow select voigt arcsin arccos arctan arcsinh arccosh "
    "arctanh arctan2 true false π".split(),
}


class _Printer:
    """Prints a graph as a formula's text: what is used several times is a named term."""

    def __init__(self, graph: _Graph, predictors: dict[int, str], parameters: Sequence[str]) -> None:
        self.graph = graph
        self.names = {"predictor": predictors, "parameter": dict(enumerate(parameters))}
        self.taken = {*predictors.values(), *parameters, *_RESERVED}

    def text(self, root: int) -> str:
        """Return the text of a node."""
        uses = self.graph.uses(root)
        printed: dict[int, str] = {}
        terms: list[str] = []
        numbers = itertools.count(1)
        # nodes come after what they are made of
        for node in sorted(uses):
            operation, *operands = self.graph.nodes[node]
            text = self._leaf(operation, operands) or self._operation(operation, [printed[one] for one in operands])
            if uses[node] > 1 and operation not in _LEAVES:
                name = next(name for k in numbers if (name := f"t{k}") not in self.taken)
                terms.append(f"{name} = {text}; ")
                text = name
            printed[node] = text
        text = printed[root]
        outer = text[1:-1] if text.startswith("(") and _closes_at_end(text) else text
        return "".join(terms) + outer

    def _leaf(self, operation: str, operands: list[Any]) -> str | None:
        """Return the text of a number, predictor or parameter."""
        if operation == "number":
            number = operands[0]
            text = f"{int(number)}" if number.is_integer() and abs(number) < 1e15 else repr(number)
            return f"({text})" if number < 0.0 or text.startswith("-") else text
        return self.names[operation][operands[0]] if operation in self.names else None

    @staticmethod
    def _operation(operation: str, operands: list[str]) -> str:
        """Return the text of an operation."""
        if operation == "negative":
            return f"(-{operands[0]})"
        if operation in _OPERATORS.values():
            spaced = f" {operation} " if operation in _CONDITIONS else operation
            return f"({operands[0]}{spaced}{operands[1]})"
        return f"{operation}({', '.join(operands)})"


def _closes_at_end(text: str) -> bool:
    """Return True if the parenthesis that opens a text is closed by its last character."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place == len(text) - 1
    return False
