"""Writes into arrays: slices, indices, index arrays and masks on the left of `=`, operations in place, and NumPy's
functions that write: at flat indices, on a diagonal, where conditions hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.getitem import Key, flat_places, index_of, is_mask, mask_of, parse, read, resolve_masks
from noyau.frontends.numpy.masked_arrays import MaskedArray
from noyau.frontends.numpy.shapes import diagonal, offsets
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import (
    FUNCTIONS,
    METHODS,
    UFUNCS,
    TracedArray,
    Window,
    call,
    enter,
    surely_scalar,
    tape_of,
)
from noyau.frontends.numpy.ufuncs import apply, as_node, as_traced
from noyau.ir.dims import Dim, DimLike, Shape, index_name, indices, same_shape
from noyau.ir.graph import Constant, Lookup, Node


def write(target: TracedArray, value: Node) -> None:
    """Set all cells of an array, which may be a view, to a value that is broadcast to it.

    UnsupportedError where the cells have another owner, or where NumPy may have made a copy."""
    tape, memory = target.tape, target.memory
    if memory.owner:
        raise UnsupportedError(f"it writes into {memory.owner}; make a new array: a copy, or np.where")
    if surely_scalar(target) or target.fixed or not target.sure:
        what = "it writes into what is a view or a copy in NumPy, as the memory lies; write into its source"
        raise UnsupportedError(target.fixed or ("it writes into a scalar" if target.scalar else what))
    memory.write(tape, target.index, fit(tape, value, target.node.shape))


def fit(tape: Tape, value: Node, shape: Shape) -> Node:
    """Broadcast a value to a shape, which it must fit; leading axes of extent 1 are dropped, as in NumPy."""
    while len(value.shape) > len(shape) and value.shape[0] == Dim.of(1):
        value = tape.drop_axes(value, [0])
    if len(value.shape) > len(shape):
        raise UnsupportedError(f"a value of {len(value.shape)} axes does not fit into {len(shape)}")
    for have, want in zip(value.shape[::-1], shape[::-1], strict=False):
        if have != Dim.of(1):
            tape.demand_equal(want, have)
    return tape.expand(value, shape)


def setitem(array: TracedArray, key: Any, value: Any) -> None:
    tape, dtype = array.tape, array.node.dtype
    key = resolve_masks(array, key)
    if is_mask(key):
        write_where(array, key, value)
        return
    value_node = as_node(tape, value if isinstance(value, TracedArray) else as_traced(tape, value), dtype)
    plan = parse(array, key)
    if plan.looked_up:
        if not (isinstance(value, TracedArray) and _is_there(array, plan, value)):
            write(array, _scatter(tape, TracedArray(tape, array.node), plan, value_node, None))
        return
    part = FUNCTIONS["getitem"](array, key)
    part.scalar = False
    part.look_at(array, "getitem")
    cells = part.memory, part.index, part._shape
    if not (isinstance(value, TracedArray) and (value.memory, value.index, value._shape) == cells):
        write(part, value_node)  # else `a[1:] += 1` has written through the view a[1:]


def _is_there(array: TracedArray, plan: Key, value: TracedArray) -> bool:
    """Whether a value already is the view that it is assigned to: `a[k] += 1` has written through the view a[k]."""
    window = value.memory
    if not isinstance(window, Window) or window.whole.memory is not array.memory or window.whole.index != array.index:
        return False
    return value.node is read(array, plan).node and value.index == indices(value.ndim)


def write_where(array: TracedArray, mask: Any, value: Any) -> None:
    """array[mask] = value: a number, an array over the axes behind the mask's, or a selection by the same mask."""
    tape, dtype, condition = array.tape, array.node.dtype, mask_of(array, mask)
    if isinstance(value, MaskedArray):
        if value.mask.output != condition.output or value.cells.ndim != array.ndim:
            raise UnsupportedError("what one mask picks is written where another one is; use np.where")
        values = tape.cast(value.cells.node, dtype)
    else:
        values = as_node(tape, value if isinstance(value, TracedArray) else as_traced(tape, value), dtype)
        if len(values.shape) > array.ndim - len(condition.shape):
            what = "as many values as a mask is true, which is only known when it runs"
            raise UnsupportedError(f"it writes {what}; give one number, or use np.where")
    wide = tape.restore_axes(condition, range(len(condition.shape), array.ndim))
    write(array, apply(tape, "where", tape.expand(wide, array.node.shape), values, array.node))


def ufunc_at(monoid: str, array: TracedArray, key: Any, value: Any, *, taken_away: bool = False) -> None:
    """ufunc.at: repeated indices accumulate; with `taken_away`, the values are negated first. UnsupportedError where
    NumPy computes in a wider dtype and rounds after each cell."""
    tape, dtype = array.tape, array.node.dtype
    plan = parse(array, resolve_masks(array, key))
    updates = as_traced(tape, value).node
    if not _merges_alike(monoid, dtype, updates):
        what = f"{updates.dtype.value} into {dtype.value}, which NumPy rounds after each cell"
        raise UnsupportedError(f"it merges {what}; cast it before")
    updates = tape.cast(updates, dtype)
    updates = UFUNCS["negative"](TracedArray(tape, updates)).node if taken_away else updates
    write(array, _scatter(tape, TracedArray(tape, array.node), plan, updates, monoid))


def _merges_alike(monoid: str, dtype: DType, updates: Node) -> bool:
    """Whether a cast of values to the array's dtype before their merge gives the results of a cast after each merge."""
    if dtype.is_float or updates.dtype is dtype:
        return True
    known = updates.kind.value if isinstance(updates.kind, Constant) else None
    if known is not None and np.array_equal(known.astype(dtype.numpy), known):
        return True
    wide = np.promote_types(dtype.numpy, updates.dtype.numpy)
    return wide == dtype.numpy or (wide.kind in "iu" and dtype is not DType.BOOL and monoid in ("sum", "prod"))


def _scatter(tape: Tape, array: TracedArray, plan: Key, value: Node, monoid: str | None) -> Node:
    """The array with `value` merged in at a key: a scatter by its only index array, else by flat indices."""
    places, looked_up = flat_places(array, plan), [each for each in plan.entries if isinstance(each, Node)]
    updates = fit(tape, value, places.shape)
    if len(looked_up) == 1:
        return tape.scatter(tuple(index_of(plan)), monoid, [array.node, *looked_up, updates])
    places, flat, updates = (call("ravel", TracedArray(tape, node)).node for node in (places, array.node, updates))
    merged = tape.scatter((Lookup(1, (Dim.of("#0"),)),), monoid, [flat, places, updates])
    return tape.reshape(merged, array.node.shape)


@dataclass(frozen=True, slots=True)
class _Span:
    """`count` cells along an axis of an array, `step` apart from `start` on; `axis` of the value runs over them."""

    start: Dim
    step: int
    count: Dim
    axis: int | None


def overwrite(tape: Tape, whole: Node, index: Shape, part: Node) -> Node:
    """`whole` with the cells at `index`, over the axes of `part`, replaced by `part`. UnsupportedError where a cell
    occurs several times, or where the cells are no slice of the array."""
    if index == indices(len(whole.shape)) and part.shape == whole.shape:
        return part
    if Dim.of(0) in part.shape:
        return whole
    spans = [_span(dim, part.shape) for dim in index]
    axes = [span.axis for span in spans if span.axis is not None]
    free = [axis for axis in range(len(part.shape)) if axis not in axes and part.shape[axis] != Dim.of(1)]
    if free or len(set(axes)) < len(axes):
        raise UnsupportedError("it writes into a view that has one cell several times")
    at: list[Dim] = [Dim.of(0)] * len(part.shape)
    for axis, (dim, span) in enumerate(zip(index, spans, strict=True)):
        if span.axis is not None:
            place = Dim.of(index_name(axis))
            at[span.axis] = span.count - 1 - place if dict(dim.terms).get((index_name(span.axis),), 0) < 0 else place
    return _place(tape, whole, tape.view(part, tuple(span.count for span in spans), at), spans, 0)


def _span(dim: Dim, shape: Shape) -> _Span:
    """The cells along one axis that the index of a view visits."""
    axes = [int(name[1:]) for name in dim.names if name.startswith("#")]
    if not axes:
        return _Span(dim, 1, Dim.of(1), None)
    step = dict(dim.terms).get((index_name(axes[0]),), 0)
    start = dim - Dim.of(index_name(axes[0])) * step
    if len(axes) > 1 or not step or index_name(axes[0]) in start.names:
        raise UnsupportedError("it writes into a view whose cells lie at no slice of the array; write into its source")
    count = shape[axes[0]]
    return _Span(start if step > 0 else start + (count - 1) * step, abs(step), count, axes[0])


def _place(tape: Tape, whole: Node, value: Node, spans: Sequence[_Span], axis: int) -> Node:
    """Put `value` into `whole` from `axis` on; along the axes before, it covers all cells."""
    if axis == len(spans):
        return value
    span, extent = spans[axis], whole.shape[axis]
    if span.step == 1 and span.start == Dim.of(0) and span.count == extent:
        return _place(tape, whole, value, spans, axis + 1)
    if span.step > 1 and not tape.at_most(1, span.count, usual=True):
        return whole
    if span.step > 1:
        tape.settle_few(extent)
        if span.start.constant in range(span.step) and span.count * span.step == extent:
            return _spread(tape, whole, value, spans, axis, span.start)
    reach = (span.count - 1) * span.step + 1
    inner = tape.slice(whole, axis, span.start, reach)
    inner = _spread(tape, inner, value, spans, axis) if span.step > 1 else _place(tape, inner, value, spans, axis + 1)
    before = tape.slice(whole, axis, 0, span.start)
    after = tape.slice(whole, axis, span.start + reach, extent - span.start - reach)
    pieces = [piece for piece in (before, inner, after) if piece.shape[axis] != Dim.of(0)]
    return tape.assume_shape(tape.concat(pieces, axis) if pieces else whole, whole.shape)


def _spread(tape: Tape, inner: Node, value: Node, spans: Sequence[_Span], axis: int, start: DimLike = 0) -> Node:
    """`inner`, with every step-th cell along an axis from `start` on replaced by a cell of `value`."""
    step, at = spans[axis].step, indices(len(inner.shape))
    shape = (*inner.shape[:axis], spans[axis].count, *inner.shape[axis + 1 :])
    picked = tape.view(inner, shape, [start + place * step if k == axis else place for k, place in enumerate(at)])
    value = _place(tape, picked, value, spans, axis + 1)
    spread = tape.view(value, inner.shape, [place // step if k == axis else place for k, place in enumerate(at)])
    place = tape.iota(at[axis] % step, inner.shape)
    return apply(tape, "where", apply(tape, "equal", place, tape.size(Dim.of(start), DType.I64)), spread, inner)


def _putmask(array: TracedArray, mask: Any, values: Any) -> None:
    """np.putmask of one number, or of values of the array's own shape; NumPy repeats others cell by cell."""
    source = as_traced(array.tape, values)
    if source.ndim and not same_shape(source.node.shape, array.node.shape):
        raise UnsupportedError("np.putmask is traced for one number, or values of the array's own shape")
    _copyto(array, source, where=mask)


def _copyto(array: TracedArray, value: Any, casting: str = "same_kind", where: Any = True) -> None:
    if casting != "same_kind":
        raise UnsupportedError("np.copyto is traced without casting=")
    tape, where = array.tape, np.True_ if where is True else where
    source = tape.cast(as_traced(tape, value).node, array.node.dtype)
    write(array, apply(tape, "where", as_node(tape, as_traced(tape, where), DType.BOOL), source, array.node))


def _fill_diagonal(a: TracedArray, val: Any, wrap: bool = False) -> None:
    """np.fill_diagonal of matrices, with one number or at least as many as the diagonal has."""
    if wrap or a.ndim != 2:
        raise UnsupportedError("np.fill_diagonal is traced for matrices, without wrap=")
    values = call("ravel", as_traced(a.tape, val)).astype(a.dtype)
    values = values[0] if values.node.shape == (Dim.of(1),) else values
    if values.ndim:
        a.tape.demand_at_most(diagonal(a).node.shape[0], values.node.shape[0])
        values = call("pad", values[: call("size", diagonal(a))], (0, a.shape[1] - call("size", diagonal(a))))
    write(a, call("where", offsets(a.tape, a.node.shape) == 0, values, a).node)


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
            cells = call("where", condition, as_traced(x.tape, value).astype(x.dtype), cells)
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


enter(FUNCTIONS, _fill_diagonal, _piecewise, _put)
FUNCTIONS.update({"setitem": setitem, "write": write, "overwritten": overwrite, "putmask": _putmask, "copyto": _copyto})
FUNCTIONS.update({"scattered": lambda a, plan, value: _scatter(a.tape, TracedArray(a.tape, a.node), plan, value, None)})
# fill() of a NumPy scalar changes a copy, without effect.
METHODS["fill"] = lambda array, value: None if surely_scalar(array) else setitem(array, Ellipsis, value)
METHODS["put"] = _put
