"""Rules of logic and comparisons: a > b is b < a, and a choice by `not c` is one by c."""

from __future__ import annotations

from dataclasses import replace

from noyau.compiler.passes.patterns import (
    function_of,
    last_of,
    number_of,
    operand_beneath,
    replay,
    under_views,
    views_of,
)
from noyau.compiler.passes.rewrite import Change, Rebuilder, through_views
from noyau.ir.graph import Map, Node
from noyau.ir.operators import OPERATORS, Fact, has


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
