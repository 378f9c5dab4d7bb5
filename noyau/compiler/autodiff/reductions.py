"""Derivatives of reductions: the gradient of each cell that was reduced."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.compiler.autodiff.scans import fold_back
from noyau.compiler.passes.rewrite import through_views
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Input, Node, Reduce, Scan
from noyau.ir.monoids import MONOIDS

# What each cell x is given back by a reduction, and by a running result, in words: y is the result, g its gradient.
WORDS = {
    "sum": ("g", "the sum of g from x on"),
    "prod": ("g times the product of all others", "the sum, from x on, of g times the product so far without x"),
    "max": ("g, shared evenly among ties", "the sum of g as long as x is the first of the largest"),
    "min": ("g, shared evenly among ties", "the sum of g as long as x is the first of the least"),
    "logsumexp": ("g * exp(x - y)", "exp(x) times the sum of g * exp(-y) from x on"),
    "variance": ("g * 2 / n * (x - mean)", "refused"),
}


def reduce_back(builder: GradientBuilder, node: Node, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of what a reduction took in. max and min share it evenly among ties; of a row with a NaN, which
    equals nothing, it is NaN. UnsupportedError where the monoid has no derivative."""
    exact = operand.dtype.compute
    wide, axes, above = builder.cast(operand, exact), kind.axes, builder.cast(gradient, exact)
    match kind.monoid:
        case "sum":
            return builder.expand_along(gradient, axes, operand.shape)
        case "max" | "min" | "max_apart" | "min_apart":
            # What is read from memory wherever it is needed is the same to the bit
            is_stored = isinstance(through_views(builder.by_name, operand.output).kind, Input)
            result = builder.cast(node, exact) if is_stored else None
            return _shared(builder, kind.monoid.removesuffix("_apart"), wide, result, above, axes)
        case "prod":
            others = _product_of_others(builder, wide, axes)
            return builder.call("multiply", builder.expand_along(above, axes, operand.shape), others)
        case "logsumexp":
            return _softmax(builder, wide, builder.cast(node, exact), above, axes)
        case "variance":
            return _from_the_mean(builder, wide, above, axes)
        case monoid if MONOIDS[monoid].ordered:
            return fold_back(builder, kind, operand, gradient)
        case _:
            raise UnsupportedError(f"{node.output}: the monoid {kind.monoid} has no derivative")


def _shared(
    builder: GradientBuilder, monoid: str, operand: Node, result: Node | None, gradient: Node, axes: Sequence[int]
) -> Node:
    """Evenly among the cells that equal the result.

    What is computed again may be rounded otherwise, in another kernel even otherwise than beside it, so that no cell
    need equal the result. Then (`result` None) that is computed again too; and should still no cell equal it, the first
    of the largest has it all, and not 0 / 0."""
    shape, none, one = operand.shape, builder.like(0.0, operand), builder.like(1.0, operand)
    extreme = result or builder.reduce(f"{monoid}_apart", operand, axes)  # apart from the one that was saved
    hits = builder.call("where", builder.call("equal", operand, builder.expand_along(extreme, axes, shape)), one, none)
    if result is None:
        count = builder.reduce("sum", hits, axes)
        lost = builder.call("equal", count, builder.like(0.0, count))
        is_number = builder.call("equal", extreme, extreme)  # of a row with a NaN the gradient is NaN
        lost = builder.expand_along(builder.call("logical_and", lost, is_number), axes, shape)
        hits = builder.call("where", lost, _first(builder, monoid, operand, axes), hits)
    is_hit = builder.call("not_equal", hits, none)
    share = builder.call("where", is_hit, builder.expand_along(gradient, axes, shape), none)
    return builder.call("divide", share, builder.expand_along(builder.reduce("sum", hits, axes), axes, shape))


def _first(builder: GradientBuilder, monoid: str, operand: Node, axes: Sequence[int]) -> Node:
    """1 in the first of the extreme cells, 0 in all others."""
    shape, flat = operand.shape, Dim.of(0)
    for axis in sorted(axes):
        flat = flat * shape[axis] + Dim.of(f"#{axis}")
    place = builder.expand_along(builder.reduce(f"arg{monoid}", operand, axes), axes, shape)
    is_first = builder.call("equal", builder.cast(builder.iota(flat, shape), place.dtype), place)
    return builder.call("where", is_first, builder.like(1.0, operand), builder.like(0.0, operand))


def _product_of_others(builder: GradientBuilder, operand: Node, axes: Sequence[int]) -> Node:
    """For each cell the product of those before and of those behind it, so that zeros need no care."""
    axis, rest = axes[-1], axes[:-1]
    before, behind = (builder.scan(Scan("prod", axis, True, back), operand) for back in (False, True))
    others = builder.call("multiply", before, behind)
    if not rest:
        return others
    outer = _product_of_others(builder, builder.reduce("prod", operand, [axis]), rest)
    return builder.call("multiply", others, builder.expand_along(outer, [axis], operand.shape))


def _softmax(builder: GradientBuilder, operand: Node, result: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """exp(x - logsumexp(x)); 0 where each x is -inf."""
    shape = operand.shape
    none = builder.call("equal", result, builder.like(-float("inf"), result))
    finite = builder.call("where", none, builder.like(0.0, result), result)
    share = builder.call("exp", builder.call("subtract", operand, builder.expand_along(finite, axes, shape)))
    return builder.call("multiply", builder.expand_along(gradient, axes, shape), share)


def _from_the_mean(builder: GradientBuilder, operand: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """2 / n times the distance from the mean."""
    shape, total = operand.shape, builder.reduce("sum", operand, axes)
    count = builder.size(product(shape[axis] for axis in axes), total.dtype, total.shape)
    mean = builder.expand_along(builder.call("divide", total, count), axes, shape)
    twice = builder.call("multiply", builder.like(2.0, gradient), gradient)
    share = builder.expand_along(builder.call("divide", twice, count), axes, shape)
    return builder.call("multiply", share, builder.call("subtract", operand, mean))
