"""A value less its own maximum, where compilers contract: both are rounded alike.

A kernel computes a value again rather than keep it: once for its maximum over a row, once for exp(value - maximum). In
the second place a compiler may fuse a product in it with the difference, and then it is not rounded as the maximum was:
half an ulp of a huge value is a huge exponent, and the greatest cell of a row is not exp(0).
"""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.graph import Graph, Map, Node, Reduce
from noyau.passes.rewriting import Rebuilder, rebuilt, through_views

_SUMS = (Map("add"), Map("subtract"))


def round_before_differences(graph: Graph) -> Graph:
    """Let each value that is computed with products be rounded before its own maximum is taken off."""
    return rebuilt(graph, _rounded)


def _rounded(node: Node, made: Rebuilder) -> tuple[Node, ...]:
    if node.kind != Map("subtract") or not node.dtype.is_float or not _takes_its_maximum_off(node, made):
        return (node,)
    value, maximum = node.inputs
    rounded = replace(node, output=made.fresh(node.output), kind=Map("rounded"), inputs=(value,))
    return (rounded, replace(node, inputs=(rounded.output, maximum)))


def _takes_its_maximum_off(node: Node, made: Rebuilder) -> bool:
    value, fold = (through_views(made.nodes, name) for name in node.inputs)
    match fold.kind:
        case Reduce("max", _):
            return through_views(made.nodes, fold.inputs[0]) is value and _has_a_product(value, made)
        case _:
            return False


def _has_a_product(value: Node, made: Rebuilder) -> bool:
    """Whether a value is a product, or a sum of which one is a part."""
    parts = [value, *(through_views(made.nodes, name) for name in value.inputs if value.kind in _SUMS)]
    return any(part.kind == Map("multiply") for part in parts)
