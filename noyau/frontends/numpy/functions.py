"""NumPy's array functions and methods: reductions, shapes, pieces side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import FUNCTIONS, UFUNCS, Traced
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.frontends.numpy.ufuncs import as_node, mapped, tape_of, traced
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Node
from noyau.ir.symbols import Size, dim_of

NONE = np._NoValue  # what NumPy's own functions have for an argument that is not given


def refuse(name: str, said: dict[str, Any]) -> None:
    """UnsupportedError for an argument that is not traced."""
    given = next((key for key, value in said.items() if value is not None and value is not NONE), None)
    if given is not None:
        raise UnsupportedError(f"np.{name} is traced without {given}=")


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that a reduction names: all of them for None."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(_axis(each, rank) for each in given)


def _axis(axis: Any, rank: int) -> int:
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise UnsupportedError(f"the axis {axis!r} is outside of {rank} axes")
    return int(axis) % rank


def _shape(given: Sequence[Any]) -> list[Any]:
    """A shape given as one tuple, or as several numbers."""
    one = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    return [int(each) if isinstance(each, np.integer) else each for each in one]


def _count(tape: Tape, value: Node, axes: Sequence[int], dtype: DType, less: int = 0) -> Node:
    return tape.size(product(value.shape[axis] for axis in axes) - less, dtype)


def _sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **said: Any) -> Traced:
    return _added("sum", "sum", a, axis, dtype, keepdims, said)


def _prod(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, **said: Any) -> Traced:
    return _added("prod", "prod", a, axis, dtype, keepdims, said)


def _added(name: str, monoid: str, a: Traced, axis: Any, dtype: Any, keepdims: Any, said: dict[str, Any]) -> Traced:
    refuse(name, said)
    wanted = _accumulated(a.node.dtype) if dtype is None else dtype_from(dtype)
    value = a.tape.cast(a.node, wanted)
    return Traced(a.tape, a.tape.reduce(monoid, value, axes_of(axis, a.ndim), keep=_truth(keepdims)))


def _accumulated(dtype: DType) -> DType:
    """What NumPy adds up a dtype in: bools and short integers in 64 bits."""
    return {"bool": DType.I64, "int": DType.I64, "uint": DType.U64}.get(dtype.kind, dtype)


def _truth(keepdims: Any) -> bool:
    return keepdims is not NONE and bool(keepdims)


def _extreme(monoid: str, bools: str) -> Any:
    def call(a: Traced, axis: Any = None, keepdims: Any = False, **said: Any) -> Traced:
        refuse(monoid, said)
        axes = axes_of(axis, a.ndim)
        a.tape.demand_at_most(1, product(a.node.shape[k] for k in axes))
        name = bools if a.node.dtype is DType.BOOL else monoid
        return Traced(a.tape, a.tape.reduce(name, a.node, axes, keep=_truth(keepdims)))

    return call


def _logical(monoid: str) -> Any:
    def call(a: Traced, axis: Any = None, keepdims: Any = False, **said: Any) -> Traced:
        refuse(monoid, said)
        value = a.tape.cast(a.node, DType.BOOL)
        return Traced(a.tape, a.tape.reduce(monoid, value, axes_of(axis, a.ndim), keep=_truth(keepdims)))

    return call


def _arg(monoid: str) -> Any:
    def call(a: Traced, axis: Any = None, keepdims: Any = False, **said: Any) -> Traced:
        refuse(monoid, said)
        if axis is None:
            a, axis = _ravel(a), 0
            if _truth(keepdims):
                raise UnsupportedError(f"np.{monoid} over all axes is traced without keepdims=")
        axes = axes_of(axis, a.ndim)
        a.tape.demand_at_most(1, a.node.shape[axes[0]])
        value = a.tape.cast(a.node, DType.U8) if a.node.dtype is DType.BOOL else a.node
        return Traced(a.tape, a.tape.reduce(monoid, value, axes, keep=_truth(keepdims)))

    return call


def _mean(a: Traced, axis: Any = None, dtype: Any = None, keepdims: Any = False, **said: Any) -> Traced:
    refuse("mean", said)
    asked = DType.F64 if not a.node.dtype.is_float else a.node.dtype
    wanted = asked if dtype is None else dtype_from(dtype)
    axes, tape = axes_of(axis, a.ndim), a.tape
    value = tape.cast(a.node, wanted.compute)
    total = tape.reduce("sum", value, axes, keep=_truth(keepdims))
    mean = mapped(tape, "divide", total, _count(tape, value, axes, wanted.compute))
    return Traced(tape, tape.cast(mean, wanted))


def _var(a: Traced, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: Any = False, **said: Any) -> Traced:
    refuse("var", said)
    asked = DType.F64 if not a.node.dtype.is_float else a.node.dtype
    wanted = asked if dtype is None else dtype_from(dtype)
    axes, tape = axes_of(axis, a.ndim), a.tape
    value = tape.cast(a.node, wanted.compute)
    mean = _mean(Traced(tape, value), axes, keepdims=True)
    away = mapped(tape, "subtract", value, mean.node)
    total = tape.reduce("sum", mapped(tape, "multiply", away, away), axes, keep=_truth(keepdims))
    return Traced(tape, tape.cast(mapped(tape, "divide", total, _count(tape, value, axes, value.dtype, ddof)), wanted))


def _std(a: Traced, *args: Any, **said: Any) -> Any:
    return UFUNCS["sqrt"](_var(a, *args, **said))


def _scanned(monoid: str) -> Any:
    def call(a: Traced, axis: Any = None, dtype: Any = None, **said: Any) -> Traced:
        refuse(f"cum{monoid}", said)
        if axis is None:
            a, axis = _ravel(a), 0
        wanted = _accumulated(a.node.dtype) if dtype is None else dtype_from(dtype)
        return Traced(a.tape, a.tape.scan(monoid, a.tape.cast(a.node, wanted), _axis(axis, a.ndim)))

    return call


def _where(condition: Any, *branches: Any) -> Traced:
    if len(branches) != 2:
        raise UnsupportedError("np.where of a condition alone has a result of unknown shape")
    tape = tape_of([condition, *branches])
    dtype = _common(branches)
    first, second = (as_node(tape, each, dtype) for each in branches)
    return Traced(tape, mapped(tape, "where", as_node(tape, condition, DType.BOOL), first, second))


def _common(values: Sequence[Any]) -> DType:
    """The dtype that NumPy gives several together; Python numbers are weak."""
    asked = [0 if isinstance(v, Size) else v.dtype if isinstance(v, Traced | np.ndarray) else v for v in values]
    return dtype_from(np.result_type(*asked))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **said: Any) -> Any:
    low = said.pop("min", None) if _is_missing(a_min) else a_min
    high = said.pop("max", None) if _is_missing(a_max) else a_max
    refuse("clip", said)
    a = traced(tape_of([a, low, high]), a)  # a Python number is an array of its own dtype here
    made = _copy(a) if _is_missing(low) else UFUNCS["maximum"](a, low)
    return made if _is_missing(high) else UFUNCS["minimum"](made, high)


def _is_missing(bound: Any) -> bool:
    return bound is None or bound is NONE


def _astype(a: Traced, dtype: Any, **said: Any) -> Traced:
    return Traced(a.tape, a.tape.cast(a.node, dtype_from(dtype)))


def _copy(a: Traced, *args: Any, **said: Any) -> Traced:
    return Traced(a.tape, a.node)


def _reshape(a: Traced, *shape: Any, order: str = "C", **said: Any) -> Traced:
    given = said.pop("newshape", said.pop("shape", None))
    refuse("reshape", said)
    if order != "C":
        raise UnsupportedError("np.reshape is traced in C order alone")
    wanted = _shape(shape if given is None else (given,))
    free = [k for k, each in enumerate(wanted) if isinstance(each, int) and each == -1]
    dims = [Dim.of(1) if k in free else dim_of(each) for k, each in enumerate(wanted)]
    if len(free) > 1:
        raise UnsupportedError("np.reshape can leave one extent open")
    if free:
        dims[free[0]] = product(a.node.shape) // product(dims)
    return Traced(a.tape, a.tape.reshape(a.node, tuple(dims)))


def _ravel(a: Traced, *args: Any, **said: Any) -> Traced:
    if args not in ((), ("C",)) or said.get("order", "C") != "C":
        raise UnsupportedError("np.ravel is traced in C order alone")
    return Traced(a.tape, a.tape.reshape(a.node, (product(a.node.shape),)))


def _transpose(a: Traced, *axes: Any, **said: Any) -> Traced:
    one = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes
    given = said.get("axes", one)
    order = [_axis(each, a.ndim) for each in given] if given else list(range(a.ndim))[::-1]
    if sorted(order) != list(range(a.ndim)):
        raise UnsupportedError(f"{tuple(order)} does not permute {a.ndim} axes")
    return Traced(a.tape, a.tape.transpose(a.node, order))


def _swapaxes(a: Traced, axis1: int, axis2: int) -> Traced:
    order = list(range(a.ndim))
    first, second = _axis(axis1, a.ndim), _axis(axis2, a.ndim)
    order[first], order[second] = order[second], order[first]
    return Traced(a.tape, a.tape.transpose(a.node, order))


def _moveaxis(a: Traced, source: int, destination: int) -> Traced:
    order = [axis for axis in range(a.ndim) if axis != _axis(source, a.ndim)]
    order.insert(_axis(destination, a.ndim), _axis(source, a.ndim))
    return Traced(a.tape, a.tape.transpose(a.node, order))


def _squeeze(a: Traced, axis: Any = None) -> Traced:
    ones = [k for k, dim in enumerate(a.node.shape) if dim == Dim.of(1)]
    return Traced(a.tape, a.tape.drop(a.node, ones if axis is None else axes_of(axis, a.ndim)))


def _expand_dims(a: Traced, axis: Any) -> Traced:
    count = len(axis) if isinstance(axis, tuple | list) else 1
    return Traced(a.tape, a.tape.restore(a.node, axes_of(axis, a.ndim + count)))


def _broadcast_to(a: Traced, shape: Any, subok: bool = False) -> Traced:
    wanted = tuple(dim_of(each) for each in _shape((shape,)))
    a.tape.broadcast([a.node.shape, wanted])
    return Traced(a.tape, a.tape.expand(a.node, wanted))


def _concatenate(arrays: Sequence[Any], axis: Any = 0, **said: Any) -> Traced:
    refuse("concatenate", said)
    tape, dtype = tape_of(arrays), _common(arrays)
    if axis is None:
        arrays, axis = [_ravel(traced(tape, each)) for each in arrays], 0
    pieces = [traced(tape, each, dtype).node for each in arrays]
    if len({len(piece.shape) for piece in pieces}) != 1:
        raise UnsupportedError("np.concatenate takes arrays of one rank")
    return Traced(tape, tape.concatenate(pieces, _axis(axis, len(pieces[0].shape))))


def _stack(arrays: Sequence[Any], axis: int = 0, **said: Any) -> Traced:
    tape = tape_of(arrays)
    return _concatenate([_expand_dims(traced(tape, each), axis) for each in arrays], axis=axis, **said)


def _flip(a: Traced, axis: Any = None) -> Any:
    turned = axes_of(axis, a.ndim)
    return a[tuple(slice(None, None, -1) if k in turned else slice(None) for k in range(a.ndim))]


def _filled(name: str, value: Any) -> Any:
    def call(a: Traced, *given: Any, dtype: Any = None, **said: Any) -> Traced:
        refuse(name, {key: v for key, v in said.items() if key not in ("order", "subok", "device", "fill_value")})
        number = said.get("fill_value", given[0] if given else None) if value is None else value
        wanted = a.node.dtype if dtype is None else dtype_from(dtype)
        return Traced(a.tape, a.tape.expand(as_node(a.tape, number, wanted), a.node.shape))

    return call


FUNCTIONS.update(
    {"sum": _sum, "prod": _prod, "mean": _mean, "var": _var, "std": _std, "where": _where, "clip": _clip}
    | {"max": _extreme("max", "any"), "min": _extreme("min", "all"), "any": _logical("any"), "all": _logical("all")}
    | {"argmax": _arg("argmax"), "argmin": _arg("argmin"), "cumsum": _scanned("sum"), "cumprod": _scanned("prod")}
    | {
        "astype": _astype,
        "copy": _copy,
        "reshape": _reshape,
        "ravel": _ravel,
        "flatten": _ravel,
    }
    | {"transpose": _transpose, "swapaxes": _swapaxes, "moveaxis": _moveaxis, "squeeze": _squeeze, "flip": _flip}
    | {"expand_dims": _expand_dims, "broadcast_to": _broadcast_to, "concatenate": _concatenate, "stack": _stack}
    | {"zeros_like": _filled("zeros_like", 0), "ones_like": _filled("ones_like", 1)}
    | {"full_like": _filled("full_like", None), "shape": lambda a: a.shape, "ndim": lambda a: a.ndim}
)
FUNCTIONS.update({"amax": FUNCTIONS["max"], "amin": FUNCTIONS["min"]})
UFUNCS.update(
    {
        "add.reduce": lambda a, axis=0, **said: _sum(a, axis, **said),
        "multiply.reduce": lambda a, axis=0, **said: _prod(a, axis, **said),
        "maximum.reduce": lambda a, axis=0, **said: FUNCTIONS["max"](a, axis, **said),
        "minimum.reduce": lambda a, axis=0, **said: FUNCTIONS["min"](a, axis, **said),
        "logical_or.reduce": lambda a, axis=0, **said: FUNCTIONS["any"](a, axis, **said),
        "logical_and.reduce": lambda a, axis=0, **said: FUNCTIONS["all"](a, axis, **said),
    }
)
