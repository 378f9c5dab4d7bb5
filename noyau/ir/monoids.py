"""The table of monoids, which Reduce, Scan, Scatter, and the merges of lanes, threads and chunks share.

A monoid's functions are written once over an `Algebra`: arrays (the interpreters) or expressions (the printers). A
user's own monoid need not be associative: values are taken in from left to right, and states are never merged."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph, Input, Map, Node
from noyau.ir.loops import Call, Const, Expr
from noyau.ir.operators import OPERATORS, Algebra, dtype_of


class Symbolic:
    """The algebra of expressions: a scalar function becomes a Call."""

    def call(self, name: str, *operands: Expr) -> Expr:
        return Call(name, operands, dtype_of(name, tuple(operand.dtype for operand in operands)))

    def like(self, value: float, other: Expr) -> Expr:
        return Const(value, other.dtype)

    def cast(self, value: Expr, dtype: DType) -> Expr:
        return Call("cast", (value,), dtype)


State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """`init(dtype)` is the empty state, `lift` the state of one value at a position, `merge` joins two states, the
    earlier first, `finish` gives the result. `exact`: the order of merges cannot change a bit; `ordered`: values are
    taken in one by one, from the first to the last, and states are never merged with one another."""

    name: str
    meaning: str
    exact: bool
    init: Callable[[DType], State]
    lift: Callable[[Algebra, Any, Any], State]  # the state of one value at a position
    merge: Callable[[Algebra, State, State], State]
    states: Callable[[DType], tuple[DType, ...]] = lambda dtype: (dtype.compute,)
    result: Callable[[DType], DType] = lambda dtype: dtype
    finish: Callable[[Algebra, State], Any] = lambda algebra, state: state[0]
    accepts: frozenset[str] = frozenset({"float", "int", "uint"})
    flops: int = 1
    ordered: bool = False
    function: str = ""  # the scalar function that equals its merge, if there is one
    parts: tuple[str, ...] = ()  # names of the values of a state; by default the monoid's name for its only one
    onnx: str = ""
    chooses: bool = False  # the result is one of the values
    linear: bool = False  # the gradient of each value is that of the result
    keeps_sign: bool = False  # never negative if no value is; not so for max, which is -inf of no values
    passes_factors: bool = False  # scaling all values by a positive factor scales the result by it
    passes_terms: bool = False  # adding one term to all values adds it to the result
    wants_lanes: bool = False  # compilers vectorise its merge only over many lanes

    @property
    def is_arithmetic(self) -> bool:
        """Whether its merge is one function of numbers: one flop, and an atomic operation of memory, in any order."""
        return bool(self.function) and "float" in OPERATORS[self.function].accepts


def lowest(dtype: DType) -> Any:
    """The least value of a dtype: -inf for floats that have it."""
    if dtype.is_float or dtype.is_float8:
        return -np.inf if dtype.has_infinity else float(ml_dtypes.finfo(dtype.numpy).min)
    return False if dtype is DType.BOOL else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """The greatest value of a dtype: inf for floats that have it."""
    if dtype.is_float or dtype.is_float8:
        return np.inf if dtype.has_infinity else float(ml_dtypes.finfo(dtype.numpy).max)
    return True if dtype is DType.BOOL else int(np.iinfo(dtype.numpy).max)


def _alone(algebra: Algebra, value: Any, position: Any) -> State:
    return (value,)


def _single(
    name: str,
    meaning: str,
    call: str,
    init: Callable[[DType], Any],
    accepts: str = "float int uint",
    *,
    exact: bool,
    **facts: Any,
) -> Monoid:
    """A monoid whose state is one value and whose merge is one scalar function."""

    def merge(algebra: Algebra, a: State, b: State) -> State:
        return (algebra.call(call, a[0], b[0]),)

    facts = {"accepts": frozenset(accepts.split()), "function": call, **facts}
    return Monoid(name, meaning, exact, lambda dtype: (init(dtype),), _alone, merge, **facts)


def _extreme(name: str, meaning: str, call: str, init: Callable[[DType], Any], onnx: str) -> Monoid:
    facts = {"chooses": True, "passes_factors": True, "passes_terms": True}
    return _single(name, meaning, call, init, "float int uint bool", exact=True, onnx=onnx, **facts)


def _arg(name: str, meaning: str, beats: str, init: Callable[[DType], Any]) -> Monoid:
    """argmax or argmin: the first of ties wins, and the first NaN beats everything."""

    def merge(algebra: Algebra, a: State, b: State) -> State:
        call = algebra.call
        (nan, later_nan), number = (call("not_equal", x[0], x[0]) for x in (a, b)), call("equal", a[0], a[0])
        tie = call("logical_or", call("equal", a[0], b[0]), call("logical_and", nan, later_nan))
        wins = call("logical_or", call(beats, b[0], a[0]), call("logical_and", later_nan, number))
        wins = call("logical_and", wins, number)
        wins = call("logical_or", wins, call("logical_and", tie, call("less", b[1], a[1])))
        return call("where", wins, b[0], a[0]), call("where", wins, b[1], a[1])

    return Monoid(
        name,
        meaning,
        True,
        lambda dtype: (init(dtype), int(np.iinfo(np.int64).max)),
        lambda algebra, value, position: (value, position),
        merge,
        states=lambda dtype: (dtype.compute, DType.I64),
        result=lambda dtype: DType.I64,
        finish=lambda algebra, state: state[1],
        flops=4,
        parts=("best", "at"),
        onnx=f"Arg{name[3:].capitalize()}",
    )


def _apart(name: str, meaning: str, beats: str, init: Callable[[DType], Any]) -> Monoid:
    """max or min of floats with NaN in a value of its own: one comparison in the chain of merges instead of three."""

    def merge(algebra: Algebra, a: State, b: State) -> State:
        call = algebra.call
        return call("where", call(beats, a[0], b[0]), a[0], b[0]), call("bitwise_or", a[1], b[1])

    def finish(algebra: Algebra, state: State) -> Any:
        has_nan = algebra.call("not_equal", state[1], algebra.like(0, state[1]))
        return algebra.call("where", has_nan, algebra.like(np.nan, state[0]), state[0])

    return Monoid(
        name,
        meaning,
        True,
        lambda dtype: (init(dtype), 0),
        lambda algebra, value, position: (value, algebra.cast(algebra.call("not_equal", value, value), DType.I32)),
        merge,
        states=lambda dtype: (dtype.compute, DType.I32),
        finish=finish,
        accepts=frozenset({"float"}),
        flops=2,
        parts=(name.removesuffix("_apart"), "nan"),
        onnx=f"Reduce{name.removesuffix('_apart').capitalize()}",
        chooses=True,
        wants_lanes=True,
    )


def _logsumexp() -> Monoid:
    """State (m, s): the largest value, and the sum of exp(x - m). Milakov and Gimelshein, 2018, algorithm 3."""

    def scaled(algebra: Algebra, state: State, top: Any) -> Any:
        call, is_top, one = algebra.call, algebra.call("equal", state[0], top), algebra.like(1.0, top)
        return call("multiply", state[1], call("where", is_top, one, call("exp", call("subtract", state[0], top))))

    def merge(algebra: Algebra, a: State, b: State) -> State:
        top = algebra.call("maximum", a[0], b[0])
        return top, algebra.call("add", scaled(algebra, a, top), scaled(algebra, b, top))

    return Monoid(
        "logsumexp",
        "log of the sum of exp(x), without overflow",
        False,
        lambda dtype: (-np.inf, 0.0),
        lambda algebra, value, position: (value, algebra.like(1.0, value)),
        merge,
        states=lambda dtype: (dtype.compute, dtype.compute),
        finish=lambda algebra, state: algebra.call("add", state[0], algebra.call("log", state[1])),
        accepts=frozenset({"float"}),
        flops=24,
        parts=("top", "scaled"),
        passes_terms=True,
        wants_lanes=True,
    )


def _moments() -> Monoid:
    """State (count, mean, M2), merged as Chan, Golub and LeVeque, 1979; the result is the variance of all values: NaN
    where one is infinite, in whatever order they are merged."""

    def merge(algebra: Algebra, a: State, b: State) -> State:
        call, like = algebra.call, algebra.like
        count = call("add", a[0], b[0])
        share = call("divide", b[0], call("maximum", count, like(1.0, count)))
        delta = call("subtract", b[1], a[1])
        mean = call("add", a[1], call("multiply", delta, share))
        spread = call("multiply", delta, call("multiply", call("multiply", delta, share), a[0]))
        return count, mean, call("add", call("add", a[2], b[2]), spread)

    return Monoid(
        "variance",
        "the mean squared distance from the mean",
        False,
        lambda dtype: (0.0, 0.0, 0.0),
        lambda algebra, value, position: (algebra.like(1.0, value), value, algebra.call("subtract", value, value)),
        merge,
        states=lambda dtype: (dtype.compute,) * 3,
        finish=lambda algebra, state: algebra.call("divide", state[2], state[0]),
        accepts=frozenset({"float"}),
        flops=12,
        parts=("count", "mean", "spread"),
    )


_OF_A_PRODUCT: dict[str, Any] = {"keeps_sign": True, "onnx": "ReduceProd"}
_OF_A_SUM: dict[str, Any] = {"keeps_sign": True, "linear": True, "passes_factors": True, "onnx": "ReduceSum"}
_TABLE = (
    _single("sum", "the sum; 0 of none", "add", lambda dtype: 0, exact=False, **_OF_A_SUM),
    _single("prod", "the product; 1 of none", "multiply", lambda dtype: 1, exact=False, **_OF_A_PRODUCT),
    _extreme("max", "the largest; NaN if one is NaN", "maximum", lowest, "ReduceMax"),
    _extreme("min", "the least; NaN if one is NaN", "minimum", highest, "ReduceMin"),
    _single("any", "whether one is true", "logical_or", lambda dtype: False, "bool", exact=True),
    _single("all", "whether each is true", "logical_and", lambda dtype: True, "bool", exact=True),
    _arg("argmax", "the first place of the largest; NaN is that", "greater", lowest),
    _arg("argmin", "the first place of the least; NaN is that", "less", highest),
    _logsumexp(),
    _moments(),
    _apart("max_apart", "as max, of floats: how loops merge it", "greater", lowest),
    _apart("min_apart", "as min, of floats: how loops merge it", "less", highest),
)

MONOIDS = {monoid.name: monoid for monoid in _TABLE}
BY_FUNCTION = {monoid.function: monoid.name for monoid in _TABLE if monoid.function}
STEPS: dict[str, Graph] = {}  # the graph of each user's fold, by its name: its inputs are the state and a value


def left_fold(step: Graph, start: float) -> str:
    """The name, in the table of monoids, of the fold f(... f(f(start, x0), x1) ..., xn).

    `step`: a graph of scalars with two inputs, the state and a value, and one output, all of one dtype. The name is a
    digest of it, so that equal folds are one. UnsupportedError where a step is no scalar function."""
    name = f"fold_{_digest(step, start)}"
    if name not in MONOIDS:
        MONOIDS[name], STEPS[name] = _monoid(name, step, start), step
    return name


def _monoid(name: str, step: Graph, start: float) -> Monoid:
    output = step.outputs[0]
    dtype = step[output].dtype
    for node in step.nodes:
        if not isinstance(node.kind, Input | Constant | Map) or node.shape:
            raise UnsupportedError(f"{node.output} is a {type(node.kind).__name__}, and a fold takes scalar functions")

    inputs = [node.output for node in step.inputs]
    computed = [node for node in step.nodes if not isinstance(node.kind, Input)]

    def merge(algebra: Algebra, a: State, b: State) -> State:
        values = dict(zip(inputs, (a[0], b[0]), strict=True))
        for node in computed:
            values[node.output] = step_value(algebra, node, [values[x] for x in node.inputs], a[0], dtype)
        return (values[output],)

    return Monoid(
        name,
        "a function of the user, from left to right",
        False,
        lambda source: (start,),
        lambda algebra, value, position: (value,),
        merge,
        accepts=frozenset({dtype.kind}),
        flops=sum(OPERATORS[node.kind.function].flops for node in step.nodes if isinstance(node.kind, Map)),
        ordered=True,
    )


def step_value(algebra: Algebra, node: Node, operands: list[Any], state: Any, dtype: DType) -> Any:
    """A value of the step; constants in its own dtype are as wide as the state."""
    match node.kind:
        case Constant(value):
            constant = algebra.like(value.item(), state)
            return constant if node.dtype is dtype else algebra.cast(constant, node.dtype)
        case Map("cast"):
            return algebra.cast(operands[0], node.dtype)
        case Map("identity"):
            return operands[0]
        case Map(function):
            return algebra.call(function, *operands)
        case _:
            raise AssertionError(node)


def _digest(step: Graph, start: float) -> str:
    places = {node.output: place for place, node in enumerate(step.nodes)}
    nodes = [(_kind(node), [places[name] for name in node.inputs], node.dtype.value) for node in step.nodes]
    ends = [places[name] for name in step.outputs]
    signed = math.copysign(1, start)  # -0.0 is no 0.0
    return hashlib.sha256(repr((nodes, ends, start, signed)).encode()).hexdigest()[:12]


def _kind(node: Node) -> object:
    match node.kind:
        case Constant(value):
            return value.tobytes()
        case Map(function):
            return function
        case kind:
            return type(kind).__name__
