"""The gradient as it comes of the rules, made simpler: equal values once, views composed, what nothing needs gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from noyau.ir.graph import Graph, Map, Node
from noyau.passes.algebra import simplify_algebra
from noyau.passes.equal import merge_equal
from noyau.passes.rewriting import Rebuilder, rebuilt
from noyau.passes.unused import drop_unused
from noyau.passes.views import compose_views


def simplified(graph: Graph) -> Graph:
    """The passes in turn, until nothing changes."""
    while True:
        simpler = graph
        for change in (drop_unused, compose_views, simplify_algebra, drop_rounding, merge_equal):
            simpler = change(simpler)
        if simpler.nodes == graph.nodes:
            return drop_unused(simpler)
        graph = simpler


def drop_rounding(graph: Graph) -> Graph:
    """Casts to a half type and back, where nothing else reads what lies between, gone: kernels would not round either,
    and what is evaluated step by step is the more exact for it."""
    readers = Counter([name for node in graph.nodes for name in node.inputs] + list(graph.outputs))

    def change(node: Node, made: Rebuilder) -> Iterable[Node] | str:
        if node.kind != Map("cast"):
            return (node,)
        inner = made.nodes[node.inputs[0]]
        if inner.kind != Map("cast") or readers[inner.output] > 1 or inner.dtype.compute is inner.dtype:
            return (node,)
        whole = made.nodes[inner.inputs[0]]
        return whole.output if whole.dtype is node.dtype is inner.dtype.compute else (node,)

    return rebuilt(graph, change)
