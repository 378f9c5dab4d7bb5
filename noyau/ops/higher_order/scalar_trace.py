"""A function of numbers as a function of arrays: what it sees of `math` and of Python's own functions is NumPy's.

The graph of a function of numbers, for numbers of some dtypes; what does more than that is refused.

A function of a state and a number, matched by its graph with a reduction: one of the table, or a fold in order.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from noyau import functions
from noyau.compiler.passes.normal_form import normalise
from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError, UnsupportedError
from noyau.frontends.numpy.trace import follow
from noyau.ir.dims import shape_of
from noyau.ir.graph import Constant, Graph, Input, Map, Node, View
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, left_fold
from noyau.ir.operators import OPERATORS
from noyau.kernels.trust import global_names

Scalar = Callable[..., Any]


def largest(*numbers: Any) -> Any:
    """max() of numbers: NaN where one is NaN."""
    return functools.reduce(np.maximum, numbers)


def least(*numbers: Any) -> Any:
    """min() of numbers: NaN where one is NaN."""
    return functools.reduce(np.minimum, numbers)


def logarithm(x: Any, base: Any = None) -> Any:
    """math.log, of one argument or of two."""
    return np.log(x) if base is None else np.log(x) / np.log(base)


def whole(rounding: np.ufunc) -> Scalar:
    """math.floor and its like give integers."""
    return lambda x: rounding(x).astype(np.int64)


# What Python has for numbers, and what NumPy has for arrays.
MATH: Mapping[str, Scalar] = {
    **{name: getattr(np, name) for name in "sqrt exp exp2 expm1 log2 log10 log1p sin cos tan sinh cosh tanh".split()},
    **{name: getattr(np, name) for name in "cbrt hypot copysign fmod isnan isinf isfinite degrees radians".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    "atan2": np.arctan2,
    "pow": np.power,
    "fabs": np.fabs,
    "log": logarithm,
    "erf": functions.erf,
    "floor": whole(np.floor),
    "ceil": whole(np.ceil),
    "trunc": whole(np.trunc),
}
BUILTINS: Mapping[str, Scalar] = {"max": largest, "min": least, "abs": np.abs, "pow": np.power}


class Mathematics:
    """The math module of functions of arrays."""

    def __getattr__(self, name: str) -> Any:
        return _of_math(name)


def _of_math(name: str) -> Any:
    """The stand-in of `math.name`. UnsupportedError where NumPy has no such function."""
    value = getattr(math, name)
    if name in MATH or not callable(value):
        return MATH.get(name, value)
    raise UnsupportedError(f"math.{name} is not traced; write it with functions of NumPy")


def over_arrays(function: Any, inputs: int, label: str) -> FunctionType:
    """A function of `inputs` numbers as one of arrays, cell by cell: a def, a lambda, one of math or operator, a ufunc,
    an op. Its further parameters are constants of the kernel, and need defaults.

    SignatureError for what is no function, or takes another number of arguments."""
    reference = getattr(function, "reference", None)
    if callable(reference) and hasattr(function, "description"):
        function = reference
    function = getattr(function, "py_func", function)
    if not callable(function):
        raise SignatureError(f"{label} takes a function of numbers, not {function!r}")
    surroundings = ClosureValues()
    if not isinstance(function, FunctionType) or (function.__module__ or "").startswith("numpy"):
        return _wrapped(surroundings.replaced(function), function, inputs, label)
    return _counted(surroundings.rebuilt(function), inputs, label)


def name_of(function: Any) -> str:
    """The name of a function within that of an op: `lambda` where it has no name."""
    name = str(getattr(function, "name", None) or getattr(function, "__name__", "function"))
    return name.strip("<>")


class ClosureValues:
    """The values in closures and globals of functions, each replaced once."""

    def __init__(self) -> None:
        self.seen: dict[int, FunctionType] = {}

    def replaced(self, value: Any) -> Any:
        """The value that a function of arrays sees where one of numbers sees `value`."""
        name = getattr(value, "__name__", "")
        match value:
            case ModuleType() if value is math:
                return Mathematics()
            case BuiltinFunctionType() if getattr(math, name, None) is value:
                return _of_math(name)
            case BuiltinFunctionType() if getattr(builtins, name, None) is value:
                return BUILTINS.get(name, value)
            case functools.partial():
                return functools.partial(self.replaced(value.func), *value.args, **value.keywords)
            case FunctionType() if not f"{value.__module__}.".startswith(("numpy.", "noyau.functions.")):
                return self.rebuilt(value)
            case _:
                return value

    def rebuilt(self, function: FunctionType) -> FunctionType:
        """A function of the user with its globals, closure and defaults replaced; one that calls itself, too."""
        if id(function) in self.seen:
            return self.seen[id(function)]
        scope = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        result = FunctionType(function.__code__, scope, function.__name__, None, cells)
        self.seen[id(function)] = result
        for name in set(global_names(function.__code__)):
            if name in scope:
                scope[name] = self.replaced(scope[name])
            elif name in BUILTINS:
                scope[name] = BUILTINS[name]
        for cell, before in builtins.zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self.replaced(before.cell_contents)
        result.__defaults__ = tuple(builtins.map(self.replaced, function.__defaults__ or ())) or None
        result.__kwdefaults__ = {k: self.replaced(v) for k, v in (function.__kwdefaults__ or {}).items()} or None
        result.__doc__, result.__module__ = function.__doc__, function.__module__
        return result


def _wrapped(inner: Scalar, function: Any, inputs: int, label: str) -> FunctionType:
    """A plain function around what is none. SignatureError where it surely takes another number of arguments."""
    if inputs > 3 or not _takes(function, inputs):
        raise SignatureError(f"{label} takes a function of {_count(inputs)}; {name_of(function)} is none")

    def of_one(x: Any) -> Any:
        return inner(x)

    def of_two(x: Any, y: Any) -> Any:
        return inner(x, y)

    def of_three(x: Any, y: Any, z: Any) -> Any:
        return inner(x, y, z)

    wrapper = (of_one, of_two, of_three)[inputs - 1]
    wrapper.__name__ = name_of(function)
    assert isinstance(wrapper, FunctionType)
    return wrapper


def _takes(function: Any, inputs: int) -> bool:
    """Whether it may be called so, as far as it says what it takes; some of C's functions do not."""
    if hasattr(function, "nin"):
        return bool(function.nin == inputs)
    try:
        inspect.signature(function).bind(*[0] * inputs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def inputs_of(function: Any) -> int:
    """The number of inputs of a function: its parameters without a default, or 2 where it does not say."""
    function = getattr(function, "reference", function)
    function = getattr(function, "py_func", function)
    if isinstance(function, FunctionType):
        return function.__code__.co_argcount - len(function.__defaults__ or ())
    return int(getattr(function, "nin", 2))


def _counted(function: FunctionType, inputs: int, label: str) -> FunctionType:
    """The function with so many inputs: parameters with defaults beyond them become keyword-only, as constants are."""
    code, defaults = function.__code__, function.__defaults__ or ()
    beyond = code.co_argcount - inputs
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if starred or beyond < 0 or beyond > len(defaults):
        message = "* or **" if starred else ", ".join(code.co_varnames[: code.co_argcount]) or "none"
        raise SignatureError(f"{label} takes a function of {_count(inputs)}; {function.__name__} takes {message}")
    if not beyond:
        function.__defaults__ = None
        return function
    names = code.co_varnames[inputs : code.co_argcount]
    kept = dict(builtins.zip(names, defaults[-beyond:], strict=True))
    kind = code.replace(
        co_argcount=inputs,
        co_posonlyargcount=min(code.co_posonlyargcount, inputs),
        co_kwonlyargcount=code.co_kwonlyargcount + beyond,
    )
    result = FunctionType(kind, function.__globals__, function.__name__, None, function.__closure__)
    result.__kwdefaults__ = {**kept, **(function.__kwdefaults__ or {})}
    result.__doc__, result.__module__ = function.__doc__, function.__module__
    return result


def _count(inputs: int) -> str:
    return {1: "one number", 2: "two numbers"}.get(inputs, f"{inputs} numbers")


TRIED = (DType.F32, DType.I64, DType.BOOL)  # dtypes of which a function of numbers must take one


def graph_over(
    function: Callable[..., Any], names: Sequence[str], dtypes: Sequence[DType], constants: Mapping[str, Any]
) -> Graph:
    """Trace a function of numbers of these dtypes into a graph of values without axes; an input that it does not
    use is in it all the same. UnsupportedError where it cannot be traced, with its line, or where a cell of its result
    needs more than the cells at its place."""
    inputs = [Node(n, Input(), (), d, shape_of(["cells"])) for n, d in zip(names, dtypes, strict=True)]
    with np.errstate(all="ignore"):
        graph = follow(function, inputs, None, constants).graph
    if len(graph.outputs) != 1:
        raise UnsupportedError(f"{function.__name__} gives {len(graph.outputs)} results; let it give one")
    for node in graph.nodes:
        if not _is_of_numbers(graph, node):
            kind = type(node.kind).__name__
            message = f"it takes cells together ({kind})" if kind != "Constant" else "it has an array in it"
            raise UnsupportedError(f"{function.__name__} is no function of numbers: {message}; write it for one cell")
    used = {node.output for node in graph.inputs}
    unused = (node for node in inputs if node.output not in used)
    ordered = sorted((*graph.inputs, *unused), key=lambda node: list(names).index(node.output))
    rest = (_alone(node) for node in graph.nodes if not isinstance(node.kind, Input))
    return Graph((*map(_alone, ordered), *rest), graph.outputs)


def _is_of_numbers(graph: Graph, node: Node) -> bool:
    match node.kind:
        case Input() | Map():
            return True
        case Constant():
            return not node.shape
        case View(index):
            return not graph[node.inputs[0]].shape or list(map(str, index)) == ["#0"]
        case _:
            return False


def _alone(node: Node) -> Node:
    """A value without its axis."""
    return replace(node, kind=Map("identity") if isinstance(node.kind, View) else node.kind, shape=())


def require_traceable(function: Callable[..., Any], names: Sequence[str], constants: Mapping[str, Any]) -> None:
    """UnsupportedError where a function of numbers can be traced for no dtype: the reason for the first one."""
    reasons: list[UnsupportedError] = []
    for dtype in TRIED:
        try:
            graph_over(function, names, [dtype] * len(names), constants)
        except UnsupportedError as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]


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

    UnsupportedError where the step cannot be traced or its dtype never settles; SignatureError where the start is no
    number of that dtype."""
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
        return _of_table(monoid, graph, state, start)
    graph = _traced(step, state.compute, state.compute.numpy)
    if graph[graph.outputs[0]].dtype is not state.compute:
        raise UnsupportedError(f"{label}: a state of {state.value} does not stay one; cast what the function gives")
    return ReductionPlan(left_fold(graph, start), state.numpy)


def normal(graph: Graph) -> Graph:
    """The one spelling of a function of numbers, with its inputs in their order."""
    names = [node.output for node in graph.inputs]
    result = normalise(graph)
    kept = {node.output: node for node in result.inputs if node.output in names}
    inputs = tuple(kept.get(node.output, node) for node in graph.inputs)
    lifted = {node.output: graph[node.output] for node in result.inputs if node.output not in names}
    rest = [lifted.get(node.output, node) for node in result.nodes if node.output not in names]
    same = [replace(node, kind=Map("identity")) if isinstance(node.kind, View) else node for node in rest]
    return replace(result, nodes=(*inputs, *same))


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
    last = one[one.outputs[0]]
    while last.kind == Map("identity"):
        last = one[last.inputs[0]]
    if isinstance(last.kind, Map) and last.kind.function in _LAST and len(last.inputs) == 2:
        function, operands = last.kind.function, last.inputs
        sides = [side for side in (0, 1) if operands[side] == state and not _needs(one, operands[1 - side], state)]
        if (
            sides
            and not (function in _IN_ORDER and sides[0] == 1)
            and last.dtype.kind in MONOIDS[_LAST[function]].accepts
        ):
            return _LAST[function]
    return "logsumexp" if _is_logaddexp(one, graph) else None


def _needs(graph: Graph, value: str, wanted: str) -> bool:
    """Whether a value is computed from another one."""
    waiting = [value]
    while waiting:
        name = waiting.pop()
        if name == wanted:
            return True
        waiting += graph[name].inputs
    return False


def _is_logaddexp(one: Graph, graph: Graph) -> bool:
    """Whether it is what np.logaddexp is, up to names."""
    dtypes = [node.dtype for node in graph.inputs]
    if not all(dtype.is_float for dtype in dtypes):
        return False
    names = [node.output for node in graph.inputs]
    both = (graph_over(np.logaddexp, order, dtypes, {}) for order in (names, names[::-1]))
    return any(_shape(one) == _shape(normal(_reordered(other, names))) for other in both)


def _reordered(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its inputs in this order."""
    inputs = [graph[name] for name in names]
    return replace(graph, nodes=(*inputs, *(node for node in graph.nodes if node.output not in names)))


def _shape(graph: Graph) -> list[Any]:
    places = {node.output: place for place, node in enumerate(graph.nodes)}
    nodes = [(node.kind, [places[name] for name in node.inputs], node.dtype) for node in graph.nodes]
    return [nodes, [places[name] for name in graph.outputs]]


def _of_table(monoid: str, graph: Graph, state: DType, start: float) -> ReductionPlan:
    empty = MONOIDS[monoid].init(state)[0]
    one = normal(graph)
    plain = monoid == "logsumexp" or _is_plain(one)
    neutral = None if plain else -0.0 if monoid == "sum" and state.is_float else empty
    return ReductionPlan(monoid, state.numpy, neutral, start != empty)


def _is_plain(graph: Graph) -> bool:
    """Whether the number itself is joined to the state."""
    names = {node.output for node in graph.inputs}
    last = graph[graph.outputs[0]]
    while last.kind == Map("identity"):
        last = graph[last.inputs[0]]
    return set(last.inputs) == names and last.kind != Map("subtract")


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
        raise SignatureError(f"{label}: a state of {dtype} is none of noyau's dtypes")
    return result
