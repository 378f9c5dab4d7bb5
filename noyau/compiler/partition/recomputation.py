"""Recomputed values: their cost in a kernel, which is refused where it is too high, and cheap ones on purpose.

A sum over columns and work row by row are never one kernel. Where both read a value that follows from the inputs in a
few steps, one kernel would write it and the other read it: that moves more bytes than reading the inputs twice."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.partition.costs import USUAL, cells, flops_of_value, usual
from noyau.compiler.passes.cleanup import drop_unused
from noyau.errors import UnsupportedError
from noyau.ir.dims import product
from noyau.ir.graph import Constant, Graph, Iota, Map, Node, Reduce, View
from noyau.ir.loops import Fold, If, Kernel, Let, Loop, Statement
from noyau.ir.operators import OPERATORS

AGAIN = 12.0  # flops that may be recomputed for each cell of the largest output


def repeat_cheap(graph: Graph) -> Graph:
    """Give each sum over columns its own copy of its operand, where recomputing that is cheaper than writing and
    reading it: at most 12 flops a cell, from inputs that are no larger."""
    nodes, names_taken, ends = list[Node](), set(graph.by_name), _visible_values(graph)
    for node in graph.nodes:
        if isinstance(node.kind, Reduce) and len(graph[node.inputs[0]].shape) - 1 not in node.kind.axes:
            steps = _steps(graph, node.inputs[0], ends)
            if _is_worth(graph, node, steps):
                names = {step.output: _fresh(step.output, names_taken) for step in steps}
                nodes += [*(step.rename(names) for step in steps), node.rename(names)]
                continue
        nodes.append(node)
    return drop_unused(replace(graph, nodes=tuple(nodes)))  # copies replace the values that only sums share


def _steps(graph: Graph, name: str, ends: Collection[str]) -> list[Node]:
    """The maps and views that compute a value, in order, back to inputs, outputs, other operations and small values."""
    steps: dict[str, Node] = {}
    waiting, size = [name], cells(graph[name])
    while waiting:
        node = graph[waiting.pop()]
        if isinstance(node.kind, Map | View | Iota) and node.output not in ends and cells(node) >= size:
            steps[node.output] = node
            waiting += [each for each in node.inputs if each not in steps]
    return [node for node in graph.nodes if node.output in steps]


def _visible_values(graph: Graph) -> set[str]:
    """The outputs, and the values that they are views of: these are written anyway."""
    ends = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output in ends and (isinstance(node.kind, View) or node.kind == Map("identity")):
            ends.update(node.inputs)
    return ends


def _is_worth(graph: Graph, fold: Node, steps: Sequence[Node]) -> bool:
    """Whether others read a step of a fold's operand, whose inputs are read as fast as it is written and read."""
    value, own = graph[fold.inputs[0]], {step.output for step in steps}
    if not any(own & set(node.inputs) for node in graph.nodes if node.output not in own | {fold.output}):
        return False
    leaves = {name for step in steps for name in step.inputs} - own
    read = sum(cells(n) * n.dtype.bytes for n in map(graph.__getitem__, leaves) if not isinstance(n.kind, Constant))
    flops = sum(cells(step) * OPERATORS[step.kind.function].flops for step in steps if isinstance(step.kind, Map))
    return read <= 2.1 * cells(value) * value.dtype.bytes and flops <= AGAIN * cells(value)


def _fresh(stem: str, names: set[str]) -> str:
    name = f"{stem}_again"
    while name in names:
        name += "_"
    names.add(name)
    return name


@dataclass(frozen=True, slots=True)
class Repeat:
    """A value that a kernel computes more often than it has cells."""

    value: str
    times: float
    flops: float  # the extra ones, for each cell of the largest output
    reduction: bool

    def __str__(self) -> str:
        what = "the reduction" if self.reduction else "the value"
        often = f"{self.times:.0f} times" if self.times > 1.5 else "more than once"
        return f"{what} {self.value.partition('~')[0]} would be computed {often} over (where every size is {USUAL})"


def check_recompute(graph: Graph, kernel: Kernel) -> None:
    """UnsupportedError where a kernel recomputes a reduction, or more than `AGAIN` flops a cell."""
    again = repeats(graph, kernel)
    costly = [repeat for repeat in again if repeat.reduction]
    if costly or sum(repeat.flops for repeat in again) > AGAIN:
        raise UnsupportedError(str((costly or again)[0]))


def repeats(graph: Graph, kernel: Kernel) -> list[Repeat]:
    """Values that cost flops and are computed more than once a cell, the most expensive first.

    Passes over a row are not counted: a value that two passes compute may be kept."""
    main = max(1.0, *(cells(graph[name]) for name in graph.outputs))
    trips: dict[tuple[str, int], float] = defaultdict(float)
    costs: dict[str, tuple[float, bool]] = {}
    for launch in kernel.launches:
        for value, place, times, flops, is_fold in _visits(launch.body, 1.0):
            trips[value, place] += times
            costs[value] = (flops, is_fold)
    most = defaultdict[str, float](float)
    for (value, _), times in trips.items():
        most[value] = max(most[value], times)
    repeated = []
    for value, times in most.items():
        own, (flops, reduction) = max(cells(graph[value]), 1.0), costs[value]
        if times > own * 1.01 and flops:
            repeated.append(Repeat(value, times / own, flops * (times - own) / main, reduction))
    return sorted(repeated, key=lambda repeat: -repeat.flops)


def _visits(body: Iterable[Statement], times: float, place: int = 0) -> Iterator[tuple[str, int, float, float, bool]]:
    """Each value, a number of the folds around it, how often it is computed, its flops, and whether it is a fold."""
    for statement in body:
        match statement:
            case Loop(_, extent, _, inner):
                yield from _visits(inner, times * usual(extent), place)
            case If(_, inner):
                yield from _visits(inner, times, place)
            case Let(name, Fold() as fold, origin):
                length = usual(product(extent for _, extent in fold.loops))
                if origin:
                    yield origin[0], place, times, length, True
                yield from _visits(fold.body, times * length, place + hash(name) % (1 << 32) + 1)
            case Let(_, value, origin) if origin:
                yield origin[0], place, times, flops_of_value(value), False
            case _:
                pass
