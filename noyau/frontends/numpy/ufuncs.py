"""NumPy's ufuncs as scalar functions of the operator table; dtypes are those of the loop that NumPy would choose."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import NUMPY_1, Tape, dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, as_scalars, surely_scalar, tape_of
from noyau.frontends.numpy.traced_sizes import Number
from noyau.ir.graph import Node, is_never_0
from noyau.ir.monoids import highest, lowest
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.ir.sizes import Size

Loop = tuple[DType, ...]  # the dtypes of operands, then of results
Make = Callable[..., Any]  # from a tape and operands in the dtypes of the loop to a Node or several

SAME = {
    getattr(np, ufunc).__name__: operator.name
    for operator in OPERATORS.values()
    for ufunc in operator.names.numpy.split()
    if isinstance(getattr(np, ufunc, None), np.ufunc)
}
LAYOUT = frozenset({"order", "subok"})  # arguments about memory order and class, which change no value
NONE = np._NoValue  # NumPy's default for an argument without a value
ENDS = [2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 63)]  # beyond each, an integer needs another dtype
MASKED: list[Callable[..., Any]] = []  # handlers of ufuncs of MaskedArrays: `masked_arrays.py` fills it


def loop_dtypes(ufunc: np.ufunc, operands: Sequence[Any], dtype: DType | None = None) -> Loop:
    """The dtypes of the operands, and of the results, in the loop that NumPy would choose; Python numbers are weak.
    UnsupportedError where there is no loop, or a loop of complex numbers or objects."""
    operand_dtypes = _by_value(operands) if NUMPY_1 and ufunc.nin > 1 else [_operand_dtype(each) for each in operands]
    signature: Any = {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[dtype.numpy] * ufunc.nout)}
    try:
        dtypes = ufunc.resolve_dtypes((*operand_dtypes, *[None] * ufunc.nout), **signature)
    except TypeError as fault:
        raise UnsupportedError(f"np.{ufunc.__name__} does not take these: {fault}") from None
    return tuple(dtype_from(dtype) for dtype in dtypes)


def common_dtype(values: Sequence[Any]) -> DType:
    """The common dtype of values in the installed NumPy. Python numbers are weak; before NumPy 2 a value without axes
    is as narrow as its number. UnsupportedError where the dtype depends on the number in an array."""

    def common(end: int) -> np.dtype:
        return np.result_type(*(_sample(each, end) for each in values))

    end = 0
    if NUMPY_1 and len({common(each) for each in (0, ENDS[-1], -ENDS[-1])}) > 1:
        if any(isinstance(each, TracedArray) and not each.ndim for each in values):
            raise UnsupportedError("before NumPy 2 its dtype hangs on the number in an array of no axes: cast that")
        fits = partial(tape_of(values).at_most, usual=True)
        sizes = [each.dim for each in values if isinstance(each, Size)]
        sign = 1 if all(fits(0, dim) for dim in sizes) else -1
        last = [each for each, more in pairwise(ENDS) if common(sign * each) != common(sign * more)]
        end = sign * next((each for each in last if all(fits(sign * dim, each) for dim in sizes)), ENDS[-1])
    return dtype_from(common(end))


def _sample(value: Any, end: int) -> Any:
    """A sample of a value for NumPy's promotion: an array without cells, or the number `end` where it is unknown."""
    match value:
        case Size():
            return end if _is_weak(value) else np.int64(end)
        case Number():
            return value.weak(end)
        case TracedArray():
            number = min(max(end, lowest(value.node.dtype)), highest(value.node.dtype))
            with np.errstate(over="ignore"):
                return np.full((0,) * value.ndim, number).astype(value.dtype)
        case int():
            return max(min(value, 2**64 - 1), -(2**63))
        case list() | tuple():
            return np.asarray(value)
        case _:
            return value


def _operand_dtype(value: Any) -> Any:
    """An operand for NumPy's choice of a loop: a dtype, or `int` or `float` for a weak number."""
    if type(value) is TracedArray:  # and no Number, which is weak
        return value.dtype  # early, since each operation of a trace asks
    sample = _sample(value, 0)
    return type(sample) if type(sample) in (int, float) else dtype_from(np.asarray(sample).dtype).numpy


def _by_value(operands: Sequence[Any]) -> list[Any]:
    """The dtypes of operands before NumPy 2: beside an array, an operand without axes takes the common dtype."""
    samples = [np.asarray(_sample(each, 0)) for each in operands]
    if not any(each.ndim for each in samples):
        return [each.dtype for each in samples]
    return [each.dtype if each.ndim else common_dtype(operands).numpy for each in samples]


def as_node(tape: Tape, value: Any, dtype: DType) -> Node:
    """An operand as a node of a dtype."""
    match value:
        case TracedArray():
            return tape.cast(value.node, dtype)
        case Size():
            if beyond(tape, value, dtype):
                raise UnsupportedError(f"{value.dim} does not fit into {dtype.value}")
            return tape.size(value.dim, dtype)
        case tuple() | list() if has_traced(value):
            return as_traced(tape, value, dtype).node
        case _:
            return tape.constant(value, dtype)


def as_traced(tape: Tape, value: Any, dtype: DType | None = None) -> TracedArray:
    """Any value that NumPy takes for an array, as a traced array."""
    if isinstance(value, tuple | list) and has_traced(value):
        return as_traced(tape, FUNCTIONS["stack"]([as_traced(tape, each) for each in value]), dtype)
    return TracedArray(tape, as_node(tape, value, dtype or dtype_from(np.asarray(_sample(value, 0)).dtype)))


def traced_arrays(*values: Any) -> list[TracedArray]:
    """Values, one of which is traced, as traced arrays."""
    tape = tape_of(values)
    return [as_traced(tape, each) for each in values]


def has_traced(values: Any) -> bool:
    """Whether traced arrays or sizes are in a list, or in lists within it."""
    return any(isinstance(v, Size | TracedArray) or (isinstance(v, tuple | list) and has_traced(v)) for v in values)


def apply(tape: Tape, function: str, *operands: Node) -> Node:
    """A function of the operator table with NumPy's meaning, also on bools and for integers divided by 0."""
    if operands[0].dtype is DType.BOOL and _is_comparison(function) and has(function, Fact.ORDERED):
        operands = tuple(tape.cast(each, DType.U8) for each in operands)
    result = tape.call(OPERATORS[function].on(operands[0].dtype), *operands)
    if function != "floor_divide" or result.dtype.is_float or is_never_0(operands[1]):
        return result
    nothing = tape.constant(0, result.dtype)  # NumPy's result of an integer divided by 0
    return tape.call("where", tape.call("equal", operands[1], nothing), nothing, result)


def _is_comparison(function: str) -> bool:
    return function in OPERATORS and OPERATORS[function].is_comparison


def refuse(name: str, options: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for an argument that is not traced."""
    unsupported = next((key for key, value in options.items() if not _is_idle(key, value)), None)
    if unsupported is not None:
        raise UnsupportedError(f"np.{name} is traced without {unsupported}=")


def _is_idle(key: str, value: Any) -> bool:
    usual = (key == "where" and value is True) or (key == "casting" and value == "same_kind")
    return value is None or value is NONE or usual or key in LAYOUT


def elementwise(ufunc: np.ufunc, make: Make) -> Callable[..., Any]:
    """The handler of a ufunc; `make` gets a tape and the operands in the dtypes of the loop."""

    def call(*operands: Any, out: Any = None, where: Any = True, dtype: Any = None, **options: Any) -> Any:
        if len(operands) > ufunc.nin:
            operands, out = operands[: ufunc.nin], operands[ufunc.nin :]
        for of_masked in MASKED:
            if (masked := of_masked(ufunc, operands, {"out": out, "where": where, "dtype": dtype})) is not None:
                return masked
        refuse(ufunc.__name__, options)
        tape = tape_of([*operands, *_several(out), where])
        loop = loop_dtypes(ufunc, operands, None if dtype is None else dtype_from(dtype))
        nodes, loop = _loop_operands(tape, ufunc, operands, loop)
        results = [tape.cast(n, to) for n, to in zip(_several(make(tape, *nodes)), loop[ufunc.nin :], strict=True)]
        arrays = as_scalars(tuple(_like_operands(tape, node, operands) for node in results))
        arrays = _put(ufunc, arrays, _several(out), where)
        return arrays if ufunc.nout > 1 else arrays[0]

    return call


def _like_operands(tape: Tape, node: Node, operands: Sequence[Any]) -> TracedArray:
    """A result whose memory order follows from the arrays among the operands."""
    array = TracedArray(tape, node)
    like = [each for each in operands if isinstance(each, TracedArray) and each.ndim]
    if len(node.shape) > 1 and not any(isinstance(each, np.ndarray | list | tuple) for each in operands):
        array.lies("K", like)
    return array


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else () if value is None else (value,)


def _loop_operands(tape: Tape, ufunc: np.ufunc, operands: Sequence[Any], loop: Loop) -> tuple[list[Node], Loop]:
    """The operands in the loop's dtypes, and the loop. A comparison takes a number beyond its dtype as an infinity."""
    for at, (value, dtype) in enumerate(zip(operands, loop, strict=False)):
        side = beyond(tape, value, dtype) if _is_comparison(ufunc.__name__) else 0
        if side:
            bounded = [side * np.inf if k == at else x for k, x in enumerate(operands)]
            return [as_node(tape, each, DType.F64) for each in bounded], (DType.F64, DType.F64, DType.BOOL)
    return [as_node(tape, *pair) for pair in zip(operands, loop[: ufunc.nin], strict=True)], loop


def beyond(tape: Tape, value: Any, dtype: DType) -> int:
    """1 if a Python integer, or a size of this call, is above the range of an integer dtype, -1 if below, else 0."""
    if dtype.kind not in ("int", "uint") or not (type(value) is int or (_is_weak(value) and dtype.bytes < 8)):
        return 0
    low, high = (int(end) for end in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max))
    if type(value) is int:
        return (value > high) - (value < low)
    if not tape.at_most(low, value.dim, usual=True):
        return -1
    return 0 if tape.at_most(value.dim, high, usual=True) else 1


def _is_weak(value: Any) -> bool:
    return isinstance(value, Size) and not getattr(value, "strong", False)


def _put(ufunc: np.ufunc, results: tuple[TracedArray, ...], out: tuple[Any, ...], where: Any) -> tuple[Any, ...]:
    """Return the results, or write them into `out`, everywhere or `where`."""
    if not any(each is not None for each in out):
        if where is not True:
            raise UnsupportedError(f"np.{ufunc.__name__} with where= leaves cells unset; give it out=, or use np.where")
        return results
    return tuple(one if to is None else write_out(ufunc, one, to, where) for one, to in zip(results, out, strict=True))


def write_out(ufunc: np.ufunc, result: TracedArray, target: Any, where: Any = True) -> Any:
    """Write a result into `target`, cast as NumPy allows; a scalar is not changed, and the result is returned."""
    if not isinstance(target, TracedArray):
        raise UnsupportedError("it writes into an array that was there before the call; assign the result")
    if surely_scalar(target):
        return result
    if target.ndim < result.ndim and not target.memory.owner:
        raise UnsupportedError(f"out= of {target.ndim} axes takes no result of {result.ndim}")
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        what = f"{result.node.dtype.value} into {target.node.dtype.value}"
        raise UnsupportedError(f"np.{ufunc.__name__} does not write {what}; NumPy refuses it too: cast it")
    tape = target.tape
    cast = tape.cast(result.node, target.node.dtype)
    if where is not True:
        cast = apply(tape, "where", as_node(tape, where, DType.BOOL), cast, target.node)
    FUNCTIONS["write"](target, cast)
    return target


def _apply_to(function: str, tape: Tape, *nodes: Node) -> Node:
    first = nodes[0]
    if function in ("is_nan", "is_inf") and not first.dtype.is_float:
        return apply(tape, "not_equal", first, first)
    if function == "reciprocal" and not first.dtype.is_float:
        return apply(tape, "divide", tape.constant(1, first.dtype), first)
    if len({node.dtype for node in nodes}) > 1:
        return _of_two_signs(function, tape, *nodes)
    if function.startswith("logical_"):
        nodes = tuple(tape.cast(node, DType.BOOL) for node in nodes)
    return apply(tape, function, *nodes)


def _of_two_signs(function: str, tape: Tape, a: Node, b: Node) -> Node:
    """A comparison of i64 with u64, as NumPy has it: by value. UnsupportedError for other functions."""
    if not _is_comparison(function) or {a.dtype, b.dtype} != {DType.I64, DType.U64}:
        pair = f"{a.dtype.value} and {b.dtype.value}"
        raise UnsupportedError(f"{function} of {pair} has no common dtype; cast one of them")
    signed = a if a.dtype is DType.I64 else b
    below = apply(tape, "less", signed, tape.constant(0, DType.I64))
    alike = apply(tape, function, tape.cast(a, DType.U64), tape.cast(b, DType.U64))
    holds = {"less": signed is a, "less_equal": signed is a, "greater": signed is b, "greater_equal": signed is b}
    return apply(tape, "where", below, tape.constant(holds.get(function, function == "not_equal"), DType.BOOL), alike)


UFUNCS.update({name: elementwise(getattr(np, name), partial(_apply_to, function)) for name, function in SAME.items()})
