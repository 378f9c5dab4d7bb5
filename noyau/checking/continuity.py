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
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS

STEPS = frozenset({"floor", "ceil", "truncate", "round_even", "sign", "floor_divide"})


def stepped(graph: Graph) -> frozenset[str]:
    """The values that depend on float inputs only through steps: roundings, comparisons, casts to integers.

    Between two jumps such a value does not depend on them at all."""
    smooth: set[str] = set()
    depends: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.kind, Input) and node.dtype.is_float:
            depends.add(node.output)
            smooth.add(node.output)
        if depends.intersection(node.inputs):
            depends.add(node.output)
        if smooth.intersection(_continuous(node)):
            smooth.add(node.output)
    return frozenset(depends - smooth)


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
