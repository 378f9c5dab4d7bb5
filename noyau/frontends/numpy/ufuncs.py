"""NumPy's ufuncs as scalar functions of the operator table; dtypes are those of the loop that NumPy would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import UFUNCS, Traced
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.ir.graph import Node
from noyau.ir.symbols import Size

Make = Callable[..., Node]

SAME = {
    **{name: name for name in "add subtract multiply divide floor_divide fmod power exp exp2 expm1".split()},
    **{name: name for name in "log log2 log10 log1p sqrt reciprocal sin cos tan sinh cosh tanh floor ceil".split()},
    **{name: name for name in "maximum minimum fmax fmin equal not_equal less less_equal greater sign".split()},
    **{name: name for name in "greater_equal negative logical_and logical_or logical_xor logical_not".split()},
    **{name: name for name in "bitwise_and bitwise_or bitwise_xor".split()},
    "true_divide": "divide",
    "remainder": "floor_mod",
    "mod": "floor_mod",
    "float_power": "power",
    "absolute": "abs",
    "fabs": "abs",
    "trunc": "truncate",
    "rint": "round_even",
    "invert": "bitwise_not",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
    "isnan": "is_nan",
    "isinf": "is_inf",
    **{f"arc{name}": f"a{name}" for name in "sin cos tan sinh cosh tanh".split()},
    **{f"a{name}": f"a{name}" for name in "sin cos tan sinh cosh tanh".split()},
    "positive": "identity",
    "conjugate": "identity",
    "pow": "power",
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "shift_left",
    "bitwise_right_shift": "shift_right",
    "abs": "abs",
}
_OF_BOOL = {  # functions of numbers, as NumPy has them on bools
    "add": "logical_or",
    "multiply": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
    "abs": "identity",
    "fmax": "maximum",
    "fmin": "minimum",
}
_COMPARED = frozenset({"less", "less_equal", "greater", "greater_equal"})


def tape_of(operands: Sequence[Any]) -> Tape:
    """The tape of the first traced operand."""
    return next(operand.tape for operand in operands if isinstance(operand, Traced))


def loop_dtypes(ufunc: np.ufunc, operands: Sequence[Any]) -> tuple[DType, ...]:
    """The dtypes of the operands in the loop that NumPy would choose; Python numbers are weak. UnsupportedError where
    there is no such loop, or it is one of complex numbers or objects."""
    asked = [int if isinstance(each, Size) else type(each) if _is_weak(each) else _dtype(each) for each in operands]
    asked = [np.dtype(bool) if kind is bool else kind for kind in asked]
    try:
        found = ufunc.resolve_dtypes((*asked, *[None] * ufunc.nout))
    except TypeError as fault:
        raise UnsupportedError(f"np.{ufunc.__name__} does not take these: {fault}") from None
    return tuple(dtype_from(dtype) for dtype in found[: ufunc.nin])


def as_node(tape: Tape, value: Any, dtype: DType) -> Node:
    """An operand as a value of a dtype."""
    match value:
        case Traced():
            return tape.cast(value.node, dtype)
        case Size():
            return tape.size(value.dim, dtype)
        case _:
            return tape.constant(value, dtype)


def traced(tape: Tape, value: Any, dtype: DType | None = None) -> Traced:
    """Anything that NumPy takes for an array, as a traced one."""
    if isinstance(value, Traced):
        return Traced(tape, value.node if dtype is None else tape.cast(value.node, dtype))
    if isinstance(value, Size):
        return Traced(tape, tape.size(value.dim, dtype or DType.I64))
    array = np.asarray(value)
    return Traced(tape, tape.constant(array, dtype or dtype_from(array.dtype)))


def mapped(tape: Tape, function: str, *operands: Node) -> Node:
    """A function of the table, as NumPy has it on bools too."""
    if operands[0].dtype is DType.BOOL:
        function = _OF_BOOL.get(function, function)
        if function in _COMPARED:
            operands = tuple(tape.cast(each, DType.U8) for each in operands)
    return tape.map(function, *operands)


def _is_weak(value: Any) -> bool:
    return type(value) in (bool, int, float)


def _dtype(value: Any) -> np.dtype:
    return value.dtype if isinstance(value, Traced) else np.asarray(value).dtype


def _plain(name: str, function: str) -> Callable[..., Any]:
    ufunc: np.ufunc = getattr(np, name)

    def call(*operands: Any, dtype: Any = None, **said: Any) -> Traced:
        _refuse(name, said)
        tape = tape_of(operands)
        wanted = loop_dtypes(ufunc, operands) if dtype is None else (dtype_from(dtype),) * ufunc.nin
        return Traced(
            tape, _made(tape, function, [as_node(tape, *pair) for pair in zip(operands, wanted, strict=True)])
        )

    return call


def _made(tape: Tape, function: str, nodes: Sequence[Node]) -> Node:
    first = nodes[0]
    if function in ("is_nan", "is_inf") and not first.dtype.is_float:
        return mapped(tape, "not_equal", first, first)
    if function in ("floor", "ceil", "truncate", "round_even") and not first.dtype.is_float:
        return mapped(tape, "identity", first)
    if function == "reciprocal" and not first.dtype.is_float:
        return mapped(tape, "divide", tape.constant(1, first.dtype), first)
    if len({node.dtype for node in nodes}) > 1:
        pair = " and ".join(node.dtype.value for node in nodes)
        raise UnsupportedError(f"{function} of {pair} has no common dtype; cast one of them")
    if function.startswith("logical_"):
        nodes = [tape.cast(node, DType.BOOL) for node in nodes]
    return mapped(tape, function, *nodes)


def _refuse(name: str, said: dict[str, Any]) -> None:
    wanted = next((key for key, value in said.items() if value is not None and value is not True), None)
    if wanted is not None:
        raise UnsupportedError(f"np.{name} is traced without {wanted}=")


def _square(x: Any, **said: Any) -> Traced:
    _refuse("square", said)
    node = as_node(x.tape, x, loop_dtypes(np.square, [x])[0])
    return Traced(x.tape, mapped(x.tape, "multiply", node, node))


def _isfinite(x: Any, **said: Any) -> Traced:
    _refuse("isfinite", said)
    tape, (dtype,) = x.tape, loop_dtypes(np.isfinite, [x])
    node = as_node(tape, x, dtype)
    if not dtype.is_float:
        return Traced(tape, mapped(tape, "equal", node, node))
    away = mapped(tape, "logical_or", mapped(tape, "is_nan", node), mapped(tape, "is_inf", node))
    return Traced(tape, mapped(tape, "logical_not", away))


def _matmul(a: Any, b: Any, **said: Any) -> Any:
    from noyau.frontends.numpy.contracting import matmul

    _refuse("matmul", said)
    return matmul(a, b)


UFUNCS.update({name: _plain(name, function) for name, function in SAME.items() if hasattr(np, name)})
UFUNCS.update({"square": _square, "isfinite": _isfinite, "matmul": _matmul})
