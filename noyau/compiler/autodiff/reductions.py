"""Derivatives of reductions, of running results and of folds by a function of the user: the gradient of each cell.

A reverse scan is a scan of flipped cells, and an exclusive scan an inclusive one shifted by a cell: a monoid has one
rule. With s_k the state of a fold before cell k, the cell's gradient is that of the result, times df/dx at (s_k, x_k),
times df/ds of every later step: a running result of the fold, and a running product from behind."""

from collections.abc import Sequence
from dataclasses import replace

from noyau.compiler.autodiff.gradient_builder import GradientBuilder, map_back
from noyau.compiler.autodiff.views import scatter_to_zeros
from noyau.compiler.passes.rewrite import through_views
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, indices, product
from noyau.ir.graph import Input, Lookup, Map, Node, Reduce, Scan
from noyau.ir.monoids import MONOIDS, STEPS, step_value


def scan_back(builder: GradientBuilder, node: Node, kind: Scan, operand: Node, gradient: Node) -> Node:
    """The gradient of a scan's operand; that of a running max or min goes to the first of ties. UnsupportedError where
    the monoid has no derivative."""
    exact, axis = operand.dtype.compute, kind.axis
    if kind.monoid == "sum":
        turned = builder.scan(replace(kind, reverse=not kind.reverse), builder.cast(gradient, exact))
        return builder.cast(turned, gradient.dtype)
    if kind.monoid not in _RULES:
        raise UnsupportedError(f"{node.output}: the running {kind.monoid} has no derivative")
    wide, above = builder.cast(operand, exact), builder.cast(gradient, exact)
    if kind.reverse:
        wide, above = builder.flip(wide, axis), builder.flip(above, axis)
    if kind.exclusive:
        longer = builder.pad(above, axis, Dim.of(0), above.shape[axis] + 1)
        above = builder.slice(longer, axis, 1, above.shape[axis])  # each cell reads its successor, the last one 0
    below = _RULES[kind.monoid](builder, kind.monoid, wide, above, axis)
    return builder.flip(below, axis) if kind.reverse else below


def _product(builder: GradientBuilder, monoid: str, operand: Node, gradient: Node, axis: int) -> Node:
    """Before the first zero of a row: the sum of g * y from each cell on, divided by the cell. At that zero: the same
    sum without the cell, as far as the next zero. Behind it 0, since all products there are 0."""
    call, like = builder.call, builder.like
    none, one = like(0.0, operand), like(1.0, operand)
    is_zero = call("equal", operand, none)
    zeros = builder.scan(Scan("sum", axis), call("where", is_zero, one, none))
    clear, met_one = call("equal", zeros, none), call("equal", zeros, one)
    first = call("logical_and", is_zero, met_one)
    without = builder.scan(Scan("prod", axis), call("where", first, one, operand))
    onwards = Scan("sum", axis, reverse=True)
    before = builder.scan(onwards, call("where", clear, call("multiply", gradient, without), none))
    at_zero = builder.scan(onwards, call("where", met_one, call("multiply", gradient, without), none))
    share = call("divide", before, call("where", is_zero, one, operand))
    return call("where", clear, share, call("where", first, at_zero, none))


def _extreme(builder: GradientBuilder, monoid: str, operand: Node, gradient: Node, axis: int) -> Node:
    """Give the gradient to the cell that was the largest, or the least, so far."""
    own = indices(len(operand.shape))
    index = tuple(Lookup(1, own) if at == axis else dim for at, dim in enumerate(own))
    return scatter_to_zeros(builder, index, operand.shape, gradient, builder.scan(Scan(f"arg{monoid}", axis), operand))


def _logsumexp(builder: GradientBuilder, monoid: str, operand: Node, gradient: Node, axis: int) -> Node:
    """exp(x) times the sum of g * exp(-y) from each cell on, by logarithms of the positive and negative part of g."""
    call, none = builder.call, builder.like(0.0, gradient)
    result = builder.scan(Scan("logsumexp", axis), operand)
    parts = []
    for sign in (gradient, call("negative", gradient)):
        weight = call("subtract", call("log", call("maximum", sign, none)), result)
        parts.append(call("exp", call("add", operand, builder.scan(Scan("logsumexp", axis, reverse=True), weight))))
    return call("subtract", parts[0], parts[1])


_RULES = {"prod": _product, "max": _extreme, "min": _extreme, "logsumexp": _logsumexp}


def fold_back(builder: GradientBuilder, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of a fold's operand, in the dtype it computes in. UnsupportedError where a step has none."""
    cells = builder.cast(operand, operand.dtype.compute)
    if len(kind.axes) == 1:
        return _along(builder, kind.monoid, cells, gradient, kind.axes[0])
    others = [axis for axis in range(len(cells.shape)) if axis not in kind.axes]
    total, last = product(cells.shape[axis] for axis in kind.axes), len(others)
    there, back = [Dim.of(0)] * len(cells.shape), Dim.of(0)
    inner = Dim.of(1)
    for axis in reversed(kind.axes):
        there[axis] = Dim.of(f"#{last}") // inner % cells.shape[axis]
        back, inner = back + Dim.of(f"#{axis}") * inner, inner * cells.shape[axis]
    for place, axis in enumerate(others):
        there[axis] = Dim.of(f"#{place}")
    flat = builder.view(cells, (*(cells.shape[axis] for axis in others), total), there)
    slopes = _along(builder, kind.monoid, flat, gradient, last)
    return builder.view(slopes, cells.shape, (*(Dim.of(f"#{axis}") for axis in others), back))


def _along(builder: GradientBuilder, monoid: str, cells: Node, gradient: Node, axis: int) -> Node:
    by_state, by_cell = _slopes(builder, monoid, builder.scan(Scan(monoid, axis, exclusive=True), cells), cells)
    later = builder.scan(Scan("prod", axis, exclusive=True, reverse=True), by_state)
    above = builder.expand_along(builder.cast(gradient, cells.dtype), [axis], cells.shape)
    return builder.call("multiply", above, builder.call("multiply", later, by_cell))


def _slopes(builder: GradientBuilder, monoid: str, state: Node, cells: Node) -> tuple[Node, Node]:
    """The derivatives of a step by the state and by the cell, everywhere."""
    step = STEPS[monoid]
    first, second = (node.output for node in step.inputs)
    values = {first: state, second: cells}
    for node in step.nodes:
        if not isinstance(node.kind, Input):
            operands = [values[name] for name in node.inputs]
            values[node.output] = step_value(builder, node, operands, state, step[step.outputs[0]].dtype)
    none = builder.like(0.0, state)
    slopes = {step.outputs[0]: builder.like(1.0, state)}
    for node in reversed(step.nodes):
        if not isinstance(node.kind, Map) or node.output not in slopes:
            continue
        operands = [values[name] for name in node.inputs]
        for position, name in enumerate(node.inputs):
            above = builder.cast(slopes[node.output], values[node.output].dtype)
            slope = None
            if operands[position].dtype.is_float:
                slope = map_back(builder, values[node.output], node.kind.function, operands, above, position)
            if slope is not None:
                slopes[name] = builder.call("add", slopes[name], slope) if name in slopes else slope
    return slopes.get(first, none), slopes.get(second, none)


# The gradient of each cell x of a reduction, and of a running result, in words: y is the result, g its gradient.
WORDS = {
    "sum": ("g", "the sum of g from x on"),
    "prod": ("g times the product of all others", "the sum, from x on, of g times the product so far without x"),
    "max": ("g, shared evenly among ties", "the sum of g as long as x is the first of the largest"),
    "min": ("g, shared evenly among ties", "the sum of g as long as x is the first of the least"),
    "logsumexp": ("g * exp(x - y)", "exp(x) times the sum of g * exp(-y) from x on"),
    "variance": ("g * 2 / n * (x - mean)", "refused"),
}


def reduce_back(builder: GradientBuilder, node: Node, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of a reduction's operand. max and min share it evenly among ties; of a row with a NaN, which equals
    nothing, it is NaN. UnsupportedError where the monoid has no derivative."""
    exact = operand.dtype.compute
    wide, axes, above = builder.cast(operand, exact), kind.axes, builder.cast(gradient, exact)
    match kind.monoid:
        case "sum":
            return builder.expand_along(gradient, axes, operand.shape)
        case "max" | "min" | "max_apart" | "min_apart":
            # A value read from memory has the same bits wherever it is needed
            is_stored = isinstance(through_views(builder.by_name, operand.output).kind, Input)
            result = builder.cast(node, exact) if is_stored else None
            return _share_among_ties(builder, kind.monoid.removesuffix("_apart"), wide, result, above, axes)
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


def _share_among_ties(
    builder: GradientBuilder, monoid: str, operand: Node, result: Node | None, gradient: Node, axes: Sequence[int]
) -> Node:
    """Share a gradient evenly among the cells that equal the result.

    A recomputed value may be rounded otherwise, in another kernel even otherwise than beside it, so that no cell need
    equal the result. Then (`result` None) the result is recomputed too; and if still no cell equals it, the first of
    the largest gets the whole gradient, not 0 / 0."""
    shape, none, one = operand.shape, builder.like(0.0, operand), builder.like(1.0, operand)
    extreme = result or builder.reduce(f"{monoid}_apart", operand, axes)  # a node other than the saved one
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
    """For each cell the product of all cells before and behind it, so that zeros need no special case."""
    axis, rest = axes[-1], axes[:-1]
    before, behind = (builder.scan(Scan("prod", axis, True, back), operand) for back in (False, True))
    others = builder.call("multiply", before, behind)
    if not rest:
        return others
    outer = _product_of_others(builder, builder.reduce("prod", operand, [axis]), rest)
    return builder.call("multiply", others, builder.expand_along(outer, [axis], operand.shape))


def _softmax(builder: GradientBuilder, operand: Node, result: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """The gradient times exp(x - logsumexp(x)); 0 where each x is -inf."""
    shape = operand.shape
    none = builder.call("equal", result, builder.like(-float("inf"), result))
    finite = builder.call("where", none, builder.like(0.0, result), result)
    share = builder.call("exp", builder.call("subtract", operand, builder.expand_along(finite, axes, shape)))
    return builder.call("multiply", builder.expand_along(gradient, axes, shape), share)


def _from_the_mean(builder: GradientBuilder, operand: Node, gradient: Node, axes: Sequence[int]) -> Node:
    """The gradient times 2 / n times the distance from the mean."""
    shape, total = operand.shape, builder.reduce("sum", operand, axes)
    count = builder.size(product(shape[axis] for axis in axes), total.dtype, total.shape)
    mean = builder.expand_along(builder.call("divide", total, count), axes, shape)
    twice = builder.call("multiply", builder.like(2.0, gradient), gradient)
    share = builder.expand_along(builder.call("divide", twice, count), axes, shape)
    return builder.call("multiply", share, builder.call("subtract", operand, mean))
