"""Def-use chains of a model: how its operators hang together, and the graph that a set of them computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from noyau.compiler.lowering.nest import unbound
from noyau.compiler.partition.traffic import Model, Positions, is_scalar, require_bound_sizes
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.normal_form import own_sizes
from noyau.errors import UnsupportedError
from noyau.ir.dims import same_shape
from noyau.ir.graph import Graph, Input, Iota, Node, View, dims_of
from noyau.ir.sizes import Demand


@dataclass(slots=True)
class DefUse:
    """Def-use chains of a model: its operators by the values that they make and read."""

    model: Model
    nodes_at: dict[int, list[Node]] = field(default_factory=dict)
    producer_of: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # indices of loops and known numbers: ranges, and views of both
    free: Positions = frozenset()  # shape arithmetic, and operators that make indices

    def __post_init__(self) -> None:
        for node in self.model.graph.nodes:
            if node.output in self.model.made_at:
                self.nodes_at.setdefault(self.model.made_at[node.output], []).append(node)
            if isinstance(node.kind, Iota) or (isinstance(node.kind, View) and self.is_index(node.inputs[0])):
                self.indices.add(node.output)
        for place in self.model.places:
            self.producer_of.update(dict.fromkeys(place.outputs, place.position))
            for name in place.inputs:
                self.readers.setdefault(name, []).append(place.position)
        nodes_at = self.nodes_at.items()
        self.free = self.model.arithmetic | {p for p, nodes in nodes_at if all(n.output in self.indices for n in nodes)}

    def is_index(self, name: str) -> bool:
        return name in self.indices or is_scalar(self.model.graph[name])

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
            graph = own_sizes(collected, self.demands_of(collected.inputs))  # their makers see to those
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
        return drop_unused(Graph(tuple(nodes.values()), self.ends(positions)[0], demands), inputs_too=True)

    def demands_of(self, nodes: Iterable[Node]) -> tuple[Demand, ...]:
        """Collect the demands of the operators that make some values."""
        places = dict.fromkeys(self.model.made_at.get(node.output, -1) for node in nodes)
        return tuple(demand for place in places for demand in self.model.demands.get(place, ()))

    def enter(self, name: str, nodes: dict[str, Node], read: frozenset[str]) -> None:
        """A value from outside: a known scalar or an index stays one, anything else is an input."""
        node = self.model.graph[name]
        if name in nodes:
            return
        if name in read or not (self.is_index(name) or self.is_arithmetic_view(node)):
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
        inside = {name for node in graph.nodes if node.output in results for name in node.inputs}
        return frozenset(unbound_names & inside)

    def ends(self, positions: Positions) -> tuple[tuple[str, ...], dict[str, str]]:
        """The values that others need, and a stand-in for each of which they read no more than the shape."""
        results = [name for p in sorted(positions) for name in self.model.places[p].outputs]
        leaving = [name for name in results if self.is_read(name, positions)]
        stand_ins, nodes = dict[str, str](), self.model.graph
        for name in results:
            if name not in leaving and self.is_measured(name, positions):
                one = nodes[name]
                alike = (other for other in leaving if nodes[other].dtype is one.dtype)
                other = next((each for each in alike if same_shape(nodes[each].shape, one.shape)), None)
                if other is None:
                    leaving.append(name)
                else:
                    stand_ins[name] = other
        if not leaving:
            raise UnsupportedError("nothing uses what it makes")
        return tuple(leaving), stand_ins

    def is_read(self, name: str, positions: Positions) -> bool:
        """Whether a value leaves a group for more than its shape."""
        known = positions | self.model.arithmetic
        return name in self.model.graph.outputs or not known.issuperset(self.readers.get(name, ()))

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
