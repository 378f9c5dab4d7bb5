"""Derivatives of scalar functions: the rules of `ir/operators.py`, emitted as nodes or printed as formulas."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.formulas import Formula
from noyau.ir.graph import Node
from noyau.ir.operators import OPERATORS, Fact, has

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "logical_and": "and", "logical_or": "or"}
_COMPARISONS = {"equal": "=", "less": "<", "greater": ">", "greater_equal": ">=", "less_equal": "<="}


class Spelling:
    """The algebra of texts: a formula as it is read."""

    def call(self, name: str, *operands: str) -> str:
        signs = {**_SIGNS, **_COMPARISONS}
        if name == "negative":
            return f"-{_bracketed(operands[0])}"
        if name == "where":
            return f"({operands[1]} where {operands[0]}, else {operands[2]})"
        if name in signs:
            left = operands[0] if name == "multiply" and _is_product(operands[0]) else _bracketed(operands[0])
            return f"{left} {signs[name]} {_bracketed(operands[1])}"
        return f"{name}({', '.join(operands)})"

    def like(self, value: float, other: str) -> str:
        return f"{value:.6g}"

    def cast(self, value: str, dtype: DType) -> str:
        return f"{dtype.value}({value})"


def _bracketed(text: str) -> str:
    depth = 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == " " and not depth:
            return f"({text})"
    return text


def _is_product(text: str) -> bool:
    return not any(f" {sign} " in text for sign in ("+", "-", "/", "where", "and", "or"))


def formula_texts(function: str) -> tuple[str, ...]:
    """The derivative by each operand in words: a formula, "0", or "none" where there is none to have."""
    operator = OPERATORS[function]
    if has(function, Fact.STEPS):
        return ("0",) * operator.arity
    algebra = Spelling()
    names: Sequence[str] = {1: ("x",), 2: ("a", "b"), 3: ("c", "a", "b")}[operator.arity]
    terms = [Formula(algebra, name) for name in (*names, "y", "g")]
    rules = operator.derivative or (None,) * operator.arity
    return tuple("none" if rule is None else str(rule(*terms).value) for rule in rules)


def map_back(
    builder: GradientBuilder, node: Node, function: str, operands: Sequence[Node], gradient: Node, position: int
) -> Node | None:
    """The gradient of the operand at a position, in the dtype that the function computes in; None where it is 0
    everywhere. UnsupportedError where the table has no derivative."""
    if has(function, Fact.STEPS):
        return None
    rules = OPERATORS[function].derivative
    rule = rules[position] if position < len(rules) else None
    if rule is None:
        raise UnsupportedError(f"{node.output}: {function} has no derivative in the table")
    if function == "cast":
        return gradient
    exact = node.dtype.compute
    terms = [builder.cast(each, exact) if each.dtype.is_float else each for each in (*operands, node, gradient)]
    result: Node = rule(*(Formula(builder, each) for each in terms)).value
    return result


def zero_where_zero(builder: GradientBuilder, value: Node, gradient: Node) -> Node:
    """A value where the gradient is not 0, else 0."""
    none = builder.like(0.0, gradient)
    return builder.call("where", builder.call("equal", gradient, none), builder.like(0.0, value), value)
