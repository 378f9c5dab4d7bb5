"""Functions of noyau's tables that NumPy lacks, as `noyau.functions` has them, on traced arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import Traced, as_scalars, tape_of
from noyau.frontends.numpy.joining import common_dtype
from noyau.frontends.numpy.reductions import array_of, axes_of, axis_of
from noyau.frontends.numpy.ufuncs import as_node, has_traced, mapped
from noyau.ir.graph import Scan
from noyau.ir.monoids import MONOIDS

OWN_MODULE = "noyau.functions"


def _of_table(function: str) -> Callable[..., Any]:
    """A scalar function of the table."""

    def call(*operands: Any) -> Any:
        tape, dtype = tape_of(operands), common_dtype(operands)
        return as_scalars(Traced(tape, mapped(tape, function, *(as_node(tape, each, dtype) for each in operands))))

    return call


def _cast(x: Any, dtype: str) -> Any:
    named = {each.value: each for each in DType if each is not DType.OTHER}
    if dtype not in named:
        raise UnsupportedError(f"there is no dtype {dtype!r}; the dtypes are: {', '.join(named)}")
    x = array_of(x)
    return as_scalars(Traced(x.tape, x.tape.cast(x.node, named[dtype])))


def _reduce(monoid: str, x: Any, axis: int | Sequence[int], *, keepdims: bool = False) -> Any:
    x = array_of(x)
    return as_scalars(Traced(x.tape, x.tape.reduce(monoid, x.node, axes_of(axis, x.ndim), keep=keepdims)))


def _scan(monoid: str, x: Any, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Any:
    x = array_of(x)
    kind = Scan(monoid, axis_of(axis, x.ndim), exclusive, reverse)
    return Traced(x.tape, x.tape.emit(kind, [x.node], MONOIDS[monoid].result(x.node.dtype), x.node.shape))


OWN: dict[str, Callable[..., Any]] = {
    "cast": _cast,
    "sigmoid": _of_table("sigmoid"),
    "softplus": _of_table("softplus"),
    "erf": _of_table("erf"),
    "power": _of_table("power"),
    "truncate_divide": _of_table("divide"),
    "shift_left": _of_table("shift_left"),
    "shift_right": _of_table("shift_right"),
    "reduce": _reduce,
    "scan": _scan,
}


def own(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `noyau.functions` as traced functions call it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return OWN[name](*args, **kwargs) if has_traced([*args, *kwargs.values()]) else plain(*args, **kwargs)

    return call
