"""The plan of a reduction, one of the table or a fold in order, by the graph of its function; and its reference."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from noyau import functions
from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError, UnsupportedError
from noyau.ir.graph import Graph, Map, Node
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, left_fold
from noyau.ir.operators import OPERATORS
from noyau.ops.higher_order.closures import Scalar
from noyau.ops.higher_order.scalar_trace import form, graph_over, needs, normal, reordered
from noyau.ops.higher_order.signature_forms import elements_of, reduce_signatures

Step = Callable[..., Any]
_LAST = {**BY_FUNCTION, "subtract": "sum"}  # by the function that a step ends with, the monoid of what it is given
_JOINS: Mapping[str, Any] = {
    **{monoid: OPERATORS[function].evaluate for function, monoid in BY_FUNCTION.items()},
    "logsumexp": np.logaddexp,
}
_IN_ORDER = frozenset({"subtract"})  # of which the state must be the first operand
_ROUNDS = 3  # in which the dtype of a state settles


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The plan of a reduction. `monoid`: of the table; `dtype`: of the state; `neutral`: with it as the state, the
    function gives what the monoid merges, None where that is the number itself; `closes`: whether the start is joined
    at the end, for the monoid does not begin with it."""

    monoid: str
    dtype: np.dtype
    neutral: Any = None
    closes: bool = False

    def joined(self, start: float, merged: Any) -> Any:
        """The start and what the monoid gave."""
        return _JOINS[self.monoid](start, merged)


def way_of(step: Step, start: float, numbers: np.dtype, label: str) -> ReductionPlan:
    """Plan the reduction of numbers of a dtype by `step(state, number)` from `start` on.

    UnsupportedError where the step is not traced or settles on no dtype, SignatureError for an unknown dtype."""
    state = _joined(numbers, start, label)
    for _ in range(_ROUNDS):
        graph = _traced(step, state, numbers)
        dtype = graph[graph.outputs[0]].dtype
        monoid = _monoid(graph)
        if dtype is state:
            break
        state = dtype if monoid is not None else state_dtype(np.promote_types(state.numpy, dtype.numpy), label)
    else:
        raise UnsupportedError(f"{label}: the state is {state.value}, then {dtype.value}; cast what the function gives")
    if monoid is not None:
        empty, one = MONOIDS[monoid].init(state)[0], normal(graph)
        last = _last(one)
        is_plain = set(last.inputs) == {node.output for node in one.inputs} and last.kind != Map("subtract")
        neutral = None if is_plain or monoid == "logsumexp" else -0.0 if monoid == "sum" and state.is_float else empty
        return ReductionPlan(monoid, state.numpy, neutral, start != empty)
    graph = _traced(step, state.compute, state.compute.numpy)
    if graph[graph.outputs[0]].dtype is not state.compute:
        raise UnsupportedError(f"{label}: a state of {state.value} does not stay one; cast what the function gives")
    return ReductionPlan(left_fold(graph, start), state.numpy)


def _traced(step: Step, state: DType, numbers: np.dtype) -> Graph:
    names = step.__code__.co_varnames[:2]
    number = from_numpy(numbers)
    if number is None or number is DType.OTHER:
        raise UnsupportedError(f"{step.__name__} takes no {numbers}, which noyau has not")
    return graph_over(step, names, [state, number], step.__kwdefaults__ or {})


def _monoid(graph: Graph) -> str | None:
    """The monoid that a step joins a number, or what it makes of one, to the state by; None for no such step."""
    one = normal(graph)
    state = one.inputs[0].output
    last = _last(one)
    if isinstance(last.kind, Map) and last.kind.function in _LAST and len(last.inputs) == 2:
        function, operands = last.kind.function, last.inputs
        sides = [side for side in (0, 1) if operands[side] == state and not needs(one, operands[1 - side], state)]
        is_turned = function in _IN_ORDER and sides[:1] == [1]
        if sides and not is_turned and last.dtype.kind in MONOIDS[_LAST[function]].accepts:
            return _LAST[function]
    return "logsumexp" if _is_logaddexp(one, graph) else None


def _last(graph: Graph) -> Node:
    """The node that makes the result, but for identities."""
    node = graph[graph.outputs[0]]
    while node.kind == Map("identity"):
        node = graph[node.inputs[0]]
    return node


def _joined(numbers: np.dtype, start: float, label: str) -> DType:
    """The dtype of a state that begins with a number and takes in numbers of a dtype: NumPy's."""
    dtype = from_numpy(numbers)
    if isinstance(start, bool | np.bool_):
        return DType.BOOL  # a function of numbers widens it
    if dtype is not None and dtype.is_float and not isinstance(start, np.generic):
        return dtype  # beside a bfloat16 NumPy takes a number of Python for a float64
    return state_dtype(np.result_type(numbers, start), label)


def state_dtype(dtype: np.dtype, label: str) -> DType:
    """The DType of a state. SignatureError where noyau has none."""
    result = from_numpy(dtype)
    if result is None or result is DType.OTHER:
        raise SignatureError(f"{label}: noyau has no dtype for a state of {dtype}")
    return result


def _is_logaddexp(one: Graph, graph: Graph) -> bool:
    """Whether it is what np.logaddexp is, up to names."""
    dtypes = [node.dtype for node in graph.inputs]
    if not all(dtype.is_float for dtype in dtypes):
        return False
    names = [node.output for node in graph.inputs]
    both = (graph_over(np.logaddexp, order, dtypes, {}) for order in (names, names[::-1]))
    return any(form(one) == form(normal(reordered(other, names))) for other in both)


class Ways:
    """The plans of a reduction, by the dtype of its numbers."""

    def __init__(self, step: FunctionType, start: float, called: str) -> None:
        self.step, self.start, self.called = step, start, called
        self.known: dict[np.dtype, ReductionPlan] = {}

    def over(self, dtype: np.dtype) -> ReductionPlan:
        """UnsupportedError where the function cannot be traced for numbers of this dtype."""
        if dtype not in self.known:
            self.known[dtype] = way_of(self.step, self.start, dtype, self.called)
        return self.known[dtype]

    def axes(self, axis: Any, rank: int) -> tuple[int, ...]:
        """The axes that a call names, in order. SignatureError for one that there is not."""
        if axis is None:
            return tuple(range(rank))
        axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
        known = [isinstance(each, int | np.integer) and not isinstance(each, bool) for each in axes]
        if not axes or not all(known) or any(not -rank <= each < rank for each in axes):
            raise SignatureError(f"{self.called}: axis={axis!r} names no axis of {rank}")
        places = sorted(operator.index(each) % rank for each in axes)
        if len(set(places)) < len(places):
            raise SignatureError(f"{self.called}: axis={axis!r} names an axis twice")
        return tuple(places)

    def texts(self) -> dict[str, Mapping[str, Any]]:
        """Signatures of it, with the arguments that they are of."""
        elements = next(elements_of(lambda dtype: state_dtype(self.over(dtype.numpy).dtype, self.called)), None)
        return reduce_signatures(*elements, "x") if elements else {}


def reduction_along(whole: Scalar, axis: int | None, keepdims: bool) -> Scalar:
    """A reduction along one axis, or along all."""

    def along(x: Any) -> Any:
        return whole(x, axis=axis, keepdims=keepdims)

    return along


def reduction_over(ways: Ways) -> Scalar:
    step, start, join = ways.step, ways.start, functions.reduce

    def reduction(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        if not x.ndim:
            return step(start, x)
        way = ways.over(x.dtype)
        cells = x if way.neutral is None else step(way.neutral, x)
        merged = join(way.monoid, cells.astype(way.dtype), ways.axes(axis, x.ndim), keepdims=keepdims)
        return way.joined(start, merged) if way.closes else merged

    return reduction
