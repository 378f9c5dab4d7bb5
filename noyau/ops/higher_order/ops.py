"""Ops on arrays of any rank that are made of a function of numbers: noyau.map, noyau.zip and noyau.reduce.

A function of numbers becomes one of arrays, with a fixed number of inputs; its further parameters are constants. A
reduction is a monoid of the table or a fold in order, as the graph of its function shows."""

import builtins
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from noyau import functions
from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError, UnsupportedError
from noyau.frontends.numpy.scopes import is_op
from noyau.ir.graph import Graph, Map, Node, downstream
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, left_fold
from noyau.ir.operators import OPERATORS
from noyau.kernels.programs.generate import GeneratedProgram
from noyau.kernels.reference import Description
from noyau.ops.higher_order import scalar_trace
from noyau.ops.higher_order.closures import ClosureValues, Scalar
from noyau.ops.higher_order.scalar_trace import elements_of, form, graph_over, map_signatures, normal
from noyau.ops.op import Op, op

Step = Callable[..., Any]
_LAST = {**BY_FUNCTION, "subtract": "sum"}  # the monoid of a step by its last function
_JOINS: Mapping[str, Any] = {
    **{monoid: OPERATORS[function].evaluate for function, monoid in BY_FUNCTION.items()},
    "logsumexp": np.logaddexp,
}
_IN_ORDER = frozenset({"subtract"})  # the state must be the first operand
_ROUNDS = 3  # rounds in which the dtype of a state settles


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The plan of a reduction. `monoid`: of the table; `dtype`: of the state; `neutral`: with this as the state, the
    function gives the value that the monoid merges, None if that is the number itself; `closes`: whether the start is
    merged at the end, since the monoid does not begin with it."""

    monoid: str
    dtype: np.dtype
    neutral: Any = None
    closes: bool = False

    def join(self, start: float, merged: Any) -> Any:
        """Merge the start and the monoid's result."""
        return _JOINS[self.monoid](start, merged)


def way_of(step: Step, start: float, numbers: np.dtype, label: str) -> ReductionPlan:
    """Plan the reduction of numbers of a dtype by `step(state, number)` from `start` on.

    UnsupportedError where the step is not traced or settles on no dtype, SignatureError for an unknown dtype."""
    state = _state_dtype(numbers, start, label)
    for _ in range(_ROUNDS):
        graph = _trace_step(step, state, numbers)
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
    graph = _trace_step(step, state.compute, state.compute.numpy)
    if graph[graph.outputs[0]].dtype is not state.compute:
        raise UnsupportedError(f"{label}: a state of {state.value} does not stay one; cast what the function gives")
    return ReductionPlan(left_fold(graph, start), state.numpy)


def _trace_step(step: Step, state: DType, numbers: np.dtype) -> Graph:
    names = step.__code__.co_varnames[:2]
    number = from_numpy(numbers)
    if number is None or number is DType.OTHER:
        raise UnsupportedError(f"{step.__name__} takes no {numbers}, which noyau has not")
    return graph_over(step, names, [state, number], step.__kwdefaults__ or {})


def _monoid(graph: Graph) -> str | None:
    """The monoid by which a step merges a number, or a function of it, into the state; None for any other step."""
    one = normal(graph)
    state = one.inputs[0].output
    last = _last(one)
    if isinstance(last.kind, Map) and last.kind.function in _LAST and len(last.inputs) == 2:
        function, operands, later = last.kind.function, last.inputs, downstream(one, [state])
        sides = [side for side in (0, 1) if operands[side] == state and operands[1 - side] not in later]
        is_turned = function in _IN_ORDER and sides[:1] == [1]
        if sides and not is_turned and last.dtype.kind in MONOIDS[_LAST[function]].accepts:
            return _LAST[function]
    return "logsumexp" if _is_logaddexp(one, graph) else None


def _last(graph: Graph) -> Node:
    """The node that computes the result, seen through identities."""
    node = graph[graph.outputs[0]]
    while node.kind == Map("identity"):
        node = graph[node.inputs[0]]
    return node


def _state_dtype(numbers: np.dtype, start: float, label: str) -> DType:
    """The dtype of a state that starts as a number and takes in numbers of a dtype: NumPy's."""
    dtype = from_numpy(numbers)
    if isinstance(start, bool | np.bool_):
        return DType.BOOL  # the function widens it
    if dtype is not None and dtype.is_float and not isinstance(start, np.generic):
        return dtype  # beside a bfloat16 NumPy takes a Python number for a float64
    return state_dtype(np.result_type(numbers, start), label)


def state_dtype(dtype: np.dtype, label: str) -> DType:
    """The DType of a state. SignatureError where noyau has none."""
    result = from_numpy(dtype)
    if result is None or result is DType.OTHER:
        raise SignatureError(f"{label}: noyau has no dtype for a state of {dtype}")
    return result


def _is_logaddexp(one: Graph, graph: Graph) -> bool:
    """Whether a graph equals that of np.logaddexp, up to names."""
    dtypes = [node.dtype for node in graph.inputs]
    if not all(dtype.is_float for dtype in dtypes):
        return False
    names = [node.output for node in graph.inputs]
    both = (graph_over(np.logaddexp, order, dtypes, {}) for order in (names, names[::-1]))
    return any(form(one) == form(normal(scalar_trace.reorder_inputs(other, names))) for other in both)


class Ways:
    """The plans of a reduction, by the dtype of its numbers."""

    def __init__(self, step: FunctionType, start: float, called: str) -> None:
        self.step, self.start, self.called = step, start, called
        self.known: dict[np.dtype, ReductionPlan] = {}

    def over(self, dtype: np.dtype) -> ReductionPlan:
        """The plan for numbers of a dtype. UnsupportedError where the function cannot be traced for them."""
        if dtype not in self.known:
            self.known[dtype] = way_of(self.step, self.start, dtype, self.called)
        return self.known[dtype]

    def axes(self, axis: Any, rank: int) -> tuple[int, ...]:
        """The axes that a call names, in order. SignatureError for an axis that does not exist."""
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
        """Signatures of the reduction, each with the arguments that it is for."""
        elements = next(elements_of(lambda dtype: state_dtype(self.over(dtype.numpy).dtype, self.called)), None)
        return scalar_trace.reduce_signatures(*elements, "x") if elements else {}


def reduction_along(whole: Scalar, axis: int | None, keepdims: bool) -> Scalar:
    """A reduction along one axis, or along all."""
    return lambda x: whole(x, axis=axis, keepdims=keepdims)


def reduction_over(ways: Ways) -> Scalar:
    step, start, join = ways.step, ways.start, functions.reduce

    def reduction(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        if not x.ndim:
            return step(start, x)
        way = ways.over(x.dtype)
        cells = x if way.neutral is None else step(way.neutral, x)
        merged = join(way.monoid, cells.astype(way.dtype), ways.axes(axis, x.ndim), keepdims=keepdims)
        return way.join(start, merged) if way.closes else merged

    return reduction


def over_arrays(function: Any, inputs: int, label: str) -> FunctionType:
    """Turn a function of `inputs` numbers into one of arrays, cell by cell: a def, a lambda, a function of math or
    operator, a ufunc, an op. Its further parameters are constants of the kernel, and need defaults.

    SignatureError for a value that is no function, or that takes another number of arguments."""
    function = function.reference if is_op(function) else function
    function = getattr(function, "py_func", function)
    if not callable(function):
        raise SignatureError(f"{label} takes a function of numbers, not {function!r}")
    surroundings = ClosureValues()
    if not isinstance(function, FunctionType) or (function.__module__ or "").startswith("numpy"):
        # A plain function around another callable. SignatureError where it surely takes another number of arguments.
        inner = surroundings.replace(function)
        if inputs > 3 or not _takes(function, inputs):
            raise SignatureError(f"{label} takes a function of {_count(inputs)}; {name_of(function)} is none")
        wrapper = (lambda x: inner(x), lambda x, y: inner(x, y), lambda x, y, z: inner(x, y, z))[inputs - 1]  # noqa: PLW0108
        wrapper.__name__ = name_of(function)
        assert isinstance(wrapper, FunctionType)
        return wrapper
    return _with_inputs(surroundings.rebuilt(function), inputs, label)


def name_of(function: Any) -> str:
    """The name of a function within an op's name: `lambda` if it has none."""
    return str(getattr(function, "name", None) or getattr(function, "__name__", "function")).strip("<>")


def _takes(function: Any, inputs: int) -> bool:
    """Whether a callable may take so many arguments, as far as it has a signature; some functions in C have none."""
    if hasattr(function, "nin"):
        return bool(function.nin == inputs)
    try:
        inspect.signature(function).bind(*[0] * inputs)
    except (TypeError, ValueError) as fault:
        return isinstance(fault, ValueError)
    return True


def inputs_of(function: Any) -> int:
    """The number of inputs of a function: its parameters without a default, or 2 if unknown."""
    function = getattr(function, "reference", function)
    function = getattr(function, "py_func", function)
    if isinstance(function, FunctionType):
        return function.__code__.co_argcount - len(function.__defaults__ or ())
    return int(getattr(function, "nin", 2))


def _with_inputs(function: FunctionType, inputs: int, label: str) -> FunctionType:
    """The function with so many inputs: further parameters with defaults become keyword-only, as constants are."""
    code, defaults = function.__code__, function.__defaults__ or ()
    beyond = code.co_argcount - inputs
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if starred or beyond < 0 or beyond > len(defaults):
        message = "* or **" if starred else ", ".join(code.co_varnames[: code.co_argcount]) or "none"
        raise SignatureError(f"{label} takes a function of {_count(inputs)}; {function.__name__} takes {message}")
    if not beyond:
        function.__defaults__ = None
        return function
    kept = dict(builtins.zip(code.co_varnames[inputs : code.co_argcount], defaults[-beyond:], strict=True))
    by_place, by_keyword = min(code.co_posonlyargcount, inputs), code.co_kwonlyargcount + beyond
    kind = code.replace(co_argcount=inputs, co_posonlyargcount=by_place, co_kwonlyargcount=by_keyword)
    result = FunctionType(kind, function.__globals__, function.__name__, None, function.__closure__)
    result.__kwdefaults__ = {**kept, **(function.__kwdefaults__ or {})}
    result.__doc__, result.__module__ = function.__doc__, function.__module__
    return result


def _count(inputs: int) -> str:
    return {1: "one number", 2: "two numbers"}.get(inputs, f"{inputs} numbers")


Forms = Callable[[], Sequence[Op[..., Any]]]
_NUMBERS = (bool, int, float)


class HigherOrder(Op[..., Any]):
    """An op on arrays of any dtype, rank and layout that was made of a function of numbers. Each kind of call gets a
    signature of its own; Python numbers are promoted beside arrays as in NumPy."""

    def __init__(self, description: Description, forms: Forms) -> None:
        super().__init__(description)
        self._forms, self._ops = forms, tuple[Op[..., Any], ...]()

    @property
    def forms(self) -> tuple[Op[..., Any], ...]:
        """The same op with signatures for common dtypes and shapes: those that `noyau.check` tries."""
        if not self._ops:
            self._ops = tuple(self._forms())
        return self._ops

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op; Python numbers get the dtype that NumPy gives them beside the arrays."""
        return super().__call__(*_beside(args), **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        return super().explain(*_beside(args), **kwargs)

    def generate(
        self, language: str = "c", dtypes: Sequence[DType] = (), ranks: Sequence[int] = ()
    ) -> GeneratedProgram:
        """The kernels of its first form in a language."""
        return self.forms[0].generate(language, dtypes, ranks)

    def make(self, seed: int = 0, **sizes: int) -> tuple[Any, ...]:
        """Inputs for its first form."""
        return self.forms[0].make(seed, **sizes)


def map(function: Scalar, *, name: str | None = None) -> HigherOrder:  # noqa: A001  public as noyau.map
    """An op that does to each cell of an array what `function` does to a number: any[...] -> any[...].

        relu = noyau.map(lambda x: max(x, 0.0))

    `function` is a def or a lambda over arithmetic, comparisons, math.*, np.* and other ops, or such a function itself
    (math.exp). Parameters with defaults are constants of the kernel: `f(x, slope=0.1)` is called `op(x, slope=0.2)`.
    max and min keep NaN, math.floor gives i64. An `if` on a number is refused: write np.where(x > 0, x, 0.0).
    UnsupportedError where it cannot be traced, with its line; SignatureError where it takes more than one number."""
    return _elementwise(function, 1, "map", name)


def zip(function: Scalar, *, name: str | None = None) -> HigherOrder:  # noqa: A001  public as noyau.zip
    """An op that joins the cells of two or more arrays by a function of as many numbers, broadcast as NumPy does:
    any[...], any[...] -> any[...]. See `noyau.map` for what the function may be.

        mul = noyau.zip(operator.mul)

    SignatureError where it takes fewer than two numbers."""
    return _elementwise(function, max(2, inputs_of(function)), "zip", name)


def reduce(function: Scalar, start: float, *, name: str | None = None) -> HigherOrder:
    """An op that folds the cells along an axis by `function(state, number)`, from `start` on: called
    `op(x, axis=None, keepdims=False)`, with an axis, several, or None for all of them.

        total = noyau.reduce(operator.add, 0.0)

    What the function does is told from its graph. Where it joins the state to the number, or to what it makes of the
    number alone, by +, -, *, max, min, or, and, or by np.logaddexp, the cells are merged in lanes and blocks, in an
    order of noyau's own that never depends on the number of threads. Anything else is a fold from left to right: an
    axis cell by cell, several axes in C order, whether the function is associative or not. No cells give `start`. The
    state has the dtype that NumPy gives the function of it; one of 16 bits is kept in float32. UnsupportedError where
    it cannot be traced or its dtype does not settle; SignatureError unless it takes two numbers."""
    step = over_arrays(function, 2, "noyau.reduce")
    scalar_trace.require_traceable(step, step.__code__.co_varnames[:2], step.__kwdefaults__ or {})
    if step.__kwdefaults__:
        raise SignatureError(f"noyau.reduce takes a function of two numbers; {step.__name__} has constants beside them")
    if not isinstance(start, int | float | np.generic):
        raise SignatureError(f"the start of noyau.reduce is a number, not {start!r}")
    title = name or f"reduce_{name_of(function)}"
    ways = Ways(step, start, title)
    whole = reduction_over(ways)
    whole.__name__ = title

    def forms() -> list[Op[..., Any]]:
        return [op(text, name=title)(reduction_along(whole, **keywords)) for text, keywords in ways.texts().items()]

    return HigherOrder(_describe(whole, title, step.__code__), forms)


def _elementwise(function: Scalar, inputs: int, way: str, name: str | None) -> HigherOrder:
    cells = over_arrays(function, inputs, f"noyau.{way}")
    names = cells.__code__.co_varnames[:inputs]
    scalar_trace.require_traceable(cells, names, cells.__kwdefaults__ or {})
    title = name or f"{way}_{name_of(function)}"

    def result(dtype: DType) -> DType:
        graph = graph_over(cells, names, [dtype] * inputs, cells.__kwdefaults__ or {})
        return graph[graph.outputs[0]].dtype

    def forms() -> list[Op[..., Any]]:
        texts = [text for pair in elements_of(result) for text in map_signatures(*pair, names)]
        return [op(text, name=title)(cells) for text in texts]

    return HigherOrder(_describe(cells, title, cells.__code__), forms)


def _describe(function: Scalar, title: str, code: CodeType) -> Description:
    """The description of a function without a signature, located at the user's function."""
    file = Path(code.co_filename)
    is_own = file.exists() and not file.is_relative_to(Path(__file__).parent)  # math.exp and its like have no file
    described: Op[..., Any] = op(name=title)(function)
    return replace(described.description, file=file if is_own else None, line=code.co_firstlineno)


def _beside(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with Python numbers as arrays of the dtype that NumPy gives them beside others, or as tensors."""
    if not any(type(each) in _NUMBERS for each in args):
        return tuple(args)
    tensors = [each for each in args if hasattr(each, "new_tensor")]
    if tensors:
        return tuple(_tensor(each, tensors) if type(each) in _NUMBERS else each for each in args)
    dtypes = [each.dtype for each in args if isinstance(each, np.ndarray | np.generic)]
    return tuple(_array(each, dtypes) if type(each) in _NUMBERS else each for each in args)


def _array(number: float, dtypes: Sequence[np.dtype]) -> np.ndarray:
    floats = [dtype for dtype in dtypes if (known := from_numpy(dtype)) is not None and known.is_float]
    others = floats if floats and not isinstance(number, bool) else dtypes
    if floats and isinstance(number, float):
        return np.asarray(number, np.result_type(*floats))
    return np.asarray(number, np.result_type(*others, number) if others else None)


def _tensor(number: float, tensors: Sequence[Any]) -> Any:
    """A number as a tensor of torch, of the dtype of the others; a float beside integers is a float64."""
    like = next((each for each in tensors if each.is_floating_point()), tensors[0])
    widened = isinstance(number, float) and not like.is_floating_point()
    return (like.detach().double() if widened else like.detach()).new_tensor(number)
