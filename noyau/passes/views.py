"""A view of a view is one view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from noyau.ir.dims import index_name
from noyau.ir.graph import Graph, Node, View
from noyau.ir.ranges import simplify
from noyau.passes.rewriting import Rebuilder, rebuilt


def compose_views(graph: Graph) -> Graph:
    """Each view reads what the views before it read, at the composed index."""
    return rebuilt(graph, _composed)


def _composed(node: Node, made: Rebuilder) -> Iterable[Node]:
    source = made.nodes[node.inputs[0]] if node.inputs else node
    match node.kind, source.kind:
        case View(outer), View(inner):
            here = {index_name(axis): dim for axis, dim in enumerate(outer)}
            index = tuple(simplify(dim.replace(here), node.extents) for dim in inner)
            return (replace(node, kind=View(index), inputs=source.inputs),)
        case _:
            return (node,)
