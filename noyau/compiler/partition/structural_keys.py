"""Structural keys of sets of operators of a model.

Sets that are isomorphic, as the layers of a model are, have one key, which takes no graph to find: it holds the
computation of each operator, the reads within the set, and the values that cross its border. Sets of equal keys have
graphs that differ in the names of values alone, sizes named alike: a result for one holds for the other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from noyau.compiler.partition.def_use import DefUse
from noyau.compiler.partition.traffic import Positions, is_scalar
from noyau.ir.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class StructuralKey:
    """Key of a set of operators: its structure without names, and its values by number, its own ones first."""

    key: Hashable
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Operator:
    """Operator as a key: the number of its computation, the values it makes, and those it reads from others."""

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
        """Give the key of a set; None where its structure depends on indices or sizes that others make.

        UnsupportedError where nothing uses its results."""
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
        """An operator, described once."""
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
        """Number the role of an outside value for its readers; -1 where it stands for more than one value."""
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
        """The number of a description; equal ones have the same."""
        return self.kinds.setdefault(what, len(self.kinds))


def _what(node: Node, inputs: tuple[int, ...]) -> Hashable:
    """A node without names; passes ask whether a name is one of noyau's own, which have a tilde."""
    return node.kind, node.dtype, node.shape, inputs, "~" in node.output


def with_names(graph: Graph, names: Mapping[str, str], like: Graph) -> Graph | None:
    """A graph with other names, also for what passes derived, and the sources of `like`; None for a name not known."""
    names_of, nodes = dict[str, str](), list[Node]()
    for node in graph.nodes:
        stem, tilde, rest = node.output.partition("~")
        new = names.get(node.output) or (f"{names[stem]}~{rest}" if tilde and stem in names else "")
        if not new:
            return None
        names_of[node.output] = new
        nodes.append(replace(node.rename(names_of), sources=like[new].sources if new in like.by_name else ()))
    return replace(graph, nodes=tuple(nodes), outputs=tuple(names_of[name] for name in graph.outputs))
