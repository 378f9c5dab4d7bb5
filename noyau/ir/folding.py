"""Monoids of a user's own: a scalar function that takes in one value after the other, from left to right.

Nothing is asked of the function: it need not be associative, for its states are never merged with one another."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph, Input, Map, Node
from noyau.ir.monoids import MONOIDS, Algebra, Monoid, State
from noyau.ir.operators import OPERATORS

STEPS: dict[str, Graph] = {}  # the graph of each, by its name: its inputs are the state and a value


def left_fold(step: Graph, start: float) -> str:
    """The name, in the table of monoids, of the fold f(... f(f(start, x0), x1) ..., xn).

    `step`: a graph of scalars with two inputs, the state and a value, and one output, all of one dtype. The name is a
    digest of it, so that equal folds are one. UnsupportedError where a step is no scalar function."""
    name = f"fold_{_digest(step, start)}"
    if name not in MONOIDS:
        MONOIDS[name], STEPS[name] = _monoid(name, step, start), step
    return name


def _monoid(name: str, step: Graph, start: float) -> Monoid:
    output = step.outputs[0]
    dtype = step[output].dtype
    for node in step.nodes:
        if not isinstance(node.kind, Input | Constant | Map) or node.shape:
            raise UnsupportedError(f"{node.output} is a {type(node.kind).__name__}, and a fold takes scalar functions")

    given = [node.output for node in step.inputs]
    computed = [node for node in step.nodes if not isinstance(node.kind, Input)]

    def merge(algebra: Algebra, a: State, b: State) -> State:
        values = dict(zip(given, (a[0], b[0]), strict=True))
        for node in computed:
            values[node.output] = _value(algebra, node, [values[x] for x in node.inputs], a[0], dtype)
        return (values[output],)

    return Monoid(
        name,
        "a function of the user, from left to right",
        False,
        False,
        lambda source: (start,),
        lambda algebra, value, position: (value,),
        merge,
        accepts=frozenset({dtype.kind}),
        flops=sum(OPERATORS[node.kind.function].flops for node in step.nodes if isinstance(node.kind, Map)),
        ordered=True,
    )


def _value(algebra: Algebra, node: Node, operands: list[Any], state: Any, dtype: DType) -> Any:
    """A value of the step; numbers in its own dtype are as wide as the state is."""
    match node.kind:
        case Constant(value):
            made = algebra.like(value.item(), state)
            return made if node.dtype is dtype else algebra.cast(made, node.dtype)
        case Map("cast"):
            return algebra.cast(operands[0], node.dtype)
        case Map("identity"):
            return operands[0]
        case Map(function):
            return algebra.call(function, *operands)
        case _:
            raise AssertionError(node)


def _digest(step: Graph, start: float) -> str:
    places = {node.output: place for place, node in enumerate(step.nodes)}
    told = [(_kind(node), [places[name] for name in node.inputs], node.dtype.value) for node in step.nodes]
    ends = [places[name] for name in step.outputs]
    signed = math.copysign(1, start)  # -0.0 is no 0.0
    return hashlib.sha256(repr((told, ends, start, signed)).encode()).hexdigest()[:12]


def _kind(node: Node) -> object:
    match node.kind:
        case Constant(value):
            return value.tobytes()
        case Map(function):
            return function
        case kind:
            return type(kind).__name__
