"""What reductions give back to the cells that they took in."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.derivatives.folds import fold_back
from noyau.derivatives.writing import Writer
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Input, Node, Reduce, Scan, View
from noyau.ir.monoids import MONOIDS

LINEAR = frozenset({"sum"})  # monoids that hand a gradient on as it is


# What each cell x is given back by a reduction, and by a running result, in words: y is the result, g its gradient.
WORDS = {
    "sum": ("g", "the sum of g from x on"),
    "prod": ("g times the product of all others", "the sum, from x on, of g times the product so far without x"),
    "max": ("g, shared evenly among ties", "the sum of g as long as x is the first of the largest"),
    "min": ("g, shared evenly among ties", "the sum of g as long as x is the first of the least"),
    "logsumexp": ("g * exp(x - y)", "exp(x) times the sum of g * exp(-y) from x on"),
    "variance": ("g * 2 / n * (x - mean)", "refused"),
}


def reduce_back(writer: Writer, node: Node, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of what a reduction took in. max and min share it evenly among ties; of a row with a NaN, which
    equals nothing, it is NaN. UnsupportedError where the monoid has no derivative."""
    exact = operand.dtype.compute
    wide, axes, above = writer.cast(operand, exact), kind.axes, writer.cast(gradient, exact)
    match kind.monoid:
        case "sum":
            return writer.restore(gradient, axes, operand.shape)
        case "max" | "min" | "max_apart" | "min_apart":
            kept = writer.cast(node, exact) if is_stored(writer, operand) else None
            return _shared(writer, kind.monoid.removesuffix("_apart"), wide, kept, above, axes)
        case "prod":
            others = _product_of_others(writer, wide, axes)
            return writer.call("multiply", writer.restore(above, axes, operand.shape), others)
        case "logsumexp":
            return _softmax(writer, wide, writer.cast(node, exact), above, axes)
        case "variance":
            return _from_the_mean(writer, wide, above, axes)
        case monoid if MONOIDS[monoid].ordered:
            return fold_back(writer, kind, operand, gradient)
        case _:
            raise UnsupportedError(f"{node.output}: the monoid {kind.monoid} has no derivative")


def is_stored(writer: Writer, value: Node) -> bool:
    """Whether a value is read from memory wherever it is needed, so that it is the same to the bit."""
    while isinstance(value.kind, View):
        value = writer.nodes[value.inputs[0]]
    return isinstance(value.kind, Input)


def _shared(
    writer: Writer, monoid: str, operand: Node, result: Node | None, gradient: Node, axes: Sequence[int]
) -> Node:
    """Evenly among the cells that equal the result.

    What is computed again may be rounded otherwise than before, in another kernel even otherwise than beside it, so
    that no cell need equal the result. Then (`result` None) that is computed again too; and should still no cell equal
    it, the first of the largest has it all, and not 0 / 0."""
    shape, none, one = operand.shape, writer.like(0.0, operand), writer.like(1.0, operand)
    extreme = result or writer.reduce(f"{monoid}_apart", operand, axes)  # apart from the one that was saved
    hits = writer.call("where", writer.call("equal", operand, writer.restore(extreme, axes, shape)), one, none)
    if result is None:
        count = writer.sum(hits, axes)
        lost = writer.call("equal", count, writer.like(0.0, count))
        known = writer.call("equal", extreme, extreme)  # of a row with a NaN the gradient is NaN
        lost = writer.restore(writer.call("logical_and", lost, known), axes, shape)
        hits = writer.call("where", lost, _first(writer, monoid, operand, axes), hits)
    is_hit = writer.call("not_equal", hits, none)
    share = writer.call("where", is_hit, writer.restore(gradient, axes, shape), none)
    return writer.call("divide", share, writer.restore(writer.sum(hits, axes), axes, shape))


def _first(writer: Writer, monoid: str, operand: Node, axes: Sequence[int]) -> Node:
    """1 in the first of the extreme cells, 0 in all others."""
    shape, flat = operand.shape, Dim.of(0)
    for axis in sorted(axes):
        flat = flat * shape[axis] + Dim.of(f"#{axis}")
    place = writer.restore(writer.reduce(f"arg{monoid}", operand, axes), axes, shape)
    own = writer.cast(writer.iota(flat, shape), place.dtype)
    return writer.call("where", writer.call("equal", own, place), writer.like(1.0, operand), writer.like(0.0, operand))


def _product_of_others(writer: Writer, operand: Node, axes: Sequence[int]) -> Node:
    """For each cell the product of those before and of those behind it, so that zeros need no care."""
    axis, rest = axes[-1], axes[:-1]
    before, behind = (writer.scan(Scan("prod", axis, True, back), operand) for back in (False, True))
    others = writer.call("multiply", before, behind)
    if not rest:
        return others
    outer = _product_of_others(writer, writer.reduce("prod", operand, [axis]), rest)
    return writer.call("multiply", others, writer.restore(outer, [axis], operand.shape))


def _softmax(writer: Writer, operand: Node, result: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """exp(x - logsumexp(x)); 0 where each x is -inf."""
    shape = operand.shape
    none = writer.call("equal", result, writer.like(-float("inf"), result))
    finite = writer.call("where", none, writer.like(0.0, result), result)
    share = writer.call("exp", writer.call("subtract", operand, writer.restore(finite, axes, shape)))
    return writer.call("multiply", writer.restore(gradient, axes, shape), share)


def _from_the_mean(writer: Writer, operand: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """2 / n times the distance from the mean."""
    shape, total = operand.shape, writer.sum(operand, axes)
    count = writer.count(product(shape[axis] for axis in axes), total.dtype, total.shape)
    mean = writer.restore(writer.call("divide", total, count), axes, shape)
    twice = writer.call("multiply", writer.like(2.0, gradient), gradient)
    share = writer.restore(writer.call("divide", twice, count), axes, shape)
    return writer.call("multiply", share, writer.call("subtract", operand, mean))
