"""One form for expressions that can be written in several ways.

x + -y is x - y, and 1 + tanh(x) is 2 * sigmoid(2 * x), which does not cancel where x is far below 0. No rule changes a
result by more than its rounding, or introduces an infinity, a NaN or another sign of zero. Some rules remove infinities
or errors; in float64, where the truth is computed, these stay, except in (x / 2) * (2 * y). Sums and products keep
their order, because another order rounds, overflows and underflows otherwise.

x / sqrt(v), x * reciprocal(sqrt(v)) and x * rsqrt(v) are x * rsqrt(v); so is x * v ** -0.5, where v is never below 0
(`is_natural`). x / 8 is x * 0.125, and x * -1 is -x. x * reciprocal(v) is x / v, which is finite where reciprocal(v)
overflows and the truth does not; y / (1 + exp(-x)) is y * sigmoid(x), which is not 0 yet where exp(-x) overflows; (x /
2) * (2 * y) is x * y, which rounds once. a > b is b < a, and a choice by `not c` is a choice by c."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import ml_dtypes
import numpy as np

from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild, through_views
from noyau.dtypes import DType
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, indices, never_negative, product
from noyau.ir.graph import Constant, Contract, Gather, Graph, Iota, Map, Node, Reduce, Select, View, constant
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.ir.ranges import at_least_one


def function_of(rebuilder: Rebuilder, name: str) -> str | None:
    """The scalar function that makes a value, seen through views."""
    kind = through_views(rebuilder.nodes, name).kind
    return kind.function if isinstance(kind, Map) else None


def number_of(rebuilder: Rebuilder, name: str) -> float | None:
    """The number that fills a value, or None."""
    kind = through_views(rebuilder.nodes, name).kind
    return float(kind.value.reshape(())) if isinstance(kind, Constant) and kind.value.size == 1 else None


def everywhere(rebuilder: Rebuilder, number: float, node: Node) -> list[Node]:
    """Nodes that fill another value's shape with a number of its dtype."""
    one = constant(rebuilder.fresh(node.output), np.array(number, node.dtype.numpy), node.sources)
    return [one, replace(node, output=rebuilder.fresh(node.output), kind=View(()), inputs=(one.output,))]


def operand_beneath(rebuilder: Rebuilder, name: str) -> tuple[list[Node], str]:
    """The operand of the scalar function that computes a value, seen through the views of that value."""
    start = through_views(rebuilder.nodes, name).inputs[0]
    views = replay(rebuilder, views_of(rebuilder, name), start)
    return views, last_of(views, start)


def views_of(rebuilder: Rebuilder, name: str) -> list[Node]:
    """The views between a value and its source, innermost first."""
    views: list[Node] = []
    node = rebuilder.nodes[name]
    while isinstance(node.kind, View):
        views.insert(0, node)
        node = rebuilder.nodes[node.inputs[0]]
    return views


def replay(rebuilder: Rebuilder, views: Sequence[Node], start: str) -> list[Node]:
    """The same views of another value, under new names."""
    nodes: list[Node] = []
    for view in views:
        nodes.append(replace(view, output=rebuilder.fresh(view.output), inputs=(start,)))
        start = nodes[-1].output
    return nodes


def under_views(rebuilder: Rebuilder, node: Node, views: Sequence[Node]) -> list[Node]:
    """A node under a new name, and the same views of it."""
    fresh = replace(node, output=rebuilder.fresh(node.output))
    return [fresh, *replay(rebuilder, views, fresh.output)]


def last_of(nodes: Sequence[Node], start: str) -> str:
    return nodes[-1].output if nodes else start


def divide(node: Node, rebuilder: Rebuilder) -> Change:
    if not node.dtype.is_float:
        return (node,)
    above, below = node.inputs
    if number_of(rebuilder, below) == 1:
        return above
    if number_of(rebuilder, above) == 1:
        return (replace(node, kind=Map("reciprocal"), inputs=(below,)),)
    inverse = _inverse_of_power_of_two(number_of(rebuilder, below), node.dtype)
    nodes = everywhere(rebuilder, inverse, node) if inverse else _inverse(rebuilder, below)
    return (*nodes, replace(node, kind=Map("multiply"), inputs=(above, nodes[-1].output))) if nodes else (node,)


def reciprocal(node: Node, rebuilder: Rebuilder) -> Change:
    nodes = _inverse(rebuilder, node.inputs[0])
    return (*nodes[:-1], replace(nodes[-1], output=node.output)) if nodes else (node,)


def multiply(node: Node, rebuilder: Rebuilder) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if number_of(rebuilder, this) == 1:
            return other
        if number_of(rebuilder, this) == -1:
            return (replace(node, kind=Map("negative"), inputs=(other,)),)
        (one, power), (two, inverse) = _split_scale(rebuilder, this), _split_scale(rebuilder, other)
        if node.dtype.is_float and power * inverse == 1 and power != 1:
            return (replace(node, inputs=(one, two)),)
        if node.dtype.is_float and node.dtype is not DType.F64 and function_of(rebuilder, this) == "reciprocal":
            views, below = operand_beneath(rebuilder, this)
            return (*views, replace(node, kind=Map("divide"), inputs=(other, below)))
    return (node,)


def _split_scale(rebuilder: Rebuilder, name: str) -> tuple[str, float]:
    """Split a value x * 2^k into x and 2^k."""
    node = rebuilder.nodes[name]
    if node.kind == Map("multiply"):
        for this, other in (node.inputs, node.inputs[::-1]):
            number = number_of(rebuilder, this)
            if number and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5:
                return other, number
    return name, 1.0


def _inverse_of_power_of_two(number: float | None, dtype: DType) -> float | None:
    """The inverse of 2 ** k or -2 ** k, if a quotient by the number has the bits of a product with the inverse."""
    if not number or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    info = ml_dtypes.finfo(dtype.numpy)
    return 1 / number if float(info.smallest_normal) * abs(number) <= 1 <= float(info.max) * abs(number) else None


def _inverse(rebuilder: Rebuilder, name: str) -> list[Node]:
    """Nodes that compute 1 / v for a value v that is sqrt(u) or 1 + exp(u), seen through views; else none."""
    maker, views = through_views(rebuilder.nodes, name), views_of(rebuilder, name)
    if maker.kind == Map("sqrt"):
        return under_views(rebuilder, replace(maker, kind=Map("rsqrt")), views)
    exponent = _exponent(rebuilder, maker)
    if exponent is None or maker.dtype is DType.F64:
        return []
    negative = replace(maker, output=rebuilder.fresh(maker.output), kind=Map("negative"), inputs=(exponent,))
    sigmoid = replace(maker, kind=Map("sigmoid"), inputs=(negative.output,))
    return [negative, *under_views(rebuilder, sigmoid, views)]


def _exponent(rebuilder: Rebuilder, node: Node) -> str | None:
    """The u of a value 1 + exp(u), or None."""
    if node.kind == Map("add"):
        for this, other in (node.inputs, node.inputs[::-1]):
            if number_of(rebuilder, this) == 1 and rebuilder.nodes[other].kind == Map("exp"):
                return rebuilder.nodes[other].inputs[0]
    return None


_POWERS = {-1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}  # of floats; the roots only of values never below 0


def power(node: Node, rebuilder: Rebuilder) -> Change:
    base = node.inputs[0]
    match number_of(rebuilder, node.inputs[1]):
        case 1:
            return base
        case 2:
            return (replace(node, kind=Map("multiply"), inputs=(base, base)),)
        case 3:
            square = replace(node, output=rebuilder.fresh(node.output), kind=Map("multiply"), inputs=(base, base))
            return (square, replace(node, kind=Map("multiply"), inputs=(square.output, base)))
        case 4:
            square = replace(node, output=rebuilder.fresh(node.output), kind=Map("multiply"), inputs=(base, base))
            return (square, replace(node, kind=Map("multiply"), inputs=(square.output, square.output)))
        case 1.5 if node.dtype.is_float and is_natural(rebuilder.nodes, base):
            root = replace(node, output=rebuilder.fresh(node.output), kind=Map("sqrt"), inputs=(base,))
            return (root, replace(node, kind=Map("multiply"), inputs=(base, root.output)))
        case -1 | 0.5 | -0.5 as number if node.dtype.is_float and (number == -1 or is_natural(rebuilder.nodes, base)):
            return (replace(node, kind=Map(_POWERS[number]), inputs=(base,)),)
        case _:
            return (node,)


# x ** 0.5 and sqrt(x) differ at -0 and at -inf; a sum of squares with an epsilon added is neither.
def is_natural(nodes: Mapping[str, Node], name: str) -> bool:
    """Whether each cell of a value is surely 0 or above, infinite, or NaN; never -0. Signed integers may wrap."""
    natural: dict[str, bool] = {}
    waiting = [name]
    while waiting:
        node = nodes[waiting[-1]]
        below = [each for each in _sign_sources(node) if each not in natural]
        if below:
            waiting += below
        else:
            natural[waiting.pop()] = _is_natural(node, natural)
    return natural[name]


def _sign_sources(node: Node) -> tuple[str, ...]:
    """The values of which all must be natural for a value to be natural."""
    match node.kind:
        case Map(function) if has(function, Fact.KEEPS_SIGN):
            return node.inputs
        case Map("where"):
            return node.inputs[1:]
        case Reduce(monoid) if MONOIDS[monoid].keeps_sign:
            return node.inputs
        case View() | Gather():
            return node.inputs[:1]
        case Select():
            return node.inputs
        case _:
            return ()


def _is_natural(node: Node, natural: Mapping[str, bool]) -> bool:
    if node.dtype.kind in ("bool", "uint"):
        return True
    match node.kind:
        case Constant(value):
            return bool((~np.signbit(value.astype(np.float64)) | np.isnan(value.astype(np.float64))).all())
        case Iota(index):
            return never_negative(index)
        case Map("multiply") if node.inputs[0] == node.inputs[1]:
            return node.dtype.is_float
        case Map(function) if has(function, Fact.NEVER_NEGATIVE):
            return node.dtype.is_float
        case _:
            operands = _sign_sources(node)
            return node.dtype.is_float and bool(operands) and all(natural[each] for each in operands)


def comparison(node: Node, function: str) -> Node:
    """The comparison of a node's operands by a function, in normal form."""
    mirror = OPERATORS[function].mirror
    return replace(node, kind=Map(mirror or function), inputs=node.inputs[::-1] if mirror else node.inputs)


def logical_not(node: Node, rebuilder: Rebuilder) -> Change:
    views, maker = views_of(rebuilder, node.inputs[0]), through_views(rebuilder.nodes, node.inputs[0])
    match maker.kind:
        case Map("logical_not"):
            again = replay(rebuilder, views, maker.inputs[0])
            return (*again, replace(node, kind=Map("identity"), inputs=(last_of(again, maker.inputs[0]),)))
        case Map(function) if negation := OPERATORS[function].negation:
            if has(function, Fact.ORDERED) and rebuilder.nodes[maker.inputs[0]].dtype.is_float:
                return (node,)  # of a NaN both are false
            opposite = comparison(maker, negation)
        case _:
            return (node,)
    nodes = under_views(rebuilder, opposite, views)
    return (*nodes[:-1], replace(nodes[-1], output=node.output))


def where(node: Node, rebuilder: Rebuilder) -> Change:
    condition, this, other = node.inputs
    if function_of(rebuilder, condition) != "logical_not":
        return (node,)
    views, opposite = operand_beneath(rebuilder, condition)
    return (*views, replace(node, inputs=(opposite, other, this)))


def neutral(node: Node, rebuilder: Rebuilder, value: bool) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if number_of(rebuilder, this) == value:
            return other
    return (node,)


def simplify_algebra(graph: Graph) -> Graph:
    """Rewrite every node by the rules below until nothing changes."""
    while True:
        simpler = drop_unused(rebuild(graph, _simplify))
        if simpler.nodes == graph.nodes:
            return graph
        graph = simpler


def _simplify(node: Node, rebuilder: Rebuilder) -> Change:
    match node.kind:
        case Map(function) if function in _RULES:
            return _RULES[function](node, rebuilder)
        case Map(function) if OPERATORS[function].mirror:
            return (comparison(node, function),)
        case View(index) if index == indices(len(node.shape)) and rebuilder.nodes[node.inputs[0]].shape == node.shape:
            return node.inputs[0]
        case _:
            return (node,)


def _add(node: Node, rebuilder: Rebuilder) -> Change:
    orders = (node.inputs, node.inputs[::-1])
    for this, other in orders:
        if _is_idle(number_of(rebuilder, this), node.dtype, -1):
            return other
    for this, other in orders:
        tanh = rebuilder.nodes[other]
        if number_of(rebuilder, this) == 1 and tanh.kind == Map("tanh") and node.dtype is not DType.F64:
            return _twice_sigmoid(node, rebuilder, tanh.inputs[0])
    for this, other in orders:
        if function_of(rebuilder, this) == "negative":
            views, positive = operand_beneath(rebuilder, this)
            return (*views, replace(node, kind=Map("subtract"), inputs=(other, positive)))
    return (node,)


def _twice_sigmoid(node: Node, rebuilder: Rebuilder, inner: str) -> Change:
    """1 + tanh(u) as 2 sigmoid(2 u), which does not cancel where tanh(u) is near -1."""
    one, two = everywhere(rebuilder, 2.0, node)
    double = replace(node, output=rebuilder.fresh(node.output), kind=Map("multiply"), inputs=(two.output, inner))
    sigmoid = replace(node, output=rebuilder.fresh(node.output), kind=Map("sigmoid"), inputs=(double.output,))
    return (one, two, double, sigmoid, replace(node, kind=Map("multiply"), inputs=(two.output, sigmoid.output)))


def _subtract(node: Node, rebuilder: Rebuilder) -> Change:
    this, other = node.inputs
    if _is_idle(number_of(rebuilder, other), node.dtype, 1):
        return this
    if function_of(rebuilder, other) == "negative":
        views, positive = operand_beneath(rebuilder, other)
        return (*views, replace(node, kind=Map("add"), inputs=(this, positive)))
    return (node,)


def _negative(node: Node, rebuilder: Rebuilder) -> Change:
    if function_of(rebuilder, node.inputs[0]) != "negative":
        return (node,)
    views, positive = operand_beneath(rebuilder, node.inputs[0])
    return (*views, replace(node, kind=Map("identity"), inputs=(positive,)))


def _cast(node: Node, rebuilder: Rebuilder) -> Change:
    source = rebuilder.nodes[node.inputs[0]]
    if source.dtype is node.dtype:
        return source.output
    match source.kind:
        case Iota() if source.dtype is DType.I64:
            return (replace(node, kind=source.kind, inputs=()),)
        case Map("cast") if _holds(source.dtype, rebuilder.nodes[source.inputs[0]].dtype):
            return (replace(node, inputs=source.inputs),)
        case _:
            return (node,)


_RULES: dict[str, Callable[[Node, Rebuilder], Change]] = {
    "add": _add,
    "cast": _cast,
    "divide": divide,
    "identity": lambda node, rebuilder: node.inputs[0],
    "logical_and": partial(neutral, value=True),
    "logical_not": logical_not,
    "logical_or": partial(neutral, value=False),
    "multiply": multiply,
    "negative": _negative,
    "power": power,
    "reciprocal": reciprocal,
    "subtract": _subtract,
    "where": where,
}


def _is_idle(number: float | None, dtype: DType, sign: int) -> bool:
    """Whether a number is 0; of floats with this sign, for x - 0 and x + -0 are x, but -0 - -0 and -0 + 0 are 0."""
    return number == 0 and (not dtype.is_float or math.copysign(1, number) == sign)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of one dtype is a number of another, so that a cast loses nothing."""
    if wide.is_float and narrow.kind in ("int", "uint"):
        return bool(ml_dtypes.iinfo(narrow.numpy).bits <= ml_dtypes.finfo(wide.numpy).nmant + 1)
    return bool(np.can_cast(narrow.numpy, wide.numpy, "safe"))


MOST_EXTENT = 16  # of a small product: the number of summed products, and the cells of one of its sides


def extents_of_product(node: Node, nodes: Mapping[str, Node]) -> tuple[Dim, tuple[Dim, Dim]]:
    """The number of products that a Contract sums per cell, and the extents that only one of its operands has."""
    terms, result = cast(Contract, node.kind).equation.split("->")
    one, other = terms.split(",")
    extents = dict(zip(one + other, (dim for name in node.inputs for dim in nodes[name].shape), strict=True))
    left, right = (product(extents[x] for x in each if x in result) for each in ({*one} - {*other}, {*other} - {*one}))
    return product(extents[x] for x in extents if x not in result), (left, right)


def needs_no_library(node: Node, nodes: Mapping[str, Node], *, vector: bool = False) -> bool:
    """Whether a Contract is of vectors, or of small matrices of known extents: a call of a library takes longer. With
    `vector`, also of a matrix and a vector: that takes as long as reading the matrix."""
    summed, sides = extents_of_product(node, nodes)
    few = [dim.constant in range(MOST_EXTENT + 1) for dim in (summed, *sides)]
    return (any if vector else all)(side == Dim.of(1) for side in sides) or (few[0] and any(few[1:]))


def products_as_sums(graph: Graph, *, small: bool = False, vector: bool = False) -> Graph:
    """The graph with each product of matrices, or only each `small` one and, with `vector`, each by a vector, as a sum
    of products of cells, for kernels."""
    build = GraphBuilder()
    build.by_name |= {node.output: node for node in graph.nodes}  # no fresh value has one of these names
    for node in graph.nodes:
        if not isinstance(node.kind, Contract) or (small and not needs_no_library(node, graph.by_name, vector=vector)):
            build.add(node)
            continue
        inputs, output = node.kind.equation.split("->")
        operands = [(term, build.by_name[name]) for term, name in zip(inputs.split(","), node.inputs, strict=True)]
        extents = {letter: dim for term, each in operands for letter, dim in zip(term, each.shape, strict=True)}
        letters = output + "".join(sorted({*extents} - {*output}))
        shape = tuple(extents[letter] for letter in letters)
        factors = [build.broadcast_in_dim(each, shape, list(map(letters.index, term))) for term, each in operands]
        total = build.reduce("sum", build.call("multiply", *factors), range(len(output), len(letters)))
        build.add(Node(node.output, Map("identity"), (total.output,), node.dtype, node.shape))
    return replace(graph, nodes=tuple(build.nodes))


def is_clamped(values: Mapping[str, Node], name: str, extent: Dim) -> bool:
    """Whether all cells of a value are indices of an axis of `extent` cells, if that has any: np.clip(k, 0, n - 1)."""
    return all(_is_bounded(values, name, extent, below=below) for below in (True, False))


def _is_bounded(values: Mapping[str, Node], name: str, extent: Dim, *, below: bool) -> bool:
    """Whether all cells are surely at least 0 (`below`), or less than an extent of at least 1."""
    match values[name].kind:
        case Map("maximum" | "minimum" as function):
            rule = any if (function == "maximum") == below else all
            return rule(_is_bounded(values, operand, extent, below=below) for operand in values[name].inputs)
        case View():
            return _is_bounded(values, values[name].inputs[0], extent, below=below)
        case Constant(value):
            return bool(np.all(value >= 0 if below else value <= 0))
        case Iota(dim):
            return never_negative(dim if below else extent - 1 - dim, at_least_one(extent))
        case _:
            return False
