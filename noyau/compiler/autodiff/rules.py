"""The derivative of each kind of node: what it gives back to an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from noyau.compiler.autodiff.gradient_builder import GradientBuilder, map_back, zero_where_zero
from noyau.compiler.autodiff.reductions import reduce_back
from noyau.compiler.autodiff.scans import scan_back
from noyau.compiler.autodiff.views import gather_back, scatter_back, select_back, view_back
from noyau.errors import UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim
from noyau.ir.monoids import MONOIDS


def operand_gradient(
    builder: GradientBuilder,
    node: nodes.Node,
    operands: Sequence[nodes.Node],
    above: nodes.Node,
    position: int,
    *,
    masked: bool,
) -> nodes.Node | None:
    """The gradient of the operand at a position, or None where it is 0. `masked`: it is 0 where the node's own is."""
    operand = operands[position]
    match node.kind:
        case nodes.Map(function):
            return map_back(builder, node, function, operands, above, position)
        case nodes.Reduce(monoid, axes):
            below = reduce_back(builder, node, node.kind, operand, above)
            if not masked or MONOIDS[monoid].linear:
                return below
            wide = builder.expand_along(builder.cast(above, below.dtype), axes, below.shape)
            return zero_where_zero(builder, below, wide)
        case nodes.Scan():
            return scan_back(builder, node, node.kind, operand, above)
        case nodes.View(index):
            return view_back(builder, index, operand.shape, above)
        case nodes.Select():
            return select_back(builder, node.kind, operands, above, position)
        case nodes.Gather():
            return gather_back(builder, node.kind, operands, above)
        case nodes.Scatter():
            return scatter_back(builder, node, node.kind, operands, above, position)
        case nodes.Contract(equation):
            return contract_back(builder, node, equation, operands, above, position)
        case nodes.Opaque(name):
            raise UnsupportedError(f"{node.output} is made by {name}, which has no derivative here")
        case nodes.Part():
            raise UnsupportedError(f"{node.output} is a result of what has no derivative here")
        case nodes.Input() | nodes.Constant() | nodes.Iota():
            return None
        case _:
            assert_never(node.kind)


def contract_back(
    builder: GradientBuilder,
    node: nodes.Node,
    equation: str,
    operands: Sequence[nodes.Node],
    gradient: nodes.Node,
    position: int,
) -> nodes.Node:
    """The gradient of the operand at a position: another einsum, so that no operand is transposed. Letters that the
    operand alone has were summed, so that their gradient is read again along them."""
    terms, result = equation.replace(" ", "").split("->")
    letters, this, other = terms.split(","), operands[position], operands[1 - position]
    own, others = letters[position], letters[1 - position]
    if "." in equation or any(len(set(each)) < len(each) for each in (own, others, result)):
        raise UnsupportedError(f"{node.output}: the einsum {equation} names an axis twice, and has no derivative")
    rest_letters = "".join(letter for letter in own if letter in result or letter in others)
    shape = tuple(this.shape[own.index(letter)] for letter in rest_letters)
    dtype = gradient.dtype
    pair = [(result, gradient), (others, builder.cast(other, dtype))]
    pair = pair if position == 0 else pair[::-1]
    turned = f"{pair[0][0]},{pair[1][0]}->{rest_letters}"
    product = builder.emit(nodes.Contract(turned), [each for _, each in pair], dtype, shape)
    places = [Dim.of(f"#{own.index(letter)}") for letter in rest_letters]
    return builder.cast(builder.view(product, this.shape, places), this.dtype)
