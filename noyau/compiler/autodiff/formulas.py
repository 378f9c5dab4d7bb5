"""Formulas of the derivatives of scalar functions, as texts to read."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.dtypes import DType
from noyau.ir.operators import OPERATORS, Fact, Formula, has

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "logical_and": "and", "logical_or": "or"}
_SIGNS |= {"equal": "=", "less": "<", "greater": ">", "greater_equal": ">=", "less_equal": "<="}


class Spelling:
    """The algebra of texts: a formula as it is read."""

    def call(self, name: str, *operands: str) -> str:
        if name == "negative":
            return f"-{_bracketed(operands[0])}"
        if name == "where":
            return f"({operands[1]} where {operands[0]}, else {operands[2]})"
        if name in _SIGNS:
            left = operands[0] if name == "multiply" and _is_product(operands[0]) else _bracketed(operands[0])
            return f"{left} {_SIGNS[name]} {_bracketed(operands[1])}"
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
