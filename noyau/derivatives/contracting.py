"""What an einsum of two operands gives back to one of them: another einsum, its letters in another order."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.derivatives.writing import Writer
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Node


def contract_back(
    writer: Writer, node: Node, equation: str, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The gradient of the operand at a position. No operand is transposed: the equation says the order. Letters that
    the operand alone has were summed, so that their gradient is read again along them."""
    terms, result = equation.replace(" ", "").split("->")
    letters, this, other = terms.split(","), operands[position], operands[1 - position]
    own, others = letters[position], letters[1 - position]
    if "." in equation or any(len(set(each)) < len(each) for each in (own, others, result)):
        raise UnsupportedError(f"{node.output}: the einsum {equation} names an axis twice, and has no derivative")
    made = "".join(letter for letter in own if letter in result or letter in others)
    shape = tuple(this.shape[own.index(letter)] for letter in made)
    dtype = gradient.dtype
    pair = [(result, gradient), (others, writer.cast(other, dtype))]
    pair = pair if position == 0 else pair[::-1]
    turned = f"{pair[0][0]},{pair[1][0]}->{made}"
    found = writer.emit(Contract(turned), [each for _, each in pair], dtype, shape)
    return writer.cast(writer.view(found, this.shape, _places(own, made)), this.dtype)


def _places(own: str, made: str) -> tuple[Dim, ...]:
    return tuple(Dim.of(f"#{own.index(letter)}") for letter in made)
