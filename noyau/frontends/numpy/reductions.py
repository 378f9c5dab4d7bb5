"""NumPy's reductions and running results, as functions, methods and methods of ufuncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, tape_of
from noyau.frontends.numpy.traced_sizes import Number
from noyau.frontends.numpy.ufuncs import NONE, apply, as_node, as_traced, loop_dtypes, refuse, write_out
from noyau.ir.dims import product
from noyau.ir.graph import Node, Scan
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, highest, lowest
from noyau.ir.symbols import dim_of, is_whole


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that a reduction names: all of them for None."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple(axis_of(each, rank) for each in given)
    if len(set(found)) < len(found):
        raise UnsupportedError(f"the axes {tuple(given)} name one twice")
    return found


def axis_of(axis: Any, rank: int) -> int:
    """One axis, counted from the front."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise UnsupportedError(f"the axis {axis!r} is outside of {rank} axes")
    return int(axis) % rank


def array_of(value: Any) -> TracedArray:
    """What a function is given as an array: a list with traced arrays in it, too."""
    return value if isinstance(value, TracedArray) else as_traced(tape_of([value]), value)


def is_given(value: Any) -> bool:
    return value is not None and value is not NONE


class _Reduction:
    """What a reduction is asked for: its array, axes and the cells that count."""

    def __init__(self, name: str, a: Any, axis: Any, said: dict[str, Any]) -> None:
        self.array = array_of(a)
        whole = self.array.ndim == 0 and type(axis) is int and axis in (0, -1) and name not in ("mean", "var")
        self.tape, self.axes = self.array.tape, () if whole else axes_of(axis, self.array.ndim)
        where, self.initial = said.pop("where", NONE), said.pop("initial", NONE)
        self.keep = said.pop("keepdims", False) not in (False, NONE)
        self.out = said.pop("out", None)
        refuse(name, said)
        self.where = None if where is NONE or where is True or where is None else self._condition(where)

    def _condition(self, where: Any) -> Node:
        return self.tape.expand(as_node(self.tape, where, DType.BOOL), self.array.node.shape)

    def counted(self, value: Node, otherwise: Any) -> Node:
        """The value where it counts, else what changes nothing."""
        if self.where is None:
            return value
        return apply(self.tape, "where", self.where, value, self.tape.constant(otherwise, value.dtype))

    def count(self, dtype: DType, less: Any = 0) -> Node:
        """How many cells count in each result, less degrees of freedom."""
        tape, value = self.tape, self.array.node
        if self.where is None and is_whole(less):
            return tape.size(product(value.shape[axis] for axis in self.axes) - dim_of(less), dtype)
        if self.where is None:
            total = tape.size(product(value.shape[axis] for axis in self.axes), dtype)
        else:
            total = tape.reduce("sum", tape.cast(tape.cast(self.where, DType.I64), dtype), self.axes, keep=self.keep)
        return apply(tape, "subtract", total, as_node(tape, less, dtype))

    def reduced(self, monoid: str, value: Node) -> Node:
        return self.tape.reduce(monoid, value, self.axes, keep=self.keep)

    def given(self, made: Node) -> Any:
        """The result, or `out` with it."""
        return put_out(TracedArray(self.tape, made), self.out)


def accumulator_dtype(dtype: DType) -> DType:
    """What NumPy adds up a dtype in: bools and short integers in 64 bits."""
    return {"bool": DType.I64, "int": DType.I64, "uint": DType.U64}.get(dtype.kind, dtype)


def _sum_like(monoid: str, function: str, neutral: int) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **said: Any) -> Any:
        asked = _Reduction(monoid, a, axis, {**said, "out": out})
        wanted = accumulator_dtype(asked.array.node.dtype) if dtype is None else dtype_from(dtype)
        value = asked.counted(asked.tape.cast(asked.array.node, wanted), neutral)
        if wanted is DType.BOOL:
            return asked.given(asked.reduced("any" if monoid == "sum" else "all", value))
        made = asked.reduced(monoid, value)
        if asked.initial is not NONE:
            made = apply(asked.tape, function, made, as_node(asked.tape, asked.initial, wanted))
        return asked.given(made)

    return reduce


def _extreme(monoid: str, bools: str, function: str) -> Callable[..., Any]:
    end = lowest if monoid == "max" else highest

    def reduce(a: Any, axis: Any = None, out: Any = None, **said: Any) -> Any:
        asked = _Reduction(monoid, a, axis, {**said, "out": out})
        tape, value = asked.tape, asked.array.node
        if asked.initial is NONE:
            if asked.where is not None:
                raise UnsupportedError(f"np.{monoid} with where= needs initial=, as in NumPy")
            tape.demand_at_most(1, product(value.shape[k] for k in asked.axes))
        value = asked.counted(value, end(value.dtype))
        made = asked.reduced(bools if value.dtype is DType.BOOL else monoid, value)
        if asked.initial is not NONE:
            made = apply(tape, function, made, as_node(tape, asked.initial, value.dtype))
        return asked.given(made)

    return reduce


def _logical(monoid: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, dtype: Any = None, **said: Any) -> Any:
        asked = _Reduction(monoid, a, axis, {**said, "out": out})
        value = asked.counted(asked.tape.cast(asked.array.node, DType.BOOL), monoid == "all")
        return asked.given(asked.reduced(monoid, value))

    return reduce


def _mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **said: Any) -> Any:
    asked = _Reduction("mean", a, axis, {**said, "out": out})
    wanted = _mean_dtype(asked.array.node.dtype) if dtype is None else dtype_from(dtype)
    if not wanted.is_float:
        raise UnsupportedError(f"np.mean is traced in floats, not in {wanted.value}")
    value = asked.tape.cast(asked.array.node, wanted.compute)
    total = asked.reduced("sum", asked.counted(value, 0))
    mean = apply(asked.tape, "divide", total, asked.count(wanted.compute))
    return asked.given(asked.tape.cast(mean, wanted))


def _mean_dtype(dtype: DType) -> DType:
    return dtype if dtype.is_float else DType.F64


def _spread(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, **said: Any) -> Any:
    """The variance, in two passes; NaN where no degree of freedom is left."""
    ddof = said.pop("correction", ddof) if is_given(said.get("correction")) else ddof
    mean = said.pop("mean", NONE)
    asked = _Reduction("var", a, axis, {**said, "out": out})
    tape, wanted = asked.tape, _mean_dtype(asked.array.node.dtype) if dtype is None else dtype_from(dtype)
    value = tape.cast(asked.array.node, wanted.compute)
    if is_given(mean):
        centre = as_node(tape, mean, wanted.compute)
    else:
        keep, asked.keep = asked.keep, True
        total = asked.reduced("sum", asked.counted(value, 0))
        centre, asked.keep = apply(tape, "divide", total, asked.count(wanted.compute)), keep
    away = apply(tape, "subtract", value, centre)
    total = asked.reduced("sum", asked.counted(apply(tape, "multiply", away, away), 0))
    count = asked.count(wanted.compute, ddof)
    freedom = apply(tape, "maximum", count, tape.constant(0, count.dtype))
    return asked.given(tape.cast(apply(tape, "divide", total, freedom), wanted))


def _deviation(a: Any, *args: Any, out: Any = None, **said: Any) -> Any:
    return UFUNCS["sqrt"](_spread(a, *args, **said), out=out)


def _arg(monoid: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, **said: Any) -> Any:
        a, keep = array_of(a), said.pop("keepdims", False) not in (False, NONE)
        refuse(monoid, said)
        rank, tape = a.ndim, a.tape
        keep = keep and rank > 0
        if axis is None:
            a, axis = call("ravel", a), 0
        axes = axes_of(axis, a.ndim)
        tape.demand_at_most(1, a.node.shape[axes[0]])
        value = tape.cast(a.node, DType.U8) if a.node.dtype is DType.BOOL else a.node
        made = tape.reduce(monoid, value, axes, keep=keep)
        made = tape.restore_axes(made, range(1, rank)) if keep and a.ndim != rank else made
        return put_out(TracedArray(tape, made), out)

    return reduce


def put_out(made: TracedArray, out: Any) -> Any:
    """A result, or `out` with it."""
    target = out[0] if isinstance(out, tuple) else out
    return made if target is None else write_out(np.positive, made, target)


def scan_function(monoid: str, name: str) -> Callable[..., Any]:
    """A running result along an axis, or along all cells for None."""

    def scan(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **said: Any) -> Any:
        refuse(name, said)
        a = array_of(a)
        if axis is None:
            a, axis = call("ravel", a), 0
        added = monoid in ("sum", "prod")
        wanted = dtype_from(dtype) if is_given(dtype) else accumulator_dtype(a.node.dtype) if added else a.node.dtype
        if wanted is DType.BOOL and added:
            wanted = DType.I64
        value = a.tape.cast(a.node, DType.U8 if wanted is DType.BOOL else wanted)
        made = a.tape.scan(Scan(monoid, axis_of(axis, a.ndim)), value)
        return put_out(TracedArray(a.tape, a.tape.cast(made, wanted)), out)

    return scan


_COUNTS_IN_PYTHON = not isinstance(np.count_nonzero(np.ones(1)), np.generic)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """How many cells are not 0; over all axes a number of Python, where this NumPy gives one."""
    a = array_of(a)
    made = call("sum", call("astype", a, bool), axis=axis, keepdims=keepdims)
    return Number(a.tape, made.node, None) if axis is None and not keepdims and _COUNTS_IN_PYTHON else made


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return UFUNCS["subtract"](call("max", a, axis, keepdims=keepdims), call("min", a, axis, keepdims=keepdims), out=out)


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """np.average; weights of the array's shape, or along one axis."""
    a, keep = as_traced(tape_of([a, weights]), a), keepdims not in (False, NONE)
    if weights is None:
        made = call("mean", a, axis, keepdims=keep)
        count = a.tape.size(product(a.node.shape[k] for k in axes_of(axis, a.ndim)), made.node.dtype)
        return (made, TracedArray(a.tape, a.tape.expand(count, made.node.shape))) if returned else made
    w = as_traced(a.tape, weights)
    if w.ndim != a.ndim:
        if w.ndim != 1 or axis is None:
            raise UnsupportedError("np.average takes weights of the array's shape, or along one axis")
        w = call("reshape", w, [-1 if k == axis_of(axis, a.ndim) else 1 for k in range(a.ndim)])
    a.tape.demand_at_most(1, product(a.node.shape[k] for k in axes_of(axis, a.ndim)))  # of no cells NumPy has none
    dtype = np.result_type(a.dtype, w.dtype) if a.dtype.kind == "f" else np.result_type(a.dtype, w.dtype, "f8")
    total = call("sum", call("broadcast_to", w, a.shape), axis, keepdims=keep, dtype=dtype)
    made = call("sum", UFUNCS["multiply"](a, w, dtype=dtype), axis, keepdims=keep) / total
    return (made, total) if returned else made


def _over_ufunc(name: str) -> Callable[..., Any]:
    """ufunc.reduce, which goes over axis 0 where nothing else is said."""

    def reduce(a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, **said: Any) -> Any:
        more = {"keepdims": keepdims, "out": out, **said}
        if dtype is not None:
            more["dtype"] = dtype
        return call(name, a, axis, **more)

    return reduce


def _logsumexp(a: Any, axis: Any = 0, **said: Any) -> Any:
    """np.logaddexp.reduce: by the monoid that does not overflow."""
    asked = _Reduction("logaddexp.reduce", a, axis, said)
    value = asked.tape.cast(asked.array.node, loop_dtypes(np.logaddexp, [asked.array] * 2)[0])
    return asked.given(asked.reduced("logsumexp", asked.counted(value, -np.inf)))


def _over_axis_0(scan: Callable[..., Any]) -> Callable[..., Any]:
    """ufunc.accumulate, which goes along axis 0 where nothing else is said."""
    return lambda a, axis=0, **said: scan(a, axis, **said)


FUNCTIONS.update(
    {
        "sum": _sum_like("sum", "add", 0),
        "prod": _sum_like("prod", "multiply", 1),
        "mean": _mean,
        "var": _spread,
        "std": _deviation,
        "max": _extreme("max", "any", "maximum"),
        "min": _extreme("min", "all", "minimum"),
        "any": _logical("any"),
        "all": _logical("all"),
        "argmax": _arg("argmax"),
        "argmin": _arg("argmin"),
        "cumsum": scan_function("sum", "cumsum"),
        "cumprod": scan_function("prod", "cumprod"),
        "count_nonzero": count_nonzero,
        "ptp": _ptp,
        "average": _average,
    }
)
FUNCTIONS.update({"amax": FUNCTIONS["max"], "amin": FUNCTIONS["min"]})
UFUNCS.update({f"{ufunc}.reduce": _over_ufunc(name) for ufunc, name in BY_FUNCTION.items()})
UFUNCS["logaddexp.reduce"] = _logsumexp
UFUNCS["logical_xor.reduce"] = lambda a, axis=0, **said: call("sum", call("astype", a, bool), axis, **said) % 2 == 1
_SCANNED = {ufunc: monoid for ufunc, monoid in BY_FUNCTION.items() if MONOIDS[monoid].is_arithmetic}
UFUNCS.update({f"{u}.accumulate": _over_axis_0(scan_function(m, f"{u}.accumulate")) for u, m in _SCANNED.items()})
_LOGICAL = {"logical_or": "max", "logical_and": "min"}
UFUNCS.update(
    {
        f"{u}.accumulate": lambda a, axis=0, m=m, **said: scan_function(m, m)(call("astype", a, bool), axis, **said)
        for u, m in _LOGICAL.items()
    }
)
