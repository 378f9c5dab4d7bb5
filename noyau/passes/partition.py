"""Cut a graph into groups that become one kernel each, and keep in words why each cut is where it is.

Groups are found by index maps and dependence: two are joined when what they compute together lowers into one nest,
nothing dear is computed again, and no path leaves and comes back. Names of operators play no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from noyau.errors import UnsupportedError
from noyau.ir.dims import same_shape
from noyau.ir.graph import Constant, Graph, Input, Iota, Node, View
from noyau.ir.loops import Kernel
from noyau.lowering.nest import lower
from noyau.passes.costs import AGAIN, repeats
from noyau.passes.normal import normalise

BUFFERS = 16  # inputs and outputs of one kernel
LARGEST = 96  # operators of one group


@dataclass(frozen=True, slots=True)
class Place:
    """An operator of the user's model: its position, and the values that it reads (also in its subgraphs) and makes."""

    position: int
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that become one kernel: what they compute as it was spelt, and in normal form, which the kernel was
    lowered from; both have their outputs in the order of the kernel's.

    `stand_ins`: values of which others read the shape alone, and outputs of the group that have the same shape."""

    positions: tuple[int, ...]
    original: Graph
    graph: Graph
    kernel: Kernel
    stand_ins: Mapping[str, str]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(node.output for node in self.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.graph.outputs


@dataclass(frozen=True, slots=True)
class Cut:
    """Why two neighbours are not one kernel, or why an operator is in none (`consumer` None)."""

    producer: int
    consumer: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    groups: tuple[Group, ...]
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """What is partitioned: the graph of a whole model, and its operators."""

    graph: Graph
    places: Sequence[Place]
    made_at: Mapping[str, int]  # value of the graph -> position of the operator that makes it
    arithmetic: frozenset[int]
    opaque: Mapping[int, str]


def partition(model: Model) -> Partition:
    """The groups of a model, and the reasons of the cuts between them."""
    work = _Partitioning(model)
    work.start()
    work.join_along_edges()
    return Partition(tuple(work.groups()), tuple(work.cuts))


@dataclass(slots=True)
class _Partitioning:
    model: Model
    cuts: list[Cut] = field(default_factory=list)
    member: dict[int, int] = field(default_factory=dict)  # position -> name of its group
    sets: dict[int, frozenset[int]] = field(default_factory=dict)
    judged: dict[object, str | None] = field(default_factory=dict)
    nodes_at: dict[int, list[Node]] = field(default_factory=dict)
    maker: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)

    def start(self) -> None:
        """Each operator that lowers alone is a group of its own; for the others the reason is kept."""
        for node in self.model.graph.nodes:
            if node.output in self.model.made_at:
                self.nodes_at.setdefault(self.model.made_at[node.output], []).append(node)
        for place in self.model.places:
            self.maker.update(dict.fromkeys(place.outputs, place.position))
            for name in place.inputs:
                self.readers.setdefault(name, []).append(place.position)
        for place in self.model.places:
            if place.position in self.model.arithmetic or place.position in self.model.opaque:
                if place.position in self.model.opaque:
                    self.cuts.append(Cut(place.position, None, self.model.opaque[place.position]))
                continue
            if all(isinstance(node.kind, Constant | Input) for node in self.nodes_at.get(place.position, ())):
                continue
            reason = self.refusal(frozenset({place.position}), fresh=True)
            if reason is not None:
                self.cuts.append(Cut(place.position, None, reason))
            else:
                self.member[place.position] = place.position
                self.sets[place.position] = frozenset({place.position})

    def join_along_edges(self) -> None:
        """Join each operator's group with those of its producers, in order; what is refused may fit later, so once more."""
        for final in (False, True):
            for place in self.model.places:
                for name in place.inputs:
                    producer = self.maker.get(name)
                    if producer in self.member and place.position in self.member:
                        self.join(self.member[producer], self.member[place.position], producer, place.position, final)

    def join(self, one: int, other: int, producer: int, consumer: int, final: bool) -> None:
        if one == other:
            return
        together = self.sets[one] | self.sets[other]
        reason: str | None
        if len(together) > LARGEST:
            reason = f"a kernel of more than {LARGEST} operators"
        elif self.comes_back(together):
            reason = "a path leaves the group and comes back"
        else:
            reason = self.refusal(together, fresh=final)
        if reason is None:
            self.sets[one] = together
            del self.sets[other]
            self.member.update(dict.fromkeys(together, one))
        elif final:
            self.cuts.append(Cut(producer, consumer, reason))

    def comes_back(self, together: frozenset[int]) -> bool:
        """Whether a path leaves a set and enters it again through an operator that is not shape arithmetic alone."""
        last = max(together)
        waiting = [(p, False) for p in together]
        seen: set[tuple[int, bool]] = set(waiting)
        while waiting:
            position, outside = waiting.pop()
            for reader in self.read_by(position):
                if reader in together:
                    if outside:
                        return True
                    continue
                through = outside or reader not in self.model.arithmetic
                group = self.sets.get(self.member.get(reader, -1), frozenset({reader}))
                if min(group) > last:
                    continue
                for step in ((p, through) for p in group):
                    if step not in seen:
                        seen.add(step)
                        waiting.append(step)
        return False

    def read_by(self, position: int) -> Iterable[int]:
        for name in self.model.places[position].outputs:
            yield from self.readers.get(name, ())

    def refusal(self, positions: frozenset[int], *, fresh: bool) -> str | None:
        """Why operators cannot be one kernel, or None. Groups that are alike are judged once; `fresh` judges again, so
        that the words name this group's own values."""
        try:
            graph = self.extract(positions)
        except UnsupportedError as error:
            return str(error)
        key = alike(graph)
        try:
            if key not in self.judged or (fresh and self.judged[key]):
                self.judged[key] = None
                planned_kernel(normalise(graph))
        except UnsupportedError as error:
            self.judged[key] = str(error)
        return self.judged[key]

    def extract(self, positions: frozenset[int]) -> Graph:
        """The graph of a group: what its operators make, from inputs that others make."""
        made = {node.output for p in positions for node in self.nodes_at[p]}
        nodes: dict[str, Node] = {}
        for position in sorted(positions):
            for node in self.nodes_at[position]:
                for name in node.inputs:
                    if name not in made and name not in nodes:
                        self.enter(name, nodes)
                nodes[node.output] = node
        return Graph(tuple(nodes.values()), self.ends(positions)[0])

    def enter(self, name: str, nodes: dict[str, Node]) -> None:
        """A value from outside: a known scalar or an index stays one, anything else is an input."""
        node = self.model.graph[name]
        match node.kind:
            case Constant(value) if value.size == 1:
                nodes[name] = node
            case Iota() if not node.shape:
                nodes[name] = node
            case View() if self.model.made_at.get(name) in self.model.arithmetic:
                for operand in node.inputs:
                    if operand not in nodes:
                        self.enter(operand, nodes)
                nodes[name] = node
            case _:
                nodes[name] = replace(node, kind=Input(), inputs=())

    def ends(self, positions: frozenset[int]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The values that others need, and a stand-in for each of which they read no more than the shape."""
        made = [name for p in sorted(positions) for name in self.model.places[p].outputs]
        leaving = [name for name in made if self.is_read(name, positions)]
        stand_ins: dict[str, str] = {}
        for name in made:
            if name not in leaving and self.is_measured(name, positions):
                shape = self.model.graph[name].shape
                other = next((o for o in leaving if same_shape(self.model.graph[o].shape, shape)), None)
                if other is None:
                    leaving.append(name)
                else:
                    stand_ins[name] = other
        if not leaving:
            raise UnsupportedError("nothing that it makes is used")
        return tuple(leaving), stand_ins

    def is_read(self, name: str, positions: frozenset[int]) -> bool:
        """Whether a value leaves a group for more than its shape."""
        readers = self.readers.get(name, ())
        return name in self.model.graph.outputs or any(
            reader not in positions and reader not in self.model.arithmetic for reader in readers
        )

    def is_measured(self, name: str, positions: frozenset[int]) -> bool:
        """Whether someone outside needs the shape of a value; shape arithmetic that the group alone reads goes with it."""
        waiting, seen = [r for r in self.readers.get(name, ()) if r in self.model.arithmetic], set[int]()
        while waiting:
            reader = waiting.pop()
            if reader in seen:
                continue
            seen.add(reader)
            if any(output in self.model.graph.outputs for output in self.model.places[reader].outputs):
                return True
            for next_ in self.read_by(reader):
                if next_ in self.model.arithmetic:
                    waiting.append(next_)
                elif next_ not in positions:
                    return True
        return False

    def groups(self) -> Iterable[Group]:
        for positions in sorted(self.sets.values(), key=min):
            extracted = self.extract(positions)
            graph = normalise(extracted)
            if not worth(positions, graph):
                self.cuts.append(Cut(min(positions), None, "a single operator: there is nothing to fuse"))
                continue
            original = replace(extracted, outputs=graph.outputs)
            kernel, stand_ins = lower(graph, "kernel"), self.ends(positions)[1]
            yield Group(tuple(sorted(positions)), original, graph, kernel, stand_ins)


def worth(positions: frozenset[int], graph: Graph) -> bool:
    """Whether a group computes in one kernel what took several: several operators, or one with several steps."""
    steps = [node for node in graph.nodes if not isinstance(node.kind, Input | Constant | Iota | View)]
    return len(positions) > 1 or len(steps) > 1


def planned_kernel(graph: Graph) -> Kernel:
    """The kernel of a normal graph; UnsupportedError says what speaks against it."""
    count = len(graph.inputs) + len(graph.outputs)
    if count > BUFFERS:
        raise UnsupportedError(f"the kernel would have {count} inputs and outputs, more than {BUFFERS}")
    kernel = lower(graph, "kernel")
    again = repeats(graph, kernel)
    dear = [repeat for repeat in again if repeat.reduction]
    if dear or sum(repeat.flops for repeat in again) > AGAIN:
        raise UnsupportedError(str((dear or again)[0]))
    return kernel


def alike(graph: Graph) -> object:
    """A key that two graphs share when they differ in the names of values only."""
    numbers = {node.output: k for k, node in enumerate(graph.nodes)}
    rows = tuple(
        (node.kind, tuple(numbers[name] for name in node.inputs), node.dtype, node.shape) for node in graph.nodes
    )
    return rows, tuple(numbers[name] for name in graph.outputs)
