"""NumPy's elementwise functions that are no ufuncs: selection, clipping, rounding, tolerances, copies."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import array_of, is_given
from noyau.frontends.numpy.shapes import offsets, shape_of
from noyau.frontends.numpy.tape import NUMPY_1, dtype_from
from noyau.frontends.numpy.traced_array import ATTRIBUTES, FUNCTIONS, METHODS, UFUNCS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import apply, as_node, as_traced, beyond, common_dtype, refuse, traced_arrays
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Lookup


def where(condition: Any, *branches: Any) -> TracedArray:
    """np.where of three arrays."""
    if len(branches) != 2:
        raise UnsupportedError("np.where of a condition alone has a result of unknown shape; give it both values")
    tape, dtype = tape_of([condition, *branches]), common_dtype(branches)
    first, second = (as_node(tape, each, dtype) for each in branches)
    return TracedArray(tape, apply(tape, "where", as_node(tape, as_traced(tape, condition), DType.BOOL), first, second))


def _choose(a: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> Any:
    if out is not None:
        raise UnsupportedError("np.choose is traced without out=")
    count, tape = len(choices), tape_of([a, choices])
    a = as_traced(tape, a)
    if mode == "raise":
        dtype = common_dtype([*choices])
        stacked = call("stack", call("broadcast_arrays", a, *(as_traced(tape, each, dtype) for each in choices))[1:])
        at = indices(stacked.ndim - 1)
        places = tape.cast(call("broadcast_to", a, stacked.shape[1:]).node, DType.I64)
        return TracedArray(tape, tape.gather((Lookup(1, at), *at), [stacked.node, places], places.shape))
    a = a % count if mode == "wrap" else call("clip", a, 0, count - 1)
    return call("select", [a == k for k in range(count)], list(choices))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Any:
    low = options.pop("min", None) if not is_given(a_min) else a_min
    high = options.pop("max", None) if not is_given(a_max) else a_max
    dtype = {key: options.pop(key) for key in ("dtype",) if options.get(key) is not None}
    refuse("clip", options)
    a = as_traced(tape_of([a, low, high]), a)  # a Python number is an array of its own dtype here
    if NUMPY_1:
        dtype = dtype or {"dtype": common_dtype([each for each in (a, low, high) if is_given(each)]).numpy}
    else:
        low, high = (None if beyond(a.tape, end, a.node.dtype) == side else end for end, side in ((low, -1), (high, 1)))
    if not (is_given(low) or is_given(high)):
        return UFUNCS["positive"](a, out=out, **dtype)
    clipped = a if not is_given(low) else UFUNCS["maximum"](a, low, **dtype)
    clipped = clipped if not is_given(high) else UFUNCS["minimum"](clipped, high, **dtype)
    return UFUNCS["positive"](clipped, out=out) if out is not None else TracedArray(a.tape, clipped.node)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """np.round: halves to even; integers change only where `decimals` is below 0."""
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


def _astype(x: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", **options: Any) -> TracedArray:
    x, target = array_of(x), dtype_from(dtype)
    if not np.can_cast(x.dtype, target.numpy, casting):
        raise UnsupportedError(f"a cast of {x.dtype} to {target.numpy} is not {casting!r}; NumPy refuses it too")
    if options.get("copy") is False and target is x.node.dtype:
        return _in_order(x, order)
    return _copy(x, order, target=target)


def _copy(a: Any, order: Any = "K", *, target: DType | None = None, **options: Any) -> TracedArray:
    """A new array in a memory order ("K": as `a`), cast to `target` if there is one."""
    a = array_of(a)
    array = TracedArray(a.tape, a.node if target is None else a.tape.cast(a.node, target))
    array.lies(order, like=[] if order == "F" else [a])
    return array


def _asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **options: Any) -> Any:
    """np.asarray: the array itself if its dtype and memory order fit."""
    return _array(a, dtype, copy=copy, order=order)


def _array(a: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", ndmin: int = 0, **options: Any) -> Any:
    a = array_of(a)
    target = a.dtype if dtype is None else dtype
    if copy is False and not NUMPY_1 and np.dtype(target) != a.dtype:
        raise UnsupportedError("np.array with copy=False makes no array of another dtype; NumPy refuses it too")
    array = _astype(a, target, order, copy=copy is True)
    return array[(None,) * max(ndmin - array.ndim, 0) + (Ellipsis,)] if ndmin else array


def _in_order(a: TracedArray, order: Any) -> TracedArray:
    """The array itself if its memory order fits, else a copy; an array that may be either if its order is unknown."""
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
    """Whether an array has cells, and several along an axis whose stride is not that of packed cells."""

    def more(room: Dim) -> bool:
        return a.tape.at_most(1, room, usual=True)

    apart = (more(extent - 1) and (more(gap) or more(-gap)) for extent, gap in gaps)
    return all(map(more, a.node.shape)) and any(apart)


def _like(name: str, value: Any, a: Any, *leading: Any, **options: Any) -> Any:
    """np.zeros_like and its kin; with `value` None (full_like) it is the first argument after the array."""
    a, names = array_of(a), ("dtype", "order", "subok", "shape")
    options |= zip(names if value is not None else ("fill_value", *names), leading, strict=False)
    number, dtype, shape = options.pop("fill_value", value), options.pop("dtype", None), options.pop("shape", None)
    refuse(name, {key: v for key, v in options.items() if key != "device"})
    target = a.node.dtype if dtype is None else dtype_from(dtype)
    dims = a.node.shape if shape is None else shape_of(shape)
    array = TracedArray(a.tape, a.tape.expand(as_node(a.tape, number, target), dims))
    array.lies(options.get("order", "K"), [a] if shape is None and options.get("order") in (None, "K") else [])
    return array


def _isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """np.isclose: |a - b| <= atol + rtol |b|; infinities are close if they are equal."""
    tape = tape_of([a, b, rtol, atol])
    a, b = as_traced(tape, a), as_traced(tape, b)
    if b.node.dtype.kind != "float":
        b = b.astype(np.result_type(b.dtype, 1.0))
    return _or_nan((abs(a - b) <= atol + rtol * abs(b)) & UFUNCS["isfinite"](b) | (a == b), a, b, equal_nan)


def _or_nan(alike: Any, a: Any, b: Any, equal_nan: bool) -> Any:
    """`alike`, or with `equal_nan` both cells NaN."""
    return alike | (UFUNCS["isnan"](a) & UFUNCS["isnan"](b)) if equal_nan else alike


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    a1, a2 = traced_arrays(a1, a2)
    if a1.ndim != a2.ndim or any(one != two for one, two in zip(a1.shape, a2.shape, strict=True)):
        return False
    return call("all", _or_nan(a1 == a2, a1, a2, equal_nan))


def _band(keep: Callable[[Any, Any], Any], m: Any, k: int = 0) -> Any:
    """np.tril and np.triu: 0 on the other side of a diagonal."""
    m = array_of(m)
    if not m.ndim:
        raise UnsupportedError("np.tril and np.triu take an array of one axis or more")
    m = call("broadcast_to", m, (m.shape[0], m.shape[0])) if m.ndim == 1 else m
    return where(keep(offsets(m.tape, m.node.shape[-2:]), k), m, np.zeros((), m.dtype))


def _meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Any, ...]:
    vectors = [call("ravel", each) for each in traced_arrays(*xi)]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shapes = [[-1 if k == axis else 1 for k in range(len(vectors))] for axis in order]
    grids = tuple(call("reshape", each, shape) for each, shape in zip(vectors, shapes, strict=True))
    return grids if sparse else tuple(call("copy", each) for each in call("broadcast_arrays", *grids))


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    axes = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = (call("moveaxis", each, k, -1) for each, k in zip(traced_arrays(a, b), axes, strict=False))
    for each in (a, b):
        each.tape.demand_equal(each.node.shape[-1], 3)
    turned = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return call("stack", turned, axis=axes[2])


def _numbers(a: TracedArray) -> Any:
    """A mask of the cells that are no NaN."""
    return UFUNCS["equal"](a, a)


def _without_nan(name: str, instead: float, a: Any, *args: Any, **options: Any) -> Any:
    """np.nanargmax and np.nanargmin: NaN is replaced by `instead`; 0 where all cells are NaN, which NumPy refuses."""
    a = array_of(a)
    clean = where(_numbers(a), a, np.array(instead, a.dtype)) if a.dtype.kind == "f" else a
    return call(name, clean, *args, **options)


def _over_numbers(name: str, a: Any, *args: Any, **options: Any) -> Any:
    """np.nanmean, nanvar and nanstd: over the cells that are no NaN; NaN where there are none."""
    a = array_of(a)
    return call(name, a, *args, **(options if a.dtype.kind != "f" else {**options, "where": _numbers(a)}))


def _nan_extreme(name: str, end: float, a: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
    """np.nanmax and np.nanmin: over the cells that are no NaN; NaN where there are none."""
    a = array_of(a)
    if a.dtype.kind != "f":
        return call(name, a, axis, out=out, **options)
    keep = {key: value for key, value in options.items() if key == "keepdims"}
    extreme = call(name, where(_numbers(a), a, np.array(end, a.dtype)), axis, **options)
    some = call("any", _numbers(a), axis, **keep)
    extreme = extreme if "initial" in options else where(some, extreme, np.array(np.nan, a.dtype))
    return extreme if out is None else UFUNCS["positive"](extreme, out=out)


_INSTEAD = {"argmax": -np.inf, "argmin": np.inf}  # replaces NaN
enter(FUNCTIONS, where, _choose, _clip, _round, _astype, _copy, _asarray, _array, _isclose, _array_equal)
enter(FUNCTIONS, _meshgrid, _cross)
FUNCTIONS |= {
    "around": _round,
    "fix": lambda x, out=None: UFUNCS["trunc"](array_of(x), out=out),
    "asanyarray": _asarray,
    "ascontiguousarray": lambda a, dtype=None, **options: _in_order(call("atleast_1d", _asarray(a, dtype)), "C"),
    "asfortranarray": lambda a, dtype=None: _in_order(call("atleast_1d", _asarray(a, dtype)), "F"),
    **{name: partial(_like, name, value) for name, value in (("zeros_like", 0), ("ones_like", 1), ("empty_like", 0))},
    "full_like": partial(_like, "full_like", None),
    "allclose": lambda a, b, *args, **options: call("all", _isclose(a, b, *args, **options)),
    "array_equiv": lambda a1, a2: call("all", UFUNCS["equal"](*traced_arrays(a1, a2))),
    "tril": partial(_band, np.less_equal),
    "triu": partial(_band, np.greater_equal),
    "isposinf": lambda x, out=None: UFUNCS["equal"](array_of(x), np.inf, out=out),
    "isneginf": lambda x, out=None: UFUNCS["equal"](array_of(x), -np.inf, out=out),
    "real": lambda val: array_of(val)[...],
    "imag": lambda val: call("zeros_like", array_of(val)),
    "flat": lambda a: TracedArray(a.tape, call("ravel", a).node),  # writes into it are writes into the array
    "iscomplexobj": lambda x: False,
    "result_type": lambda *operands: common_dtype(operands).numpy,
    "can_cast": lambda a, to, casting="safe": np.can_cast(a.dtype, to, casting),
    **{f"nan{name}": partial(_without_nan, name, instead) for name, instead in _INSTEAD.items()},
    **{f"nan{name}": partial(_over_numbers, name) for name in ("mean", "var", "std")},
    "nanmax": partial(_nan_extreme, "max", -np.inf),
    "nanmin": partial(_nan_extreme, "min", np.inf),
}
METHODS.update({"copy": lambda a, order="C": a._like(call("copy", a, order))})
METHODS.update(dict.fromkeys(("conj", "conjugate"), UFUNCS["conjugate"]))
UFUNCS |= {
    "fmax.reduce": lambda a, axis=0, **options: call("nanmax", a, axis, **options),
    "fmin.reduce": lambda a, axis=0, **options: call("nanmin", a, axis, **options),
}
ATTRIBUTES |= {name: partial(call, name) for name in ("flat", "imag", "real")}
ATTRIBUTES |= {"T": partial(call, "transpose"), "mT": partial(call, "matrix_transpose")}
ATTRIBUTES |= {"itemsize": lambda a: a.dtype.itemsize, "nbytes": lambda a: a.size * a.dtype.itemsize}
