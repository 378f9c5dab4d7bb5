"""What a fold from left to right, by a function of the user, gives back to the cells that it took in.

With s_k the state before cell k, the cell's gradient is that of the result, times df/dx at (s_k, x_k), times df/ds of
every later step: a running result of the fold, and a running product from behind."""

from __future__ import annotations

from noyau.derivatives.maps import map_back
from noyau.derivatives.writing import Writer
from noyau.ir.dims import Dim, product
from noyau.ir.folding import STEPS
from noyau.ir.graph import Constant, Input, Map, Node, Reduce, Scan


def fold_back(writer: Writer, kind: Reduce, operand: Node, gradient: Node) -> Node:
    """The gradient of what a fold took in, in the dtype that it computes in. UnsupportedError where a function of the
    step has no derivative."""
    cells = writer.cast(operand, operand.dtype.compute)
    if len(kind.axes) == 1:
        return _along(writer, kind.monoid, cells, gradient, kind.axes[0])
    kept = [axis for axis in range(len(cells.shape)) if axis not in kind.axes]
    total, last = product(cells.shape[axis] for axis in kind.axes), len(kept)
    there, back = [Dim.of(0)] * len(cells.shape), Dim.of(0)
    inner = Dim.of(1)
    for axis in reversed(kind.axes):
        there[axis] = Dim.of(f"#{last}") // inner % cells.shape[axis]
        back, inner = back + Dim.of(f"#{axis}") * inner, inner * cells.shape[axis]
    for place, axis in enumerate(kept):
        there[axis] = Dim.of(f"#{place}")
    flat = writer.view(cells, (*(cells.shape[axis] for axis in kept), total), there)
    made = _along(writer, kind.monoid, flat, gradient, last)
    return writer.view(made, cells.shape, (*(Dim.of(f"#{axis}") for axis in kept), back))


def _along(writer: Writer, monoid: str, cells: Node, gradient: Node, axis: int) -> Node:
    before = writer.scan(Scan(monoid, axis, exclusive=True), cells)
    by_state, by_cell = _slopes(writer, monoid, before, cells)
    later = writer.scan(Scan("prod", axis, exclusive=True, reverse=True), by_state)
    above = writer.restore(writer.cast(gradient, cells.dtype), [axis], cells.shape)
    return writer.call("multiply", above, writer.call("multiply", later, by_cell))


def _slopes(writer: Writer, monoid: str, state: Node, cells: Node) -> tuple[Node, Node]:
    """The derivatives of a step by the state and by the cell, everywhere."""
    step = STEPS[monoid]
    first, second = (node.output for node in step.inputs)
    values = {first: state, second: cells}
    for node in step.nodes:
        if not isinstance(node.kind, Input):
            values[node.output] = _value(writer, node, [values[name] for name in node.inputs], state)
    none = writer.like(0.0, state)
    found = {step.outputs[0]: writer.like(1.0, state)}
    for node in reversed(step.nodes):
        if not isinstance(node.kind, Map) or node.output not in found:
            continue
        operands = [values[name] for name in node.inputs]
        for position, name in enumerate(node.inputs):
            above = writer.cast(found[node.output], values[node.output].dtype)
            made = None
            if operands[position].dtype.is_float:
                made = map_back(writer, values[node.output], node.kind.function, operands, above, position)
            if made is not None:
                found[name] = writer.call("add", found[name], made) if name in found else made
    return found.get(first, none), found.get(second, none)


def _value(writer: Writer, node: Node, operands: list[Node], state: Node) -> Node:
    """A value of the step, for every cell."""
    match node.kind:
        case Constant(value):
            return writer.number(value.item(), node.dtype, state.shape)
        case Map("cast"):
            return writer.cast(operands[0], node.dtype)
        case Map("identity"):
            return operands[0]
        case Map(function):
            return writer.call(function, *operands)
        case _:
            raise AssertionError(node)
