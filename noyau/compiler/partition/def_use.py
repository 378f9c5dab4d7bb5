"""Def-use chains of a model, the graph that a set of its operators computes, and the set's structural key."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
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
    """Def-use chains of a model: its operators by the values that they produce and consume."""

    model: Model
    nodes_at: dict[int, list[Node]] = field(default_factory=dict)
    producer_of: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)  # indices of loops, that is ranges, and views of them or of scalars
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
        """List the operators that produce the operands of another, in the operands' order."""
        positions = [self.producer_of.get(name) for name in self.model.places[position].inputs]
        return list(dict.fromkeys(position for position in positions if position is not None))

    def extract(self, positions: Positions) -> Graph:
        """The graph of a group: the values of its operators, from inputs that others produce, with sizes of its own.

        Indices are computed anew where the inputs bind their sizes; else they are read."""
        read: frozenset[str] = frozenset()
        while True:
            collected = self.collect(positions, read)
            graph = own_sizes(collected, self.demands_of(collected.inputs))  # their producers check these
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
        """Add a value from outside: a known scalar or an index keeps its node, any other value is an input."""
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
        """The indices from outside that a group uses and whose sizes its inputs do not bind."""
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
        """The values that others read, and a stand-in for each of which others read the shape alone."""
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
        """Whether an operator outside needs a value's shape; shape arithmetic for the group alone belongs to it."""
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


# Isomorphic sets of operators, such as the layers of a model, have one key, which is found without a graph: it
# holds the computation of each operator, the reads within the set, and the values that cross its border. Sets of
# equal keys have graphs that differ only in the names of values, with the same sizes: a result for one holds for
# the other.
@dataclass(frozen=True, slots=True)
class StructuralKey:
    """Key of a set of operators: its structure without names, and its values by number, its own values first."""

    key: Hashable
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Operator:
    """Part of a key for an operator: the number of its computation, its results, and the operands from others."""

    kind: int
    values: tuple[str, ...]
    read: tuple[str, ...]


@dataclass(slots=True)
class StructuralKeys:
    """Structural keys of sets of operators of a model."""

    def_use: DefUse
    kinds: dict[Hashable, int] = field(default_factory=dict)
    operators: dict[int, _Operator] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)

    def key_of(self, positions: Positions) -> StructuralKey | None:
        """The key of a set; None where its structure depends on indices or sizes that others produce. UnsupportedError
        where nothing uses its results."""
        operators = [self.operator(position) for position in sorted(positions)]
        numbers = {name: at for at, name in enumerate(name for operator in operators for name in operator.values)}
        own, members, words = len(numbers), list[int](), list[Hashable]()
        for operator in operators:
            for name in operator.read:
                if name not in numbers:
                    numbers[name] = len(numbers)
                    members.append(self.from_outside(name))
            words.append((operator.kind, *[numbers[name] for name in operator.read]))
        leaving, stand_ins = self.def_use.ends(positions)
        if min(members, default=0) < 0 or any(numbers.get(name, own) >= own for name in (*leaving, *stand_ins)):
            return None
        ends = [numbers[name] for name in leaving], [(numbers[a], numbers[b]) for a, b in stand_ins.items()]
        return StructuralKey((tuple(words), tuple(members), tuple(ends[0]), tuple(ends[1])), tuple(numbers))

    def operator(self, position: int) -> _Operator:
        """The description of an operator, memoised."""
        if position not in self.operators:
            nodes = self.def_use.nodes_at.get(position, [])
            own = {node.output: number for number, node in enumerate(nodes)}
            read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in own)
            numbers = own | {name: -1 - number for number, name in enumerate(read)}
            what = tuple(_what(node, tuple(numbers[name] for name in node.inputs)) for node in nodes)
            demands = tuple(self.def_use.model.demands.get(position, ()))
            self.operators[position] = _Operator(self.number((what, demands)), tuple(own), tuple(read))
        return self.operators[position]

    def from_outside(self, name: str) -> int:
        """Number the role of an outside value for its readers; -1 for an index, shape arithmetic or a view of it."""
        if name not in self.outside:
            def_use, node = self.def_use, self.def_use.model.graph[name]
            maker, place = def_use.producer_of.get(name, -1), def_use.model.made_at.get(name, -1)
            if name in def_use.indices or def_use.is_arithmetic_view(node) or maker in def_use.free:
                self.outside[name] = -1
            elif is_scalar(node):
                self.outside[name] = self.number(_what(node, ()))
            else:
                demands = tuple(def_use.model.demands.get(place, ()))
                self.outside[name] = self.number((node.dtype, node.shape, "~" in name, demands))
        return self.outside[name]

    def number(self, what: Hashable) -> int:
        """The number of a description; equal descriptions have the same number."""
        return self.kinds.setdefault(what, len(self.kinds))


def _what(node: Node, inputs: tuple[int, ...]) -> Hashable:
    """A node without names; passes ask whether a name has a tilde, which marks noyau's own values."""
    return node.kind, node.dtype, node.shape, inputs, "~" in node.output


def with_names(graph: Graph, names: Mapping[str, str], like: Graph) -> Graph | None:
    """A graph renamed, including values that passes derived, with the sources of `like`; None for an unknown name."""
    names_of, nodes = dict[str, str](), list[Node]()
    for node in graph.nodes:
        stem, tilde, rest = node.output.partition("~")
        new = names.get(node.output) or (f"{names[stem]}~{rest}" if tilde and stem in names else "")
        if not new:
            return None
        names_of[node.output] = new
        nodes.append(replace(node.rename(names_of), sources=like[new].sources if new in like.by_name else ()))
    return replace(graph, nodes=tuple(nodes), outputs=tuple(names_of[name] for name in graph.outputs))
