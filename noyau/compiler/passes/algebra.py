"""One form for expressions that can be written in several ways.

x + -y is x - y, and 1 + tanh(x) is 2 * sigmoid(2 * x), which does not cancel where x is far below 0. No rule changes a
result by more than its rounding, or makes an infinity, a NaN or another sign of zero. Some remove infinities, or
errors; in float64, where the truth is computed, these stay, but for (x / 2) * (2 * y). Sums and products keep their
order, because another one rounds, overflows and underflows otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np

from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.patterns import everywhere, function_of, number_of, operand_beneath
from noyau.compiler.passes.quotients import divide, multiply, power, reciprocal
from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild
from noyau.compiler.passes.signs import comparison, logical_not, neutral, where
from noyau.dtypes import DType
from noyau.ir.dims import indices
from noyau.ir.graph import Graph, Iota, Map, Node, View
from noyau.ir.operators import OPERATORS


def simplify_algebra(graph: Graph) -> Graph:
    """Every node in the form that the rules below give it, to the end."""
    while True:
        simpler = drop_unused(rebuild(graph, _simplified))
        if simpler.nodes == graph.nodes:
            return graph
        graph = simpler


def _simplified(node: Node, rebuilder: Rebuilder) -> Change:
    match node.kind:
        case Map(function) if function in _RULES:
            return _RULES[function](node, rebuilder)
        case Map(function) if OPERATORS[function].mirror:
            return (comparison(node, function),)
        case View() if (
            node.kind.index == indices(len(node.shape)) and rebuilder.nodes[node.inputs[0]].shape == node.shape
        ):
            return node.inputs[0]
        case _:
            return (node,)


def _add(node: Node, rebuilder: Rebuilder) -> Change:
    orders = (node.inputs, node.inputs[::-1])
    for this, other in orders:
        if _is_idle(number_of(rebuilder, this), node.dtype, -1):
            return other
    for this, other in orders:
        if (
            number_of(rebuilder, this) == 1
            and rebuilder.nodes[other].kind == Map("tanh")
            and node.dtype is not DType.F64
        ):
            return _twice_sigmoid(node, rebuilder, rebuilder.nodes[other].inputs[0])
    for this, other in orders:
        if function_of(rebuilder, this) == "negative":
            views, positive = operand_beneath(rebuilder, this)
            return (*views, replace(node, kind=Map("subtract"), inputs=(other, positive)))
    return (node,)


def _twice_sigmoid(node: Node, rebuilder: Rebuilder, inner: str) -> Change:
    """1 + tanh(u) as 2 sigmoid(2 u), which loses nothing where tanh(u) is near -1."""
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
    """Whether it is 0; of floats with a sign, for x - 0 and x + -0 are x, but -0 - -0 and -0 + 0 are 0."""
    return number == 0 and (not dtype.is_float or math.copysign(1, number) == sign)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of one dtype is one of another: a cast there loses nothing."""
    if wide.is_float and narrow.kind in ("int", "uint"):
        return bool(ml_dtypes.iinfo(narrow.numpy).bits <= ml_dtypes.finfo(wide.numpy).nmant + 1)
    return bool(np.can_cast(narrow.numpy, wide.numpy, "safe"))
