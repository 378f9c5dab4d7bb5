"""Einsum: two operands are a contraction, one is a view and a sum."""

from __future__ import annotations

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, Site
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Node


def _einsum(site: Site) -> Node:
    inputs, output = terms(site.attribute("equation", ""))
    operands = site.all_inputs()
    if len(inputs) != len(operands) or any(len(t) != len(o.shape) for t, o in zip(inputs, operands, strict=True)):
        raise UnsupportedError("Einsum is given operands that do not fit its equation")
    extents: dict[str, Dim] = {}
    for term, operand in zip(inputs, operands, strict=True):
        for letter, dim in zip(term, operand.shape, strict=True):
            site.demand_equal(extents.setdefault(letter, dim), dim)
    if len(set(output)) != len(output) or not set(output) <= set(extents):
        raise UnsupportedError("Einsum names an axis of its result that no operand has")
    if len(operands) == 1:
        return _summed(site, operands[0], inputs[0], output, extents)
    if len(operands) != 2 or any(len(set(term)) != len(term) for term in inputs):
        raise UnsupportedError("Einsum of more than two operands, or of a diagonal, is a library call")
    shape = tuple(extents[letter] for letter in output)
    equation = f"{inputs[0]},{inputs[1]}->{output}"
    return site.emit(Contract(equation), operands, operands[0].dtype, shape)


def terms(equation: str) -> tuple[list[str], str]:
    """The letters of the operands and of the result; the result of an equation without -> is what appears once."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not left.replace(",", "").isalpha() or not (right.isalpha() or not right):
        raise UnsupportedError("Einsum with an ellipsis is a library call")
    letters = left.replace(",", "")
    implied = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return left.split(","), right if arrow else implied


def _summed(site: Site, value: Node, term: str, output: str, extents: dict[str, Dim]) -> Node:
    """The diagonals of one operand, summed over what the result does not name, in the result's order."""
    summed = [letter for letter in dict.fromkeys(term) if letter not in output]
    order = [*output, *summed]
    index = [f"#{order.index(letter)}" for letter in term]
    spread = site.view(value, tuple(extents[letter] for letter in order), index)
    return site.reduce("sum", spread, range(len(output), len(order))) if summed else spread


CONTRACTING: dict[str, Importer] = {"Einsum": _einsum}
