"""The gradient as it comes of the rules, made simpler: equal values once, views composed, what nothing needs gone.

By values that a graph's results are computed with but do not depend on, the gradient is 0. The maximum that softmax
subtracts is such a value: were another number in its place, exp(x - m) would be scaled, its sum too, and the quotient
would be the same. So no gradient need go through it. Of each value that is computed with one it is asked how it changes
when each cell c of that one grows by d(c): not at all, by a multiple k d(c), or by a factor exp(k d(c)), where the
index map tells which c. What changes otherwise ends the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.compiler.passes.cleanup import compose_views, drop_unused, merge_equal
from noyau.compiler.passes.rewrite import Rebuilder, rebuild, view_of
from noyau.ir.dims import Dim, Shape, index_name, indices
from noyau.ir.graph import Gather, Graph, Lookup, Map, Node, Reduce, View, downstream
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import Fact, has
from noyau.ir.ranges import simplify


def simplify_gradient(graph: Graph, protected: Collection[str] = (), results: Collection[str] = ()) -> Graph:
    """Apply the passes in turn, until nothing changes. `protected`: the gradients among the inputs; `results`: the
    outputs of the graph that is derived."""
    # Results are read before those are dropped that nothing reads.
    reading = partial(read_results, protected=protected, results=results)
    rounding, sharing = partial(drop_rounding, protected=results), partial(share_divisors, protected=protected)
    changes = (reading, drop_unused, compose_views, simplify_algebra, rounding, sharing)
    while True:
        simpler = graph
        for change in (*changes, merge_equal):
            simpler = change(simpler)
        if simpler.nodes == graph.nodes:
            return drop_unused(simpler)
        graph = simpler


def drop_rounding(graph: Graph, protected: Collection[str] = ()) -> Graph:
    """Remove casts to a half type and back where nothing else reads the value between: kernels would not round either,
    and an evaluation step by step is the more exact for it. `protected` values stay."""
    readers = Counter([name for node in graph.nodes for name in node.inputs] + list(graph.outputs))

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node] | str:
        if node.kind != Map("cast"):
            return (node,)
        inner = rebuilder.nodes[node.inputs[0]]
        alone = readers[inner.output] == 1 and inner.output not in protected
        if inner.kind != Map("cast") or not alone or inner.dtype.compute is inner.dtype:
            return (node,)
        whole = rebuilder.nodes[inner.inputs[0]]
        return whole.output if whole.dtype is node.dtype is inner.dtype.compute else (node,)

    return rebuild(graph, change)


def share_divisors(graph: Graph, protected: Collection[str]) -> Graph:
    """a / s - b / s as (a - b) / s, and (a / s) * b as a * y, where y = b / s is there whatever the gradients are: so
    softmax needs its result alone."""
    back = downstream(graph, protected)

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
        match node.kind:
            case Map("add" | "subtract") if node.output in back:
                return _one_quotient(node, rebuilder)
            case Map("multiply") if node.output in back:
                return _by_quotient(node, rebuilder, back)
            case _:
                return (node,)

    return rebuild(graph, change)


def read_results(graph: Graph, protected: Collection[str], results: Collection[str]) -> Graph:
    """A quotient of what reductions gave, as softmax is, read from the result in a half type that it was rounded to,
    where gradients are but multiplied with it: that is there anyway, and computing the quotient again would take its
    argument and all that was reduced. A product is as exact as what is rounded; a difference, as 1 - y, is not."""
    back = downstream(graph, protected)
    reduced = downstream(graph, {node.output for node in graph.nodes if isinstance(node.kind, Reduce)})
    casts = [node for node in graph.nodes if node.kind == Map("cast") and node.output in results]
    rounded = {cast.inputs[0]: cast for cast in casts if _is_rounded(graph[cast.inputs[0]], cast, reduced - back)}
    for node in graph.nodes:
        if node.output in back and node.kind != Map("multiply"):
            rounded = {name: cast for name, cast in rounded.items() if name not in node.inputs}

    def change(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
        read = [name for name in dict.fromkeys(node.inputs) if name in rounded and node.output in back]
        wide = {name: rebuilder.fresh(node.output) for name in read}
        casts = [replace(node, output=wide[name], kind=Map("cast"), inputs=(rounded[name].output,)) for name in read]
        return (*casts, replace(node, inputs=tuple(wide.get(name, name) for name in node.inputs)))

    return rebuild(graph, change)


def _is_rounded(node: Node, cast: Node, reduced: Collection[str]) -> bool:
    """Whether a result is a quotient of what came of a reduction, in a half type."""
    return node.kind == Map("divide") and node.inputs[0] in reduced and cast.dtype.compute is node.dtype


def _one_quotient(node: Node, rebuilder: Rebuilder) -> Iterable[Node]:
    """A sum of quotients by one value as one quotient."""
    left, right = (_quotient(rebuilder, name) for name in node.inputs)
    if left is None or right is None or left[1] != right[1]:
        return (node,)
    numerators = [_read_view(rebuilder, node, each[0]) for each in (left, right)]
    divisor = _read_view(rebuilder, node, left[1])
    total = replace(node, output=rebuilder.fresh(node.output), inputs=(numerators[0].output, numerators[1].output))
    return (*numerators, divisor, total, replace(node, kind=Map("divide"), inputs=(total.output, divisor.output)))


ViewedValue = tuple[str, Shape]  # a value, and the index at which it is read


def _quotient(rebuilder: Rebuilder, name: str) -> tuple[ViewedValue, ViewedValue] | None:
    """Find dividend and divisor of a value that is a quotient, seen through a view."""
    (source, index), node = view_of(rebuilder.nodes, name), rebuilder.nodes[name]
    quotient = rebuilder.nodes[source]
    if quotient.kind != Map("divide") or not node.dtype.is_float:
        return None
    here = {index_name(axis): dim for axis, dim in enumerate(index)}
    parts = [view_of(rebuilder.nodes, each) for each in quotient.inputs]
    above, below = ((value, tuple(dim.replace(here) for dim in at)) for value, at in parts)
    return above, below


def _read_view(rebuilder: Rebuilder, node: Node, view: ViewedValue) -> Node:
    """A value read at an index, as large as a node."""
    return replace(node, output=rebuilder.fresh(node.output), kind=View(view[1]), inputs=(view[0],))


def _by_quotient(node: Node, rebuilder: Rebuilder, back: Collection[str]) -> Iterable[Node]:
    """The product of a quotient with b as that with b by the same divisor, if that is there."""
    for this, other in (node.inputs, node.inputs[::-1]):
        quotient = rebuilder.nodes[this]
        if quotient.kind == Map("divide") and this in back and node.dtype.is_float:
            for earlier in rebuilder.nodes.values() if other not in back else ():
                if earlier.kind == quotient.kind and earlier.inputs == (other, quotient.inputs[1]):
                    return (replace(node, inputs=(quotient.inputs[0], earlier.output)),)
    return (node,)


class Unknown(Exception):
    """A value changes in a way that is none of the three."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A value grows by `times` the growth of the cell that `index` tells, or by that power of e where it `scales`."""

    scales: bool
    times: int
    index: Shape


def invariant_values(graph: Graph) -> frozenset[str]:
    """The values, made of maxima and minima, on which no float output depends."""
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
    """Derive the change of a value from those of its operands, of which one changes at least."""
    match node.kind:
        case Map(function):
            return _mapped(function, changes)
        case View(index=index) | Gather(index=index):
            return _moved(node, changes[0], index)
        case Reduce(monoid, axes):
            return _reduced(monoid, axes, changes[0])
        case _:
            raise Unknown


def _mapped(function: str, changes: Sequence[Growth | None]) -> Growth | None:
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
        case "add" | "subtract":
            return _summed(function == "subtract", *changes)
        case "multiply" | "divide":
            return _multiplied(function == "divide", *changes)
        case _:
            raise Unknown


def _summed(minus: bool, left: Growth | None, right: Growth | None) -> Growth | None:
    """Growths add up; of factors, only alike ones stay one."""
    if left == right and left is not None and left.scales:
        return left
    if any(each is not None and each.scales for each in (left, right)):
        raise Unknown
    return _together(minus, left, right)


def _multiplied(below: bool, left: Growth | None, right: Growth | None) -> Growth | None:
    """Factors multiply; a growth does not survive."""
    if any(each is not None and not each.scales for each in (left, right)):
        raise Unknown
    return _together(below, left, right)


def _together(minus: bool, left: Growth | None, right: Growth | None) -> Growth | None:
    if right is not None and minus:
        right = replace(right, times=-right.times)
    if left is None or right is None:
        return left or right
    if left.index != right.index:
        raise Unknown
    return replace(left, times=left.times + right.times)


def _moved(node: Node, change: Growth | None, index: Sequence[Dim | Lookup]) -> Growth | None:
    """The change of what is read at an index."""
    if change is None:
        raise Unknown
    named = {int(name[1:]) for dim in change.index for name in dim.names if name.startswith("#")}
    here: dict[str, Dim] = {}
    for axis in named:
        entry = index[axis]
        if isinstance(entry, Lookup):
            raise Unknown
        here[index_name(axis)] = entry
    return replace(change, index=tuple(simplify(dim.replace(here), node.extents) for dim in change.index))


def _reduced(monoid: str, axes: tuple[int, ...], change: Growth | None) -> Growth | None:
    """The change of a reduction over axes along which all cells change alike."""
    if change is None:
        raise Unknown
    if not (MONOIDS[monoid].passes_factors if change.scales else MONOIDS[monoid].passes_terms):
        raise Unknown
    names = {index_name(axis) for axis in axes}
    if any(dim.names & names for dim in change.index):
        raise Unknown
    axes_used = {int(name[1:]) for dim in change.index for name in dim.names if name.startswith("#")}
    moved = {index_name(axis): Dim.of(index_name(axis - sum(dropped < axis for dropped in axes))) for axis in axes_used}
    return replace(change, index=tuple(dim.replace(moved) for dim in change.index))
