"""NumPy's functions that join, split, repeat, roll and pad arrays, insert and delete cells, or put a vector on a
diagonal."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import along, array_of, axis_of
from noyau.frontends.numpy.shapes import offsets
from noyau.frontends.numpy.tape import dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, cells, enter, tape_of
from noyau.frontends.numpy.traced_sizes import as_size
from noyau.frontends.numpy.ufuncs import as_node, as_traced, common_dtype, has_traced, refuse, traced_arrays
from noyau.ir.dims import Dim, indices, product
from noyau.ir.sizes import Size, dim_of


def concatenate(arrays: Sequence[Any], axis: Any = 0, out: Any = None, dtype: Any = None, **more: Any) -> TracedArray:
    """np.concatenate; Python numbers among the arrays are arrays of their own dtype."""
    refuse("concatenate", {**{k: v for k, v in more.items() if k != "casting"}, "out": out})
    tape, pieces = tape_of(arrays), traced_arrays(*arrays)
    target = common_dtype(pieces) if dtype is None else dtype_from(dtype)
    if axis is None:
        pieces, axis = [call("ravel", each) for each in pieces], 0
    nodes = [tape.cast(each.node, target) for each in pieces]
    if len({len(node.shape) for node in nodes}) != 1 or not nodes[0].shape:
        raise UnsupportedError("np.concatenate takes arrays of one rank, and not of none")
    axis = axis_of(axis, len(nodes[0].shape))
    return TracedArray(tape, tape.concat([node for node in nodes if node.shape[axis] != Dim.of(0)] or nodes[:1], axis))


def stack(arrays: Sequence[Any], axis: int = 0, **options: Any) -> TracedArray:
    """Arrays of one shape side by side along a new axis."""
    tape, pieces = tape_of(arrays), traced_arrays(*arrays)
    shape = tape.broadcast([each.node.shape for each in pieces])
    if any(each.ndim != len(shape) for each in pieces):
        raise UnsupportedError("np.stack takes arrays of one shape")
    alike = [TracedArray(tape, tape.assume_shape(each.node, shape)) for each in pieces]
    return concatenate([call("expand_dims", each, axis) for each in alike], axis=axis, **options)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0, *, even: bool = True) -> list[Any]:
    """np.split into equal parts, or at given indices; np.array_split (`even` False) into parts that may differ."""
    a = array_of(ary)
    axis = axis_of(axis, a.ndim)
    if not isinstance(indices_or_sections, int | np.integer | Size):
        places = [0, *indices_or_sections, None]
    else:
        count = int(indices_or_sections)
        extent = a.shape[axis]
        if even and extent % count != 0:
            number = a.tape.number_of(a.node.shape[axis])
            raise UnsupportedError(f"np.split makes no {count} equal parts of {number} cells; nor does NumPy")
        extra = 0 if even else int(extent % count)
        each = extent // count
        places = [each * k + min(k, extra) for k in range(count)] + [None]
    return [cells(a, axis, *pair) for pair in pairwise(places)]


def _tile(A: Any, reps: Any) -> Any:
    """np.tile: a view whose indices are taken modulo the extents of the array."""
    a = array_of(A)
    counts = [reps] if isinstance(reps, int | np.integer | Size) else list(reps)
    rank = max(a.ndim, len(counts))
    a = a[(None,) * (rank - a.ndim) + (Ellipsis,)]
    dims = [dim_of(each) for each in [1] * (rank - len(counts)) + counts]
    shape = tuple(dim * count for dim, count in zip(a.node.shape, dims, strict=True))
    axes = zip(indices(rank), a.node.shape, dims, strict=True)
    return TracedArray(a.tape, a.tape.view(a.node, shape, [at if n == Dim.of(1) else at % dim for at, dim, n in axes]))


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat by one count, or by a known count for each cell of an axis."""
    a, axis = along(a, axis)
    repeats = repeats[0] if isinstance(repeats, list | tuple | np.ndarray) and np.size(repeats) == 1 else repeats
    if isinstance(repeats, list | tuple | np.ndarray) and not has_traced(repeats):
        a.tape.demand_equal(a.node.shape[axis], len(repeats))
        return call("take", a, np.repeat(np.arange(len(repeats)), repeats), axis)
    if not isinstance(repeats, int | np.integer | Size):
        raise UnsupportedError("np.repeat is traced for numbers of repeats that are known, or sizes")
    count = dim_of(repeats)
    shape = tuple(dim * count if k == axis else dim for k, dim in enumerate(a.node.shape))
    index = [at // count if k == axis and count != Dim.of(0) else at for k, at in enumerate(indices(a.ndim))]
    return TracedArray(a.tape, a.tape.view(a.node, shape, index))


def _resize(a: Any, new_shape: Any) -> Any:
    """np.resize: the cells in C order, repeated until the new shape is full."""
    flat = call("ravel", array_of(a))
    dims = new_shape if isinstance(new_shape, tuple | list) else (new_shape,)
    if not flat.tape.at_most(1, flat.node.shape[0], usual=True):
        return call("zeros_like", flat, shape=tuple(dims))
    total = product(map(dim_of, dims))
    resized = TracedArray(flat.tape, flat.tape.view(flat.node, (total,), [indices(1)[0] % flat.node.shape[0]]))
    return call("copy", call("reshape", resized, dims))


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """np.insert before a single index."""
    a = as_traced(tape_of([arr, values]), arr)
    a, axis = (call("ravel", a), 0) if axis is None else (a, axis_of(axis, a.ndim))
    new = as_traced(a.tape, values).astype(a.dtype)
    new = call("moveaxis", new[(None,) * (a.ndim - new.ndim) + (Ellipsis,)], 0, axis)
    new = call("broadcast_to", new, tuple(new.shape[k] if k == axis else n for k, n in enumerate(a.shape)))
    before, after = _around(a, obj, axis, "insert", 0)
    return concatenate([before, new, after], axis=axis)


def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """np.delete of a single index."""
    a = array_of(arr)
    a, axis = (call("ravel", a), 0) if axis is None else (a, axis_of(axis, a.ndim))
    return concatenate(_around(a, obj, axis, "delete", 1), axis=axis)


def _around(a: TracedArray, place: Any, axis: int, name: str, dropped: int) -> list[TracedArray]:
    """The parts of an array before an index of an axis, and from `dropped` cells behind it on."""
    if isinstance(place, bool) or not isinstance(place, int | np.integer | Size):
        raise UnsupportedError(f"np.{name} is traced for one place; use np.concatenate")
    at, extent = dim_of(place), a.node.shape[axis]
    at = at if a.tape.at_most(0, at, usual=True) else at + extent
    a.tape.demand_at_most(0, at)
    a.tape.demand_at_most(at + dropped, extent)
    start = as_size(a.tape, at)
    return [cells(a, axis, None, start), cells(a, axis, start + dropped, None)]


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """np.roll: the two parts of each rolled axis are swapped."""
    a = array_of(a)
    if axis is None:
        return call("reshape", _roll(call("ravel", a), shift, 0), a.shape)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if not axes:
        raise UnsupportedError("np.roll along no axis is refused by NumPy too")
    for each, by in zip(axes, shift if isinstance(shift, tuple | list) else (shift,) * len(axes), strict=True):
        a = _roll_axis(a, by, axis_of(each, a.ndim))
    return call("copy", a)


def _roll_axis(a: TracedArray, by: Any, axis: int) -> Any:
    if not isinstance(by, int | np.integer | Size):
        raise UnsupportedError("np.roll is traced for shifts that are integers or sizes")
    extent = a.shape[axis]
    if isinstance(extent, int) and extent == 0:
        return a
    tape, shift = a.tape, dim_of(by)
    inside = tape.at_most(shift, dim_of(extent), usual=True) and tape.at_most(-shift, dim_of(extent), usual=True)
    if not inside and not tape.at_most(1, dim_of(extent), usual=True):
        return a
    by = by if inside else by % extent
    if isinstance(by, int | np.integer) and by == 0:
        return a
    cut = extent - by if tape.at_most(1, dim_of(by), usual=True) else -by
    return concatenate([cells(a, axis, cut, None), cells(a, axis, None, cut)], axis=axis)


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """np.pad in the modes of `_PADS`; wrap, reflect and symmetric by one extent at most."""
    a, values = array_of(array), options.pop("constant_values", 0)
    if not isinstance(mode, str) or mode not in _PADS or options:
        raise UnsupportedError(f"np.pad is traced with mode= one of {', '.join(_PADS)}, without {', '.join(options)}")
    for axis, (width, value) in enumerate(zip(_pairs(pad_width, a.ndim), _pairs(values, a.ndim), strict=True)):
        before, after = _PADS[mode](a, axis, width, value)
        pieces = [piece for piece in (before, a, after) if piece is not None]
        a = concatenate(pieces, axis=axis, dtype=a.dtype) if len(pieces) > 1 else a
    return call("copy", a)


def _pairs(widths: Any, rank: int) -> list[tuple[Any, Any]]:
    """A width or a value of np.pad as a pair for each axis: from a number, a pair, a pair for each axis, or a dict."""
    if isinstance(widths, np.ndarray):
        widths = widths.tolist()
    if isinstance(widths, dict):
        by_axis = {axis_of(axis, rank): each for axis, each in widths.items()}
        return [_pairs(by_axis.get(axis, 0), 1)[0] for axis in range(rank)]
    if not isinstance(widths, tuple | list):
        return [(widths, widths)] * rank
    rows = [each if isinstance(each, tuple | list) else None for each in widths]
    if None not in rows:
        pairs = [tuple(row) * (3 - len(row)) for row in rows if row is not None]
        return [(p[0], p[1]) for p in (pairs * rank if len(pairs) == 1 else pairs)]
    return [(widths[0], widths[-1])] * rank


def _constant_pad(a: TracedArray, axis: int, width: Any, value: Any) -> tuple[Any, ...]:
    def block(extent: Any, number: Any) -> Any:
        if isinstance(extent, int) and extent == 0:
            return None
        shape = (*a.node.shape[:axis], dim_of(extent), *a.node.shape[axis + 1 :])
        return TracedArray(a.tape, a.tape.expand(as_node(a.tape, as_traced(a.tape, number), a.node.dtype), shape))

    return tuple(map(block, width, value))


def _edge_pad(a: TracedArray, axis: int, width: Any, value: Any) -> tuple[Any, ...]:
    if width != (0, 0):
        a.tape.demand_at_most(1, a.node.shape[axis])
    ends = cells(a, axis, None, 1), cells(a, axis, -1, None)
    return tuple(None if w == 0 else _repeat(end, w, axis) for end, w in zip(ends, width, strict=True))


def _mirror(skip: int, a: TracedArray, axis: int, width: Any, value: Any) -> tuple[Any, Any]:
    """Pads that mirror the axis at its ends; with `skip` 1 without the end cells themselves."""
    (before, after), extent = width, a.shape[axis]
    a.tape.demand_at_most(dim_of(max(before, after)) + skip, dim_of(extent))
    first = None if before == 0 else call("flip", cells(a, axis, skip, before + skip), axis)
    last = None if after == 0 else call("flip", cells(a, axis, extent - after - skip, extent - skip), axis)
    return first, last


def _statistic_pad(name: str, a: TracedArray, axis: int, width: Any, value: Any) -> tuple[Any, ...]:
    """Pads filled with the mean, the maximum or the minimum of the axis."""
    statistic = call(name, a, axis, keepdims=True)
    statistic = statistic if a.dtype.kind == "f" or name != "mean" else UFUNCS["rint"](statistic)
    return tuple(None if w == 0 else _repeat(statistic.astype(a.dtype), w, axis) for w in width)


def _wrap_pad(a: TracedArray, axis: int, width: Any, value: Any) -> tuple[Any, Any]:
    (before, after), extent = width, a.shape[axis]
    a.tape.demand_at_most(dim_of(max(before, after)), dim_of(extent))
    first = None if before == 0 else cells(a, axis, extent - before, extent)
    return first, None if after == 0 else cells(a, axis, 0, after)


_PADS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "constant": _constant_pad,
    "edge": _edge_pad,
    "reflect": partial(_mirror, 1),
    "symmetric": partial(_mirror, 0),
    "wrap": _wrap_pad,
    "mean": partial(_statistic_pad, "mean"),
    "maximum": partial(_statistic_pad, "max"),
    "minimum": partial(_statistic_pad, "min"),
    "empty": _constant_pad,
}


def _diag(v: Any, k: int = 0) -> Any:
    """np.diag: the diagonal of a matrix, or a matrix with a vector on its diagonal."""
    v = array_of(v)
    if v.ndim == 2:
        return call("diagonal", v, k)
    if v.ndim != 1:
        raise ValueError("np.diag takes a vector or a matrix")  # NumPy's own error, which np.corrcoef catches
    square = where(offsets(v.tape, (v.node.shape[0],) * 2) == 0, v, np.zeros((), v.dtype))
    below, right = max(-k, 0), max(k, 0)
    return call("pad", square, ((below, right), (right, below))) if k else square


enter(FUNCTIONS, concatenate, stack, _split, _tile, _repeat, _resize, _insert, _delete)
enter(FUNCTIONS, _roll, _pad, _diag)
FUNCTIONS["array_split"] = partial(_split, even=False)
