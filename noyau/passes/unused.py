"""Drop what no output needs."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.graph import Graph, Input, Node


def drop_unused(graph: Graph) -> Graph:
    """Remove each value that no output needs; inputs stay."""
    needed, kept = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.output in needed or isinstance(node.kind, Input):
            needed.update(node.inputs)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))
