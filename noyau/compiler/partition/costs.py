"""Recomputation and memory traffic: the price of fusing, before anything is compiled.

The bytes that a group must move at some sizes are what it reads of each input, at least, and what it writes; less than
all of an input where a view or a gather looks at a part of it: the floor of a kernel is of these bytes.

A sum over columns and what is done row by row are never one kernel. Where both read a value that follows from the
inputs in a few steps, the one kernel would write it and the other read it: that is more than reading the inputs twice.
So cheap values are computed again for the sums over columns that read them.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.passes.cleanup import drop_unused
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, maximum, product
from noyau.ir.graph import Constant, Gather, Graph, Iota, Lookup, Map, Node, Reduce, Scatter, View
from noyau.ir.loops import Buffer, Expr, Fold, If, Kernel, Let, Load, Loop, Require, Role, Statement
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import every_statement, expressions, flops_of, operands

USUAL = 61  # what every size is taken to be
AGAIN = 12.0  # flops that may be computed again for each cell of the largest output
PASSES = 8  # reductions that may need each other in turn: each is one more pass, which computes much of the others anew
DEEPEST = 160  # steps that may need each other in turn


@dataclass(frozen=True, slots=True)
class Repeat:
    """A value that a kernel computes more often than it has cells."""

    value: str
    times: float
    flops: float  # extra ones, for each cell of the largest output
    reduction: bool

    def __str__(self) -> str:
        what = "the reduction" if self.reduction else "the value"
        often = f"{self.times:.0f} times" if self.times > 1.5 else "more than once"
        return f"{what} {self.value.partition('~')[0]} would be computed {often} over (where every size is {USUAL})"


def check_depth(graph: Graph) -> None:
    """UnsupportedError where too many reductions, or too many steps, need each other in turn."""
    steps: dict[str, int] = {}
    passes: dict[str, int] = {}
    for node in graph.nodes:
        steps[node.output] = max((steps[name] for name in node.inputs), default=0) + 1
        passes[node.output] = max((passes[name] for name in node.inputs), default=0) + isinstance(node.kind, Reduce)
    if max(passes.values(), default=0) > PASSES:
        raise UnsupportedError(f"more than {PASSES} reductions need each other in turn")
    if max(steps.values(), default=0) > DEEPEST:
        raise UnsupportedError(f"more than {DEEPEST} steps need each other in turn")


def check_recompute(graph: Graph, kernel: Kernel) -> None:
    """UnsupportedError where a kernel computes a reduction again, or much else."""
    again = repeats(graph, kernel)
    dear = [repeat for repeat in again if repeat.reduction]
    if dear or sum(repeat.flops for repeat in again) > AGAIN:
        raise UnsupportedError(str((dear or again)[0]))


def cells(node: Node) -> float:
    """Count the cells of a value where every size is `USUAL`."""
    return float(_usual(product(node.shape)))


def _usual(dim: Dim) -> float:
    """A Dim where every size is `USUAL`, or a multiple where that would divide by zero (by n // 64)."""
    for size in (USUAL, USUAL * 64, USUAL * 4096):
        with contextlib.suppress(ZeroDivisionError):
            return max(0.0, float(dim.evaluate(dict.fromkeys(dim.names, size))))
    return 1.0


def repeats(graph: Graph, kernel: Kernel) -> list[Repeat]:
    """Values that cost something and are computed more than once a cell, the dearest first.

    Passes over a row are not counted: what one pass computes and another computes too may be kept."""
    main = max(1.0, *(cells(graph[name]) for name in graph.outputs))
    trips: dict[tuple[str, int], float] = defaultdict(float)
    costs: dict[str, tuple[float, bool]] = {}
    for launch in kernel.launches:
        _count(launch.body, 1.0, {}, 0, trips, costs)
    most: dict[str, float] = {}
    for (value, _), times in trips.items():
        most[value] = max(most.get(value, 0.0), times)
    repeated = []
    for value, times in most.items():
        own, (flops, reduction) = max(cells(graph[value]), 1.0), costs[value]
        if times > own * 1.01 and flops:
            repeated.append(Repeat(value, times / own, flops * (times - own) / main, reduction))
    return sorted(repeated, key=lambda repeat: -repeat.flops)


def _count(
    statements: Iterable[Statement],
    times: float,
    extents: Mapping[str, float],
    inside: int,
    trips: dict[tuple[str, int], float],
    costs: dict[str, tuple[float, bool]],
) -> None:
    """Add up how often each value is computed, apart for each fold that it stands in."""
    for statement in statements:
        match statement:
            case Loop(_, extent, _, body):
                _count(body, times * _usual(extent), extents, inside, trips, costs)
            case If(_, body):
                _count(body, times, extents, inside, trips, costs)
            case Let(name, Fold() as fold, origin):
                length = _usual(product(extent for _, extent in fold.loops))
                if origin:
                    trips[origin[0], inside] += times
                    costs[origin[0]] = (length, True)
                _count(fold.body, times * length, extents, inside + hash(name) % (1 << 32) + 1, trips, costs)
            case Let(_, value, origin) if origin:
                trips[origin[0], inside] += times
                costs[origin[0]] = (_flops(value), False)
            case _:
                pass


def _flops(expr: Expr) -> float:
    return float(flops_of(expr)) + sum(map(_flops, operands(expr)))


def flops(kernel: Kernel) -> Dim:
    """The flops of a kernel before it is scheduled, as a polynomial of its sizes."""
    return sum((_work(launch.body) for launch in kernel.launches), Dim.of(0))


def _work(statements: Iterable[Statement]) -> Dim:
    total = Dim.of(0)
    for statement in statements:
        match statement:
            case Loop(_, extent, _, body):
                total = total + _work(body) * extent
            case Let(_, Fold(monoid, loops, body, _, _, _), _):
                steps = product(extent for _, extent in loops)
                total = total + (_work(body) + MONOIDS[monoid].flops) * steps
            case Let(_, value, _):
                total = total + int(_flops(value))
            case _:
                pass
    return total


def bytes_moved(kernel: Kernel) -> Dim:
    """The bytes that must move: each input and output once; of a table that indices look into, no more cells than the
    loops around its longest reading take."""
    gathered = _gathered(kernel)
    moved = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH]
    return sum((_cells_moved(buffer, gathered) * buffer.dtype.bytes for buffer in moved), Dim.of(0))


def _cells_moved(buffer: Buffer, gathered: Mapping[str, Dim]) -> Dim:
    whole = product(buffer.shape)
    return -maximum(-whole, -gathered[buffer.name]) if buffer.name in gathered else whole


def _gathered(kernel: Kernel) -> dict[str, Dim]:
    """The inputs of which all readings are at looked-up indices, with the most cells that one of them takes."""
    looked_up, cells = set[str](), dict[str, Dim]()
    plain = {buffer.name for buffer in kernel.of(Role.OUTPUT)}
    for launch in kernel.launches:
        looked_up.update(*(s.index.names for s in every_statement(launch.body) if isinstance(s, Require)))
        for load, count in _loads(launch.body, Dim.of(1)):
            if not any(dim.names & looked_up for dim in load.index):
                plain.add(load.buffer)
            cells[load.buffer] = maximum(cells.get(load.buffer, 0), count)
    return {name: count for name, count in cells.items() if name not in plain}


def _loads(statements: Iterable[Statement], count: Dim) -> Iterator[tuple[Load, Dim]]:
    """Every load, and how often it runs."""
    for statement in statements:
        if isinstance(statement, Loop | If):
            extent = statement.extent if isinstance(statement, Loop) else Dim.of(1)
            yield from _loads(statement.body, count * extent)
        for expr in expressions(statement):
            yield from _loads_of(expr, count)


def _loads_of(expr: Expr, count: Dim) -> Iterator[tuple[Load, Dim]]:
    if isinstance(expr, Load):
        yield expr, count
    if isinstance(expr, Fold):
        count = count * product(extent for _, extent in expr.loops)
        yield from _loads(expr.body, count)
    for operand in operands(expr):
        yield from _loads_of(operand, count)


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
    stores = sum(_cells(graph[name], sizes) * graph[name].dtype.bytes for name in dict.fromkeys(graph.outputs))
    return Traffic(read, stores)


def _operands(graph: Graph, node: Node, cells_needed: int, sizes: Sizes, repeated: bool) -> list[tuple[str, int]]:
    """Count the cells of each operand that so many cells of a node need: all, but of operands that are looked at."""
    if not cells_needed:
        return []
    match node.kind:
        case View(index):
            return [(node.inputs[0], min(cells_needed, _looked_at(graph, node, index, sizes, repeated)))]
        case Gather(index):
            table = (node.inputs[0], min(cells_needed, _looked_at(graph, node, index, sizes, repeated)))
            lookups = [entry for entry in index if isinstance(entry, Lookup)]
            return [table, *((node.inputs[entry.input], _reached(node, entry.at, sizes)) for entry in lookups)]
        case Scatter():
            return [(name, _cells(graph[name], sizes)) for name in node.inputs]
        case _:
            whole = max(_cells(node, sizes), 1)  # as large a share of an operand as of the node itself, rounded up
            return [(name, -(-_cells(graph[name], sizes) * cells_needed // whole)) for name in node.inputs]


def _looked_at(graph: Graph, node: Node, index: tuple[Dim | Lookup, ...], sizes: Sizes, repeated: bool) -> int:
    """Count the cells of the first operand that an index map can reach."""
    count = 1
    for entry, extent in zip(index, graph[node.inputs[0]].shape, strict=True):
        if not isinstance(entry, Lookup):
            count *= min(_reached(node, (entry,), sizes), int(extent.evaluate(sizes)))
        elif not repeated:
            count *= min(_reached(node, entry.at, sizes), int(extent.evaluate(sizes)))
    return count


def _reached(node: Node, at: tuple[Dim, ...], sizes: Sizes) -> int:
    """Bound the number of values that some indices take together by the trips of the loops that they name."""
    names = {name for dim in at for name in dim.names if name.startswith("#")}
    return math.prod(int(node.extents[name].evaluate(sizes)) for name in names)


def _cells(node: Node, sizes: Sizes) -> int:
    return math.prod(int(dim.evaluate(sizes)) for dim in node.shape)


def repeat_cheap(graph: Graph) -> Graph:
    """The graph in which each sum over columns has what it reads to itself, where that is cheaper to compute again than
    to write and to read: at most 12 flops a cell, of inputs that are no larger."""
    nodes, names_taken, ends = list[Node](), set(graph.by_name), _shown(graph)
    for node in graph.nodes:
        if isinstance(node.kind, Reduce) and len(graph[node.inputs[0]].shape) - 1 not in node.kind.axes:
            steps = _steps(graph, node.inputs[0], ends)
            if _is_shared(graph, node, steps) and _is_worth(graph, graph[node.inputs[0]], steps):
                names = {step.output: _fresh(step.output, names_taken) for step in steps}
                copies = [replace(_renamed(step, names), output=names[step.output]) for step in steps]
                nodes += [*copies, _renamed(node, names)]
                continue
        nodes.append(node)
    return drop_unused(replace(graph, nodes=tuple(nodes)))  # what sums alone share has become copies


def _steps(graph: Graph, name: str, ends: Collection[str]) -> list[Node]:
    """The maps and views that a value is made by, in order, down to inputs, outputs, what is no map, and small ones."""
    steps: dict[str, Node] = {}
    waiting, size = [name], cells(graph[name])
    while waiting:
        node = graph[waiting.pop()]
        if isinstance(node.kind, Map | View | Iota) and node.output not in ends and cells(node) >= size:
            steps[node.output] = node
            waiting += [each for each in node.inputs if each not in steps]
    return [node for node in graph.nodes if node.output in steps]


def _shown(graph: Graph) -> set[str]:
    """The outputs, and what they show: it is written anyway."""
    ends = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output in ends and (isinstance(node.kind, View) or node.kind == Map("identity")):
            ends.update(node.inputs)
    return ends


def _is_shared(graph: Graph, fold: Node, steps: Sequence[Node]) -> bool:
    """Whether others than a fold read one of its steps."""
    own = {step.output for step in steps}
    inside = own | {fold.output}
    return any(own & set(node.inputs) for node in graph.nodes if node.output not in inside)


def _is_worth(graph: Graph, value: Node, steps: Sequence[Node]) -> bool:
    """Whether a value is read from the inputs at least as fast as it is written and read."""
    own = {step.output for step in steps}
    leaves = {name for step in steps for name in step.inputs} - own
    read = sum(
        cells(graph[name]) * graph[name].dtype.bytes for name in leaves if not isinstance(graph[name].kind, Constant)
    )
    flops = sum(cells(step) * OPERATORS[step.kind.function].flops for step in steps if isinstance(step.kind, Map))
    return read <= 2.1 * cells(value) * value.dtype.bytes and flops <= AGAIN * cells(value)


def _fresh(stem: str, names: set[str]) -> str:
    name = f"{stem}_again"
    while name in names:
        name += "_"
    names.add(name)
    return name


def _renamed(node: Node, names: dict[str, str]) -> Node:
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
