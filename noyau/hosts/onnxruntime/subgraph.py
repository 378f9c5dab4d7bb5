"""Subgraph between the ends of a path: its operators, and whether they enclose a graph."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from noyau.compiler.partition.cut import Partition
from noyau.errors import InputError
from noyau.hosts.onnxruntime.path_ends import Between, Ends, ends_of
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.ir.graph import Constant, Input, Iota, Node
from noyau.text import printable

LEAKS_SHOWN = 4  # most leaking values in a message


@dataclass(frozen=True, slots=True)
class Path:
    """The operators between the sources and the results, by their positions in the model."""

    ends: Ends
    positions: frozenset[int]


def path_between(original: SourceModel, between: Between) -> Path:
    """The path between values of a model: the operators that its results need, cut at its sources.

    Tensors of the model, values computed from them alone, and integer arithmetic on shapes may enter anywhere: the
    former are the same for all inputs of the model, the latter follows from sizes. InputError where a value that
    depends on an input of the model enters beside the sources (with the value and the input), where no way leads from
    a source to the results, and for a name that is not a value of the model."""
    ends = ends_of(between, names_of(original))
    ways = _Ways(original, ends)
    for name in ends.results:
        if name in original.imported.initializers or name not in ways.reached:
            sources = ", ".join(map(printable, ends.sources))
            raise InputError(f"no path leads from {sources} to {printable(name)}")
    positions = ways.positions()
    ways.require_used(positions)
    ways.require_closed(positions)
    return Path(ends, positions)


def cut_of(original: SourceModel, between: Between | None, occupied: Collection[int] = ()) -> Partition:
    """The groups of a model, or of a path through it alone, without the operators at positions in `occupied`.

    InputError as in `path_between`."""
    if between is None and not occupied:
        return original.cut()
    everything = range(len(original.operators)) if between is None else path_between(original, between).positions
    return original.cut(set(everything).difference(occupied))


def names_of(original: SourceModel) -> frozenset[str]:
    """Every value of a model that a user can name."""
    graph = original.model.graph
    names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return frozenset(names.union(*(node.output for node in graph.node)) - {""})


@dataclass(slots=True)
class _Ways:
    """`needed`: the values that the results need, cut at the sources. Of all values, `reached` depend on a source,
    `counted` on sizes alone, `constants` on no input, and `alive` on inputs of the model, with the first of them."""

    original: SourceModel
    ends: Ends
    by_name: Mapping[str, Node] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    alive: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        imported, nodes = self.original.imported, self.original.model.graph.node
        entering = {nodes[position].output[0] for body in self.original.bodies for position in body.entries}
        self.by_name = imported.graph.by_name
        for node in imported.graph.nodes:
            if node.output in self.ends.sources or not self.reached.isdisjoint(node.inputs):
                self.reached.add(node.output)
            if node.output in entering or (isinstance(node.kind, Input) and node.output not in imported.initializers):
                self.alive[node.output] = node.output
            for name in node.inputs:
                if name in self.alive:
                    self.alive.setdefault(node.output, self.alive[name])
            if isinstance(node.kind, Iota) or (node.inputs and self.is_counted(node)):
                self.counted.add(node.output)
            elif isinstance(node.kind, Constant) or (node.inputs and self.constants.issuperset(node.inputs)):
                self.constants.add(node.output)
        waiting = list(self.ends.results)
        while waiting:
            name = waiting.pop()
            if name not in self.needed and name not in self.ends.sources and name in self.by_name:
                self.needed.add(name)
                waiting += self.by_name[name].inputs

    def is_counted(self, node: Node) -> bool:
        counted = [name for name in node.inputs if name not in self.constants]
        return bool(counted) and self.counted.issuperset(counted)

    def positions(self) -> frozenset[int]:
        """The operators on the ways from a source to a result, and those on sizes that these need."""
        places, arithmetic = self.original.imported.places, self.original.imported.arithmetic
        on_the_way = {places[name] for name in self.needed & self.reached if name in places}
        counting = {places[name] for name in self.needed & self.counted if name in places}
        others = {place for name, place in places.items() if name not in self.counted and name not in self.constants}
        return frozenset(on_the_way | (counting - others)) - arithmetic

    def entering(self, positions: Iterable[int]) -> Iterator[tuple[str, str]]:
        """The values that operators of the path read from outside, each with a value that is computed from it."""
        places, inside = self.original.imported.places, set(positions)
        for node in self.original.imported.graph.nodes:
            if node.output in self.needed and places.get(node.output) in inside:
                for name in node.inputs:
                    if name in self.ends.sources or places.get(name) not in inside:
                        yield name, node.output

    def require_used(self, positions: Iterable[int]) -> None:
        entering = {name for name, _ in self.entering(positions)}
        if name := next((each for each in self.ends.sources if each not in entering), ""):
            results = ", ".join(map(printable, self.ends.results))
            raise InputError(f"{printable(name)} leads to {results} through other ends alone, if at all: leave it out")

    def require_closed(self, positions: Iterable[int]) -> None:
        leaks: dict[str, str] = {}
        for name, reader in self.entering(positions):
            if name in self.alive and name not in self.ends.sources:
                leaks.setdefault(name, reader.partition("~")[0] or reader)
        if not leaks:
            return
        shown = list(leaks.items())[:LEAKS_SHOWN]
        messages = [f"{printable(end)} reads {printable(name)}, which {self._origin(name)}" for name, end in shown]
        more = f" (and {len(leaks) - LEAKS_SHOWN} more leak)" if len(leaks) > LEAKS_SHOWN else ""
        added = Ends((*self.ends.sources, *leaks), self.ends.results)
        fault = f"{printable(str(self.ends))} encloses no graph: {'; '.join(messages)}{more}"
        raise InputError(f"{fault}; with what leaks among its ends it is {printable(str(added))}")

    def _origin(self, name: str) -> str:
        root = self.alive[name]
        if any(root.startswith(body.prefix) for body in self.original.bodies):
            return "enters its body" if root == name else f"comes from {printable(root)} by another way"
        return "is an input of the model" if root == name else f"comes from the input {printable(root)} by another way"
