"""Sizes of a group's graph, named anew: what the model computes of its sizes, a kernel takes as it finds it.

Where an input is `past + now` long, and no other input tells the two apart, the kernel has one size of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from noyau.compiler.passes.rewrite import with_dims
from noyau.dtypes import DType
from noyau.ir.dims import Dim, Monomial, again
from noyau.ir.graph import Graph, Node
from noyau.ir.sizes import Demand, plan

Swap = tuple[Monomial, Dim]


def own_sizes(graph: Graph, facts: Sequence[Demand] = ()) -> Graph:
    """The graph with each extent of an input that no shape of an input determines as one size, named by its formula;
    wherever else the formula stands, there the size stands too. Sizes that must be equal are one. `facts` are demands
    that others have seen to."""
    for find in (_one_of_two, _extent):
        while (swap := find(graph, facts)) is not None:
            facts = _changed(facts, *swap)
            graph = _with_swap(graph, *swap)
    return graph


def _with_swap(graph: Graph, unit: Monomial, value: Dim) -> Graph:
    def change(dim: Dim) -> Dim:
        return _swapped(dim, unit, value)

    nodes = tuple(with_dims(node, change) for node in graph.nodes)
    return replace(graph, nodes=nodes, demands=_changed(graph.demands, unit, value))


def _changed(demands: Iterable[Demand], unit: Monomial, value: Dim) -> tuple[Demand, ...]:
    """Demands after a swap, without those that are met for certain."""
    changed = [
        replace(demand, left=_swapped(demand.left, unit, value), right=_swapped(demand.right, unit, value))
        for demand in demands
    ]
    return tuple(demand for demand in changed if demand.left != demand.right)


def _one_of_two(graph: Graph, facts: Sequence[Demand]) -> Swap | None:
    """A size that must equal another one, or a number, and that other. Inputs bear both, so that their shapes will then
    be compared, or others have compared them: else they would be taken for equal and never looked at."""
    bound = bound_sizes(graph.inputs) if graph.demands else frozenset[str]()
    for demand in (*graph.demands, *facts):
        sizes = bound if demand in graph.demands else demand.left.names | demand.right.names
        for one, other in ((demand.left, demand.right), (demand.right, demand.left)):
            fits = str(other) in sizes or (other.constant or -1) >= 0
            if demand.relation == "equal" and str(one) in sizes and fits:
                return one.terms[0][0], other
    return None


def bound_sizes(inputs: Iterable[Node]) -> frozenset[str]:
    """The sizes that the shapes of some inputs tell."""
    shapes = [node.shape for node in inputs if node.dtype is not DType.OTHER]
    return frozenset(binding.size for binding in plan(shapes))


def _extent(graph: Graph, _: Sequence[Demand]) -> Swap | None:
    """The next product of sizes to be replaced, and what by: short formulas come first, for others may use them."""
    bound = bound_sizes(graph.inputs)
    typed = [node for node in graph.inputs if node.dtype is not DType.OTHER]
    extents = [dim for node in typed for dim in node.shape if not dim.names <= bound]
    for dim in sorted(extents, key=lambda dim: (len(dim.terms), len(dim.terms[0][0]), str(dim))):
        equal = _single(dim) or next(_among(dim, bound), None)
        if equal is not None:
            return equal
    return None


def _single(dim: Dim) -> Swap | None:
    """The product that an extent is a multiple of, as a size."""
    match dim.terms:
        case ((monomial, factor),) if factor > 0:
            return monomial, Dim.of(str(Dim(((monomial, 1),))))
        case _:
            return None


def _among(dim: Dim, bound: Collection[str]) -> Iterator[Swap]:
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
            if isinstance(atom, str):
                part = part * atom
            else:
                part = part * again(atom, _swapped(atom.left, unit, value), _swapped(atom.right, unit, value))
        total = total + part
    return total
