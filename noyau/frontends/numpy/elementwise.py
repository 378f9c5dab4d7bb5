"""NumPy's functions cell by cell that are no ufuncs: choices, bounds, rounding, tolerances, copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.concatenation import common_dtype
from noyau.frontends.numpy.reductions import array_of, axis_of, is_given
from noyau.frontends.numpy.shapes import shape_given
from noyau.frontends.numpy.tape import dtype_from
from noyau.frontends.numpy.traced_array import ATTRIBUTES, FUNCTIONS, METHODS, UFUNCS, TracedArray, call, tape_of
from noyau.frontends.numpy.ufuncs import apply, as_node, as_traced, beyond, refuse
from noyau.ir.dims import Dim, index_name, indices
from noyau.ir.graph import Lookup, Node
from noyau.ir.sizes import dim_of


def where(condition: Any, *branches: Any) -> TracedArray:
    """np.where of three arrays."""
    if len(branches) != 2:
        raise UnsupportedError("np.where of a condition alone has a result of unknown shape; give it both values")
    tape = tape_of([condition, *branches])
    dtype = common_dtype(branches)
    first, second = (as_node(tape, each, dtype) for each in branches)
    return TracedArray(tape, apply(tape, "where", as_node(tape, as_traced(tape, condition), DType.BOOL), first, second))


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """np.select: the first choice whose condition holds."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise UnsupportedError("np.select takes as many choices as conditions, at least one")
    tape = tape_of([condlist, choicelist, default])
    dtype = common_dtype([*choicelist, default])
    made: Any = as_traced(tape, default, dtype)
    for condition, choice in list(zip(condlist, choicelist, strict=True))[::-1]:
        made = where(condition, as_traced(tape, choice, dtype), made)
    return made


def _choose(a: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> Any:
    if out is not None:
        raise UnsupportedError("np.choose is traced without out=")
    count = len(choices)
    tape = tape_of([a, choices])
    a = as_traced(tape, a)
    if mode == "raise":
        dtype = common_dtype([*choices])
        listed = call("stack", call("broadcast_arrays", a, *(as_traced(tape, each, dtype) for each in choices))[1:])
        at = indices(listed.ndim - 1)
        looked = tape.cast(call("broadcast_to", a, listed.shape[1:]).node, DType.I64)
        return TracedArray(tape, tape.gather((Lookup(1, at), *at), [listed.node, looked], looked.shape))
    a = a % count if mode == "wrap" else call("clip", a, 0, count - 1)
    return _select([a == k for k in range(count)], list(choices))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Any:
    low = options.pop("min", None) if not is_given(a_min) else a_min
    high = options.pop("max", None) if not is_given(a_max) else a_max
    dtype = {key: options.pop(key) for key in ("dtype",) if options.get(key) is not None}
    refuse("clip", options)
    a = as_traced(tape_of([a, low, high]), a)  # a Python number is an array of its own dtype here
    low, high = (None if beyond(a.tape, end, a.node.dtype) == side else end for end, side in ((low, -1), (high, 1)))
    if not (is_given(low) or is_given(high)):
        return UFUNCS["positive"](a, out=out, **dtype)
    clipped = a if not is_given(low) else UFUNCS["maximum"](a, low, **dtype)
    clipped = clipped if not is_given(high) else UFUNCS["minimum"](clipped, high, **dtype)
    return UFUNCS["positive"](clipped, out=out) if out is not None else TracedArray(a.tape, clipped.node)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """np.round: halves to even; integers stay as they are."""
    a = array_of(a)
    if not a.node.dtype.is_float:
        if decimals < 0 and a.dtype != bool:
            tens = 10.0**-decimals
            return (UFUNCS["rint"](a.astype(np.float64) / tens) * tens).astype(a.dtype)
        return TracedArray(a.tape, a.node) if a.dtype != bool else a.astype(np.float16)
    if decimals == 0:
        return UFUNCS["rint"](a, out=out)
    power = 10 ** abs(decimals)
    if decimals > 0:
        return UFUNCS["divide"](UFUNCS["rint"](a * power), power, out=out)
    return UFUNCS["multiply"](UFUNCS["rint"](a / power), power, out=out)


def _fix(x: Any, out: Any = None) -> Any:
    return UFUNCS["trunc"](array_of(x), out=out)


def _astype(x: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", **options: Any) -> TracedArray:
    x = array_of(x)
    target = dtype_from(dtype)
    if not np.can_cast(x.dtype, target.numpy, casting):
        raise UnsupportedError(f"a cast of {x.dtype} to {target.numpy} is not {casting!r}; NumPy refuses it too")
    if options.get("copy") is False and target is x.node.dtype:
        return _in_order(x, order)
    return _new(x, x.tape.cast(x.node, target), order)


def _copy(a: Any, order: Any = "K", **options: Any) -> TracedArray:
    a = array_of(a)
    return _new(a, a.node, order)


def _new(a: TracedArray, node: Node, order: Any) -> TracedArray:
    """An array that is new, whose cells lie in an order, or as those of another array."""
    array = TracedArray(a.tape, node)
    array.lies(order, like=[] if order == "F" else [a])
    return array


_NEVER = np.lib.NumpyVersion(np.__version__) >= "2.0.0b1"  # before, copy=False was a copy where one is needed


def _as_array(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **options: Any) -> Any:
    """np.asarray: the array itself where its dtype and its order are as wanted."""
    return _array(a, dtype, copy=copy, order=order)


def _array(a: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", ndmin: int = 0, **options: Any) -> Any:
    a = array_of(a)
    target = a.dtype if dtype is None else dtype
    if copy is False and _NEVER and np.dtype(target) != a.dtype:
        raise UnsupportedError("np.array with copy=False makes no array of another dtype; NumPy refuses it too")
    array = _astype(a, target, order, copy=copy is True)
    return array[(None,) * max(ndmin - array.ndim, 0) + (Ellipsis,)] if ndmin else array


def _as_contiguous(a: Any, dtype: Any = None, **options: Any) -> TracedArray:
    return _in_order(call("atleast_1d", _as_array(a, dtype)), "C")


def _in_order(a: TracedArray, order: Any) -> TracedArray:
    """The array itself where its cells lie in an order, as an array of them where they do not; where that is not known,
    what is either."""
    gaps = a.gaps() if order == "C" or a.ndim < 2 else None
    if order not in ("C", "F") or gaps == []:
        return a
    array = TracedArray(a.tape, a.node)
    if gaps is None:
        array.look_at(a, "in_order")
    elif not _has_several(a, gaps):
        return a
    return array


def _has_several(a: TracedArray, gaps: Sequence[tuple[Dim, Dim]]) -> bool:
    """Whether an array has cells, and several along an axis whose neighbours lie further apart than packed ones."""

    def more(room: Dim) -> bool:
        return a.tape.at_most(1, room, usual=True)

    return all(more(extent) for extent in a.node.shape) and any(
        more(extent - 1) and (more(gap) or more(-gap)) for extent, gap in gaps
    )


def _like(name: str, value: Any) -> Callable[..., Any]:
    """zeros_like and its kin: `value` None is the first argument after the array."""

    def filled(a: Any, *leading: Any, dtype: Any = None, shape: Any = None, **options: Any) -> TracedArray:
        refuse(name, {key: v for key, v in options.items() if key not in ("device", "fill_value")})
        a, rest = array_of(a), list(leading)
        number = value if value is not None else options["fill_value"] if "fill_value" in options else rest.pop(0)
        dtype = rest[0] if rest else dtype
        target = a.node.dtype if dtype is None else dtype_from(dtype)
        dims = a.node.shape if shape is None else tuple(map(dim_of, shape_given((shape,))))
        array = TracedArray(a.tape, a.tape.expand(as_node(a.tape, number, target), dims))
        array.lies(options.get("order", "K"), [a] if shape is None and options.get("order") in (None, "K") else [])
        return array

    return filled


def _isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """np.isclose: |a - b| <= atol + rtol |b|, infinities by being equal."""
    tape = tape_of([a, b, rtol, atol])
    a, b = as_traced(tape, a), as_traced(tape, b)
    if b.node.dtype.kind != "float":
        b = b.astype(np.result_type(b.dtype, 1.0))
    near = (abs(a - b) <= atol + rtol * abs(b)) & UFUNCS["isfinite"](b) | (a == b)
    return near | (UFUNCS["isnan"](a) & UFUNCS["isnan"](b)) if equal_nan else near


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    tape = tape_of([a1, a2])
    a1, a2 = as_traced(tape, a1), as_traced(tape, a2)
    if a1.ndim != a2.ndim or any(one != two for one, two in zip(a1.shape, a2.shape, strict=True)):
        return False
    alike = a1 == a2
    return call("all", alike | (UFUNCS["isnan"](a1) & UFUNCS["isnan"](a2)) if equal_nan else alike)


def _array_equiv(a1: Any, a2: Any) -> Any:
    tape = tape_of([a1, a2])
    return call("all", UFUNCS["equal"](as_traced(tape, a1), as_traced(tape, a2)))


def _band(keep: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """np.tril and np.triu: 0 on the other side of a diagonal."""

    def triangle(m: Any, k: int = 0) -> Any:
        m = array_of(m)
        m = call("broadcast_to", m, (m.shape[0], m.shape[0])) if m.ndim == 1 else m
        shape, tape = m.node.shape[-2:], m.tape
        offset = tape.iota(Dim.of(index_name(1)) - Dim.of(index_name(0)), shape)
        return where(keep(TracedArray(tape, offset), k), m, np.zeros((), m.dtype))

    return triangle


def _sinc(x: Any) -> Any:
    x = array_of(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    tiny = np.array(1e-20 if x.dtype != np.float16 else 6e-8, x.dtype)
    y = np.pi * where(x == 0, tiny, x)
    return UFUNCS["sin"](y) / y


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    tape = tape_of([y, x, dx])
    y = as_traced(tape, y)
    axis = axis_of(axis, y.ndim)
    lead = (slice(None),) * axis
    step: Any = dx
    if x is not None:
        x = as_traced(tape, x)
        step = call("diff", x, axis=0 if x.ndim == 1 else axis)
        step = call("reshape", step, [-1 if k == axis else 1 for k in range(y.ndim)]) if step.ndim == 1 else step
    return (step * (y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]) / 2.0).sum(axis)


def _ix(*args: Any) -> tuple[Any, ...]:
    tape = tape_of(args)
    vectors = [as_traced(tape, each) for each in args]
    if any(each.ndim != 1 or each.node.dtype is DType.BOOL for each in vectors):
        raise UnsupportedError("np.ix_ is traced for vectors of integers")
    shapes = [[-1 if k == at else 1 for k in range(len(vectors))] for at in range(len(vectors))]
    return tuple(call("reshape", each, shape) for each, shape in zip(vectors, shapes, strict=True))


def _meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Any, ...]:
    tape = tape_of(xi)
    vectors = [call("ravel", as_traced(tape, each)) for each in xi]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shapes = [[-1 if order[at] == k else 1 for k in range(len(vectors))] for at in range(len(vectors))]
    grids = [call("reshape", each, shape) for each, shape in zip(vectors, shapes, strict=True)]
    return tuple(grids) if sparse else tuple(call("copy", each) for each in call("broadcast_arrays", *grids))


def _cross(a: Any, b: Any, axis: int = -1) -> Any:
    tape = tape_of([a, b])
    a, b = (call("moveaxis", as_traced(tape, each), axis, -1) for each in (a, b))
    for each in (a, b):
        tape.demand_equal(each.node.shape[-1], 3)
    turned = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return call("stack", turned, axis=axis)


def _is_infinite(number: float) -> Callable[..., Any]:
    return lambda x, out=None: UFUNCS["equal"](array_of(x), number, out=out)


FUNCTIONS.update(
    {
        "where": where,
        "select": _select,
        "choose": _choose,
        "clip": _clip,
        "round": _round,
        "around": _round,
        "fix": _fix,
        "astype": _astype,
        "copy": _copy,
        "asarray": _as_array,
        "asanyarray": _as_array,
        "ascontiguousarray": _as_contiguous,
        "asfortranarray": lambda a, dtype=None: _in_order(call("atleast_1d", _as_array(a, dtype)), "F"),
        "array": _array,
        "zeros_like": _like("zeros_like", 0),
        "ones_like": _like("ones_like", 1),
        "empty_like": _like("empty_like", 0),
        "full_like": _like("full_like", None),
        "isclose": _isclose,
        "allclose": lambda a, b, *args, **said: call("all", _isclose(a, b, *args, **said)),
        "array_equal": _array_equal,
        "array_equiv": _array_equiv,
        "tril": _band(np.less_equal),
        "triu": _band(np.greater_equal),
        "sinc": _sinc,
        "trapezoid": _trapezoid,
        "ix_": _ix,
        "meshgrid": _meshgrid,
        "cross": _cross,
        "isposinf": _is_infinite(np.inf),
        "isneginf": _is_infinite(-np.inf),
        "real": lambda val: array_of(val)[...],
        "iscomplexobj": lambda x: False,
        "result_type": lambda *given: common_dtype(given).numpy,
        "can_cast": lambda a, to, casting="safe": np.can_cast(a.dtype, to, casting),
    }
)
METHODS.update(
    {
        "copy": lambda a, order="C": a._like(call("copy", a, order)),
        "conj": UFUNCS["conjugate"],
        "conjugate": UFUNCS["conjugate"],
    }
)
ATTRIBUTES.update({"real": lambda a: call("real", a)})
