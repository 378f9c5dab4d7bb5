"""Formulas over an algebra: scalar functions applied to arrays, expressions, nodes of a graph or texts.

Derivatives are such formulas, written with the functions of the operator table, so that they can be emitted as nodes,
fused, and derived again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from noyau.dtypes import DType


class Algebra(Protocol):
    """Application of scalar functions to values of one sort: arrays, expressions, nodes or texts."""

    def call(self, name: str, *operands: Any) -> Any: ...

    def like(self, value: float, other: Any) -> Any:
        """A constant of the dtype of another value."""

    def cast(self, value: Any, dtype: DType) -> Any:
        """A value in another dtype."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A value of an algebra, with Python's operators; numbers take the dtype of what they meet."""

    algebra: Algebra
    value: Any

    def call(self, name: str, *others: Formula | float) -> Formula:
        return Formula(self.algebra, self.algebra.call(name, self.value, *(self.like(each) for each in others)))

    def like(self, other: Formula | float) -> Any:
        return other.value if isinstance(other, Formula) else self.algebra.like(other, self.value)

    def __add__(self, other: Formula | float) -> Formula:
        return self.call("add", other)

    def __sub__(self, other: Formula | float) -> Formula:
        return self.call("subtract", other)

    def __rsub__(self, other: float) -> Formula:
        return Formula(self.algebra, self.like(other)) - self

    def __mul__(self, other: Formula | float) -> Formula:
        return self.call("multiply", other)

    def __truediv__(self, other: Formula | float) -> Formula:
        return self.call("divide", other)

    def __neg__(self) -> Formula:
        return self.call("negative")


Rule = Callable[..., Formula]  # of the operands, the result y and the gradient g of the result


def where(condition: Formula, this: Formula | float, other: Formula | float) -> Formula:
    """Choose between two, of which one at least is a term."""
    like = this if isinstance(this, Formula) else other
    assert isinstance(like, Formula)
    return condition.call("where", Formula(like.algebra, like.like(this)), Formula(like.algebra, like.like(other)))


def power_by_first(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
    """Derive a ** b by a: 0 where the exponent is 0, whatever the base is."""
    return where(b.call("equal", 0.0), 0.0, g * (b * a.call("power", b - 1.0)))


def power_by_second(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
    """Derive a ** b by b: 0, the limit, where the base is 0 and the exponent is not below 0."""
    flat = a.call("equal", 0.0).call("logical_and", b.call("greater_equal", 0.0))
    return g * where(flat, 0.0, y * a.call("log"))


def inverse_square_length(a: Formula, b: Formula) -> Formula:
    """1 / (a * a + b * b), but 0 of the origin, as torch has it."""
    square = a * a + b * b
    return where(square.call("equal", 0.0), 0.0, square.call("reciprocal"))


def shared_by_ties(beaten: str) -> tuple[Rule, Rule]:
    """Derive maximum or minimum: nothing goes to the operand that is beaten, half to each of a tie, as in torch."""

    def first(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
        return where(a.call(beaten, b), 0.0, where(a.call("equal", b), g * 0.5, g))

    def second(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
        return where(b.call(beaten, a), 0.0, where(a.call("equal", b), g * 0.5, g))

    return first, second


def first_of_ties(holds: str) -> tuple[Rule, Rule]:
    """Derive fmax or fmin: all goes to the first operand where it wins, in a tie, or where the other is NaN."""

    def wins(a: Formula, b: Formula) -> Formula:
        return a.call(holds, b).call("logical_or", b.call("is_nan"))

    def first(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
        return where(wins(a, b), g, 0.0)

    def second(a: Formula, b: Formula, y: Formula, g: Formula) -> Formula:
        return where(wins(a, b), 0.0, g)

    return first, second
