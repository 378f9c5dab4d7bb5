"""Spelling does not matter: one form for what can be written in several ways.

x / sqrt(v), x * reciprocal(sqrt(v)) and x * rsqrt(v) are x * rsqrt(v). No rule changes a result by more than its
rounding, or makes an infinity, a NaN or another sign of zero. One takes them away: x * reciprocal(v) is x / v, which is
finite where reciprocal(v) overflows and the truth does not; in float64, where the truth is spelt so, it stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from noyau.dtypes import DType
from noyau.ir.dims import indices
from noyau.ir.graph import Constant, Graph, Map, Node, View
from noyau.passes.rewriting import Rebuilder, rebuilt, through_views
from noyau.passes.unused import drop_unused

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
        case Map("divide"):
            return _divide(node, made)
        case Map("multiply"):
            return _multiply(node, made)
        case Map("reciprocal") if _function(made, node.inputs[0]) == "sqrt":
            *nodes, last = _inverse_root(made, node.inputs[0])
            return (*nodes, replace(last, output=node.output))
        case Map("power"):
            return _power(node, made)
        case Map("subtract") if _is_zero(_known(made, node.inputs[1])) and node.dtype.is_float:
            return node.inputs[0]
        case Map("cast") if made.nodes[node.inputs[0]].dtype is node.dtype:
            return node.inputs[0]
        case Map("identity"):
            return node.inputs[0]
        case Map("logical_and"):
            return _neutral(node, made, True)
        case Map("logical_or"):
            return _neutral(node, made, False)
        case View() if node.kind.index == indices(len(node.shape)) and made.nodes[node.inputs[0]].shape == node.shape:
            return node.inputs[0]
        case _:
            return (node,)


def _function(made: Rebuilder, name: str) -> str | None:
    """The scalar function that makes a value, seen through views."""
    kind = through_views(made.nodes, name).kind
    return kind.function if isinstance(kind, Map) else None


def _known(made: Rebuilder, name: str) -> float | None:
    """The number that a value is everywhere, if it is one."""
    kind = through_views(made.nodes, name).kind
    return float(kind.value.reshape(())) if isinstance(kind, Constant) and kind.value.size == 1 else None


def _is_zero(number: float | None) -> bool:
    """Whether it is 0 and not -0: x - 0 is x, but -0 - -0 is 0."""
    return number == 0 and math.copysign(1, number) > 0


def _divide(node: Node, made: Rebuilder) -> Change:
    if not node.dtype.is_float:
        return (node,)
    above, below = node.inputs
    if _known(made, below) == 1:
        return above
    if _known(made, above) == 1:
        return (replace(node, kind=Map("reciprocal"), inputs=(below,)),)
    if _function(made, below) == "sqrt":
        nodes = _inverse_root(made, below)
        return (*nodes, replace(node, kind=Map("multiply"), inputs=(above, nodes[-1].output)))
    return (node,)


def _multiply(node: Node, made: Rebuilder) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if _known(made, this) == 1:
            return other
        if node.dtype.is_float and node.dtype is not DType.F64 and _function(made, this) == "reciprocal":
            start = through_views(made.nodes, this).inputs[0]
            views = _replayed(made, _views(made, this), start)
            below = views[-1].output if views else start
            return (*views, replace(node, kind=Map("divide"), inputs=(other, below)))
    return (node,)


def _power(node: Node, made: Rebuilder) -> Change:
    base = node.inputs[0]
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
        case _:
            return (node,)


def _neutral(node: Node, made: Rebuilder, value: bool) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if _known(made, this) == value:
            return other
    return (node,)


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


def _inverse_root(made: Rebuilder, root: str) -> list[Node]:
    """Nodes that give the same views of rsqrt(v), where `root` is views of sqrt(v)."""
    maker = through_views(made.nodes, root)
    inverse = replace(maker, output=made.fresh(maker.output), kind=Map("rsqrt"))
    return [inverse, *_replayed(made, _views(made, root), inverse.output)]
