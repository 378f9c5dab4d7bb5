"""Ufuncs composed of functions of the operator table; the ufunc methods outer, at and reduceat; and the functions of
`noyau.functions` that NumPy lacks, on traced arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from math import log, pi
from typing import Any

import numpy as np

from noyau.dtypes import DType, dtype_called
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import array_of, axes_of, axis_of
from noyau.frontends.numpy.setitem import ufunc_at
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import UFUNCS, TracedArray, as_scalars, call, cells, enter, tape_of
from noyau.frontends.numpy.ufuncs import Make, apply, as_node, common_dtype, elementwise, has_traced, traced_arrays
from noyau.functions import OF_TABLE
from noyau.ir.graph import Node, Scan
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, highest


class Terms:
    """Scalar functions of a tape by name: `of("sqrt", x)`. Numbers take the dtype of the last node among operands."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def __call__(self, name: str, *operands: Node | float) -> Node:
        like = next(each for each in reversed(operands) if isinstance(each, Node))
        return apply(self.tape, name, *(self.number(each, like) for each in operands))

    def number(self, value: Node | float, like: Node) -> Node:
        return value if isinstance(value, Node) else self.tape.constant(value, like.dtype)


def square(of: Terms, x: Node) -> Node:
    return of("multiply", x, x)


def isfinite(of: Terms, x: Node) -> Node:
    if not x.dtype.is_float:
        return of("equal", x, x)
    return of("logical_not", of("logical_or", of("is_nan", x), of("is_inf", x)))


def signbit(of: Terms, x: Node) -> Node:
    """x < 0, or x is -0.0, whose reciprocal is -inf; False for a NaN of either sign."""
    narrow = of.tape.cast(x, DType.F32) if x.dtype is DType.F64 else x  # whose division takes half the time
    below_zero = of("logical_and", of("equal", x, 0), of("less", of("reciprocal", narrow), 0))
    return of("logical_or", of("less", x, 0), below_zero)


def copysign(of: Terms, a: Node, b: Node) -> Node:
    size = of("abs", a)
    return of("where", signbit(of, b), of("negative", size), size)


def hypot(of: Terms, a: Node, b: Node) -> Node:
    """sqrt(a * a + b * b) in a wider dtype, for float64 scaled by the larger. An infinity beats a NaN."""
    first, second = of("abs", a), of("abs", b)
    if a.dtype is not DType.F64:
        wide = tuple(of.tape.cast(each, DType.F32 if a.dtype is DType.F16 else DType.F64) for each in (first, second))
        length = of("sqrt", of("add", square(of, wide[0]), square(of, wide[1])))
        length = of.tape.cast(length, a.dtype)
    else:
        large, small = of("maximum", first, second), of("minimum", first, second)
        ratio = of("where", of("equal", large, 0), 0.0, of("divide", small, large))
        length = of("multiply", large, of("sqrt", of("add", square(of, ratio), 1)))
    return of("where", of("logical_or", of("is_inf", a), of("is_inf", b)), np.inf, length)


def logaddexp(two: bool, of: Terms, a: Node, b: Node) -> Node:
    """log(exp(a) + exp(b)), or log2(2**a + 2**b) with `two`, without overflow."""
    more = of("log1p", of("exp2" if two else "exp", of("negative", of("abs", of("subtract", a, b)))))
    more = of("multiply", more, 1 / log(2)) if two else more
    equal = of("add", a, 1.0 if two else log(2))
    return of("where", of("equal", a, b), equal, of("add", of("maximum", a, b), more))


def heaviside(of: Terms, x: Node, at_zero: Node) -> Node:
    above = of("where", of("equal", x, 0), at_zero, 1.0)
    return of("where", of("is_nan", x), x, of("where", of("less", x, 0), 0.0, above))


def scale(factor: float, of: Terms, x: Node) -> Node:
    return of("multiply", x, factor)


def modf(of: Terms, x: Node) -> tuple[Node, Node]:
    whole = of("truncate", x)
    return copysign(of, of("where", of("is_inf", x), 0.0, of("subtract", x, whole)), x), whole


def bitwise_count(of: Terms, x: Node) -> Node:
    """The number of 1 bits of |x|, counted in pairs, fours and eights (Hacker's Delight, 5-1)."""
    word = of.tape.cast(x if x.dtype.kind == "uint" else of("abs", x), DType.U64)
    if x.dtype.kind == "int":
        word = of("bitwise_and", word, int(highest(DType.U64)) >> (64 - 8 * x.dtype.bytes))
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333)):
        high = of("bitwise_and", of("shift_right", word, shift), mask)
        word = of("add", of("bitwise_and", word, mask), high)
    word = of("bitwise_and", of("add", word, of("shift_right", word, 4)), 0x0F0F0F0F0F0F0F0F)
    return of.tape.cast(of("shift_right", of("multiply", word, 0x0101010101010101), 56), DType.U8)


COMPOSED: dict[str, Make] = {
    "logaddexp": partial(logaddexp, False),
    "logaddexp2": partial(logaddexp, True),
    **dict.fromkeys(("deg2rad", "radians"), partial(scale, pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), partial(scale, 180 / pi)),
    "divmod": lambda of, a, b: (of("floor_divide", a, b), of("floor_mod", a, b)),
}
enter(COMPOSED, square, isfinite, signbit, copysign, hypot, heaviside, modf, bitwise_count)
UFUNCS |= {
    name: elementwise(getattr(np, name), lambda tape, *operands, make=make: make(Terms(tape), *operands))
    for name, make in COMPOSED.items()
    if hasattr(np, name)
}


def _of_table(function: str, *operands: Any) -> Any:
    """A scalar function of the table."""
    tape, dtype = tape_of(operands), common_dtype(operands)
    return as_scalars(TracedArray(tape, apply(tape, function, *(as_node(tape, each, dtype) for each in operands))))


def _cast(x: Any, dtype: str) -> Any:
    x = array_of(x)
    return as_scalars(TracedArray(x.tape, x.tape.cast(x.node, dtype_called(dtype, UnsupportedError))))


def _reduce(monoid: str, x: Any, axis: int | Sequence[int], *, keepdims: bool = False) -> Any:
    x = array_of(x)
    return as_scalars(TracedArray(x.tape, x.tape.reduce(monoid, x.node, axes_of(axis, x.ndim), keep=keepdims)))


def _scan(monoid: str, x: Any, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Any:
    x = array_of(x)
    kind = Scan(monoid, axis_of(axis, x.ndim), exclusive, reverse)
    return TracedArray(x.tape, x.tape.emit(kind, [x.node], MONOIDS[monoid].result(x.node.dtype), x.node.shape))


OWN: dict[str, Callable[..., Any]] = {
    "cast": _cast,
    **{name: partial(_of_table, function) for name, function in OF_TABLE.items()},
    "reduce": _reduce,
    "scan": _scan,
}


def noyau_function(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of `noyau.functions` for traced code."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return OWN[name](*args, **kwargs) if has_traced([*args, *kwargs.values()]) else plain(*args, **kwargs)

    return call


def _outer(name: str, a: Any, b: Any, **options: Any) -> Any:
    """ufunc.outer: each cell of `a` with each cell of `b`."""
    left, right = traced_arrays(a, b)
    return UFUNCS[name](left[(Ellipsis, *[None] * right.ndim)], right, **options)


def _at(monoid: str, name: str, a: Any, indices: Any, b: Any) -> None:
    """ufunc.at: a traced array is changed in place; repeated indices accumulate."""
    if not isinstance(a, TracedArray):
        raise UnsupportedError(f"np.{name}.at writes into an array that was there before the call")
    ufunc_at(monoid, a, indices, b, taken_away=name == "subtract")


def _reduceat(name: str, array: Any, indices: Any, axis: int = 0, **options: Any) -> Any:
    """ufunc.reduceat at known indices: each result reduces the cells up to the next index, or one if that is less."""
    a = array_of(array)
    if isinstance(indices, TracedArray):
        raise UnsupportedError(f"np.{name}.reduceat is traced for places that are known")
    axis, places = axis_of(axis, a.ndim), [int(each) for each in indices]
    a.tape.demand_at_most(max(places, default=0) + 1, a.node.shape[axis])
    parts = []
    for at, end in zip(places, [*places[1:], None], strict=True):
        part = cells(a, axis, at, at + 1 if end is not None and end <= at else end)
        parts.append(UFUNCS[f"{name}.reduce"](part, axis=axis, keepdims=True, **options))
    return call("concatenate", parts, axis=axis)


_BINARY = [name for name, one in vars(np).items() if isinstance(one, np.ufunc) and one.nin == 2 and one.nout == 1]
_WITH_OUTER = [name for name in _BINARY if name in UFUNCS and name not in ("matmul", "vecdot")]
UFUNCS.update({f"{name}.outer": partial(_outer, name) for name in _WITH_OUTER})
_MERGED = {ufunc: monoid for ufunc, monoid in BY_FUNCTION.items() if MONOIDS[monoid].is_arithmetic}
UFUNCS.update({f"{name}.at": partial(_at, monoid, name) for name, monoid in {**_MERGED, "subtract": "sum"}.items()})
UFUNCS.update({f"{name}.reduceat": partial(_reduceat, name) for name in BY_FUNCTION})
