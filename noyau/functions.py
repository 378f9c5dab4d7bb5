"""Functions for references that NumPy lacks, from noyau's tables, for arrays of any width.

On float16 and bfloat16 they compute in float32 and round once; on float64 they compute in float64."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import starmap
from typing import Any

import numpy as np

from noyau.dtypes import DType, dtype_called, from_numpy
from noyau.errors import InputError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Kind, Node, Reduce, Scan
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS

Array = np.ndarray
OF_TABLE = {  # names of this module -> functions of the operator table that NumPy lacks or defines otherwise
    **{name: name for name in ("erf", "power", "shift_left", "shift_right", "sigmoid", "softplus")},
    "truncate_divide": "divide",
}
_WIDE: ContextVar[bool] = ContextVar("noyau_wide", default=False)


@contextmanager
def widen_floats(wide: bool = True) -> Iterator[None]:
    """Make `cast` give float64 for each float dtype within the block: references on float64 then compute the truth."""
    token = _WIDE.set(wide)
    try:
        yield
    finally:
        _WIDE.reset(token)


def cast(x: Any, dtype: str) -> Array:
    """Cast x to another dtype: "f32", "bf16", "i64"... Within `widen_floats` each float dtype is replaced by float64.

    Floats become integers by truncation. InputError where there is no such dtype."""
    target, array = dtype_called(dtype, InputError), np.asarray(x)
    if not (_WIDE.get() and target.is_float):
        with np.errstate(all="ignore"):
            return np.not_equal(array, 0) if target is DType.BOOL else array.astype(target.numpy)
    if isinstance(x, Array | np.generic):  # a Python number is first rounded to the model's dtype
        return array.astype(np.float64)
    return array.astype(target.numpy).astype(np.float64)


def _of_table(name: str, function: str) -> Callable[..., Array]:
    """A function of the operator table under a name of this module."""

    def evaluate(*operands: Array) -> Array:
        return _map_function(function, *operands)

    evaluate.__name__ = evaluate.__qualname__ = name
    evaluate.__doc__ = "; ".join(filter(None, (OPERATORS[function].meaning, OPERATORS[function].note)))
    return evaluate


erf, power, shift_left, shift_right, sigmoid, softplus, truncate_divide = starmap(_of_table, OF_TABLE.items())


def reduce(monoid: str, x: Array, axis: int | Sequence[int], *, keepdims: bool = False) -> Array:
    """A reduction of noyau's table over axes: "logsumexp", "variance", "argmax", "sum"...; also over no cells."""
    x, axes = np.asarray(x), (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(each % x.ndim for each in axes)
    result = _evaluate_kind(Reduce(monoid, axes), x, MONOIDS[monoid].result(_dtype(x)))
    return np.expand_dims(result, axes) if keepdims else result


def scan(monoid: str, x: Array, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Array:
    """The running result of a reduction along an axis; `exclusive`: of the cells before each one."""
    x = np.asarray(x)
    return _evaluate_kind(Scan(monoid, axis % x.ndim, exclusive, reverse), x, MONOIDS[monoid].result(_dtype(x)))


def _map_function(function: str, *operands: Array) -> Array:
    dtype = np.result_type(*operands)  # of the arrays: Python numbers have no dtype
    arrays = np.broadcast_arrays(*(np.asarray(operand, dtype) for operand in operands))
    with np.errstate(all="ignore"):
        if _dtype(arrays[0]).compute is _dtype(arrays[0]):
            return np.asarray(OPERATORS[function].evaluate(*arrays))
        wide = [array.astype(np.float32) for array in arrays]
        return np.asarray(OPERATORS[function].evaluate(*wide)).astype(arrays[0].dtype)


def _evaluate_kind(kind: Kind, x: Array, dtype: DType) -> Array:
    """Evaluate one node of one array with the interpreter of graphs."""
    result: Array = Evaluator(False, {}).value(Node("result", kind, ("x",), dtype, shape_of(x.shape)), [x], {})
    return result


def _dtype(x: Array) -> DType:
    dtype = from_numpy(np.asarray(x).dtype)
    if dtype is None or dtype is DType.OTHER:
        raise InputError(f"an array of {np.asarray(x).dtype} has a dtype that noyau does not have")
    return dtype
