"""Contraction of products and sums, kept from telling a value apart from its own maximum or minimum.

A kernel computes a value again rather than keep it: once for its maximum over a row, once for exp(value - maximum). In
the second place a compiler may round a product in it otherwise than in the first:

- it fuses the product with the difference: half an ulp of a huge value is a huge exponent, and the greatest cell of a
  row is not exp(0);
- it fuses the product with a sum in one place alone, because in the other one the product is wanted by itself as well,
  or a branch lies between the two, which a vector does not have: no cell of the row is its maximum then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from noyau.compiler.passes.rewrite import Rebuilder, rebuild, through_views
from noyau.ir.graph import Gather, Graph, Map, Node, Reduce, Select, View
from noyau.ir.operators import OPERATORS

_SUMS = (Map("add"), Map("subtract"))


def round_before_differences(graph: Graph) -> Graph:
    """Let each value that is computed with products be rounded before its own maximum or minimum is taken off, and
    products that others want as well, or that a choice is added to, before they are parts of a sum that is set beside
    its own maximum or minimum."""
    shared = _operands_fused_once(graph)

    def change(node: Node, rebuilder: Rebuilder) -> tuple[Node, ...]:
        places = {at for at, _ in enumerate(node.inputs) if (node.output, at) in shared}
        if node.kind == Map("subtract") and (at := _place_of_a_product(node, rebuilder.nodes)) is not None:
            places.add(at)
        before, inputs = list[Node](), list(node.inputs)
        for at in sorted(places):
            rounded = replace(rebuilder.nodes[inputs[at]], kind=Map("rounded"), inputs=(inputs[at],))
            before.append(replace(rounded, output=rebuilder.fresh(node.output)))
            inputs[at] = before[-1].output
        return (*before, replace(node, inputs=tuple(inputs)))

    return rebuild(graph, change)


def _place_of_a_product(node: Node, nodes: Mapping[str, Node]) -> int | None:
    """Find the operand of a difference whose own extreme is the other one, if it is a product or a sum of one."""
    place = _place_beside_extreme(node, nodes)
    if place is None:
        return None
    value = through_views(nodes, node.inputs[place])
    parts = [value.output, *(value.inputs if value.kind in _SUMS else ())]
    return place if any(_origin(part, nodes).kind == Map("multiply") for part in parts) else None


def _place_beside_extreme(node: Node, nodes: Mapping[str, Node]) -> int | None:
    """Find the operand, 0 or 1, of which the other one is the maximum or the minimum; None for neither."""
    if len(node.inputs) != 2 or not nodes[node.inputs[0]].dtype.is_float:
        return None
    one, other = (through_views(nodes, name) for name in node.inputs)
    return 0 if _is_extreme(other, one, nodes) else 1 if _is_extreme(one, other, nodes) else None


def _is_extreme(fold: Node, value: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether it is the value's maximum or minimum, or that of its magnitude, also guarded: where(isinf(m), 0, m)."""
    visited, waiting = set[str](), [fold]
    while waiting:
        node = waiting.pop()
        if node.output in visited:
            continue
        visited.add(node.output)
        match node.kind:
            case Reduce("max" | "min", _) if any(each is value for each in _strip_sign(node.inputs[0], nodes)):
                return True
            case Map("where" | "maximum" | "minimum" | "negative" | "abs"):
                waiting += (through_views(nodes, name) for name in node.inputs)
            case _:
                pass
    return False


def _strip_sign(name: str, nodes: Mapping[str, Node]) -> list[Node]:
    """A value, and what it is the opposite or the magnitude of."""
    values = [through_views(nodes, name)]
    while values[-1].kind in (Map("negative"), Map("abs")):
        values.append(through_views(nodes, values[-1].inputs[0]))
    return values


def _origin(name: str, nodes: Mapping[str, Node]) -> Node:
    """Look through views and changes of sign, which a compiler fuses as well."""
    node = through_views(nodes, name)
    while node.kind == Map("negative"):
        node = through_views(nodes, node.inputs[0])
    return node


def _operands_fused_once(graph: Graph) -> set[tuple[str, int]]:
    """The operands of sums, by the sum and the place, that are products, where a choice is the other operand or where
    the product is also wanted outside of what a value that stands beside its own extreme is computed from."""
    nodes, places = graph.by_name, set[tuple[str, int]]()
    for node in graph.nodes:
        compares = isinstance(node.kind, Map) and OPERATORS[node.kind.function].is_comparison
        place = _place_beside_extreme(node, nodes) if compares or node.kind == Map("subtract") else None
        if place is not None:
            within = _recomputed_values(node.inputs[place], nodes)
            outside = _products_outside(graph, within)
            for name in within:
                parts = [_origin(part, nodes) for part in _parts(nodes[name])]
                chosen = any(part.kind == Map("where") or isinstance(part.kind, Select) for part in parts)
                products = [part.kind == Map("multiply") and (chosen or part.output in outside) for part in parts]
                places |= {(name, at) for at, is_shared in enumerate(products) if is_shared}
    return places


def _recomputed_values(name: str, nodes: Mapping[str, Node]) -> set[str]:
    """The values that a kernel computes anew wherever it needs this one, with it."""
    values, waiting = set[str](), [name]
    while waiting:
        node = nodes[waiting.pop()]
        if node.output not in values and isinstance(node.kind, Map | View | Select | Gather):
            values.add(node.output)
            waiting += node.inputs
    return values


def _products_outside(graph: Graph, within: set[str]) -> set[str]:
    """The products among some values that something else needs too."""
    nodes = graph.by_name
    needed = [*graph.outputs, *(name for node in graph.nodes if node.output not in within for name in node.inputs)]
    origins = [_origin(name, nodes) for name in needed if name in within]
    return {node.output for node in origins if node.kind == Map("multiply")}


def _parts(node: Node) -> tuple[str, ...]:
    """The operands of a sum."""
    return node.inputs if node.kind in _SUMS and node.dtype.is_float else ()
