"""Patterns of values seen through views: the function or the number beneath, and the same views of another value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noyau.compiler.passes.rewrite import Rebuilder, through_views
from noyau.ir.graph import Constant, Map, Node, View, constant


def function_of(rebuilder: Rebuilder, name: str) -> str | None:
    """The scalar function that makes a value, seen through views."""
    kind = through_views(rebuilder.nodes, name).kind
    return kind.function if isinstance(kind, Map) else None


def number_of(rebuilder: Rebuilder, name: str) -> float | None:
    """The number that a value is everywhere, if it is one."""
    kind = through_views(rebuilder.nodes, name).kind
    return float(kind.value.reshape(())) if isinstance(kind, Constant) and kind.value.size == 1 else None


def everywhere(rebuilder: Rebuilder, number: float, node: Node) -> list[Node]:
    """Nodes that give a number in the dtype and the shape of another value."""
    one = constant(rebuilder.fresh(node.output), np.array(number, node.dtype.numpy), node.sources)
    return [one, replace(node, output=rebuilder.fresh(node.output), kind=View(()), inputs=(one.output,))]


def operand_beneath(rebuilder: Rebuilder, name: str) -> tuple[list[Node], str]:
    """Find the operand of the scalar function that makes a value, under the views of that value."""
    start = through_views(rebuilder.nodes, name).inputs[0]
    views = replay(rebuilder, views_of(rebuilder, name), start)
    return views, last_of(views, start)


def views_of(rebuilder: Rebuilder, name: str) -> list[Node]:
    """The views between a value and what it is a view of, the first one first."""
    views: list[Node] = []
    node = rebuilder.nodes[name]
    while isinstance(node.kind, View):
        views.insert(0, node)
        node = rebuilder.nodes[node.inputs[0]]
    return views


def replay(rebuilder: Rebuilder, views: Sequence[Node], start: str) -> list[Node]:
    """The same views of another value, under new names."""
    nodes: list[Node] = []
    for view in views:
        nodes.append(replace(view, output=rebuilder.fresh(view.output), inputs=(start,)))
        start = nodes[-1].output
    return nodes


def under_views(rebuilder: Rebuilder, node: Node, views: Sequence[Node]) -> list[Node]:
    """A node under a new name, and the same views of it."""
    fresh = replace(node, output=rebuilder.fresh(node.output))
    return [fresh, *replay(rebuilder, views, fresh.output)]


def last_of(nodes: Sequence[Node], start: str) -> str:
    return nodes[-1].output if nodes else start
