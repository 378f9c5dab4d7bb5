"""NumPy's functions that join, split, repeat, roll and pad arrays, or insert and delete cells; and those of positions:
diagonals, np.piecewise, flat indices, searches in sorted cells, histograms. Functions that NumPy writes in Python are
traced by their own source (DEFINED)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy import traced_array
from noyau.frontends.numpy.creation import linspace
from noyau.frontends.numpy.elementwise import where
from noyau.frontends.numpy.reductions import along, array_of, axis_of
from noyau.frontends.numpy.scopes import from_source
from noyau.frontends.numpy.setitem import fit, setitem
from noyau.frontends.numpy.shapes import diagonal, extents_of, offsets, shape_of
from noyau.frontends.numpy.tape import dtype_from
from noyau.frontends.numpy.traced_array import FUNCTIONS, UFUNCS, TracedArray, call, cells, enter, tape_of
from noyau.frontends.numpy.traced_sizes import as_size
from noyau.frontends.numpy.ufuncs import as_node, as_traced, common_dtype, has_traced, refuse, traced_arrays
from noyau.ir.dims import Dim, indices, product
from noyau.ir.graph import Lookup
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


enter(FUNCTIONS, concatenate, stack, _split, _tile, _repeat, _resize, _insert, _delete)
enter(FUNCTIONS, _roll, _pad)
FUNCTIONS["array_split"] = partial(_split, even=False)


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


def _fill_diagonal(a: TracedArray, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal of matrices, with one number or at least as many as the diagonal has."""
    if wrap or a.ndim != 2:
        raise UnsupportedError("np.fill_diagonal is traced for matrices, without wrap=")
    values = call("ravel", as_traced(a.tape, val)).astype(a.dtype)
    values = values[0] if values.node.shape == (Dim.of(1),) else values
    if values.ndim:
        a.tape.demand_at_most(diagonal(a).node.shape[0], values.node.shape[0])
        values = call("pad", values[: call("size", diagonal(a))], (0, a.shape[1] - call("size", diagonal(a))))
    FUNCTIONS["write"](a, where(offsets(a.tape, a.node.shape) == 0, values, a).node)


def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """np.piecewise: each function gets the cells that its condition selects; the last true condition wins."""
    x = as_traced(tape_of([x, condlist]), x)
    several = _is_array(condlist) and (not x.ndim or _is_array(condlist[0]))
    conditions = [as_traced(x.tape, each).astype(bool) for each in (condlist if several else [condlist])]
    if len(conditions) == len(funclist) - 1:
        conditions.append(~call("any", call("stack", conditions), axis=0))
    if len(conditions) != len(funclist):
        raise UnsupportedError("np.piecewise takes a function for each condition, and one more for all other cells")
    cells = call("zeros_like", x)
    for condition, function in zip(conditions, funclist, strict=True):
        if not x.ndim:
            value = function(x, *args, **kw) if callable(function) else function
            cells = where(condition, as_traced(x.tape, value).astype(x.dtype), cells)
        else:
            setitem(cells, condition, function(x[condition], *args, **kw) if callable(function) else function)
    return cells


def _is_array(value: Any) -> bool:
    return isinstance(value, tuple | list) or (isinstance(value, TracedArray | np.ndarray) and value.ndim > 0)


def _put(a: TracedArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """np.put by flat indices in C order."""
    if mode != "raise":
        raise UnsupportedError("np.put is traced without mode=")
    setitem(call("flat", a), np.asarray(ind) if isinstance(ind, tuple | list) else ind, v)


def _put_along_axis(arr: TracedArray, indices: Any, values: Any, axis: Any) -> None:
    """np.put_along_axis: by NumPy's source along an axis, into the flat array for None."""
    if axis is None:
        setitem(call("flat", arr), indices, values)
    else:
        from_source("put_along_axis")(arr, indices, values, axis)


def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    """np.ravel_multi_index of indices within `dims`; NumPy refuses others."""
    tape = tape_of([multi_index, dims])
    if mode != "raise" or order not in ("C", "F"):
        raise UnsupportedError("np.ravel_multi_index is traced without mode=")
    pairs = list(zip([as_traced(tape, each) for each in multi_index], extents_of((dims,)), strict=True))
    flat: Any = None
    for each, extent in pairs if order == "C" else pairs[::-1]:
        flat = each if flat is None else flat * extent + each
    return flat.astype(np.int64)


def _unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """np.unravel_index of indices within `shape`; NumPy refuses others."""
    rest: Any = as_traced(tape_of([indices, shape]), indices).astype(np.int64)
    positions, extents = [], extents_of((shape,))
    for extent in extents[::-1] if order == "C" else extents:
        positions.append(rest % extent)
        rest = rest // extent
    return tuple(positions[::-1] if order == "C" else positions)


DEFINED = """angle append apply_along_axis apply_over_axes atleast_1d atleast_2d atleast_3d block column_stack
convolve corrcoef cov cumulative_prod cumulative_sum diag_indices_from diagflat diff dsplit dstack ediff1d expand_dims
flip fliplr flipud geomspace hsplit hstack i0 iscomplex isreal isrealobj ix_ logspace moveaxis nan_to_num
nancumprod nancumsum nanprod nansum outer poly polyadd polyder polyint polysub polyval real_if_close
require rollaxis rot90 select sinc take_along_axis trapezoid tril_indices_from triu_indices_from unstack unwrap
vander vsplit vstack linalg.cross linalg.diagonal linalg.matmul linalg.matrix_norm linalg.matrix_power
linalg.multi_dot linalg.outer linalg.tensordot linalg.trace linalg.vector_norm""".split()


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted by bisection, a step for each bit of the number of cells; NaN is larger than all numbers."""
    if side not in ("left", "right"):
        raise UnsupportedError(f"np.searchsorted takes side='left' or 'right', not {side!r}")
    tape = tape_of([a, v, sorter])
    a, v = as_traced(tape, a), as_traced(tape, v)
    if a.ndim != 1:
        raise UnsupportedError("np.searchsorted looks into a vector")
    a = a if sorter is None else call("take", a, sorter)
    common = common_dtype([a, v]).numpy
    a, v, extent = a.astype(common), v.astype(common), a.node.shape[0]
    at: Any = TracedArray(tape, tape.full(0, DType.I64, v.node.shape))
    if not tape.at_most(1, extent, usual=True):
        return at
    number = tape.number_of(extent)
    rounds = ((tape.settle(extent) if number is None else number) - 1).bit_length()
    tape.demand_at_most(extent, 2**rounds)
    lengths = [as_size(tape, (extent + (2**k - 1)) // 2**k) for k in range(rounds + 1)]
    for length, rest in pairwise(lengths):  # the place is among `length` cells from `at` on, or right behind them
        half = length - rest
        at = at + where(_is_before(clipped_lookup(a, at + (half - 1)), v, side), half, 0)
    return at + _is_before(clipped_lookup(a, at), v, side)


def _is_before(cell: Any, v: Any, side: str) -> Any:
    """Whether a cell stands before the place of `v`; NaN is larger than all numbers."""
    before = UFUNCS["less" if side == "left" else "less_equal"](cell, v)
    if cell.dtype.kind != "f":
        return before
    return before | (UFUNCS["isnan"](v) & ~UFUNCS["isnan"](cell) if side == "left" else UFUNCS["isnan"](v))


def clipped_lookup(a: TracedArray, at: Any) -> TracedArray:
    """Cells of a vector at indices that are clipped to its ends."""
    inside = UFUNCS["maximum"](UFUNCS["minimum"](at, a.shape[0] - 1), 0)
    index = (Lookup(1, indices(inside.ndim)),)
    return TracedArray(a.tape, a.tape.gather(index, [a.node, inside.node], inside.node.shape))


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize into known bins."""
    if isinstance(bins, TracedArray):
        raise UnsupportedError("np.digitize is traced for known bins; np.searchsorted is traced for any that increase")
    return from_source("digitize")(x, bins, right)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: linear between neighbours, constant beyond the ends, and exact at the given points."""
    if period is not None:
        raise UnsupportedError("np.interp is traced without period=, with which it sorts")
    tape = tape_of([x, xp, fp, left, right])
    x, xp, fp = (as_traced(tape, each).astype(np.float64) for each in (x, xp, fp))
    tape.demand_equal(xp.node.shape[0], fp.node.shape[0])
    tape.demand_at_most(1, xp.node.shape[0])
    at = searchsorted(xp, x, side="right") - 1
    (x0, y0), (x1, y1) = ((clipped_lookup(xp, k), clipped_lookup(fp, k)) for k in (at, at + 1))
    slope = (y1 - y0) / (x1 - x0)
    line: Any = slope * (x - x0) + y0
    line = where(UFUNCS["isnan"](line), slope * (x - x1) + y1, line)
    line = where(UFUNCS["isnan"](line) & (y0 == y1), y0, line)
    line = where((x0 == x) | (at == xp.shape[0] - 1), y0, line)
    line = where(x > xp[-1], fp[-1] if right is None else as_traced(tape, right).astype(np.float64), line)
    line = where(x < xp[0], fp[0] if left is None else as_traced(tape, left).astype(np.float64), line)
    return where(UFUNCS["isnan"](x), x, line) if tape.at_most(2, xp.node.shape[0], usual=True) else line


def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, kind: Any = None) -> Any:
    """np.isin among known elements."""
    if not isinstance(element, TracedArray) or isinstance(test_elements, TracedArray):
        raise UnsupportedError("np.isin is traced for elements that are known; compare, and use np.any")
    elements = np.unique(np.asarray(test_elements))
    if {element.dtype.kind, elements.dtype.kind} <= {"i", "u"}:  # only those that its dtype can hold
        ends = np.iinfo(element.dtype)
        elements = elements[(elements >= ends.min) & (elements <= ends.max)].astype(element.dtype)
    if not elements.size:
        return call("full_like", element, bool(invert), dtype=bool)
    nearest = clipped_lookup(as_traced(element.tape, elements), searchsorted(elements, element))
    return UFUNCS["not_equal" if invert else "equal"](nearest, element)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """np.histogram: each cell within the edges counts in its bin; the last edge belongs to the last bin."""
    if isinstance(bins, str):
        raise UnsupportedError("np.histogram is traced for a number of bins, or their edges")
    tape = tape_of([a, bins, range, weights])
    a = call("ravel", as_traced(tape, a))
    edges: Any = _edges(a, bins, range) if isinstance(bins, int | np.integer | Size) else as_traced(tape, bins)
    a.tape.demand_at_most(2, edges.node.shape[0])
    keep, last = (a >= edges[0]) & (a <= edges[-1]), edges.shape[0] - 2
    at = where(a == edges[-1], last, searchsorted(edges, a, side="right") - 1)
    one = np.int64(1) if weights is None else call("ravel", as_traced(tape, weights))
    counts = call("zeros_like", edges[1:], dtype=one.dtype)
    UFUNCS["add.at"](counts, where(keep, at, 0), where(keep, one, np.zeros((), one.dtype)))
    if density:
        return counts / call("diff", edges).astype(np.float64) / counts.sum(), edges
    return counts, edges


def _bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> TracedArray:
    """np.bincount of integers below `minlength`. For larger ones NumPy's result is longer, and a kernel stops."""
    if isinstance(minlength, int | np.integer) and minlength < 1:
        raise UnsupportedError("np.bincount is traced with minlength=, below which all numbers are")
    tape = tape_of([x, weights, minlength])
    x = as_traced(tape, x)
    one = as_traced(tape, 1, DType.I64) if weights is None else as_traced(tape, weights, DType.F64)
    if x.ndim != 1 or x.dtype.kind not in "iub":
        raise UnsupportedError(f"np.bincount takes a vector of whole numbers, not {x.ndim} axes of {x.dtype}")
    counts, updates = tape.full(0, one.node.dtype, shape_of(minlength)), fit(tape, one.node, x.node.shape)
    operands = [counts, tape.cast(x.node, DType.I64), updates]
    return TracedArray(tape, tape.scatter((Lookup(1, indices(1)),), "sum", operands))


def _edges(a: TracedArray, bins: Any, limits: Any) -> Any:
    if limits is None and not a.tape.at_most(1, a.node.shape[0], usual=True):
        limits = (0, 1)
    low, high = (call("min", a), call("max", a)) if limits is None else limits
    dtype = common_dtype([low, high, a]).numpy
    dtype = dtype if dtype.kind == "f" else np.result_type(dtype, float)
    low, high = (as_traced(a.tape, each) for each in (low, high))
    alike = low == high
    low, high = (where(alike, end + by, end) for end, by in ((low, -0.5), (high, 0.5)))
    return linspace(a.tape, low, high, bins + 1, dtype=dtype)


enter(FUNCTIONS, _diag, _fill_diagonal, _piecewise, _put, _put_along_axis, _ravel_multi_index, _unravel_index)
enter(FUNCTIONS, searchsorted, _digitize, _interp, _isin, _histogram, _bincount)
FUNCTIONS.update({name: from_source(name) for name in DEFINED})
FUNCTIONS["flat"] = lambda a: TracedArray(a.tape, call("ravel", a).node)
FUNCTIONS["imag"] = lambda val: call("zeros_like", array_of(val))
traced_array.METHODS["put"] = _put
# Writes into `flat` are writes into the array.
traced_array.ATTRIBUTES.update({name: partial(call, name) for name in ("flat", "imag", "real")})
traced_array.ATTRIBUTES |= {"T": partial(call, "transpose"), "mT": partial(call, "matrix_transpose")}
traced_array.ATTRIBUTES |= {"itemsize": lambda a: a.dtype.itemsize, "nbytes": lambda a: a.size * a.dtype.itemsize}
