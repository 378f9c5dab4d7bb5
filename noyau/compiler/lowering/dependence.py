"""Dependence of values on the axes of their index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from noyau.ir.dims import Dim
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Input,
    Iota,
    Lookup,
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

Axes = frozenset[int]


def dependence(graph: Graph) -> dict[str, Axes]:
    """For each value the axes whose index changes what its cells hold; those that may, where it cannot be told."""
    axes_of: dict[str, Axes] = {}
    for node in graph.nodes:
        axes_of[node.output] = _of(graph, node, axes_of)
    return axes_of


def _of(graph: Graph, node: Node, axes_of: Mapping[str, Axes]) -> Axes:
    match node.kind:
        case Constant(value) if value.size == 1:
            return frozenset()
        case Iota(dim):
            return _axes([dim])
        case Map():
            return frozenset[int]().union(*(axes_of[name] for name in node.inputs))
        case View(index):
            return _axes(index[axis] for axis in axes_of[node.inputs[0]])
        case Gather(index):
            looked_up = [entry for entry in index if isinstance(entry, Lookup)]
            whole = [index[axis] for axis in axes_of[node.inputs[0]]]
            dims = [entry for entry in whole if isinstance(entry, Dim)]
            return _axes([*dims, *(dim for entry in looked_up for dim in entry.at)])
        case Select(axis, _) | Scan(axis=axis):
            return frozenset([axis]).union(*(axes_of[name] for name in node.inputs))
        case Reduce(_, axes):
            others = [axis for axis in range(len(graph[node.inputs[0]].shape)) if axis not in axes]
            return frozenset(at for at, axis in enumerate(others) if axis in axes_of[node.inputs[0]])
        case Input() | Constant() | Scatter() | Contract() | Opaque() | Part():
            return frozenset(range(len(node.shape)))
        case _:
            assert_never(node.kind)


def _axes(dims: Iterable[Dim]) -> Axes:
    return frozenset(int(name[1:]) for dim in dims for name in dim.names if name.startswith("#"))
