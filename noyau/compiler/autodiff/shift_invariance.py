"""Values that enter a graph's results without changing them: the gradient by these is 0.

The maximum that softmax subtracts is such a value: any other number m in its place would scale exp(x - m) and its sum
alike, and leave the quotient as it is. So no gradient need go through it. The search follows how each dependent value
changes when each cell c of that value grows by d(c): not at all, by a multiple k d(c), or by a factor exp(k d(c)),
where the index map gives c. Any other change ends the search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noyau.ir.dims import Dim, Shape, index_name, indices
from noyau.ir.graph import Gather, Graph, Lookup, Map, Node, Reduce, View
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import Fact, has
from noyau.ir.ranges import simplify


class Unknown(Exception):
    """A value changes in none of the three ways."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A value grows by `times` the growth of the cell at `index`, or by e to that power as a factor (`scales`)."""

    scales: bool
    times: int
    index: Shape


def invariant_values(graph: Graph) -> frozenset[str]:
    """The values, derived from maxima and minima, on which no float output depends."""
    invariant, candidates = set[str](), set[str]()
    for node in graph.nodes:
        if node.dtype.is_float and _is_candidate(graph, node, candidates):
            candidates.add(node.output)
            if is_invariant(graph, node):
                invariant.add(node.output)
    return frozenset(invariant)


def _is_candidate(graph: Graph, node: Node, candidates: set[str]) -> bool:
    match node.kind:
        case Reduce(monoid, _):
            return MONOIDS[monoid].chooses
        case Map(function) if has(function, Fact.CHOOSES):
            return any(_beneath(graph, name) in candidates for name in node.inputs)
        case _:
            return False


def _beneath(graph: Graph, name: str) -> str:
    """Look through the views and casts of a value."""
    while isinstance(graph[name].kind, View) or graph[name].kind == Map("cast"):
        name = graph[name].inputs[0]
    return name


def is_invariant(graph: Graph, start: Node) -> bool:
    """Whether no float output changes with a value."""
    changes: dict[str, Growth] = {start.output: Growth(False, 1, indices(len(start.shape)))}
    behind = False
    for node in graph.nodes:
        if behind and node.dtype.is_float and any(name in changes for name in node.inputs):
            try:
                change = _change(node, [changes.get(name) for name in node.inputs])
            except Unknown:
                return False
            if change is not None and change.times:
                changes[node.output] = change
        behind |= node.output == start.output
    return not any(name in changes for name in graph.outputs)


def _change(node: Node, changes: Sequence[Growth | None]) -> Growth | None:
    """Derive the change of a value from those of its operands, at least one of which changes."""
    match node.kind, changes[0]:
        case Map(function), _:
            return _map_growth(function, changes)
        case View(index=index) | Gather(index=index), Growth() as change:
            return _move_growth(node, change, index)
        case Reduce(monoid, axes), Growth() as change:
            return _reduce_growth(monoid, axes, change)
        case _:
            raise Unknown


def _map_growth(function: str, changes: Sequence[Growth | None]) -> Growth | None:
    first = changes[0]
    match function:
        case "identity" | "cast":
            return first
        case "exp" if first and not first.scales:
            return replace(first, scales=True)
        case "log" if first and first.scales:
            return replace(first, scales=False)
        case "negative" if first:
            return first if first.scales else replace(first, times=-first.times)
        case "where" if changes[1] == changes[2]:
            return changes[1]
        case "add" | "subtract" if first and first.scales and first == changes[1]:
            return first  # equal factors stay one factor
        case "add" | "subtract":
            return _together(function == "subtract", *changes, scales=False)
        case "multiply" | "divide":
            return _together(function == "divide", *changes, scales=True)
        case _:
            raise Unknown


def _together(minus: bool, left: Growth | None, right: Growth | None, *, scales: bool) -> Growth | None:
    """The sum of two growths, or the product of two factors where `scales`; the other kind is Unknown."""
    if any(each is not None and each.scales != scales for each in (left, right)):
        raise Unknown
    if right is not None and minus:
        right = replace(right, times=-right.times)
    if left is None or right is None:
        return left or right
    if left.index != right.index:
        raise Unknown
    return replace(left, times=left.times + right.times)


def _move_growth(node: Node, change: Growth, index: Sequence[Dim | Lookup]) -> Growth:
    named = {int(name[1:]) for dim in change.index for name in dim.names if name.startswith("#")}
    here: dict[str, Dim] = {}
    for axis in named:
        entry = index[axis]
        if isinstance(entry, Lookup):
            raise Unknown
        here[index_name(axis)] = entry
    return replace(change, index=tuple(simplify(dim.replace(here), node.extents) for dim in change.index))


def _reduce_growth(monoid: str, axes: tuple[int, ...], change: Growth) -> Growth:
    """The change of a reduction over axes along which all cells change by the same amount."""
    names = {index_name(axis) for axis in axes}
    passes = MONOIDS[monoid].passes_factors if change.scales else MONOIDS[monoid].passes_terms
    if not passes or any(dim.names & names for dim in change.index):
        raise Unknown
    axes_used = {int(name[1:]) for dim in change.index for name in dim.names if name.startswith("#")}
    moved = {index_name(axis): Dim.of(index_name(axis - sum(dropped < axis for dropped in axes))) for axis in axes_used}
    return replace(change, index=tuple(dim.replace(moved) for dim in change.index))
