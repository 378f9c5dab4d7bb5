"""Memory traffic of a graph at some sizes, before anything is compiled.

The bytes that a group must move are what it must read of each input, and its outputs; less than all of an input where a
view or a gather reads a part of it: the floor of a kernel's time follows from these bytes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from noyau.compiler.passes.normal_form import bound_sizes
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Gather, Graph, Lookup, Node, Scatter, View
from noyau.ir.sizes import Demand, cells_at

Sizes = Mapping[str, int]
Positions = frozenset[int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one call must move."""

    read_bytes: int
    written_bytes: int

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


def traffic(graph: Graph, sizes: Sizes, *, repeated: bool = False) -> Traffic:
    """The bytes that the computation of a graph must read and write. `sizes` has every size that its shapes name.
    `repeated`: all lookups in a table may hit the same cells; else all hit different ones."""
    needed = dict.fromkeys((node.output for node in graph.nodes), 0)
    needed |= {name: cells_at(sizes, graph[name].shape) for name in graph.outputs}
    for node in reversed(graph.nodes):
        for name, count in _operands(
            graph, node, min(needed[node.output], cells_at(sizes, node.shape)), sizes, repeated
        ):
            needed[name] += count
    read = sum(min(needed[node.output], cells_at(sizes, node.shape)) * node.dtype.bytes for node in graph.inputs)
    stores = sum(cells_at(sizes, graph[name].shape) * graph[name].dtype.bytes for name in dict.fromkeys(graph.outputs))
    return Traffic(read, stores)


def _operands(graph: Graph, node: Node, cells_needed: int, sizes: Sizes, repeated: bool) -> list[tuple[str, int]]:
    """Count the cells of each operand that `cells_needed` cells of a node need: all, or what a view or gather reads."""
    if not cells_needed:
        return []
    match node.kind:
        case View(index):
            return [(node.inputs[0], min(cells_needed, _count_cells_read(graph, node, index, sizes, repeated)))]
        case Gather(index):
            table = (node.inputs[0], min(cells_needed, _count_cells_read(graph, node, index, sizes, repeated)))
            lookups = [entry for entry in index if isinstance(entry, Lookup)]
            return [table, *((node.inputs[entry.input], _bound_indices(node, entry.at, sizes)) for entry in lookups)]
        case Scatter():
            return [(name, cells_at(sizes, graph[name].shape)) for name in node.inputs]
        case _:
            whole = max(cells_at(sizes, node.shape), 1)  # the same share of an operand as of the node, rounded up
            return [(name, -(-cells_at(sizes, graph[name].shape) * cells_needed // whole)) for name in node.inputs]


def _count_cells_read(graph: Graph, node: Node, index: tuple[Dim | Lookup, ...], sizes: Sizes, repeated: bool) -> int:
    """Count the cells of the first operand that an index map can reach."""
    count = 1
    for entry, extent in zip(index, graph[node.inputs[0]].shape, strict=True):
        if not isinstance(entry, Lookup) or not repeated:
            at = entry.at if isinstance(entry, Lookup) else (entry,)
            count *= min(_bound_indices(node, at, sizes), int(extent.evaluate(sizes)))
    return count


def _bound_indices(node: Node, at: tuple[Dim, ...], sizes: Sizes) -> int:
    """Bound the number of combined values of some indices by the trip counts of the loops that they name."""
    names = {name for dim in at for name in dim.names if name.startswith("#")}
    return math.prod(int(node.extents[name].evaluate(sizes)) for name in names)


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator of the user's model: its position, the values that it reads (also in subgraphs), its results."""

    position: int
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """Subject of a partition: the graph of a whole model, and its operators. Operators of two `scopes`, the bodies of
    control flow that contain them, do not run together."""

    graph: Graph
    places: Sequence[ModelOperator]
    made_at: Mapping[str, int]  # value of the graph -> position of the operator that produces it
    arithmetic: frozenset[int]
    opaque: Mapping[int, str]
    demands: Mapping[int, Sequence[Demand]] = field(default_factory=dict)  # of sizes, by the operators that have them
    scopes: Mapping[int, str] = field(default_factory=dict)


def is_scalar(node: Node) -> bool:
    return isinstance(node.kind, Constant) and node.kind.value.size == 1


def require_bound_sizes(graph: Graph) -> Graph:
    """The graph itself; UnsupportedError where a demand names a size that no input binds: no kernel could check it."""
    bound = bound_sizes(graph.inputs)
    if loose := [demand for demand in graph.demands if not demand.left.names | demand.right.names <= bound]:
        raise UnsupportedError(f"whether {loose[0]} does not follow from the shapes of the inputs")
    return graph
