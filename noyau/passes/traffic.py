"""How many bytes a group must move at some sizes: what it reads of each input, at least, and what it writes.

Less than all of an input where a view or a gather looks at a part of it: the floor of a kernel is of these bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Lookup, Node, Scatter, View

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one call must move."""

    read_bytes: int
    written_bytes: int

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


def traffic(graph: Graph, sizes: Sizes, *, repeated: bool = False) -> Traffic:
    """The bytes that what a graph computes must read and write. `sizes` has every size that its shapes name.

    `repeated`: whatever is looked up in a table may be the same again and again; else it is all different."""
    needed = dict.fromkeys((node.output for node in graph.nodes), 0)
    needed |= {name: _cells(graph[name], sizes) for name in graph.outputs}
    for node in reversed(graph.nodes):
        for name, count in _operands(graph, node, min(needed[node.output], _cells(node, sizes)), sizes, repeated):
            needed[name] += count
    read = sum(min(needed[node.output], _cells(node, sizes)) * node.dtype.bytes for node in graph.inputs)
    written = sum(_cells(graph[name], sizes) * graph[name].dtype.bytes for name in dict.fromkeys(graph.outputs))
    return Traffic(read, written)


def _operands(graph: Graph, node: Node, wanted: int, sizes: Sizes, repeated: bool) -> list[tuple[str, int]]:
    """How many cells of each operand are needed where so many of a node's are: all, but for what is looked at."""
    if not wanted:
        return []
    match node.kind:
        case View(index):
            return [(node.inputs[0], min(wanted, _looked_at(graph, node, index, sizes, repeated)))]
        case Gather(index):
            table = (node.inputs[0], min(wanted, _looked_at(graph, node, index, sizes, repeated)))
            lookups = [entry for entry in index if isinstance(entry, Lookup)]
            return [table, *((node.inputs[entry.input], _reached(node, entry.at, sizes)) for entry in lookups)]
        case Scatter():
            return [(name, _cells(graph[name], sizes)) for name in node.inputs]
        case _:
            return [(name, _share(graph, node, name, wanted, sizes)) for name in node.inputs]


def _share(graph: Graph, node: Node, operand: str, wanted: int, sizes: Sizes) -> int:
    """As large a share of an operand as of the node itself, rounded up."""
    return -(-_cells(graph[operand], sizes) * wanted // max(_cells(node, sizes), 1))


def _looked_at(graph: Graph, node: Node, index: tuple[Dim | Lookup, ...], sizes: Sizes, repeated: bool) -> int:
    """How many cells of its first operand an index map can reach."""
    count = 1
    for entry, extent in zip(index, graph[node.inputs[0]].shape, strict=True):
        if not isinstance(entry, Lookup):
            count *= min(_reached(node, (entry,), sizes), int(extent.evaluate(sizes)))
        elif not repeated:
            count *= min(_reached(node, entry.at, sizes), int(extent.evaluate(sizes)))
    return count


def _reached(node: Node, at: tuple[Dim, ...], sizes: Sizes) -> int:
    """How many values some indices take together: at most as many as the loops that they name go round."""
    names = {name for dim in at for name in dim.names if name.startswith("#")}
    return math.prod(int(node.extents[name].evaluate(sizes)) for name in names)


def _cells(node: Node, sizes: Sizes) -> int:
    return math.prod(int(dim.evaluate(sizes)) for dim in node.shape)
