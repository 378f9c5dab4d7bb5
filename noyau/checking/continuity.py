"""Which values of a graph jump when its float inputs move a little."""

from __future__ import annotations

from typing import assert_never

from noyau.dtypes import DType
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Input,
    Iota,
    Map,
    Node,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
    View,
    downstream,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS

STEPS = frozenset({"floor", "ceil", "truncate", "round_even", "sign", "floor_divide"})


def stepped(graph: Graph) -> frozenset[str]:
    """The values that depend on float inputs only through steps: roundings, comparisons, casts to integers.

    Between two jumps such a value does not depend on them at all."""
    depends = downstream(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    return frozenset(depends - _smooth(graph))


def jumping(graph: Graph) -> frozenset[str]:
    """The values that jump where an operand moves that does so with float inputs: roundings, comparisons, casts to
    integers; not what is made of such."""
    smooth = _smooth(graph)
    jumps = (node for node in graph.nodes if isinstance(node.kind, Map) and _loose(node).intersection(smooth))
    return frozenset(node.output for node in jumps)


def _smooth(graph: Graph) -> set[str]:
    """The values that move with float inputs, also between jumps."""
    found = {node.output for node in graph.inputs if node.dtype.is_float}
    for node in graph.nodes:
        if found.intersection(_continuous(node)):
            found.add(node.output)
    return found


def _loose(node: Node) -> set[str]:
    """The operands of a function that it does not follow without jumps."""
    return set(node.inputs) - set(_continuous(node))


def _continuous(node: Node) -> tuple[str, ...]:
    """The operands that a value follows without jumps, or between its jumps."""
    match node.kind:
        case Map("cast"):
            return node.inputs if node.dtype.is_float else ()  # to a float8 it jumps
        case Map("where"):
            return node.inputs[1:]
        case Map(function):
            return () if function in STEPS or OPERATORS[function].result == "bool" else node.inputs
        case Reduce(monoid, _) | Scan(monoid, _):
            return () if MONOIDS[monoid].result(DType.F32) is DType.I64 else node.inputs
        case Gather():
            return node.inputs[:1]
        case Scatter():
            return (node.inputs[0], node.inputs[2])
        case Opaque() | Part() | Contract() | View() | Select():
            return node.inputs
        case Input() | Constant() | Iota():
            return ()
        case _:
            assert_never(node.kind)
