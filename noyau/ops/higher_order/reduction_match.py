"""Match a function of a state and a number, by its graph, with a reduction: one of the table, or a fold in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.compiler.passes.normal_form import normalise
from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError, UnsupportedError
from noyau.ir.graph import Graph, Map, View
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, left_fold
from noyau.ir.operators import OPERATORS
from noyau.ops.higher_order.scalar_trace import graph_over

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

    @property
    def is_ordered(self) -> bool:
        """Whether it takes one number after the other, from the first to the last."""
        return MONOIDS[self.monoid].ordered

    def joined(self, start: float, merged: Any) -> Any:
        """The start and what the monoid gave."""
        return _JOINS[self.monoid](start, merged)


def way_of(step: Step, start: float, given: np.dtype, label: str) -> ReductionPlan:
    """Plan the reduction of numbers of a dtype by `step(state, number)` from `start` on.

    UnsupportedError where the step cannot be traced or its dtype never settles; SignatureError where the start is no
    number of that dtype."""
    state = _joined(given, start, label)
    for _ in range(_ROUNDS):
        graph = _traced(step, state, given)
        made = graph[graph.outputs[0]].dtype
        monoid = _monoid(graph, step)
        if made is state:
            break
        state = made if monoid is not None else _wider(state, made, label)
    else:
        raise UnsupportedError(f"{label}: the state is {state.value}, then {made.value}; cast what the function gives")
    if monoid is not None:
        return _of_table(monoid, graph, state, start, step)
    graph = _traced(step, state.compute, state.compute.numpy)
    if graph[graph.outputs[0]].dtype is not state.compute:
        raise UnsupportedError(f"{label}: a state of {state.value} does not stay one; cast what the function gives")
    return ReductionPlan(left_fold(graph, start), state.numpy)


def normal(graph: Graph) -> Graph:
    """The one spelling of a function of numbers, with its inputs in their order."""
    names = [node.output for node in graph.inputs]
    made = normalise(graph)
    kept = {node.output: node for node in made.inputs if node.output in names}
    given = tuple(kept.get(node.output, node) for node in graph.inputs)
    lifted = {node.output: graph[node.output] for node in made.inputs if node.output not in names}
    rest = [lifted.get(node.output, node) for node in made.nodes if node.output not in names]
    same = [replace(node, kind=Map("identity")) if isinstance(node.kind, View) else node for node in rest]
    return replace(made, nodes=(*given, *same))


def _traced(step: Step, state: DType, given: np.dtype) -> Graph:
    names = step.__code__.co_varnames[:2]
    number = from_numpy(given)
    if number is None or number is DType.OTHER:
        raise UnsupportedError(f"{step.__name__} takes no {given}, which noyau has not")
    return graph_over(step, names, [state, number], step.__kwdefaults__ or {})


def _monoid(graph: Graph, step: Step) -> str | None:
    """The monoid that a step joins a number, or what it makes of one, to the state by; None for no such step."""
    made = normal(graph)
    state = made.inputs[0].output
    last = made[made.outputs[0]]
    while last.kind == Map("identity"):
        last = made[last.inputs[0]]
    if isinstance(last.kind, Map) and last.kind.function in _LAST and len(last.inputs) == 2:
        function, operands = last.kind.function, last.inputs
        sides = [side for side in (0, 1) if operands[side] == state and not _needs(made, operands[1 - side], state)]
        if sides and not (function in _IN_ORDER and sides[0] == 1) and last.dtype.kind in _accepted(_LAST[function]):
            return _LAST[function]
    return "logsumexp" if _is_logaddexp(made, graph) else None


def _accepted(monoid: str) -> frozenset[str]:
    return MONOIDS[monoid].accepts


def _needs(graph: Graph, value: str, wanted: str) -> bool:
    """Whether a value is computed from another one."""
    waiting = [value]
    while waiting:
        name = waiting.pop()
        if name == wanted:
            return True
        waiting += graph[name].inputs
    return False


def _is_logaddexp(made: Graph, graph: Graph) -> bool:
    """Whether it is what np.logaddexp is, up to names."""
    dtypes = [node.dtype for node in graph.inputs]
    if not all(dtype.is_float for dtype in dtypes):
        return False
    names = [node.output for node in graph.inputs]
    both = (graph_over(np.logaddexp, order, dtypes, {}) for order in (names, names[::-1]))
    return any(_shape(made) == _shape(normal(_reordered(other, names))) for other in both)


def _reordered(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its inputs in this order."""
    given = [graph[name] for name in names]
    return replace(graph, nodes=(*given, *(node for node in graph.nodes if node.output not in names)))


def _shape(graph: Graph) -> list[Any]:
    places = {node.output: place for place, node in enumerate(graph.nodes)}
    told = [(node.kind, [places[name] for name in node.inputs], node.dtype) for node in graph.nodes]
    return [told, [places[name] for name in graph.outputs]]


def _of_table(monoid: str, graph: Graph, state: DType, start: float, step: Step) -> ReductionPlan:
    empty = MONOIDS[monoid].init(state)[0]
    made = normal(graph)
    plain = monoid == "logsumexp" or _is_plain(made)
    neutral = None if plain else -0.0 if monoid == "sum" and state.is_float else empty
    alike = start == empty
    return ReductionPlan(monoid, state.numpy, neutral, not alike)


def _is_plain(graph: Graph) -> bool:
    """Whether the number itself is joined to the state."""
    names = {node.output for node in graph.inputs}
    last = graph[graph.outputs[0]]
    while last.kind == Map("identity"):
        last = graph[last.inputs[0]]
    return set(last.inputs) == names and last.kind != Map("subtract")


def _joined(given: np.dtype, start: float, label: str) -> DType:
    """The dtype of a state that begins with a number and takes in numbers of a dtype: NumPy's."""
    dtype = from_numpy(given)
    if isinstance(start, bool | np.bool_):
        return DType.BOOL  # a function of numbers widens it
    if dtype is not None and dtype.is_float and not isinstance(start, np.generic):
        return dtype  # beside a bfloat16 NumPy takes a number of Python for a float64
    return _known(np.result_type(given, start), label)


def _wider(state: DType, made: DType, label: str) -> DType:
    return _known(np.promote_types(state.numpy, made.numpy), label)


def _known(dtype: np.dtype, label: str) -> DType:
    found = from_numpy(dtype)
    if found is None or found is DType.OTHER:
        raise SignatureError(f"{label}: a state of {dtype} is none of noyau's dtypes")
    return found
