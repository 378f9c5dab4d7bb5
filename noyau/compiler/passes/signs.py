"""Signs of values, which are surely 0 or above; and logic: a > b is b < a, and a choice by `not c` is one by c."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from noyau.compiler.passes import patterns
from noyau.compiler.passes.rewrite import Change, Rebuilder, through_views
from noyau.ir.dims import never_negative
from noyau.ir.graph import Constant, Gather, Iota, Map, Node, Reduce, Select, View
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has


# Of -0 and of -inf x ** 0.5 and sqrt(x) differ; a sum of squares with an epsilon added is neither.
def is_natural(nodes: Mapping[str, Node], name: str) -> bool:
    """Whether each cell of a value is surely 0 or above, infinite, or NaN; never -0. Integers may wrap: only those that
    have no sign are natural."""
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
    """The values that a value is as natural as."""
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
    views, maker = patterns.views_of(rebuilder, node.inputs[0]), through_views(rebuilder.nodes, node.inputs[0])
    match maker.kind:
        case Map("logical_not"):
            again = patterns.replay(rebuilder, views, maker.inputs[0])
            return (*again, replace(node, kind=Map("identity"), inputs=(patterns.last_of(again, maker.inputs[0]),)))
        case Map(function) if negation := OPERATORS[function].negation:
            if has(function, Fact.ORDERED) and rebuilder.nodes[maker.inputs[0]].dtype.is_float:
                return (node,)  # of a NaN both are false
            opposite = comparison(maker, negation)
        case _:
            return (node,)
    nodes = patterns.under_views(rebuilder, opposite, views)
    return (*nodes[:-1], replace(nodes[-1], output=node.output))


def where(node: Node, rebuilder: Rebuilder) -> Change:
    condition, this, other = node.inputs
    if patterns.function_of(rebuilder, condition) != "logical_not":
        return (node,)
    views, opposite = patterns.operand_beneath(rebuilder, condition)
    return (*views, replace(node, inputs=(opposite, other, this)))


def neutral(node: Node, rebuilder: Rebuilder, value: bool) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if patterns.number_of(rebuilder, this) == value:
            return other
    return (node,)
