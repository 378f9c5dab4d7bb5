"""What scalar functions give back to their operands, by the table of derivatives."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.derivatives.functions import DERIVATIVES, FLAT, Term
from noyau.derivatives.writing import Writer
from noyau.errors import UnsupportedError
from noyau.ir.graph import Node


def map_back(
    writer: Writer, node: Node, function: str, operands: Sequence[Node], gradient: Node, position: int
) -> Node | None:
    """The gradient of the operand at a position, in the dtype that the function computes in; None where it is 0
    everywhere. UnsupportedError where the table has no derivative."""
    if function in FLAT:
        return None
    rules = DERIVATIVES.get(function, ())
    rule = rules[position] if position < len(rules) else None
    if rule is None:
        raise UnsupportedError(f"{node.output}: {function} has no derivative in the table")
    if function == "cast":
        return gradient
    exact = node.dtype.compute
    given = [writer.cast(each, exact) if each.dtype.is_float else each for each in (*operands, node, gradient)]
    found: Node = rule(*(Term(writer, each) for each in given)).value
    return found


def silenced(writer: Writer, value: Node, gradient: Node) -> Node:
    """A value where the gradient is not 0, else 0."""
    none = writer.like(0.0, gradient)
    return writer.call("where", writer.call("equal", gradient, none), writer.like(0.0, value), value)
