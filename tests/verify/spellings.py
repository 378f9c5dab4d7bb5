"""Spellings of the functions that models write out by hand, in families: each spelling of one has the same real value.

`stable` of a family is the spelling that loses least: evaluated in float64 it is the real value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import noyau
from noyau import functions
from noyau.dtypes import DType
from noyau.frontends.numpy.derived_ufuncs import noyau_function
from noyau.ir.graph import Constant, Graph, Node
from noyau.kernels.programs.generate import Specialization, generate
from noyau.signatures.instances import bind

Spelling = Callable[..., Any]
# Near the constants of these functions, and of so few bits that every dtype has them: no spelling rounds its own.
ROOT, CUBIC, THIRD, QUICK, EPS = 181 / 256, 51 / 64, 91 / 2048, 109 / 64, 2.0**-17


@dataclass(frozen=True)
class Words:
    """The functions that NumPy and torch call by other names, beside those that both have."""

    library: Any
    erf: Spelling
    sigmoid: Spelling
    keeping: str  # the name of the option that keeps an axis

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def total(self, x: Any) -> Any:
        return x.sum(-1, **{self.keeping: True})

    def mean(self, x: Any) -> Any:
        return x.mean(-1, **{self.keeping: True})

    def top(self, x: Any) -> Any:
        return self.library.amax(x, -1, **{self.keeping: True})

    def above(self, x: Any) -> Any:
        """The larger of x and 0."""
        return self.library.clip(x, 0, None)


NUMPY = Words(np, noyau_function("erf", functions.erf), noyau_function("sigmoid", functions.sigmoid), "keepdims")


def cube(x: Any) -> Any:
    return CUBIC * (x + THIRD * x * x * x)


def centred(m: Words, x: Any) -> Any:
    return x - m.mean(x)


def soft(m: Words, x: Any) -> Any:
    """softplus without overflow or cancellation."""
    return m.above(x) + m.log1p(m.exp(-m.abs(x)))


def lse(m: Words, x: Any) -> Any:
    return m.top(x) + m.log(m.total(m.exp(x - m.top(x))))


def squares(m: Words, x: Any) -> Any:
    """The variance as a difference of squares."""
    return m.mean(x * x) - m.mean(x) * m.mean(x)


def variance(m: Words, x: Any) -> Any:
    return m.mean(centred(m, x) * centred(m, x))


def surprise(m: Words, x: Any) -> Any:
    """lse(x) - x, whose part for the other numbers of a row is no difference."""
    s = x - m.top(x)
    others, equal = m.total(m.where(s < 0, m.exp(s), 0 * s)), m.total(m.where(s < 0, 0 * s, 0 * s + 1))
    return m.log1p(others + (equal - 1)) - s


def length(m: Words, x: Any) -> Any:
    return m.sqrt(m.total(x * x))


FAMILIES: Mapping[str, Mapping[str, Spelling]] = {
    "gelu": {
        "stable": lambda m, x: x * (1 + m.erf(x * ROOT)) * 0.5,
        "half first": lambda m, x: 0.5 * x * (1 + m.erf(x / 2 * (2 * ROOT))),
        "half inside": lambda m, x: x * (0.5 + 0.5 * m.erf(x * ROOT)),
        "sum": lambda m, x: 0.5 * (x + x * m.erf(x * ROOT)),
        "difference": lambda m, x: x - 0.5 * x * (1 - m.erf(x * ROOT)),
    },
    "tanh gelu": {
        "stable": lambda m, x: x * m.sigmoid(2 * cube(x)),
        "half first": lambda m, x: 0.5 * x * (1 + m.tanh(cube(x))),
        "power": lambda m, x: 0.5 * x * (1 + m.tanh(CUBIC * (x + THIRD * x**3))),
        "half inside": lambda m, x: x * (0.5 * (1 + m.tanh(cube(x)))),
        "factors": lambda m, x: 0.5 * x * (1 + m.tanh(CUBIC * x * (1 + THIRD * x * x))),
        "sum": lambda m, x: 0.5 * (x + x * m.tanh(cube(x))),
        "exp": lambda m, x: x / (1 + m.exp(-2 * cube(x))),
        "difference": lambda m, x: x * (1 - 1 / (1 + m.exp(2 * cube(x)))),
    },
    "quick gelu": {
        "stable": lambda m, x: x * m.sigmoid(QUICK * x),
        "tanh": lambda m, x: 0.5 * x * (1 + m.tanh(QUICK / 2 * x)),
    },
    "silu": {
        "stable": lambda m, x: x * m.sigmoid(x),
        "exp": lambda m, x: x / (1 + m.exp(-x)),
        "tanh": lambda m, x: x * (0.5 * (1 + m.tanh(x * 0.5))),
        "difference": lambda m, x: x - x / (1 + m.exp(x)),
        "complement": lambda m, x: x * (1 - m.sigmoid(-x)),
    },
    "softplus": {
        "stable": soft,
        "log1p": lambda m, x: m.log1p(m.exp(x)),
        "log": lambda m, x: m.log(1 + m.exp(x)),
        "max and log": lambda m, x: m.above(x) + m.log(1 + m.exp(-m.abs(x))),
        "log of sigmoid": lambda m, x: -m.log(m.sigmoid(-x)),
        "log of complement": lambda m, x: -m.log(1 - m.sigmoid(x)),
        "difference": lambda m, x: x - m.log(m.sigmoid(x)),
    },
    "log-sum-exp": {
        "stable": lse,
        "plain": lambda m, x: m.log(m.total(m.exp(x))),
        "of softmax": lambda m, x: m.top(x) - m.log(m.top(m.exp(x - m.top(x)) / m.total(m.exp(x - m.top(x))))),
    },
    "variance": {
        "stable": variance,
        "squares": squares,
        "squares above 0": lambda m, x: m.above(squares(m, x)),
        "product": lambda m, x: m.mean(x * centred(m, x)),
    },
    "layer norm": {
        "stable": lambda m, x: centred(m, x) / m.sqrt(variance(m, x) + EPS),
        "squares": lambda m, x: centred(m, x) / m.sqrt(squares(m, x) + EPS),
        "reciprocal": lambda m, x: centred(m, x) * (1 / m.sqrt(variance(m, x) + EPS)),
    },
    "rms norm": {
        "stable": lambda m, x: x / m.sqrt(m.mean(x * x) + EPS),
        "reciprocal": lambda m, x: x * (1 / m.sqrt(m.mean(x * x) + EPS)),
        "power": lambda m, x: x * (m.mean(x**2) + EPS) ** -0.5,
    },
    "l2": {
        "stable": lambda m, x: x / m.sqrt(m.total(x * x) + EPS),
        "reciprocal": lambda m, x: x * (m.total(x**2) + EPS) ** -0.5,
    },
    "cosine": {
        "stable": lambda m, x, y: m.total(x * y) / (length(m, x) * length(m, y)),
        "of units": lambda m, x, y: m.total((x / length(m, x)) * (y / length(m, y))),
    },
    "cosine distance": {
        "stable": lambda m, x, y: 1 - m.total(x * y) / m.sqrt(m.total(x * x) * m.total(y * y)),
        "of roots": lambda m, x, y: 1 - m.total(x * y) * (m.total(x * x) * m.total(y * y)) ** -0.5,
    },
    "bce": {
        "stable": lambda m, x, y: m.above(x) - x * y + m.log1p(m.exp(-m.abs(x))),
        "softplus": lambda m, x, y: y * soft(m, -x) + (1 - y) * soft(m, x),
        "of sigmoids": lambda m, x, y: -(y * m.log(m.sigmoid(x)) + (1 - y) * m.log(1 - m.sigmoid(x))),
        "log": lambda m, x, y: m.log(1 + m.exp(x)) - x * y,
    },
    "cross entropy": {
        "stable": lambda m, x, y: m.total(y * (lse(m, x) - x)),
        "log of softmax": lambda m, x, y: -m.total(y * m.log(m.exp(x - m.top(x)) / m.total(m.exp(x - m.top(x))))),
        "log-softmax": lambda m, x, y: -m.total(y * (x - m.top(x) - m.log(m.total(m.exp(x - m.top(x)))))),
    },
    "entropy": {
        "stable": lambda m, x: m.total(m.exp(-surprise(m, x)) * surprise(m, x)),
        "difference": lambda m, x: lse(m, x) - m.total(m.exp(x - lse(m, x)) * x),
        "of softmax": lambda m, x: lse(m, x) - m.total(m.exp(x - m.top(x)) / m.total(m.exp(x - m.top(x))) * x),
    },
    "elu": {
        "stable": lambda m, x: m.above(x) + m.expm1(-m.above(-x)),
        "plain": lambda m, x: m.above(x) + (m.exp(-m.above(-x)) - 1),
        "sum first": lambda m, x: m.above(x) + m.exp(-m.above(-x)) - 1,
    },
    "mish": {
        "stable": lambda m, x: x * m.tanh(soft(m, x)),
        "squares": lambda m, x: x * ((1 + m.exp(x)) ** 2 - 1) / ((1 + m.exp(x)) ** 2 + 1),
    },
    "pseudo huber": {
        "stable": lambda m, x: x * x / (m.sqrt(1 + x * x) + 1),
        "difference": lambda m, x: m.sqrt(1 + x * x) - 1,
    },
    "log of 1 - tanh squared": {
        "stable": lambda m, x: -2 * (m.abs(x) + m.log1p(0.5 * m.expm1(-2 * m.abs(x)))),
        "plain": lambda m, x: m.log(1 - m.tanh(x) * m.tanh(x)),
    },
}

OF_ROWS = ("log-sum-exp", "variance", "cosine", "cosine distance", "cross entropy", "entropy")  # one number for each


def graph_of(family: str, name: str, dtype: DType) -> Graph:
    """A spelling as NumPy's front end traces it; in bfloat16, with which NumPy's numbers make float32, as in float16
    with the other dtype in each place, which is what torch's front end makes of it."""
    spelling = FAMILIES[family][name]
    names = "xy"[: spelling.__code__.co_argcount - 1]
    scope: dict[str, Any] = {"spelling": spelling, "m": NUMPY}
    exec(f"def op({', '.join(names)}):\n    return spelling(m, {', '.join(names)})", scope)
    traced = DType.F16 if dtype is DType.BF16 else dtype
    rows = f"{traced.value}[rows, n]"
    result = f"{traced.value}[rows, {1 if family in OF_ROWS else 'n'}]"
    op = noyau.op(f"{', '.join([rows] * len(names))} -> {result}")(scope["op"])
    instance = bind(op.signature, [np.ones((2, 3), traced.numpy)] * len(names), {}, "op").instance
    graph = generate(op.description, Specialization(instance)).graph
    return replace(graph, nodes=tuple(_retyped(node, traced, dtype) for node in graph.nodes))


def _retyped(node: Node, old: DType, new: DType) -> Node:
    if node.dtype is not old:
        return node
    kind = Constant(node.kind.value.astype(new.numpy)) if isinstance(node.kind, Constant) else node.kind
    return replace(node, kind=kind, dtype=new)
