"""NumPy's reductions and running results, as functions, methods and methods of ufuncs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, enter, surely_scalar, tape_of
from noyau.frontends.numpy.traced_sizes import Number
from noyau.frontends.numpy.ufuncs import NONE, apply, as_node, as_traced, loop_dtypes, refuse, write_out
from noyau.ir.dims import product
from noyau.ir.graph import Node, Scan
from noyau.ir.monoids import BY_FUNCTION, MONOIDS, highest, lowest
from noyau.ir.sizes import dim_of, is_whole


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction, counted from the front: all of them for None."""
    if axis is None:
        return tuple(range(rank))
    several = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(axis_of(each, rank) for each in several)
    if len(set(axes)) < len(axes):
        raise UnsupportedError(f"the axes {tuple(several)} name one twice")
    return axes


def axis_of(axis: Any, rank: int) -> int:
    """One axis, counted from the front."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise UnsupportedError(f"the axis {axis!r} is outside of {rank} axes")
    return int(axis) % rank


def along(a: Any, axis: Any) -> tuple[TracedArray, Any]:
    """The array and the axis that a function works along: the flat array for axis None or an array without axes."""
    a = array_of(a)
    return call("ravel", a) if axis is None or not a.ndim else a, 0 if axis is None else axis_of(axis, a.ndim or 1)


def is_of_none(a: TracedArray, axis: Any) -> bool:
    """Whether an array has no axes, and `axis` is 0 or -1, which NumPy accepts for it."""
    return a.ndim == 0 and type(axis) is int and axis in (0, -1)


def array_of(value: Any) -> TracedArray:
    """An argument as a traced array; it may be a list that contains traced arrays."""
    return value if isinstance(value, TracedArray) else as_traced(tape_of([value]), value)


def is_given(value: Any) -> bool:
    return value is not None and value is not NONE


class _Reduction:
    """The arguments of a reduction: array, axes, where=, initial=, keepdims= and out=."""

    def __init__(self, name: str, a: Any, axis: Any, options: dict[str, Any]) -> None:
        self.array = array_of(a)
        whole = is_of_none(self.array, axis) and name not in ("mean", "var")
        self.tape, self.axes = self.array.tape, () if whole else axes_of(axis, self.array.ndim)
        where, self.initial = options.pop("where", NONE), options.pop("initial", NONE)
        self.keep = options.pop("keepdims", False) not in (False, NONE)
        self.out = options.pop("out", None)
        refuse(name, options)
        self.where: Node | None = None
        if where is not NONE and where is not True and where is not None:
            self.where = self.tape.expand(as_node(self.tape, where, DType.BOOL), self.array.node.shape)

    def replace_uncounted(self, value: Node, otherwise: Any) -> Node:
        """The value in cells that count, else `otherwise`, which changes no result."""
        if self.where is None:
            return value
        return apply(self.tape, "where", self.where, value, self.tape.constant(otherwise, value.dtype))

    def count(self, dtype: DType, less: Any = 0) -> Node:
        """The number of cells that count in each result, minus `less` degrees of freedom."""
        tape, value = self.tape, self.array.node
        if self.where is None and is_whole(less):
            return tape.size(product(value.shape[axis] for axis in self.axes) - dim_of(less), dtype)
        if self.where is None:
            total = tape.size(product(value.shape[axis] for axis in self.axes), dtype)
        else:
            total = tape.reduce("sum", tape.cast(tape.cast(self.where, DType.I64), dtype), self.axes, keep=self.keep)
        return apply(tape, "subtract", total, as_node(tape, less, dtype))

    def reduce(self, monoid: str, value: Node) -> Node:
        return self.tape.reduce(monoid, value, self.axes, keep=self.keep)

    def with_initial(self, monoid: str, result: Node) -> Node:
        """The result merged with `initial`, if there is one."""
        if self.initial is NONE:
            return result
        return apply(self.tape, MONOIDS[monoid].function, result, as_node(self.tape, self.initial, result.dtype))

    def give(self, result: Node) -> Any:
        return put_out(TracedArray(self.tape, result), self.out)


def accumulator_dtype(dtype: DType) -> DType:
    """The dtype in which NumPy sums a dtype: 64 bits for bools and integers."""
    return {"bool": DType.I64, "int": DType.I64, "uint": DType.U64}.get(dtype.kind, dtype)


def _sum_like(monoid: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
    request = _Reduction(monoid, a, axis, {**options, "out": out})
    target = accumulator_dtype(request.array.node.dtype) if dtype is None else dtype_from(dtype)
    value = request.replace_uncounted(request.tape.cast(request.array.node, target), monoid == "prod")
    if target is DType.BOOL:
        return request.give(request.reduce("any" if monoid == "sum" else "all", value))
    return request.give(request.with_initial(monoid, request.reduce(monoid, value)))


def _extreme(monoid: str, a: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
    end, bools = (lowest, "any") if monoid == "max" else (highest, "all")
    request = _Reduction(monoid, a, axis, {**options, "out": out})
    value = request.array.node
    if request.initial is NONE:
        if request.where is not None:
            raise UnsupportedError(f"np.{monoid} with where= needs initial=, as in NumPy")
        request.tape.demand_at_most(1, product(value.shape[k] for k in request.axes))
    value = request.replace_uncounted(value, end(value.dtype))
    result = request.reduce(bools if value.dtype is DType.BOOL else monoid, value)
    return request.give(request.with_initial(monoid, result))


def _logical(monoid: str, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:
    options.pop("dtype", None)
    request = _Reduction(monoid, a, axis, {**options, "out": out, "keepdims": keepdims})
    value = request.replace_uncounted(request.tape.cast(request.array.node, DType.BOOL), monoid == "all")
    return request.give(request.reduce(monoid, value))


def _mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
    request = _Reduction("mean", a, axis, {**options, "out": out})
    target = _mean_dtype(request, dtype)
    if not target.is_float:
        raise UnsupportedError(f"np.mean is traced in floats, not in {target.value}")
    total = request.reduce("sum", request.replace_uncounted(request.tape.cast(request.array.node, target.compute), 0))
    return request.give(request.tape.cast(apply(request.tape, "divide", total, request.count(target.compute)), target))


def _mean_dtype(request: _Reduction, dtype: Any) -> DType:
    """The dtype of a mean: `dtype`, else that of an array of floats, else float64."""
    own = request.array.node.dtype
    return dtype_from(dtype) if dtype is not None else own if own.is_float else DType.F64


def _spread(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, **options: Any) -> Any:
    """The variance, in two passes; NaN where no degree of freedom is left."""
    ddof = options.pop("correction", ddof) if is_given(options.get("correction")) else ddof
    mean = options.pop("mean", NONE)
    request = _Reduction("var", a, axis, {**options, "out": out})
    tape, target = request.tape, _mean_dtype(request, dtype)
    value = tape.cast(request.array.node, target.compute)
    if is_given(mean):
        centre = as_node(tape, mean, target.compute)
    else:
        keep, request.keep = request.keep, True
        total = request.reduce("sum", request.replace_uncounted(value, 0))
        centre, request.keep = apply(tape, "divide", total, request.count(target.compute)), keep
    away = apply(tape, "subtract", value, centre)
    total = request.reduce("sum", request.replace_uncounted(apply(tape, "multiply", away, away), 0))
    count = request.count(target.compute, ddof)
    freedom = apply(tape, "maximum", count, tape.constant(0, count.dtype))
    return request.give(tape.cast(apply(tape, "divide", total, freedom), target))


def _arg(monoid: str, a: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
    keep = options.pop("keepdims", False) not in (False, NONE)
    refuse(monoid, options)
    rank = array_of(a).ndim
    a, axis = along(a, axis)
    tape, keep = a.tape, keep and rank > 0
    tape.demand_at_most(1, a.node.shape[axis])
    value = tape.cast(a.node, DType.U8) if a.node.dtype is DType.BOOL else a.node
    place = tape.reduce(monoid, value, (axis,), keep=keep)
    place = tape.restore_axes(place, range(1, rank)) if keep and a.ndim != rank else place
    return put_out(TracedArray(tape, place), out)


def put_out(result: TracedArray, out: Any, ufunc: np.ufunc = np.positive) -> Any:
    """Return a result, or write it into `out`, which must have its shape: nothing is broadcast here."""
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        return result
    if isinstance(target, TracedArray) and not surely_scalar(target) and not target.memory.owner:
        if target.ndim != result.ndim:
            raise UnsupportedError(f"out= of {target.ndim} axes takes no result of {result.ndim}")
        result = TracedArray(result.tape, result.tape.assume_shape(result.node, target.node.shape))
    return write_out(ufunc, result, target)


def _scan(monoid: str, name: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, **options: Any) -> Any:
    """A running result along an axis, or along all cells for None."""
    refuse(name, options)
    a, axis = along(a, axis)
    added = monoid in ("sum", "prod")
    target = dtype_from(dtype) if is_given(dtype) else accumulator_dtype(a.node.dtype) if added else a.node.dtype
    if target is DType.BOOL and added:
        target = DType.I64
    running = a.tape.scan(Scan(monoid, axis), a.tape.cast(a.node, DType.U8 if target is DType.BOOL else target))
    return put_out(TracedArray(a.tape, a.tape.cast(running, target)), out)


_COUNTS_IN_PYTHON = not isinstance(np.count_nonzero(np.ones(1)), np.generic)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """np.count_nonzero; over all axes a Python number, if the installed NumPy returns one."""
    a = array_of(a)
    count = call("sum", call("astype", a, bool), axis=axis, keepdims=keepdims)
    return Number(a.tape, count.node, None) if axis is None and not keepdims and _COUNTS_IN_PYTHON else count


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """np.average; weights of the array's shape, or along one axis."""
    a, keep = as_traced(tape_of([a, weights]), a), keepdims not in (False, NONE)
    if weights is None:
        average = call("mean", a, axis, keepdims=keep)
        a.tape.demand_at_most(1, product(average.node.shape))  # NumPy divides by the number of results
        count = a.tape.size(product(a.node.shape[k] for k in axes_of(axis, a.ndim)), average.node.dtype)
        return (average, TracedArray(a.tape, a.tape.expand(count, average.node.shape))) if returned else average
    w = as_traced(a.tape, weights)
    if w.ndim != a.ndim:
        if w.ndim != 1 or axis is None:
            raise UnsupportedError("np.average takes weights of the array's shape, or along one axis")
        w = call("reshape", w, [-1 if k == axis_of(axis, a.ndim) else 1 for k in range(a.ndim)])
    a.tape.demand_at_most(1, product(a.node.shape[k] for k in axes_of(axis, a.ndim)))  # NumPy has no mean of no cells
    dtype = np.result_type(a.dtype, w.dtype) if a.dtype.kind == "f" else np.result_type(a.dtype, w.dtype, "f8")
    total = call("sum", call("broadcast_to", w, a.shape), axis, keepdims=keep, dtype=dtype)
    average = call("sum", UFUNCS["multiply"](a, w, dtype=dtype), axis, keepdims=keep) / total
    return (average, total) if returned else average


def _over_ufunc(
    name: str, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
) -> Any:
    """ufunc.reduce, over axis 0 by default."""
    more = options if dtype is None else {"dtype": dtype, **options}
    return call(name, a, axis, keepdims=keepdims, out=out, **more)


def _logsumexp(a: Any, axis: Any = 0, **options: Any) -> Any:
    """np.logaddexp.reduce, by the monoid logsumexp, which does not overflow."""
    request = _Reduction("logaddexp.reduce", a, axis, options)
    value = request.tape.cast(request.array.node, loop_dtypes(np.logaddexp, [request.array] * 2)[0])
    return request.give(request.reduce("logsumexp", request.replace_uncounted(value, -np.inf)))


def _accumulate(monoid: str, name: str, dtype: Any = None) -> Callable[..., Any]:
    """ufunc.accumulate, along axis 0 by default; with `dtype` the values are cast to it first."""
    scan = partial(_scan, monoid, name)
    return lambda a, axis=0, **options: scan(a if dtype is None else call("astype", a, dtype), axis, **options)


enter(FUNCTIONS, _mean, count_nonzero, _average)
FUNCTIONS |= {
    **{monoid: partial(_sum_like, monoid) for monoid in ("sum", "prod")},
    "var": _spread,
    "std": lambda a, *args, out=None, **options: UFUNCS["sqrt"](_spread(a, *args, **options), out=out),
    **dict.fromkeys(("max", "amax"), partial(_extreme, "max")),
    **dict.fromkeys(("min", "amin"), partial(_extreme, "min")),
    **{name: partial(_logical, name) for name in ("any", "all")},
    **{name: partial(_arg, name) for name in ("argmax", "argmin")},
    **{f"cum{monoid}": partial(_scan, monoid, f"cum{monoid}") for monoid in ("sum", "prod")},
    "ptp": lambda a, axis=None, out=None, keepdims=False: UFUNCS["subtract"](
        call("max", a, axis, keepdims=keepdims), call("min", a, axis, keepdims=keepdims), out=out
    ),
}
UFUNCS.update({f"{ufunc}.reduce": partial(_over_ufunc, name) for ufunc, name in BY_FUNCTION.items()})
UFUNCS["logaddexp.reduce"] = _logsumexp
UFUNCS["logical_xor.reduce"] = lambda a, axis=0, **more: call("sum", call("astype", a, bool), axis, **more) % 2 == 1
_SCANNED = {ufunc: monoid for ufunc, monoid in BY_FUNCTION.items() if MONOIDS[monoid].is_arithmetic}
UFUNCS.update({f"{u}.accumulate": _accumulate(monoid, f"{u}.accumulate") for u, monoid in _SCANNED.items()})
UFUNCS["logical_or.accumulate"] = _accumulate("max", "max", bool)
UFUNCS["logical_and.accumulate"] = _accumulate("min", "min", bool)
