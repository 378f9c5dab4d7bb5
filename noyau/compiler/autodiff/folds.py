"""Derivatives of folds, from left to right, by a function of the user.

With s_k the state before cell k, the cell's gradient is that of the result, times df/dx at (s_k, x_k), times df/ds of
every later step: a running result of the fold, and a running product from behind.
"""

from __future__ import annotations

from noyau.compiler.autodiff.gradient_builder import GradientBuilder, map_back
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Input, Map, Node, Reduce, Scan
from noyau.ir.monoids import STEPS, step_value


def fold_back(builder: GradientBuilder, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of what a fold took in, in the dtype that it computes in. UnsupportedError where a function of the
    step has no derivative."""
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
    before = builder.scan(Scan(monoid, axis, exclusive=True), cells)
    by_state, by_cell = _slopes(builder, monoid, before, cells)
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
