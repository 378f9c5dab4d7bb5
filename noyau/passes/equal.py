"""Values that are computed twice become one; operands whose order does not matter get one order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Graph, Input, Map, Node, Reduce, View
from noyau.passes.rewriting import Rebuilder, rebuilt

COMMUTATIVE = frozenset(
    """add multiply maximum minimum fmax fmin equal not_equal logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor""".split()
)


def merge_equal(graph: Graph) -> Graph:
    """Each value that equals an earlier one, by what makes it, is that one."""
    seen: dict[object, str] = {}

    def change(node: Node, made: Rebuilder) -> Iterable[Node] | str:
        if isinstance(node.kind, Input):
            return (node,)
        key = (node.kind, node.inputs, node.dtype, node.shape)
        earlier = seen.setdefault(key, node.output)
        return (node,) if earlier == node.output else earlier

    return rebuilt(graph, change)


def order_operands(graph: Graph) -> Graph:
    """Commutative operands in the order of what they are made of, whatever they are called."""
    keys = structure(graph)

    def change(node: Node, made: Rebuilder) -> Iterable[Node] | str:
        match node.kind:
            case Map(function) if function in COMMUTATIVE:
                return (replace(node, inputs=tuple(sorted(node.inputs, key=lambda name: keys[name]))),)
            case _:
                return (node,)

    return rebuilt(graph, change)


def structure(graph: Graph) -> dict[str, str]:
    """For each value a digest of how it is computed, down to the dtypes and extents of inputs; neither names nor the
    views on the way matter."""
    keys: dict[str, str] = {}
    for node in graph.nodes:
        operands = [keys[name] for name in node.inputs]
        match node.kind:
            case View():
                keys[node.output] = operands[0]
                continue
            case Map(function) if function in COMMUTATIVE:
                what: object = (function, sorted(operands))
            case Map(function):
                what = (function, operands)
            case Reduce(monoid, _):
                what = (monoid, operands)
            case Constant(value):
                what = ("constant", value.tobytes())
            case Input():
                what = [str(dim) for dim in node.shape if dim != Dim.of(1)]
            case _:
                what = (type(node.kind).__name__, operands)
        text = repr((what, node.dtype.value))
        keys[node.output] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return keys
