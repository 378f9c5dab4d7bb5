"""The operators of a model, how they hang together, and what a set of them computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from noyau.compiler.lowering.nest import unbound
from noyau.compiler.passes.normal_form import bound_sizes, own_sizes
from noyau.errors import UnsupportedError
from noyau.ir.dims import same_shape
from noyau.ir.graph import Constant, Graph, Input, Iota, Node, View, dims_of
from noyau.ir.sizes import Demand

Positions = frozenset[int]


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator of the user's model: its position, and the values that it reads (also in its subgraphs) and makes."""

    position: int
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """Subject of a partition: the graph of a whole model, and its operators."""

    graph: Graph
    places: Sequence[ModelOperator]
    made_at: Mapping[str, int]  # value of the graph -> position of the operator that makes it
    arithmetic: frozenset[int]
    opaque: Mapping[int, str]
    demands: Mapping[int, Sequence[Demand]] = field(default_factory=dict)  # of sizes, by the operators that have them


@dataclass(slots=True)
class DefUse:
    """Def-use chains of a model: its operators by the values that they make and read."""

    model: Model
    nodes_at: dict[int, list[Node]] = field(default_factory=dict)
    producer_of: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # what is but an index of a loop: ranges, and views of them
    free: Positions = frozenset()  # shape arithmetic, and operators that make indices

    def __post_init__(self) -> None:
        for node in self.model.graph.nodes:
            if node.output in self.model.made_at:
                self.nodes_at.setdefault(self.model.made_at[node.output], []).append(node)
        for place in self.model.places:
            self.producer_of.update(dict.fromkeys(place.outputs, place.position))
            for name in place.inputs:
                self.readers.setdefault(name, []).append(place.position)
        for node in self.model.graph.nodes:
            if isinstance(node.kind, Iota) or (isinstance(node.kind, View) and node.inputs[0] in self.indices):
                self.indices.add(node.output)
        self.free = self.model.arithmetic | {
            position for position, nodes in self.nodes_at.items() if all(node.output in self.indices for node in nodes)
        }

    def consumers(self, position: int) -> Iterator[int]:
        for name in self.model.places[position].outputs:
            yield from self.readers.get(name, ())

    def producers(self, position: int) -> list[int]:
        """List the operators that make the operands of one, in their order."""
        positions = [self.producer_of.get(name) for name in self.model.places[position].inputs]
        return list(dict.fromkeys(position for position in positions if position is not None))

    def extract(self, positions: Positions) -> Graph:
        """The graph of a group: what its operators make, from inputs that others make, in sizes of its own.

        Indices are computed anew where their sizes follow from the inputs; else they are read."""
        read: frozenset[str] = frozenset()
        while True:
            collected = self.collect(positions, read)
            graph = own_sizes(collected, self.facts(collected))
            loose = self.loose(graph, positions)
            if not loose:
                return require_bound_sizes(graph)
            read |= loose

    def collect(self, positions: Positions, read: frozenset[str]) -> Graph:
        results = {node.output for p in positions for node in self.nodes_at[p]}
        nodes: dict[str, Node] = {}
        for position in sorted(positions):
            for node in self.nodes_at[position]:
                for name in node.inputs:
                    if name not in results:
                        self.enter(name, nodes, read)
                nodes[node.output] = node
        demands = self.demands_of(node for node in nodes.values() if not isinstance(node.kind, Input))
        return drop_unneeded(Graph(tuple(nodes.values()), self.ends(positions)[0], demands))

    def facts(self, graph: Graph) -> tuple[Demand, ...]:
        """Collect the demands that the makers of a group's inputs see to."""
        return self.demands_of(graph.inputs)

    def demands_of(self, nodes: Iterable[Node]) -> tuple[Demand, ...]:
        """Collect the demands of the operators that make some values."""
        places = dict.fromkeys(self.model.made_at.get(node.output, -1) for node in nodes)
        return tuple(demand for place in places for demand in self.model.demands.get(place, ()))

    def enter(self, name: str, nodes: dict[str, Node], read: frozenset[str]) -> None:
        """A value from outside: a known scalar or an index stays one, anything else is an input."""
        node = self.model.graph[name]
        if name in nodes:
            return
        if name in read or not (name in self.indices or is_scalar(node) or self.is_arithmetic_view(node)):
            node = replace(node, kind=Input(), inputs=())
        for operand in node.inputs:
            self.enter(operand, nodes, read)
        nodes[name] = node

    def is_arithmetic_view(self, node: Node) -> bool:
        return isinstance(node.kind, View) and self.model.made_at.get(node.output) in self.model.arithmetic

    def loose(self, graph: Graph, positions: Positions) -> frozenset[str]:
        """The indices from outside that a group uses, and of which its inputs do not tell the sizes."""
        results = {node.output for p in positions for node in self.nodes_at[p]}
        outside = [node for node in graph.nodes if node.output in self.indices and not isinstance(node.kind, Input)]
        if all(node.output in results for node in outside):
            return frozenset()
        unknown, unbound_names = unbound(graph), set[str]()
        for node in outside:
            names = {name for dim in dims_of(node) for name in dim.names}
            if node.output not in results and (names & unknown.keys() or unbound_names.intersection(node.inputs)):
                unbound_names.add(node.output)
        return frozenset(
            unbound_names.intersection(name for node in graph.nodes if node.output in results for name in node.inputs)
        )

    def ends(self, positions: Positions) -> tuple[tuple[str, ...], dict[str, str]]:
        """The values that others need, and a stand-in for each of which they read no more than the shape."""
        results = [name for p in sorted(positions) for name in self.model.places[p].outputs]
        leaving = [name for name in results if self.is_read(name, positions)]
        stand_ins: dict[str, str] = {}
        for name in results:
            if name not in leaving and self.is_measured(name, positions):
                other = next((other for other in leaving if self.alike(name, other)), None)
                if other is None:
                    leaving.append(name)
                else:
                    stand_ins[name] = other
        if not leaving:
            raise UnsupportedError("nothing uses what it makes")
        return tuple(leaving), stand_ins

    def alike(self, name: str, other: str) -> bool:
        one, two = self.model.graph[name], self.model.graph[other]
        return one.dtype is two.dtype and same_shape(one.shape, two.shape)

    def is_read(self, name: str, positions: Positions) -> bool:
        """Whether a value leaves a group for more than its shape."""
        readers = self.readers.get(name, ())
        return name in self.model.graph.outputs or any(
            reader not in positions and reader not in self.model.arithmetic for reader in readers
        )

    def is_measured(self, name: str, positions: Positions) -> bool:
        """Whether someone outside needs the shape of a value; shape arithmetic for the group alone goes with it."""
        waiting, visited = [r for r in self.readers.get(name, ()) if r in self.model.arithmetic], set[int]()
        while waiting:
            reader = waiting.pop()
            if reader in visited:
                continue
            visited.add(reader)
            if any(output in self.model.graph.outputs for output in self.model.places[reader].outputs):
                return True
            for next_ in self.consumers(reader):
                if next_ in self.free:
                    waiting.append(next_)
                elif next_ not in positions:
                    return True
        return False


def is_scalar(node: Node) -> bool:
    return isinstance(node.kind, Constant) and node.kind.value.size == 1


def drop_unneeded(graph: Graph) -> Graph:
    """The graph without the values, inputs among them, that no output needs: dead code tells no kernel its sizes."""
    names, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.output in names:
            names.update(node.inputs)
            nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))


def require_bound_sizes(graph: Graph) -> Graph:
    """The graph itself; UnsupportedError where one of its operators demands something of a size that no input tells:
    the operator would look, and the kernel could not."""
    bound = bound_sizes(graph)
    for demand in graph.demands:
        if not demand.left.names | demand.right.names <= bound:
            raise UnsupportedError(f"whether {demand} does not follow from the shapes of the inputs")
    return graph
