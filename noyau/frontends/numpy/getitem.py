"""Subscripts: slices, None, Ellipsis, integers, and arrays of integers or bools; flat indices.

`ConstantArray` holds known numbers that traced indices select: a codebook, the rows of np.eye."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from noyau.compiler.passes.algebra import is_clamped
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.reductions import along, put_out
from noyau.frontends.numpy.shapes import extents_of
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import FUNCTIONS, TracedArray, Window, call, enter, tape_of
from noyau.frontends.numpy.traced_sizes import Number
from noyau.frontends.numpy.ufuncs import apply, as_node, as_traced, has_traced
from noyau.ir.dims import Dim, Shape, index_name, never_negative, product
from noyau.ir.dims import indices as indices_of
from noyau.ir.graph import Iota, Lookup, Node, View
from noyau.ir.sizes import Size, dim_of


@dataclass(frozen=True, slots=True)
class Slice:
    """`count` cells of an axis from `start`, `step` apart."""

    start: Dim
    step: int
    count: Dim


@dataclass(frozen=True, slots=True)
class Count:
    """Indices given by an affine expression, which need no memory: `index` over the axes of `shape`."""

    index: Dim
    shape: Shape


Entry: TypeAlias = Slice | Dim | Node | Count | None


@dataclass(frozen=True, slots=True)
class Key:
    """A parsed subscript. `entries`: None (a new axis), a Slice, an index, or an index array (Node or Count); all but
    None consume the array's axes in order. `together`: the broadcast shape of the index arrays; `at`: the axis of the
    result where it begins; `looked_up`: whether there are index arrays."""

    entries: tuple[Entry, ...]
    together: Shape
    at: int
    looked_up: bool


def getitem(array: TracedArray, key: Any) -> Any:
    """array[key]. A selection by a traced mask, whose shape is unknown, is a MaskedArray."""
    key = resolve_masks(array, key)
    if is_mask(key):
        return FUNCTIONS["masked"](array, mask_of(array, key))
    plan = parse(array, key)
    value = read(array, plan)
    value.scalar = not value.ndim and not any(each is Ellipsis for each in _entries(key))
    if plan.looked_up and value.ndim and is_view(key):
        value.see(Window(array, lambda: read(array, plan).node, lambda node: FUNCTIONS["scattered"](array, plan, node)))
    return value


def is_view(key: Any) -> bool:
    """Whether NumPy returns a view for a key: it has numbers, which may be cells of arrays, and no arrays."""
    arrays = (each for each in _entries(key) if isinstance(each, list | np.ndarray | TracedArray))
    return all(isinstance(each, TracedArray) and each.scalar for each in arrays)


def _entries(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def read(array: TracedArray, plan: Key) -> TracedArray:
    """The cells that a key selects."""
    tape, value, shape, index = array.tape, array.node, _result(plan), index_of(plan)
    operands = [value, *(each for each in plan.entries if isinstance(each, Node))]
    if len(operands) > 1:
        return TracedArray(tape, tape.gather(index, operands, shape))
    view = tape.view(value, shape, [dim for dim in index if isinstance(dim, Dim)])
    return TracedArray(tape, tape.call("identity", view) if plan.looked_up else view)


def _result(plan: Key) -> Shape:
    """The shape of the cells that a key selects."""
    axes = [each for each in plan.entries if isinstance(each, Slice | None)]
    shape = [Dim.of(1) if each is None else each.count for each in axes]
    return (*shape[: plan.at], *plan.together, *shape[plan.at :])


def index_of(plan: Key) -> list[Dim | Lookup]:
    """The index at which each axis of the array is read, over the axes of the result."""
    index, axis, looked_up = list[Dim | Lookup](), 0, 0
    for each in plan.entries:
        place = Dim.of(index_name(axis if axis < plan.at else axis + len(plan.together)))
        axis += isinstance(each, Slice | None)
        match each:
            case None:
                pass
            case Slice(start, step, _):
                index.append(place * step + start)
            case Node():
                looked_up += 1
                index.append(Lookup(looked_up, _lookup_index(each.shape, plan)))
            case Count(position, shape):
                index.append(position.replace({index_name(k): dim for k, dim in enumerate(_lookup_index(shape, plan))}))
            case _:
                index.append(each)
    return index


def _lookup_index(shape: Shape, plan: Key) -> Shape:
    """The index at which an index array of this shape is read, broadcast to the common shape `together`."""
    skipped = len(plan.together) - len(shape)
    ones = [dim == Dim.of(1) and goal != dim for dim, goal in zip(shape, plan.together[skipped:], strict=True)]
    return tuple(Dim.of(0) if one else Dim.of(index_name(plan.at + skipped + k)) for k, one in enumerate(ones))


def parse(array: TracedArray, key: Any) -> Key:
    """Parse a subscript; bounds of slices are clamped as in NumPy."""
    tape, shape, axis, entries = array.tape, array.node.shape, 0, list[Entry]()
    for each in _expand_ellipsis(_entries(key), len(shape)):
        entries.append(None if each is None else _entry(tape, each, shape[axis]))
        axis += each is not None
    shapes = [each.shape for each in entries if isinstance(each, Node | Count)]
    if not shapes:
        return Key(tuple(entries), (), 0, False)
    together = tape.broadcast(shapes)
    places = [at for at, each in enumerate(entries) if not isinstance(each, Slice | None)]
    dots = next((at for at, each in enumerate(_entries(key)) if each is Ellipsis), 0)  # separates even without an axis
    parted = len(entries) < len(_entries(key)) and places[0] < dots <= places[-1]
    side_by_side = not parted and places == list(range(places[0], places[0] + len(places)))
    at = sum(isinstance(each, Slice | None) for each in entries[: places[0]]) if side_by_side else 0
    return Key(tuple(entries), together, at, True)


def _entry(tape: Tape, each: Any, extent: Dim) -> Slice | Dim | Node | Count:
    match each:
        case slice():
            return _slice(tape, each, extent)
        case Number():
            raise UnsupportedError("a place is no whole size: it is calculated with /, or counted; use //")
        case TracedArray() | np.ndarray() | list() | tuple() | range():
            return _as_count(tape, each, extent) or _indices(tape, each, extent)
        case _:
            return _place(tape, each, extent)


def resolve_masks(array: TracedArray, key: Any) -> Any:
    """Replace known masks in a key by the indices of their True cells, and demand their extents of the array."""
    resolved: list[Any] = []
    entries = [np.asarray(e) if isinstance(e, list) and not has_traced(e) else e for e in _entries(key)]
    axis, rest = 0, array.ndim - sum(map(_spans, entries))
    for each in entries:
        if isinstance(each, np.ndarray) and each.dtype == bool and each.ndim:
            for extent, dim in zip(each.shape, array.node.shape[axis:], strict=False):
                array.tape.demand_equal(dim, extent)
            resolved.extend(np.nonzero(each))
        else:
            resolved.append(each)
        axis += rest if each is Ellipsis else _spans(each)
    return tuple(resolved) if isinstance(key, tuple) or len(resolved) > 1 else resolved[0]


def _spans(entry: Any) -> int:
    """The number of axes that an entry of a key consumes; 0 for an Ellipsis."""
    if isinstance(entry, TracedArray | np.ndarray) and entry.dtype == bool:
        return entry.ndim
    return int(entry is not None and entry is not Ellipsis)


def is_mask(key: Any) -> bool:
    """Whether a key is one traced mask. UnsupportedError for a traced mask beside other indices."""
    entries = [each for each in _entries(key) if each is not Ellipsis]
    bools = [each for each in entries if isinstance(each, TracedArray) and each.node.dtype is DType.BOOL]
    if bools and len(entries) > 1:
        raise UnsupportedError("a mask of bools beside other indices has a result of unknown shape; use np.where")
    return bool(bools)


def mask_of(array: TracedArray, key: Any) -> Node:
    """The mask of a key. Its shape must be that of the array's first axes."""
    mask: Node = next(each for each in _entries(key) if each is not Ellipsis).node
    if len(mask.shape) > array.ndim:
        raise UnsupportedError(f"a mask of {len(mask.shape)} axes does not fit an array of {array.ndim}")
    for left, right in zip(mask.shape, array.node.shape, strict=False):
        array.tape.demand_equal(left, right)
    return mask


def flat_places(array: TracedArray, plan: Key) -> Node:
    """The flat index in C order, as an i64, of each cell that a key selects."""
    tape, shape = array.tape, array.node.shape
    return read(TracedArray(tape, tape.reshape(tape.iota("#0", (product(shape),)), shape)), plan).node


def take(array: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """np.take along an axis."""
    array = FUNCTIONS["asarray"](array) if isinstance(array, TracedArray) else as_traced(indices.tape, array)
    array, place = along(array, axis)
    tape = array.tape
    if mode != "raise":
        extent = tape.size(array.node.shape[place], DType.I64)
        at = as_node(tape, as_traced(tape, indices), DType.I64)
        if mode == "wrap":
            at = apply(tape, "floor_mod", at, extent)
        else:
            last = apply(tape, "subtract", extent, tape.constant(1, DType.I64))
            at = apply(tape, "maximum", apply(tape, "minimum", at, last), tape.constant(0, DType.I64))
        indices = TracedArray(tape, at)
    elif not isinstance(indices, TracedArray | np.ndarray | list):
        indices = np.asarray(indices)
    return put_out(getitem(array, (*(slice(None),) * place, indices)), out)


def _expand_ellipsis(key: Sequence[Any], rank: int) -> list[Any]:
    """The key with one entry for each axis: full slices stand for an Ellipsis or a missing end."""
    dots = [at for at, each in enumerate(key) if each is Ellipsis]
    count = sum(each is not None and each is not Ellipsis for each in key)
    if len(dots) > 1 or count > rank:
        raise UnsupportedError(f"{count} indices are given for an array of {rank} axes")
    at = dots[0] if dots else len(key)
    return [*key[:at], *[slice(None)] * (rank - count), *key[at + 1 :]]


def _slice(tape: Tape, key: slice, extent: Dim) -> Slice:
    step = tape.settle(key.step.dim) if isinstance(key.step, Size) else 1 if key.step is None else key.step
    if not isinstance(step, int | np.integer) or step == 0:
        raise UnsupportedError("the step of a slice is an integer that is known, and not 0")
    if step > 0:
        start = _end(tape, key.start, Dim.of(0), Dim.of(0), extent, extent)
        stop = _end(tape, key.stop, extent, Dim.of(0), extent, extent)
        length = stop - start if tape.at_most(start, stop, usual=True) else Dim.of(0)
    else:
        start = _end(tape, key.start, extent - 1, Dim.of(-1), extent - 1, extent)
        stop = _end(tape, key.stop, Dim.of(-1), Dim.of(-1), extent - 1, extent)
        length = start - stop if tape.at_most(stop, start, usual=True) else Dim.of(0)
    apart = abs(int(step))
    return Slice(start, int(step), length if apart == 1 else (length + (apart - 1)) // apart)


def _end(tape: Tape, bound: Any, otherwise: Dim, low: Dim, high: Dim, extent: Dim) -> Dim:
    """A bound of a slice, clamped to [low, high]; a negative bound counts from the end."""
    if bound is None:
        return otherwise
    if not isinstance(bound, int | Size | np.integer):
        raise UnsupportedError(f"an end of a slice is {bound!r}; it is an integer or a size")
    dim = dim_of(bound)
    if not tape.at_most(0, dim, usual=not never_negative(-dim)):
        dim = dim + extent
    if not tape.at_most(low, dim, usual=True):
        return low
    return dim if tape.at_most(dim, high, usual=True) else high


def _place(tape: Tape, key: Any, extent: Dim) -> Dim:
    if isinstance(key, bool | np.bool_) or not isinstance(key, int | Size | np.integer):
        raise UnsupportedError(f"{key!r} is no index that is traced")
    place = dim_of(key)
    place = place if tape.at_most(0, place, usual=not never_negative(-place)) else place + extent
    tape.demand_at_most(0, place)
    tape.demand_at_most(place + 1, extent)
    return place


def _as_count(tape: Tape, key: Any, extent: Dim) -> Count | None:
    """Indices such as np.arange's as a Count, if they are within the axis in this call; None for others."""
    if not isinstance(key, TracedArray) or key.node.dtype is not DType.I64:
        return None
    node, at = key.node, indices_of(key.ndim)
    while isinstance(node.kind, View):
        seen = {index_name(k): dim for k, dim in enumerate(at)}
        at, node = tuple(dim.replace(seen) for dim in node.kind.index), tape.by_name[node.inputs[0]]
    if not isinstance(node.kind, Iota):
        return None
    index, low, high = node.kind.index.replace({index_name(k): dim for k, dim in enumerate(at)}), Dim.of(0), Dim.of(0)
    for term in index.terms:
        part = Dim((term,))
        axes = [name for name in part.names if name.startswith("#")]
        last = Dim.of(0) if not axes else key.node.shape[int(axes[0][1:])] - 1
        if axes and (len(term[0]) > 1 or term[0] != (axes[0],)):
            return None
        low = low + (part if not axes else last * min(term[1], 0))
        high = high + (part if not axes else last * max(term[1], 0))
    if not tape.at_most(0, low, usual=True) or not tape.at_most(high + 1, extent, usual=True):
        return None
    return Count(index, key.node.shape)


def _indices(tape: Tape, key: Any, extent: Dim) -> Node:
    """An index array as i64, with the extent added to negative indices. Known indices are demanded to be in range."""
    if isinstance(key, np.ndarray) or not (isinstance(key, TracedArray) or has_traced(key)):
        key = np.asarray(key, None if np.size(key) else np.int64)
        if key.size and key.dtype.kind in "iu":
            tape.demand_at_most(max(int(key.max()) + 1, -int(key.min())), extent)
    node = as_traced(tape, key).node
    if node.dtype is DType.BOOL:
        raise UnsupportedError("a mask of bools has a result of unknown shape; use np.where")
    if node.dtype.is_float:
        raise UnsupportedError(f"an array of {node.dtype.value} is no index")
    wide = tape.cast(node, DType.I64)
    is_known = isinstance(key, np.ndarray) and bool((key >= 0).all())
    if node.dtype.kind == "uint" or is_known or is_clamped(tape.by_name, wide.output, extent):
        return wide
    below = apply(tape, "less", wide, tape.constant(0, DType.I64))
    return apply(tape, "where", below, apply(tape, "add", wide, tape.size(extent, DType.I64)), wide)


FUNCTIONS.update({"getitem": getitem, "take": take})


class ConstantArray(np.ndarray):
    """A NumPy array that traced indices may select from, then a constant of the graph; arrays derived from it, too."""

    def __getitem__(self, key: Any) -> Any:
        if not _holds_traced(key):
            return super().__getitem__(key)
        return call("getitem", as_traced(tape_of(list(key) if isinstance(key, tuple) else [key]), self), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if _holds_traced(key) or _holds_traced(value):
            what = "it writes what is traced into an array whose numbers are known"
            raise UnsupportedError(f"{what}; write into one that np.zeros, np.full or a traced .copy() makes")
        super().__setitem__(key, value)

    def take(self, indices: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(indices, TracedArray):
            return super().take(indices, *args, **options)
        return call("take", as_traced(indices.tape, self), indices, *args, **options)

    def dot(self, b: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(b, TracedArray):
            return super().dot(b, *args, **options)
        return call("dot", self, b, *args, **options)


def _holds_traced(key: Any) -> bool:
    """Whether a subscript contains traced arrays."""
    return isinstance(key, TracedArray) or (isinstance(key, tuple | list) and any(map(_holds_traced, key)))


def as_table(value: Any) -> Any:
    """A plain np.ndarray as a ConstantArray of the same memory; any other value unchanged."""
    return value.view(ConstantArray) if type(value) is np.ndarray else value


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


enter(FUNCTIONS, _ravel_multi_index, _unravel_index)
