"""A group's own sizes: what the model computes of its sizes, a kernel takes as it finds it.

Where an input is `past + now` long, and no other input tells the two apart, the kernel has one size of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from noyau.dtypes import DType
from noyau.ir.binding import plan
from noyau.ir.dims import Dim, Monomial, Op, maximum
from noyau.ir.graph import Graph, Node
from noyau.passes.rewriting import with_dims

Swap = tuple[Monomial, Dim]


def own_sizes(graph: Graph) -> Graph:
    """The graph with each extent of an input that no shape of an input determines as one size, named by its formula;
    wherever else the formula stands, there the size stands too."""
    while (swap := _swap(graph)) is not None:
        unit, value = swap
        nodes = (with_dims(node, lambda dim: _swapped(dim, unit, value)) for node in graph.nodes)
        graph = Graph(tuple(nodes), graph.outputs)
    return graph


def _typed(graph: Graph) -> list[Node]:
    return [node for node in graph.inputs if node.dtype is not DType.OTHER]


def _bound(graph: Graph) -> frozenset[str]:
    return frozenset(binding.size for binding in plan([node.shape for node in _typed(graph)]))


def _swap(graph: Graph) -> Swap | None:
    """The next product of sizes to be replaced, and what by: the shortest formulas come first, for others may use them."""
    bound = _bound(graph)
    extents = [dim for node in _typed(graph) for dim in node.shape if not dim.names <= bound]
    for dim in sorted(extents, key=lambda dim: (len(dim.terms), len(dim.terms[0][0]), str(dim))):
        found = _single(dim) or next(_among(dim, bound), None)
        if found is not None:
            return found
    return None


def _single(dim: Dim) -> Swap | None:
    """The product that an extent is a multiple of, as a size."""
    match dim.terms:
        case ((monomial, factor),) if factor > 0:
            return monomial, Dim.of(str(Dim(((monomial, 1),))))
        case _:
            return None


def _among(dim: Dim, bound: Collection[str]) -> Iterable[Swap]:
    """A product that is one of the terms of an extent: the extent as a size, less the other terms."""
    for monomial, factor in dim.terms:
        term = Dim(((monomial, factor),))
        rest = dim - term
        if abs(factor) == 1 and not term.names <= set(bound) and _swapped(rest, monomial, Dim.of(0)) == rest:
            yield monomial, (Dim.of(str(dim)) - rest) * factor


def _swapped(dim: Dim, unit: Monomial, value: Dim) -> Dim:
    """A Dim in which a Dim stands for a product of sizes, also within divisions."""
    total = Dim.of(0)
    for monomial, factor in dim.terms:
        part, left = Dim.of(factor), list(monomial)
        while all(left.count(atom) >= unit.count(atom) for atom in unit):
            part = part * value
            for atom in unit:
                left.remove(atom)
        for atom in left:
            part = part * (Dim.of(atom) if isinstance(atom, str) else _swapped_in(atom, unit, value))
        total = total + part
    return total


def _swapped_in(op: Op, unit: Monomial, value: Dim) -> Dim:
    left, right = _swapped(op.left, unit, value), _swapped(op.right, unit, value)
    match op.kind:
        case "floordiv":
            return left // right
        case "mod":
            return left % right
        case _:
            return maximum(left, right)
