"""Rebuilding of a graph node by node, shared by passes: a node becomes other nodes or another value's name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.ir.dims import Dim, Shape, indices
from noyau.ir.graph import Constant, Gather, Graph, Input, Iota, Kind, Lookup, Node, Scatter, Select, View, dims_of
from noyau.ir.sizes import bind

Change = Iterable[Node] | str  # the nodes that replace a node, or the name of the value that does


class Rebuilder:
    """A graph in the making: `add` appends nodes, `stand_in` gives the value that now stands for another."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: dict[str, Node] = {}
        self.renamed: dict[str, str] = {}
        self.taken = {node.output for node in graph.nodes}

    def add(self, node: Node) -> str:
        self.nodes[node.output] = node
        return node.output

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        count = 1
        while (name := f"{stem}~{count}") in self.taken:
            count += 1
        self.taken.add(name)
        return name


def rebuild(graph: Graph, change: Callable[[Node, Rebuilder], Change]) -> Graph:
    """The graph with each node changed: into nodes, the last of which takes its place, or into another value's name.
    `change` receives a node with its inputs renamed. An output that becomes another value keeps its name, as a View."""
    rebuilder = Rebuilder(graph)
    for node in graph.nodes:
        if rebuilder.renamed:
            node = replace(node, inputs=tuple(rebuilder.renamed.get(name, name) for name in node.inputs))
        result = change(node, rebuilder)
        if isinstance(result, str):
            rebuilder.renamed[node.output] = result
            if node.output in graph.outputs:
                rebuilder.add(same_as(node, rebuilder.nodes[result]))
        else:
            for new in result:
                rebuilder.add(new)
    return replace(graph, nodes=tuple(rebuilder.nodes.values()))


def same_as(node: Node, other: Node) -> Node:
    """A view of another value under a node's own name."""
    return replace(node, kind=View(indices(len(other.shape))), inputs=(other.output,))


def view_of(nodes: Mapping[str, Node], name: str) -> tuple[str, Shape]:
    """The source of a view, and the index at which it reads; for any other value itself and the identity."""
    node = nodes[name]
    return (node.inputs[0], node.kind.index) if isinstance(node.kind, View) else (name, indices(len(node.shape)))


def through_views(nodes: Mapping[str, Node], name: str) -> Node:
    """The node beneath all views of a value."""
    node = nodes[name]
    while isinstance(node.kind, View):
        node = nodes[node.inputs[0]]
    return node


def with_dims(node: Node, change: Callable[[Dim], Dim]) -> Node:
    """The node with every Dim changed: its extents, and those of its index map."""
    kind, shape = _with_dims(node.kind, change), tuple(map(change, node.shape))
    return node if kind is node.kind and shape == node.shape else replace(node, kind=kind, shape=shape)


def _with_dims(kind: Kind, change: Callable[[Dim], Dim]) -> Kind:
    def entry(old: Dim | Lookup) -> Dim | Lookup:
        return replace(old, at=tuple(map(change, old.at))) if isinstance(old, Lookup) else change(old)

    match kind:
        case Iota(index):
            return Iota(change(index))
        case View(entries):
            return View(tuple(map(change, entries)))
        case Select(axis, starts):
            return Select(axis, tuple(map(change, starts)))
        case Gather() | Scatter():
            return replace(kind, index=tuple(map(entry, kind.index)))
        case _:
            return kind


def nameless(graph: Graph) -> Graph:
    """The graph with numbers for names of values and sizes, and no sources: equal for graphs that differ in names
    alone."""
    values = {node.output: f"v{number}" for number, node in enumerate(graph.nodes)}
    sizes = {name: Dim.of(f"s{number}") for number, name in enumerate(sizes_in_order(graph))}

    def change(dim: Dim) -> Dim:
        return dim.replace(sizes)

    def bare(node: Node) -> Node:
        inputs, shape = tuple(values[name] for name in node.inputs), tuple(map(change, node.shape))
        return Node(values[node.output], _with_dims(node.kind, change), inputs, node.dtype, shape)

    demands = {replace(each, left=change(each.left), right=change(each.right)): None for each in graph.demands}
    return Graph(tuple(map(bare, graph.nodes)), tuple(values[name] for name in graph.outputs), tuple(demands))


def sizes_in_order(graph: Graph) -> tuple[str, ...]:
    """The names of sizes: those that are extents by themselves first, then those in formulas."""
    dims = [dim for node in graph.nodes for dim in dims_of(node)]
    dims += [dim for demand in graph.demands for dim in (demand.left, demand.right)]
    dims = [dim for dim in dims if dim.constant is None]
    alone = [str(dim) for dim in dims if len(dim.names) == 1 and str(dim) in dim.names]
    within = [name for dim in dims for name in sorted(dim.names)]
    return tuple(name for name in dict.fromkeys([*alone, *within]) if not name.startswith("#"))


def bind_graph(graph: Graph, others: Mapping[str, Any], sizes: Mapping[str, int]) -> Graph:
    """The graph with arrays for the inputs that have no rows, and with numbers for sizes, including the arrays'."""
    nodes = [node for node in graph.inputs if node.output in others]
    names = [node.output for node in nodes]
    numbers = {**bind([node.shape for node in nodes], [np.shape(others[name]) for name in names], names), **sizes}

    def change(node: Node) -> Node:
        is_known = node.output in others and isinstance(node.kind, Input)
        kind = Constant(np.asarray(others[node.output], node.dtype.numpy)) if is_known else node.kind
        return with_dims(replace(node, kind=kind), lambda dim: dim.replace(numbers))

    return replace(graph, nodes=tuple(map(change, graph.nodes)), demands=())
