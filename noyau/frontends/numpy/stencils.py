"""Sliding windows, correlations, convolutions and gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import array_of, axes_of, axis_of
from noyau.frontends.numpy.traced_array import FUNCTIONS, TracedArray, call, enter, tape_of
from noyau.frontends.numpy.ufuncs import as_traced, common_dtype, traced_arrays
from noyau.ir.dims import Dim, indices
from noyau.ir.sizes import dim_of


def windows(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Any:
    """np.lib.stride_tricks.sliding_window_view: the cells of a window stand along last axes."""
    x = array_of(x)
    wide = [dim_of(n) for n in (window_shape if isinstance(window_shape, tuple | list) else [window_shape])]
    axes = [axis_of(each, x.ndim) for each in (range(x.ndim) if axis is None else np.atleast_1d(axis).tolist())]
    if len(axes) != len(wide):
        raise UnsupportedError(f"windows of {len(wide)} extents are over {len(axes)} axes")
    shape, index = list(x.node.shape), list(indices(x.ndim))
    for at, (each, extent) in enumerate(zip(axes, wide, strict=True)):
        x.tape.demand_at_most(extent, shape[each])
        shape[each] = shape[each] - extent + 1
        index[each] = index[each] + Dim.of(f"#{x.ndim + at}")
    return TracedArray(x.tape, x.tape.view(x.node, (*shape, *wide), index))


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate: for each shift of one vector along the other, the sum of products of cells that overlap."""
    tape, pair = tape_of([a, v]), traced_arrays(a, v)
    a, v = (call("atleast_1d", each.astype(common_dtype(pair).numpy)) for each in pair)
    for each in (a, v):
        tape.demand_at_most(1, each.node.shape[0])
    if not tape.at_most(v.node.shape[0], a.node.shape[0], usual=True):
        return _convolve(v, a, mode)[::-1]
    return _convolve(a, v, mode)


def _convolve(a: Any, v: Any, mode: str) -> Any:
    """Correlate the longer vector `a` with the shorter `v`."""
    tape, (short,) = a.tape, v.node.shape
    tape.settle_few(short)
    before = {"valid": Dim.of(0), "same": short // 2, "full": short - 1}.get(mode)
    if before is None:
        raise UnsupportedError(f"np.correlate takes mode= 'valid', 'same' or 'full', not {mode!r}")
    after = before if mode == "full" else short - before - 1
    head, tail = (
        [_head(a[::step], v[::step], count)[::step]] if mode != "valid" and tape.at_most(1, count, usual=True) else []
        for count, step in ((before, 1), (after, -1))
    )
    return call("concatenate", [*head, call("sum", windows(a, v.shape[0]) * v, 1, dtype=a.dtype), *tail])


def _head(a: Any, v: Any, count: Dim) -> Any:
    """The first cells of a correlation, where a part of the shorter vector lies before the longer one."""
    near = [a.tape.full(0, a.node.dtype, (count,)), a.tape.slice(a.node, 0, 0, v.node.shape[0] - 1)]
    products = windows(TracedArray(a.tape, a.tape.concat(near, 0)), v.shape[0]) * v
    place = TracedArray(a.tape, a.tape.iota(Dim.of("#0") + Dim.of("#1") - count, products.node.shape))
    # In front of the longer vector nothing overlaps, and 0 times an infinity would be NaN
    return call("sum", where(place >= 0, products, np.zeros((), a.dtype)), 1, dtype=a.dtype)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient: central differences, one-sided at the ends."""
    f = as_traced(tape_of([f, *varargs]), f)
    axes = axes_of(axis, f.ndim)
    steps = varargs * len(axes) if len(varargs) == 1 and np.ndim(varargs[0]) == 0 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise UnsupportedError("np.gradient takes one step, or one for each axis, and edge_order= 1 or 2")
    f = f if f.dtype.kind == "f" else f.astype(np.float64) if f.dtype != bool else f
    slopes = tuple(_slopes(f, *pair, edge_order) for pair in zip(steps, axes, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _slopes(f: Any, step: Any, axis: int, order: int) -> Any:
    """The slopes along an axis; `step` is the distance of its cells, or their coordinates."""
    tape, dtype = f.tape, f.dtype if f.dtype.kind == "f" else np.float64
    f = call("moveaxis", f, axis, -1)
    tape.demand_at_most(order + 1, f.node.shape[-1])
    if np.ndim(step) > 0:
        places = as_traced(tape, step)
        tape.demand_equal(places.node.shape[0], f.node.shape[-1])
        gaps = call("diff", places if places.dtype.kind == "f" else places.astype(np.float64))
        one, other = gaps[:-1], gaps[1:]
        both = one + other
        middle = [-other / (one * both), (other - one) / (one * other), one / (other * both)]
        inside = _weigh(f[..., :-2], f[..., 1:-1], f[..., 2:], middle)
        ends = (gaps[0], gaps[1], gaps[-1], gaps[-2])
    else:
        inside, ends = (f[..., 2:] - f[..., :-2]) / (2.0 * step), (step,) * 4
    if order == 1:
        first, last = (f[..., 1] - f[..., 0]) / ends[0], (f[..., -1] - f[..., -2]) / ends[2]
    else:
        first = _weigh(f[..., 0], f[..., 1], f[..., 2], _first(ends[0], ends[1]))
        last = _weigh(f[..., -1], f[..., -2], f[..., -3], [-each for each in _first(ends[2], ends[3])])
    pieces = [call("astype", each, dtype) for each in (first[..., None], inside, last[..., None])]
    return call("moveaxis", call("concatenate", pieces, axis=-1), -1, axis)


def _weigh(a: Any, b: Any, c: Any, weights: Sequence[Any]) -> Any:
    return weights[0] * a + weights[1] * b + weights[2] * c


def _first(one: Any, other: Any) -> list[Any]:
    """The weights of three neighbours in the slope at the first one."""
    both = one + other
    return [-(2.0 * one + other) / (one * both), both / (one * other), -one / (other * both)]


enter(FUNCTIONS, correlate, gradient)
FUNCTIONS["sliding_window_view"] = windows
