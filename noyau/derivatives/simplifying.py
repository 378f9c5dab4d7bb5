"""The gradient as it comes of the rules, made simpler: equal values once, views composed, what nothing needs gone."""

from __future__ import annotations

from noyau.ir.graph import Graph
from noyau.passes.algebra import simplify_algebra
from noyau.passes.equal import merge_equal
from noyau.passes.unused import drop_unused
from noyau.passes.views import compose_views


def simplified(graph: Graph) -> Graph:
    """The passes in turn, until nothing changes."""
    while True:
        simpler = graph
        for change in (drop_unused, compose_views, simplify_algebra, merge_equal):
            simpler = change(simpler)
        if simpler.nodes == graph.nodes:
            return drop_unused(simpler)
        graph = simpler
