"""Spelling does not matter: one form for what can be written in several ways.

x / sqrt(v), x * reciprocal(sqrt(v)) and x * rsqrt(v) are x * rsqrt(v); so is x * v ** -0.5, where v is never below 0
(`signs`). x / 8 is x * 0.125, x * -1 is -x, x + -y is x - y, a > b is b < a, and what is chosen by `not c` is chosen by
c. No rule changes a result by more than its rounding, or makes an infinity, a NaN or another sign of zero.

Some take them away, or errors: x * reciprocal(v) is x / v, which is finite where reciprocal(v) overflows and the
truth does not; y / (1 + exp(-x)) is y * sigmoid(x), which is not 0 yet where exp(-x) overflows; 1 + tanh(x) is 2 *
sigmoid(2 * x), which does not cancel where x is far below 0; (x / 2) * (2 * y) is x * y, which rounds once. In
float64, where the truth is spelt so, all but the last stay. Sums and products keep their order, for that rounds,
overflows and underflows otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.rewrite import Rebuilder, rebuilt, through_views
from noyau.compiler.passes.signs import is_natural
from noyau.dtypes import DType
from noyau.ir.dims import indices
from noyau.ir.graph import Constant, Graph, Iota, Map, Node, View, constant
from noyau.ir.operators import OPERATORS, Fact, has

Change = Iterable[Node] | str


def simplify_algebra(graph: Graph) -> Graph:
    """Every node in the form that the rules below give it, to the end."""
    while True:
        simpler = drop_unused(rebuilt(graph, _simplified))
        if simpler.nodes == graph.nodes:
            return graph
        graph = simpler


def _simplified(node: Node, made: Rebuilder) -> Change:
    match node.kind:
        case Map(function) if function in _RULES:
            return _RULES[function](node, made)
        case Map(function) if OPERATORS[function].mirror:
            return (_mirrored(node, function),)
        case View() if node.kind.index == indices(len(node.shape)) and made.nodes[node.inputs[0]].shape == node.shape:
            return node.inputs[0]
        case _:
            return (node,)


def _mirrored(node: Node, function: str) -> Node:
    """The comparison of a node's operands by a function, in normal form."""
    mirror = OPERATORS[function].mirror
    return replace(node, kind=Map(mirror or function), inputs=node.inputs[::-1] if mirror else node.inputs)


def _divide(node: Node, made: Rebuilder) -> Change:
    if not node.dtype.is_float:
        return (node,)
    above, below = node.inputs
    if _known(made, below) == 1:
        return above
    if _known(made, above) == 1:
        return (replace(node, kind=Map("reciprocal"), inputs=(below,)),)
    inverse = _inverse_of_power_of_two(_known(made, below), node.dtype)
    nodes = _everywhere(made, inverse, node) if inverse else _inverse(made, below)
    return (*nodes, replace(node, kind=Map("multiply"), inputs=(above, nodes[-1].output))) if nodes else (node,)


def _reciprocal(node: Node, made: Rebuilder) -> Change:
    nodes = _inverse(made, node.inputs[0])
    return (*nodes[:-1], replace(nodes[-1], output=node.output)) if nodes else (node,)


def _multiply(node: Node, made: Rebuilder) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if _known(made, this) == 1:
            return other
        if _known(made, this) == -1:
            return (replace(node, kind=Map("negative"), inputs=(other,)),)
        if node.dtype.is_float and (factors := _of_powers(made, this, other)):
            return (replace(node, inputs=factors),)
        if node.dtype.is_float and node.dtype is not DType.F64 and _function(made, this) == "reciprocal":
            views, below = _beneath(made, this)
            return (*views, replace(node, kind=Map("divide"), inputs=(other, below)))
    return (node,)


def _of_powers(made: Rebuilder, this: str, other: str) -> tuple[str, str] | None:
    """The a and b of (a 2^k) (b 2^-k)."""
    (one, power), (two, inverse) = _scaled(made, this), _scaled(made, other)
    return (one, two) if power * inverse == 1 and power != 1 else None


def _scaled(made: Rebuilder, name: str) -> tuple[str, float]:
    """The a and the 2^k of a value a 2^k."""
    node = made.nodes[name]
    if node.kind == Map("multiply"):
        for this, other in (node.inputs, node.inputs[::-1]):
            number = _known(made, this)
            if number and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5:
                return other, number
    return name, 1.0


def _add(node: Node, made: Rebuilder) -> Change:
    orders = (node.inputs, node.inputs[::-1])
    for this, other in orders:
        if _is_idle(_known(made, this), node.dtype, -1):
            return other
    for this, other in orders:
        if _known(made, this) == 1 and made.nodes[other].kind == Map("tanh") and node.dtype is not DType.F64:
            return _twice_sigmoid(node, made, made.nodes[other].inputs[0])
    for this, other in orders:
        if _function(made, this) == "negative":
            views, positive = _beneath(made, this)
            return (*views, replace(node, kind=Map("subtract"), inputs=(other, positive)))
    return (node,)


def _twice_sigmoid(node: Node, made: Rebuilder, inner: str) -> Change:
    """1 + tanh(u) as 2 sigmoid(2 u), which loses nothing where tanh(u) is near -1."""
    one, two = _everywhere(made, 2.0, node)
    double = replace(node, output=made.fresh(node.output), kind=Map("multiply"), inputs=(two.output, inner))
    sigmoid = replace(node, output=made.fresh(node.output), kind=Map("sigmoid"), inputs=(double.output,))
    return (one, two, double, sigmoid, replace(node, kind=Map("multiply"), inputs=(two.output, sigmoid.output)))


def _subtract(node: Node, made: Rebuilder) -> Change:
    this, other = node.inputs
    if _is_idle(_known(made, other), node.dtype, 1):
        return this
    if _function(made, other) == "negative":
        views, positive = _beneath(made, other)
        return (*views, replace(node, kind=Map("add"), inputs=(this, positive)))
    return (node,)


def _negative(node: Node, made: Rebuilder) -> Change:
    if _function(made, node.inputs[0]) != "negative":
        return (node,)
    views, positive = _beneath(made, node.inputs[0])
    return (*views, replace(node, kind=Map("identity"), inputs=(positive,)))


def _power(node: Node, made: Rebuilder) -> Change:
    base, natural = node.inputs[0], node.dtype.is_float and is_natural(made.nodes, node.inputs[0])
    match _known(made, node.inputs[1]):
        case 1:
            return base
        case 2:
            return (replace(node, kind=Map("multiply"), inputs=(base, base)),)
        case 3:
            square = replace(node, output=made.fresh(node.output), kind=Map("multiply"), inputs=(base, base))
            return (square, replace(node, kind=Map("multiply"), inputs=(square.output, base)))
        case -1 if node.dtype.is_float:
            return (replace(node, kind=Map("reciprocal"), inputs=(base,)),)
        case 0.5 if natural:
            return (replace(node, kind=Map("sqrt"), inputs=(base,)),)
        case -0.5 if natural:
            return (replace(node, kind=Map("rsqrt"), inputs=(base,)),)
        case _:
            return (node,)


def _logical_not(node: Node, made: Rebuilder) -> Change:
    views, maker = _views(made, node.inputs[0]), through_views(made.nodes, node.inputs[0])
    match maker.kind:
        case Map("logical_not"):
            again = _replayed(made, views, maker.inputs[0])
            return (*again, replace(node, kind=Map("identity"), inputs=(_last(again, maker.inputs[0]),)))
        case Map(function) if negation := OPERATORS[function].negation:
            if has(function, Fact.ORDERED) and made.nodes[maker.inputs[0]].dtype.is_float:
                return (node,)  # of a NaN both are false
            opposite = _mirrored(maker, negation)
        case _:
            return (node,)
    nodes = _seen_through(made, opposite, views)
    return (*nodes[:-1], replace(nodes[-1], output=node.output))


def _where(node: Node, made: Rebuilder) -> Change:
    condition, this, other = node.inputs
    if _function(made, condition) != "logical_not":
        return (node,)
    views, opposite = _beneath(made, condition)
    return (*views, replace(node, inputs=(opposite, other, this)))


def _cast(node: Node, made: Rebuilder) -> Change:
    source = made.nodes[node.inputs[0]]
    if source.dtype is node.dtype:
        return source.output
    match source.kind:
        case Iota() if source.dtype is DType.I64:
            return (replace(node, kind=source.kind, inputs=()),)
        case Map("cast") if _holds(source.dtype, made.nodes[source.inputs[0]].dtype):
            return (replace(node, inputs=source.inputs),)
        case _:
            return (node,)


def _identity(node: Node, made: Rebuilder) -> Change:
    return node.inputs[0]


def _logical_and(node: Node, made: Rebuilder) -> Change:
    return _neutral(node, made, True)


def _logical_or(node: Node, made: Rebuilder) -> Change:
    return _neutral(node, made, False)


def _neutral(node: Node, made: Rebuilder, value: bool) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if _known(made, this) == value:
            return other
    return (node,)


_RULES = {
    "add": _add,
    "cast": _cast,
    "divide": _divide,
    "identity": _identity,
    "logical_and": _logical_and,
    "logical_not": _logical_not,
    "logical_or": _logical_or,
    "multiply": _multiply,
    "negative": _negative,
    "power": _power,
    "reciprocal": _reciprocal,
    "subtract": _subtract,
    "where": _where,
}


def _function(made: Rebuilder, name: str) -> str | None:
    """The scalar function that makes a value, seen through views."""
    kind = through_views(made.nodes, name).kind
    return kind.function if isinstance(kind, Map) else None


def _known(made: Rebuilder, name: str) -> float | None:
    """The number that a value is everywhere, if it is one."""
    kind = through_views(made.nodes, name).kind
    return float(kind.value.reshape(())) if isinstance(kind, Constant) and kind.value.size == 1 else None


def _is_idle(number: float | None, dtype: DType, sign: int) -> bool:
    """Whether it is 0; of floats with a sign, for x - 0 and x + -0 are x, but -0 - -0 and -0 + 0 are 0."""
    return number == 0 and (not dtype.is_float or math.copysign(1, number) == sign)


def _inverse_of_power_of_two(number: float | None, dtype: DType) -> float | None:
    """The inverse of 2 ** k or -2 ** k: a quotient by the one is the product with the other, to the last bit."""
    if not number or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    info = ml_dtypes.finfo(dtype.numpy)
    return 1 / number if float(info.smallest_normal) * abs(number) <= 1 <= float(info.max) * abs(number) else None


def _everywhere(made: Rebuilder, number: float, node: Node) -> list[Node]:
    """Nodes that give a number in the dtype and the shape of another value."""
    one = constant(made.fresh(node.output), np.array(number, node.dtype.numpy), node.sources)
    return [one, replace(node, output=made.fresh(node.output), kind=View(()), inputs=(one.output,))]


def _inverse(made: Rebuilder, name: str) -> list[Node]:
    """Nodes that give 1 / v for a value v that is sqrt(u) or 1 + exp(u), seen through views; none for others."""
    maker, views = through_views(made.nodes, name), _views(made, name)
    if maker.kind == Map("sqrt"):
        return _seen_through(made, replace(maker, kind=Map("rsqrt")), views)
    exponent = _exponent(made, maker)
    if exponent is None or maker.dtype is DType.F64:
        return []
    negative = replace(maker, output=made.fresh(maker.output), kind=Map("negative"), inputs=(exponent,))
    sigmoid = replace(maker, kind=Map("sigmoid"), inputs=(negative.output,))
    return [negative, *_seen_through(made, sigmoid, views)]


def _exponent(made: Rebuilder, node: Node) -> str | None:
    """The u of 1 + exp(u)."""
    if node.kind == Map("add"):
        for this, other in (node.inputs, node.inputs[::-1]):
            if _known(made, this) == 1 and made.nodes[other].kind == Map("exp"):
                return made.nodes[other].inputs[0]
    return None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of one dtype is one of another: a cast there loses nothing."""
    if wide.is_float and narrow.kind in ("int", "uint"):
        return bool(ml_dtypes.iinfo(narrow.numpy).bits <= ml_dtypes.finfo(wide.numpy).nmant + 1)
    return bool(np.can_cast(narrow.numpy, wide.numpy, "safe"))


def _beneath(made: Rebuilder, name: str) -> tuple[list[Node], str]:
    """What a scalar function was called with that made a value, under the views through which the value is seen."""
    start = through_views(made.nodes, name).inputs[0]
    views = _replayed(made, _views(made, name), start)
    return views, _last(views, start)


def _views(made: Rebuilder, name: str) -> list[Node]:
    """The views between a value and what it is a view of, the first one first."""
    found: list[Node] = []
    node = made.nodes[name]
    while isinstance(node.kind, View):
        found.insert(0, node)
        node = made.nodes[node.inputs[0]]
    return found


def _replayed(made: Rebuilder, views: Sequence[Node], start: str) -> list[Node]:
    """The same views of another value, under new names."""
    nodes: list[Node] = []
    for view in views:
        nodes.append(replace(view, output=made.fresh(view.output), inputs=(start,)))
        start = nodes[-1].output
    return nodes


def _seen_through(made: Rebuilder, node: Node, views: Sequence[Node]) -> list[Node]:
    """A node under a new name, and the same views of it."""
    fresh = replace(node, output=made.fresh(node.output))
    return [fresh, *_replayed(made, views, fresh.output)]


def _last(nodes: Sequence[Node], start: str) -> str:
    return nodes[-1].output if nodes else start
