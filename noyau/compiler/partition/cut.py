"""Cut a graph into groups that become one kernel each, and keep in words why each cut is where it is.

Groups are found by index maps and dependence: two are joined when their union lowers into one nest, no costly value is
computed again, and no path leaves the union and comes back. Names of operators play no part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from noyau.compiler.lowering.loop_cuts import divisions
from noyau.compiler.lowering.nest import lower, unbound
from noyau.compiler.partition.def_use import DefUse, StructuralKey, StructuralKeys, with_names
from noyau.compiler.partition.recomputation import check_recompute
from noyau.compiler.partition.traffic import Model, ModelOperator, Positions
from noyau.compiler.passes.cleanup import judge_copies
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.primitives import flatten
from noyau.errors import UnsupportedError
from noyau.ir.dims import Shape
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Map, Node, Opaque, Part, Reduce, Scan, Scatter, View
from noyau.ir.loops import Kernel, Loop
from noyau.ir.walk import every_statement, folds_in

__all__ = ["Cut", "Group", "Model", "ModelOperator", "Partition", "group_of", "partition"]

BUFFERS = 16  # inputs and outputs of one kernel
LARGEST = 96  # operators of one group
PASSES = 8  # reductions in a chain of dependence: each is one more pass, which recomputes much of the others
DEEPEST = 160  # steps in a chain of dependence
MOST_PRODUCERS = LARGEST + BUFFERS  # of the operands of one operator: those in the group, and those outside
Speller: TypeAlias = Callable[[Kernel], object]


@dataclass(frozen=True)
class Group:
    """Operators that become one kernel: their graph as it was written, and in normal form, from which the kernel is
    lowered; the outputs of both are in the kernel's order.

    `stand_ins`: values of which others read the shape alone, each with an output of the group of that shape; `by_hand`:
    a kernel that a user wrote for it."""

    positions: tuple[int, ...]
    original: Graph
    graph: Graph
    stand_ins: Mapping[str, str]
    by_hand: Kernel | None = None

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel, lowered at first use: most groups equal another. UnsupportedError if there is none."""
        return self.by_hand or lower(self.graph, "kernel")

    def at(self, positions: Iterable[int], names: Mapping[str, str], like: Graph) -> Group | None:
        """The same group at other positions, its values renamed; None where a value has no new name."""
        original, graph = with_names(self.original, names, like), with_names(self.graph, names, like)
        if original is None or graph is None:
            return None
        stand_ins = {names[name]: names[other] for name, other in self.stand_ins.items()}
        return Group(tuple(sorted(positions)), original, graph, stand_ins)

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


def partition(
    model: Model, *, alone_too: bool = False, speller: Speller | None = None, reasons: bool = True
) -> Partition:
    """The groups of a model, and the reasons of the cuts between them. `alone_too`: an operator that can be a kernel is
    a group, even with nothing to fuse it with; `speller`: raises UnsupportedError for a kernel that the target language
    has no schedule or spelling for; `reasons`: whether the reasons of cuts are wanted."""
    work = _Partitioning(model, DefUse(model), alone_too, speller, reasons)
    work.start()
    if alone_too:
        work.join_whole()
    while work.join_all():
        pass
    return Partition(tuple(work.groups()), tuple(work.reasons()) if reasons else ())


def group_of(model: Model, positions: Iterable[int], def_use: DefUse) -> Group:
    """The group of some operators of a model. UnsupportedError where they cannot be one kernel."""
    return with_kernel(_Partitioning(model, def_use, False).group(frozenset(positions)))


@dataclass(slots=True)
class _Partitioning:
    """`member`: the name of each operator's group; `sets`: the operators of each group. `alone`: why an operator cannot
    be a kernel by itself; it may still join others, which bind its sizes or produce its operands. `lonely`: operators
    that could be kernels and are not worth it. `lowered`: groups with the kernel that a trial lowered; `own_reasons`:
    reasons that name the operators' own values. `reason_by_key`, `group_by_key`: results by structural key."""

    model: Model
    def_use: DefUse
    alone_too: bool
    speller: Speller | None = None
    gives_reasons: bool = True
    member: dict[int, int] = field(default_factory=dict)
    sets: dict[int, Positions] = field(default_factory=dict)
    alone: dict[int, str] = field(default_factory=dict)
    lonely: dict[int, str] = field(default_factory=dict)
    judged: dict[Graph, str | None] = field(default_factory=dict)
    refused: dict[Positions, str] = field(default_factory=dict)
    lowered: dict[Positions, Group] = field(default_factory=dict)
    own_reasons: dict[Positions, str] = field(default_factory=dict)
    reason_by_key: dict[Hashable, str | None] = field(default_factory=dict)
    group_by_key: dict[Hashable, tuple[StructuralKey, Group]] = field(default_factory=dict)
    structural_keys: StructuralKeys = field(init=False)

    def __post_init__(self) -> None:
        self.structural_keys = StructuralKeys(self.def_use)

    def start(self) -> None:
        """Start with one group for each operator that has a meaning."""
        for place in self.model.places:
            position = place.position
            if position in self.model.arithmetic or position in self.model.opaque:
                continue
            nodes, indices = self.def_use.nodes_at.get(position, ()), self.def_use.indices
            kinds = [node.kind for node in nodes if node.output not in indices]
            if all(isinstance(kind, Constant | Input) for kind in kinds):
                continue
            reason = self.refusal(frozenset({position}), fresh=self.gives_reasons)
            if reason is not None:
                self.alone[position] = reason
            joins = not any(isinstance(kind, Scan | Scatter | Contract | Opaque | Part) for kind in kinds)
            if reason is None or (joins and len(self.def_use.producers(position)) <= MOST_PRODUCERS):
                self.member[position] = position
                self.sets[position] = frozenset({position})

    def join_all(self) -> bool:
        """Join each operator's group with those of its producers, in order: all at once, else one by one. Return
        whether any were joined, for then a union that was refused may fit."""
        before = len(self.sets)
        for place in self.model.places:
            if place.position in self.member:
                makers = [producer for producer in self.def_use.producers(place.position) if producer in self.member]
                self.join({place.position, *makers})
                for producer in makers:  # no trial where all are one group by now
                    self.join({place.position, producer})
        if self.alone_too and len(self.sets) == before:
            self.join_siblings()
        return len(self.sets) < before

    def join_whole(self) -> None:
        """Join all connected groups where they are one kernel, as in most ops, LARGEST operators at a time: joining
        them one by one would lower every set on the way."""
        linked = {position: {position} for position in self.member}
        for position in self.member:
            for producer in self.def_use.producers(position):
                if producer in linked and linked[producer] is not linked[position]:
                    linked[position] |= linked[producer]
                    linked.update(dict.fromkeys(linked[position], linked[position]))
        for together in {id(each): sorted(each) for each in linked.values()}.values():
            for start in range(0, len(together), LARGEST):
                self.join(together[start : start + LARGEST])

    def join_siblings(self) -> None:
        """Join groups that reduce columns of the same arrays: one kernel reads them once, two read them twice."""
        siblings: dict[tuple[object, str], int] = {}
        for positions in sorted(self.sets.values(), key=min):
            graph = self.def_use.extract(positions)
            over = columns_of(graph)
            if over is None:
                continue
            for node in graph.inputs:
                if node.shape == over[1]:
                    self.join({siblings.setdefault((over, node.output), min(positions)), min(positions)})

    def join(self, some: Iterable[int]) -> None:
        """Join the groups of some operators into one, if that is possible."""
        names = {self.member[position] for position in some}
        together = frozenset[int]().union(*(self.sets[name] for name in names))
        if len(names) < 2 or together in self.refused:
            return
        if (reason := self.fusion_obstacle(together)) is not None:
            self.refused[together] = reason
            return
        for name in names:
            self.lowered.pop(self.sets.pop(name), None)
        self.sets[min(together)] = together
        self.member.update(dict.fromkeys(together, min(together)))

    def fusion_obstacle(self, together: Positions, *, fresh: bool = False) -> str | None:
        """Why operators cannot be one kernel within the model, or None."""
        if len(together) > LARGEST:
            return f"together they are more than {LARGEST} operators"
        if len({self.model.scopes.get(position, "") for position in together}) > 1:
            return "one of them is in a body of control flow, and the other is not in it"
        between = self.breaks_convexity(together)
        if between is None:
            return self.refusal(together, fresh=fresh)
        return f"{self.model.places[between].operator} stands between them: it needs the first, the second needs it"

    def breaks_convexity(self, together: Positions, read: Positions = frozenset()) -> int | None:
        """An operator on a path that leaves a set and enters it again, or None. Shape arithmetic and indices are on no
        path, since they are copied into groups, except those that the set is known to read."""
        free = self.def_use.free - read
        # A value of many readers makes the forward walk long, a chain of sums the backward one; zip ends with the
        # shorter of the two, which decides.
        pairs = zip(self.walk(together, free, True), self.walk(together, free, False), strict=False)
        return next((between for pair in pairs for between in pair if between is not None), None)

    def walk(self, together: Positions, free: Positions, along: bool) -> Iterator[int | None]:
        """Walk all paths that leave a set (`along`), or all that enter it: for each step None, or an operator that is
        not `free` on a path from the set to itself."""
        first, last = min(together), max(together)
        waiting: list[tuple[int, int | None]] = [(position, None) for position in sorted(together)]
        visited = {(position, False) for position in together}
        while waiting:
            position, through = waiting.pop()
            for other in self.def_use.consumers(position) if along else self.def_use.producers(position):
                reader = other if along else position
                outer = through if reader in free or reader in together else reader
                yield outer if other in together else None
                group = self.sets.get(self.member.get(other, -1), frozenset({other}))
                if other in together or (min(group) > last if along else max(group) < first):
                    continue
                for step in group:
                    if (step, outer is not None) not in visited:
                        visited.add((step, outer is not None))
                        waiting.append((step, outer))

    def refusal(self, positions: Positions, *, fresh: bool = False) -> str | None:
        """Why operators cannot be one kernel by themselves, or None. Isomorphic groups are judged once; `fresh` judges
        again, so that the reason names this group's own values."""
        try:
            key = self.structural_keys.key_of(positions)
            if key is not None and key.key in self.reason_by_key and not (fresh and self.reason_by_key[key.key]):
                return self.reason_by_key[key.key]
            reason = self.judgement(positions, self.def_use.extract(positions), fresh=fresh)
        except UnsupportedError as error:
            return str(error)
        if key is not None:
            self.reason_by_key[key.key] = reason
        return reason

    def judgement(self, positions: Positions, graph: Graph, *, fresh: bool) -> str | None:
        """Why operators that compute a graph cannot be one kernel, or None."""
        read = self.def_use.free & {self.def_use.producer_of.get(node.output, -1) for node in graph.inputs}
        if read and self.breaks_convexity(positions, read) is not None:
            return "a size of what it makes is among the numbers that it reads"
        if positions in self.own_reasons:
            return self.own_reasons[positions]
        key = nameless(graph)
        try:
            check_depth(graph)
            if is_cellwise(graph):
                return None
            if key not in self.judged or (fresh and self.judged[key]):
                self.judged[key] = None
                kernel = kernel_of_group(group := self.group(positions, graph))
                if len(positions) > 1 and kernel.binding:  # without sizes no size divides
                    check_divisions(kernel)
                if self.speller is not None:
                    self.speller(kernel)
                self.lowered[positions] = group
        except UnsupportedError as error:
            self.judged[key] = self.own_reasons[positions] = str(error)
        return self.judged[key]

    def groups(self) -> Iterable[Group]:
        """The groups that are worth a kernel; for the others the reason is recorded."""
        for positions in sorted(self.sets.values(), key=min):
            if positions <= self.alone.keys() and len(positions) == 1:
                continue
            try:
                key = self.structural_keys.key_of(positions)
                group = self.like_another(positions, key)
                is_new = group is None
                group = group or self.lowered.get(positions) or self.group(positions)
                is_worth = self.alone_too or worth(positions, group.graph)
                if is_new:
                    self.group_by_key |= {key.key: (key, with_kernel(group) if is_worth else group)} if key else {}
                if is_worth:
                    yield group
                else:
                    self.lonely[min(positions)] = "a single operator: there is nothing to fuse it with"
            except UnsupportedError as error:  # cellwise groups were joined without lowering
                for position in positions:  # they stay single operators
                    del self.member[position]
                    self.alone[position] = str(error)
                del self.sets[next(name for name, members in self.sets.items() if members == positions)]

    def like_another(self, positions: Positions, key: StructuralKey | None) -> Group | None:
        """The group of some operators, copied from an isomorphic group, or None."""
        if key is None or key.key not in self.group_by_key:
            return None
        first, group = self.group_by_key[key.key]
        return group.at(positions, dict(zip(first.names, key.names, strict=True)), self.model.graph)

    def group(self, positions: Positions, extracted: Graph | None = None) -> Group:
        """The group of some operators. UnsupportedError where noyau knows no meaning of them."""
        extracted = extracted or self.def_use.extract(positions)
        graph = normalise(extracted)
        original = replace(extracted, outputs=graph.outputs)
        return Group(tuple(sorted(positions)), original, graph, self.def_use.ends(positions)[1])

    def reasons(self) -> Iterable[Cut]:
        """Why operators are in no group, and why neighbouring groups are not one."""
        without = {**self.model.opaque, **self.lonely, **self.alone}
        single = (at for at in sorted(without) if at not in self.member or len(self.sets[self.member[at]]) == 1)
        yield from (Cut(position, None, without[position]) for position in single)
        texts: dict[Positions, str] = {}
        for place in self.model.places:
            for producer in self.def_use.producers(place.position):
                pair = {producer, place.position} & self.member.keys() - self.alone.keys()
                if len({self.member[position] for position in pair}) == 2:
                    together = frozenset[int]().union(*(self.sets[self.member[position]] for position in pair))
                    if together not in texts:
                        texts[together] = self.fusion_obstacle(together, fresh=True) or ""
                    yield Cut(producer, place.position, texts[together])


def with_kernel(group: Group) -> Group:
    """The group itself, with its kernel lowered. UnsupportedError where there is none."""
    _ = group.kernel
    return group


def worth(positions: frozenset[int], graph: Graph) -> bool:
    """Whether a group merges several kernels into one: it has several operators, or one with several steps."""
    steps = [node for node in graph.nodes if not isinstance(node.kind, Input | Constant | Iota | View)]
    return len(positions) > 1 or len(steps) > 1


def columns_of(graph: Graph) -> tuple[tuple[int, ...], Shape] | None:
    """The axes and the shape of a graph's reductions, if it does nothing else and the last axis stays; or None."""
    reduced = [node for node in graph.nodes if isinstance(node.kind, Reduce)]
    over = {(node.kind.axes, graph[node.inputs[0]].shape) for node in reduced if isinstance(node.kind, Reduce)}
    if len(over) != 1 or any(isinstance(node.kind, Scan | Scatter) for node in graph.nodes):
        return None
    ((axes, shape),) = over
    alike = all(graph[name].shape == reduced[0].shape for name in graph.outputs)
    return (axes, shape) if alike and reduced[0].shape and len(shape) - 1 not in axes else None


def is_cellwise(graph: Graph) -> bool:
    """Whether a graph consists of a few maps of one shape: such a graph surely has a kernel."""
    constants, shape = {node.output for node in graph.nodes if not node.inputs}, graph[graph.outputs[0]].shape
    buffers = [name for name in constants if "~" not in name]  # the others are constants in the text
    few = len(buffers) + len(graph.outputs) <= BUFFERS
    return few and not unbound(graph) and all(_is_cellwise(node, shape, constants) for node in graph.nodes)


def _is_cellwise(node: Node, shape: Shape, constants: Collection[str]) -> bool:
    match node.kind:
        case Map():
            return node.shape == shape
        case View(index):
            atoms = [atom for dim in index for monomial, _ in dim.terms for atom in monomial]
            return node.inputs[0] in constants and node.shape == shape and all(isinstance(atom, str) for atom in atoms)
        case Constant(value):
            return value.size == 1
        case _:
            return isinstance(node.kind, Input | Iota)


def kernel_of_group(group: Group) -> Kernel:
    """The kernel of a group; UnsupportedError says why there is none."""
    graph = group.graph
    count = len(graph.inputs) + len(graph.outputs)
    if count > BUFFERS:
        raise UnsupportedError(f"one kernel would read and write {count} arrays, more than {BUFFERS}")
    judge_copies(graph)
    check_recompute(graph, group.kernel)
    return group.kernel


def scalars_of(group: Group) -> Mapping[str, np.ndarray]:
    """The scalar arguments of a kernel that its group knows: eps, scales."""
    scalars = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    return {node.output: scalars[node.output] for node in group.graph.inputs if node.output in scalars}


def check_depth(graph: Graph) -> None:
    """UnsupportedError where a chain of dependence has too many reductions or too many steps."""
    steps, passes = dict[str, int](), dict[str, int]()
    for node in graph.nodes:
        steps[node.output] = max((steps[name] for name in node.inputs), default=0) + 1
        passes[node.output] = max((passes[name] for name in node.inputs), default=0) + isinstance(node.kind, Reduce)
    if max(passes.values(), default=0) > PASSES:
        raise UnsupportedError(f"more than {PASSES} reductions need each other in turn")
    if max(steps.values(), default=0) > DEEPEST:
        raise UnsupportedError(f"more than {DEEPEST} steps need each other in turn")


def check_divisions(kernel: Kernel) -> None:
    """UnsupportedError where each cell divides by a size to find its address, as after a reshape of a part to a shape
    that does not divide its own: that cannot be vectorised, and copying once takes a tenth of the time."""
    body = [statement for launch in flatten(kernel).launches for statement in launch.body]
    loops = (s for s in every_statement(body) if isinstance(s, Loop))
    inner = {loop.var for loop in loops if not any(isinstance(s, Loop) for s in loop.body)}
    inner |= {fold.loops[-1][0] for fold in folds_in(body)}
    for op in divisions(body):
        if op.right.constant is None and inner & op.left.names:
            raise UnsupportedError(f"each cell would divide by {op.right}, a size, to know its place in memory")
