"""The table of derivatives: what each scalar function of `ir/operators.py` gives back to each of its operands.

A rule is a formula over terms: the operands, the result y and the gradient g of the result. It is written with the
operators of the table, so that it can be emitted as nodes of a graph, fused, and derived again; `spelt` prints it.
Ties of maximum and minimum are split evenly, as torch does, and those of fmax and fmin go to the first operand.

What scalar functions give back to their operands, by the table of derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Node
from noyau.ir.monoids import Algebra
from noyau.ir.operators import OPERATORS

LOG_2, LOG_10, TWO_BY_ROOT_PI = math.log(2), math.log(10), 2 / math.sqrt(math.pi)


@dataclass(frozen=True, slots=True)
class Term:
    """A value of an algebra, with Python's operators; numbers take the dtype of what they meet."""

    algebra: Algebra
    value: Any

    def call(self, name: str, *others: Term | float) -> Term:
        return Term(self.algebra, self.algebra.call(name, self.value, *(self.like(each) for each in others)))

    def like(self, other: Term | float) -> Any:
        return other.value if isinstance(other, Term) else self.algebra.like(other, self.value)

    def __add__(self, other: Term | float) -> Term:
        return self.call("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.call("subtract", other)

    def __rsub__(self, other: float) -> Term:
        return Term(self.algebra, self.like(other)) - self

    def __mul__(self, other: Term | float) -> Term:
        return self.call("multiply", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.call("divide", other)

    def __neg__(self) -> Term:
        return self.call("negative")


Rule = Callable[..., Term]


def where(condition: Term, this: Term | float, other: Term | float) -> Term:
    """One of two, of which one at least is a term."""
    like = this if isinstance(this, Term) else other
    assert isinstance(like, Term)
    return condition.call("where", Term(like.algebra, like.like(this)), Term(like.algebra, like.like(other)))


def _power_by_first(a: Term, b: Term, y: Term, g: Term) -> Term:
    """0 where the exponent is 0, whatever the base is."""
    return where(b.call("equal", 0.0), 0.0, g * (b * a.call("power", b - 1.0)))


def _power_by_second(a: Term, b: Term, y: Term, g: Term) -> Term:
    """0 where the base is 0 and the exponent is not below 0: the limit."""
    flat = a.call("equal", 0.0).call("logical_and", b.call("greater_equal", 0.0))
    return g * where(flat, 0.0, y * a.call("log"))


def _chosen(beaten: str) -> tuple[Rule, Rule]:
    """Of maximum or minimum: nothing where the operand is beaten, half where there is a tie."""

    def first(a: Term, b: Term, y: Term, g: Term) -> Term:
        return where(a.call(beaten, b), 0.0, where(a.call("equal", b), g * 0.5, g))

    def second(a: Term, b: Term, y: Term, g: Term) -> Term:
        return where(b.call(beaten, a), 0.0, where(a.call("equal", b), g * 0.5, g))

    return first, second


def _preferred(holds: str) -> tuple[Rule, Rule]:
    """Of fmax or fmin: all to the first operand where it wins, where there is a tie, or where the other is NaN."""

    def wins(a: Term, b: Term) -> Term:
        return a.call(holds, b).call("logical_or", b.call("is_nan"))

    def first(a: Term, b: Term, y: Term, g: Term) -> Term:
        return where(wins(a, b), g, 0.0)

    def second(a: Term, b: Term, y: Term, g: Term) -> Term:
        return where(wins(a, b), 0.0, g)

    return first, second


DERIVATIVES: dict[str, tuple[Rule | None, ...]] = {
    "identity": (lambda x, y, g: g,),
    "rounded": (lambda x, y, g: g,),
    "negative": (lambda x, y, g: -g,),
    "abs": (lambda x, y, g: g * x.call("sign"),),
    "add": (lambda a, b, y, g: g, lambda a, b, y, g: g),
    "subtract": (lambda a, b, y, g: g, lambda a, b, y, g: -g),
    "multiply": (lambda a, b, y, g: g * b, lambda a, b, y, g: g * a),
    "divide": (lambda a, b, y, g: g / b, lambda a, b, y, g: -(g * y / b)),
    "floor_mod": (lambda a, b, y, g: g, lambda a, b, y, g: -g * a.call("floor_divide", b)),
    "fmod": (lambda a, b, y, g: g, lambda a, b, y, g: -g * (a / b).call("truncate")),
    "power": (_power_by_first, _power_by_second),
    "exp": (lambda x, y, g: g * y,),
    "exp2": (lambda x, y, g: g * y * LOG_2,),
    "expm1": (lambda x, y, g: g * (y + 1.0),),
    "log": (lambda x, y, g: g / x,),
    "log2": (lambda x, y, g: g / (x * LOG_2),),
    "log10": (lambda x, y, g: g / (x * LOG_10),),
    "log1p": (lambda x, y, g: g / (x + 1.0),),
    "sqrt": (lambda x, y, g: g / (y * 2.0),),
    "rsqrt": (lambda x, y, g: g * -0.5 * (y * y * y),),
    "reciprocal": (lambda x, y, g: -g * (y * y),),
    "sin": (lambda x, y, g: g * x.call("cos"),),
    "cos": (lambda x, y, g: -g * x.call("sin"),),
    "tan": (lambda x, y, g: g * (y * y + 1.0),),
    "asin": (lambda x, y, g: g * (1.0 - x * x).call("rsqrt"),),
    "acos": (lambda x, y, g: -g * (1.0 - x * x).call("rsqrt"),),
    "atan": (lambda x, y, g: g / (x * x + 1.0),),
    "sinh": (lambda x, y, g: g * x.call("cosh"),),
    "cosh": (lambda x, y, g: g * x.call("sinh"),),
    "tanh": (lambda x, y, g: g * (1.0 - y * y),),
    "asinh": (lambda x, y, g: g * (x * x + 1.0).call("rsqrt"),),
    "acosh": (lambda x, y, g: g * (x * x - 1.0).call("rsqrt"),),
    "atanh": (lambda x, y, g: g / (1.0 - x * x),),
    "erf": (lambda x, y, g: g * ((-(x * x)).call("exp") * TWO_BY_ROOT_PI),),
    "sigmoid": (lambda x, y, g: g * (y * (1.0 - y)),),
    "softplus": (lambda x, y, g: g * x.call("sigmoid"),),
    "maximum": _chosen("less"),
    "minimum": _chosen("greater"),
    "fmax": _preferred("greater_equal"),
    "fmin": _preferred("less_equal"),
    "where": (None, lambda c, a, b, y, g: where(c, g, 0.0), lambda c, a, b, y, g: where(c, 0.0, g)),
    "cast": (lambda x, y, g: g,),
}

# Constant between their steps: the gradient is 0, and where they step there is none.
FLAT = frozenset({"sign", "floor", "ceil", "truncate", "round_even", "floor_divide"})

# What gives its gradient to one of its operands alone, so that that of another is 0 there whatever came of it.
CHOOSING = frozenset({"where", "maximum", "minimum", "fmax", "fmin"})

# What hands a gradient on as it is, or not at all: no product with a NaN or an infinity can come of it.
PLAIN = CHOOSING | {"identity", "negative", "add", "subtract", "cast"}


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


def spelt(function: str) -> tuple[str, ...]:
    """The derivative by each operand in words: a formula, "0", or "none" where there is none to have."""
    operator = OPERATORS[function]
    if function in FLAT:
        return ("0",) * operator.arity
    algebra = Spelling()
    names: Sequence[str] = {1: ("x",), 2: ("a", "b"), 3: ("c", "a", "b")}[operator.arity]
    terms = [Term(algebra, name) for name in (*names, "y", "g")]
    rules = DERIVATIVES.get(function, (None,) * operator.arity)
    return tuple("none" if rule is None else str(rule(*terms).value) for rule in rules)


def map_back(
    builder: GradientBuilder, node: Node, function: str, operands: Sequence[Node], gradient: Node, position: int
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
    given = [builder.cast(each, exact) if each.dtype.is_float else each for each in (*operands, node, gradient)]
    found: Node = rule(*(Term(builder, each) for each in given)).value
    return found


def silenced(builder: GradientBuilder, value: Node, gradient: Node) -> Node:
    """A value where the gradient is not 0, else 0."""
    none = builder.like(0.0, gradient)
    return builder.call("where", builder.call("equal", gradient, none), builder.like(0.0, value), value)
