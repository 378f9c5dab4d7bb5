"""The normal form of a group's graph: the same for every spelling of the same computation."""

from __future__ import annotations

import math
from dataclasses import replace

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.compiler.passes.cleanup import compose_views, drop_unused, fold_constants, merge_equal
from noyau.compiler.passes.digests import order_operands, structure
from noyau.compiler.passes.fp_contraction import round_before_differences
from noyau.compiler.passes.rewrite import through_views
from noyau.ir.graph import Constant, Graph, Input, Map, Node

LARGEST = 1 << 16  # of the numbers that are taken for a part of a formula, and 1 / LARGEST the least


def normalise(graph: Graph) -> Graph:
    """All passes in order; inputs that nothing needs are gone, the others stand in the order of their first use."""
    for change in (
        fold_constants,
        compose_views,
        simplify_algebra,
        merge_equal,
        round_before_differences,
        lift_scalars,
        compose_views,
        merge_equal,
        order_operands,
        merge_equal,
        drop_unused,
    ):
        graph = change(graph)
    return order_ends(graph)


def lift_scalars(graph: Graph) -> Graph:
    """Float scalars that stand in the model (eps, scale) become inputs, so that groups which differ in them are one
    kernel; whole numbers, halves and powers of two (counts, factors of a formula), and exponents, stay."""
    exponents = {
        through_views(graph.by_name, node.inputs[1]).output for node in graph.nodes if node.kind == Map("power")
    }

    def lifted(node: Node) -> Node:
        match node.kind:
            case Constant(value) if node.dtype.is_float and value.size == 1 and "~" not in node.output:
                stays = _is_plain(float(value.reshape(()))) or node.output in exponents or node.output in graph.outputs
                return node if stays else replace(node, kind=Input())
            case _:
                return node

    return replace(graph, nodes=tuple(map(lifted, graph.nodes)))


def _is_plain(value: float) -> bool:
    if math.isnan(value) or math.isinf(value):
        return math.isinf(value)
    whole = abs(value) <= LARGEST and (2 * value).is_integer()
    return whole or (1 / LARGEST <= abs(value) <= LARGEST and abs(math.frexp(value)[0]) == 0.5)


def order_ends(graph: Graph) -> Graph:
    """Outputs in the order of their structure, and nodes as a walk from the outputs down meets them: order of names and
    of the model does not matter."""
    keys, nodes = structure(graph), dict[str, Node]()
    outputs = tuple(sorted(graph.outputs, key=lambda name: (keys[name], graph.outputs.index(name))))
    waiting = [(name, False) for name in reversed(outputs)]
    while waiting:
        name, is_complete = waiting.pop()
        if name in nodes:
            continue
        node = graph[name]
        if is_complete:
            nodes[name] = node
        else:
            waiting.append((name, True))
            waiting += [(operand, False) for operand in reversed(node.inputs)]
    return replace(graph, nodes=tuple(nodes.values()), outputs=outputs)
