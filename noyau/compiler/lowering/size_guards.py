"""Guards of a kernel: what it demands of the sizes that it gets.

Most views are within bounds by their shapes alone. Where two extents only should be alike (they have different names in
the model), the kernel must not trust them: its guards are checked when it gets its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from noyau.ir.dims import Dim, maximum, never_negative, product
from noyau.ir.graph import Gather, Graph, Lookup, Node, View
from noyau.ir.loops import Guard
from noyau.ir.ranges import simplify, within
from noyau.ir.sizes import Demand, plan


def guards(graph: Graph) -> tuple[Guard, ...]:
    """The guards of a graph, each once: what it demands of sizes that its inputs tell, and what its views need."""
    bound = {binding.size for binding in plan([node.shape for node in graph.inputs])}
    demanded = [demand for demand in graph.demands if demand.left.names | demand.right.names <= bound]
    conditions = [guard for demand in demanded for guard in _guards_of(demand)]
    return tuple(dict.fromkeys([*conditions, *(guard for node in graph.nodes for guard in _of(graph, node))]))


def _guards_of(demand: Demand) -> Iterator[Guard]:
    always, left, right = Dim.of(1), demand.left, demand.right
    match demand.relation:
        case "at most":
            yield Guard(always, left, right)
        case "equal":
            yield from (Guard(always, left, right), Guard(always, right, left))
        case _:
            apart = (left - right) * (left - 1) * (right - 1)
            yield from (Guard(always, apart, Dim.of(0)), Guard(always, Dim.of(0), apart))
            if not never_negative(left - 2) and not never_negative(right - 2):  # 0 and 1 are 0, which no larger one is
                empty_left, empty_right = maximum(1 - left, 0), maximum(1 - right, 0)
                yield from (Guard(always, empty_left, empty_right), Guard(always, empty_right, empty_left))


def _of(graph: Graph, node: Node) -> Iterator[Guard]:
    match node.kind:
        case View(index=index) | Gather(index=index):
            for at, extent in zip(index, graph[node.inputs[0]].shape, strict=True):
                if not isinstance(at, Lookup):
                    yield from _bounds(node, simplify(at, node.extents), extent)
        case _:
            pass


def _bounds(node: Node, at: Dim, extent: Dim) -> Iterator[Guard]:
    """That the highest index is below the extent, where that is neither certain nor beyond telling."""
    if within(at, extent, node.extents):
        return
    highest = _highest(node, at)
    if highest is not None and highest != extent - 1:
        yield Guard(product(node.shape), highest, extent - 1)


def _highest(node: Node, at: Dim) -> Dim | None:
    """The highest value of an index that is linear in the indices of its value; None where it is not."""
    rest, total = at, Dim.of(0)
    for name, extent in node.extents.items():
        slope = at.replace({name: Dim.of(name) + 1}) - at
        if any(other.startswith("#") for other in slope.names):
            return None
        total = total + maximum(slope * (extent - 1), 0)
        rest = rest.replace({name: 0})
    return total + rest
