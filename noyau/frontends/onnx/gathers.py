"""Operators whose index is a value: Gather and its kin, slices, OneHot, Trilu, ranges.

ScatterElements and ScatterND: updates merged into a copy at places that are looked up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite, light
from noyau.ir.dims import Dim, DimLike, Shape, indices, maximum, never_negative
from noyau.ir.graph import Constant, Iota, Lookup, Map, Node, Select, View, constant
from noyau.ir.ranges import lowest, simplify, within

Entry: TypeAlias = "Dim | tuple[Node, Sequence[Dim]]"  # of an index: known, or looked up in a value


def lookup(site: OnnxSite, table: Node, index: Sequence[Entry], shape: Shape) -> Node:
    """out[i] = table[index(i)]; an entry that is (value, at) is looked up, and counts from the end where negative."""
    extents = {f"#{axis}": dim for axis, dim in enumerate(shape)}
    inputs, entries = [table], list[Dim | Lookup]()
    for entry, extent in zip(index, table.shape, strict=True):
        if isinstance(entry, Dim):
            entries.append(entry)
            continue
        value, at = entry
        position = _position(site, value, at, extent, extents)
        if position is not None:
            entries.append(position)
            continue
        inputs.append(from_the_end(site, value, extent))
        entries.append(Lookup(len(inputs) - 1, tuple(simplify(dim, extents) for dim in at)))
    if len(inputs) == 1:
        return site.view(table, shape, [entry for entry in entries if isinstance(entry, Dim)])
    return site.gather(entries, inputs, shape)


def _position(site: OnnxSite, value: Node, at: Sequence[Dim], extent: Dim, extents: dict[str, Dim]) -> Dim | None:
    """The index as a Dim, where it is one and surely inside, or where its bounds are formulas over sizes, which a
    kernel then compares once."""
    position = position_at(site.values.by_name, value.output, at)
    if position is None:
        return None
    position = simplify(position, extents)
    if position.constant is not None and position.constant < 0:
        position = position + extent
    return position if within(position, extent, extents) or _is_bounded(position, extents) else None


def _is_bounded(index: Dim, extents: dict[str, Dim]) -> bool:
    """Whether an index is surely not negative, and its highest value is that at the ends of its axes."""
    low, axes = lowest(index, extents), sorted(index.names & extents.keys())
    slopes = [index.replace({name: Dim.of(name) + 1}) - index for name in axes]
    linear = all(slope.constant is not None and slope.constant > 0 for slope in slopes)
    return bool(axes) and linear and low is not None and never_negative(low)


def from_the_end(site: OnnxSite, value: Node, extent: Dim) -> Node:
    """Indices of a dtype that a Gather takes; negative ones have the extent added."""
    if value.dtype.kind not in ("int", "uint"):
        raise UnsupportedError(f"{site.op} cannot look up {value.dtype.value}")
    indices_ = value if value.dtype is DType.I32 else site.cast(value, DType.I64)
    if _is_natural(value):
        return indices_
    size = site.iota(extent, (), indices_.dtype)
    negative = site.call("less", indices_, site.like(0, indices_))
    return site.call("where", negative, site.call("add", indices_, size), indices_)


def _is_natural(value: Node) -> bool:
    """Whether no cell is negative, for certain."""
    match value.kind:
        case Constant(array):
            return bool((array >= 0).all())
        case Iota(index):
            low = lowest(index, value.extents)
            return low is not None and never_negative(low)
        case _:
            return value.dtype.kind == "uint"


def _gather(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    axis, rank = site.axis(site.attribute("axis", 0), len(table.shape)), len(value.shape)
    shape = (*table.shape[:axis], *value.shape, *table.shape[axis + 1 :])
    own = indices(len(shape))
    index: list[Entry] = [*own[:axis], (value, own[axis : axis + rank]), *own[axis + rank :]]
    return lookup(site, table, index, shape)


def _gather_elements(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    axis, own = site.axis(site.attribute("axis", 0), len(table.shape)), indices(len(table.shape))
    if len(value.shape) != len(table.shape):
        raise UnsupportedError("GatherElements is given indices of another rank")
    for k, (least, most) in enumerate(zip(value.shape, table.shape, strict=True)):
        if k != axis:
            site.demand_at_most(least, most)
    index: list[Entry] = [(value, own) if k == axis else own[k] for k in range(len(own))]
    return lookup(site, table, index, value.shape)


def _gather_nd(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    batch = site.attribute("batch_dims", 0)
    count = value.shape[-1].constant if value.shape else None
    if count is None or batch + count > len(table.shape) or not 0 <= batch < len(value.shape):
        raise UnsupportedError("how many axes GatherND looks up is only known when the model runs")
    for left, right in zip(value.shape[:batch], table.shape, strict=False):
        site.demand_equal(left, right)
    lead, rest = value.shape[:-1], table.shape[batch + count :]
    shape = (*lead, *rest)
    own = indices(len(shape))
    lookups = [(value, (*own[: len(lead)], Dim.of(k))) for k in range(count)]
    return lookup(site, table, [*own[:batch], *lookups, *own[len(lead) :]], shape)


def _slice(site: OnnxSite) -> Node:
    value = site.input()
    starts, ends = site.vector(1, "the starts").dims, site.vector(2, "the ends").dims
    rank, count = len(value.shape), len(starts)
    axes = [site.axis(axis, rank) for axis in site.integers(3, "the axes")] if site.has(3) else list(range(count))
    steps = site.integers(4, "the steps") if site.has(4) else (1,) * count
    if not len(starts) == len(ends) == len(axes) == len(steps) or count > rank or 0 in steps:
        raise UnsupportedError("Slice is given starts, ends, axes and steps that do not fit")
    index, shape = list(indices(rank)), list(value.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, length = slice_bounds(value.shape[axis], start, end, step)
        index[axis], shape[axis] = Dim.of(f"#{axis}") * step + first, length
    return site.view(value, tuple(shape), index)


def slice_bounds(extent: Dim, start: DimLike, end: DimLike, step: int) -> tuple[Dim, Dim]:
    """The first index and the number of cells of start:end:step, clamped as ONNX and NumPy do."""
    if step > 0:
        first, last = _clamp(extent, start, Dim.of(0), extent), _clamp(extent, end, Dim.of(0), extent)
        span = last - first
    else:
        first = _clamp(extent, start, Dim.of(-1), extent - 1)
        last = _clamp(extent, end, Dim.of(-1), extent - 1)
        span = first - last
    length = (span + (abs(step) - 1)) // abs(step)
    sure = never_negative(length) or (step > 0 and first == Dim.of(0))  # then the last index is clamped to 0 and above
    return first, length if sure else maximum(length, 0)


def _clamp(extent: Dim, at: DimLike, low: Dim, high: Dim) -> Dim:
    """A bound of a slice, counted from the front, between low and high."""
    at = Dim.of(at)
    if at.constant is not None and at.constant >= 2**31 - 1:
        return high
    if at.constant is not None and at.constant <= -(2**31) + 1:
        return low
    if never_negative(-at - 1):
        return maximum(at + extent, low)
    if never_negative(at):
        return minimum(at, high)
    raise UnsupportedError("whether a bound of Slice counts from the end is only known when the model runs")


def minimum(left: Dim, right: Dim) -> Dim:
    return left + right - maximum(left, right)


def _range(site: OnnxSite) -> Node:
    bounds = [contents.dims for contents in (site.contents(k) for k in range(3)) if contents is not None]
    if len(bounds) < 3 or any(len(dims) != 1 for dims in bounds):
        return _float_range(site)
    (start,), (end,), (delta,) = bounds
    step = delta.constant
    if not step:
        raise UnsupportedError("the step of Range is only known when the model runs")
    span = end - start if step > 0 else start - end
    count = (span + (abs(step) - 1)) // abs(step)
    count = count if never_negative(count) else maximum(count, 0)
    return site.iota(start + Dim.of("#0") * step, (count,), site.input(0).dtype)


def _float_range(site: OnnxSite) -> Node:
    """A range of constants that are not integers."""
    start, end, step = (site.array(k, "what Range is given").flat[0] for k in range(3))
    cells = np.ceil((float(end) - float(start)) / float(step)) if step else np.nan
    if not np.isfinite(cells):
        raise UnsupportedError("Range is given a step of 0, or a bound that is not finite")
    count = max(int(cells), 0)
    dtype = site.input(0).dtype
    at = site.cast(site.iota("#0", (Dim.of(count),)), dtype)
    return site.call("add", site.call("multiply", at, site.constant(step, dtype)), site.constant(start, dtype))


def _trilu(site: OnnxSite) -> Node:
    value = site.input()
    if len(value.shape) < 2:
        raise UnsupportedError("Trilu needs a rank of 2 or more")
    ahead = site.iota(Dim.of("#1") - "#0", value.shape[-2:])
    edge = site.input(1) if site.has(1) else site.constant(0, DType.I64)
    edge = site.drop_axes(edge, range(len(edge.shape)))
    mask = site.call("greater_equal" if site.attribute("upper", 1) else "less_equal", ahead, edge)
    return site.call("where", mask, value, site.like(0, value))


def _eye_like(site: OnnxSite) -> Node:
    value = site.input()
    dtype = from_onnx(site.attribute("dtype", value.dtype.onnx))
    if dtype is None or dtype is DType.OTHER or len(value.shape) != 2:
        raise UnsupportedError("EyeLike needs a rank of 2 and a type that noyau has")
    ahead = site.iota(Dim.of("#1") - "#0", value.shape)
    return site.cast(site.call("equal", ahead, site.constant(site.attribute("k", 0), DType.I64)), dtype)


def _one_hot(site: OnnxSite) -> Node:
    """on where the index along the new axis equals the (wrapped) index, else off."""
    value, values = site.input(0), site.input(2)
    depth = _depth(site)
    rank = len(value.shape) + 1
    axis = site.axis(site.attribute("axis", -1), rank)
    shape = (*value.shape[:axis], depth, *value.shape[axis:])
    positions = site.cast(value, DType.I64)
    wrapped = site.call("add", positions, site.iota(depth))
    positions = site.call("where", site.call("less", positions, site.like(0, positions)), wrapped, positions)
    same = site.call("equal", site.iota(f"#{axis}", shape), site.restore_axes(positions, [axis]))
    return site.call("where", same, site.pick(values, 0, 1), site.pick(values, 0, 0))


def _depth(site: OnnxSite) -> Dim:
    depth = site.contents(1)
    if depth is not None and len(depth.dims) == 1:
        return depth.dims[0]
    array = site.array(1, "the depth")
    return Dim.of(int(array.flat[0]))


def _constant_of_shape(site: OnnxSite) -> Node:
    target = site.vector(0, "the extents").dims
    value = site.attribute("value", None)
    array = np.zeros(1, np.float32) if value is None else value
    if not isinstance(array, np.ndarray) or array.size != 1 or any((dim.constant or 0) < 0 for dim in target):
        raise UnsupportedError("ConstantOfShape is given a value that is no single cell, or a negative extent")
    return site.expand(_emit_constant(site, array.reshape(())), target)


def constant_array(site: OnnxSite) -> np.ndarray:
    """The array of a Constant, from whichever attribute holds it."""
    spellings = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, dtype in spellings.items():
        if name in site.attributes:
            return np.array(site.attributes[name], dtype)
    value = site.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise UnsupportedError("a Constant of strings, or of a type that noyau has not")
    return value


def _emit_constant(site: OnnxSite, array: np.ndarray) -> Node:
    node = constant("", array)
    return site.emit(node.kind, [], node.dtype, node.shape)


_MERGES = {"none": None, "add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _merge(site: OnnxSite, index: Sequence[Dim | Lookup], places: Node) -> Node:
    """A copy of input 0 with the updates merged at `index` over the axes of the updates."""
    data, updates, how = site.input(0), site.input(2), site.attribute("reduction", "none")
    if how not in _MERGES or updates.dtype is not data.dtype:
        raise UnsupportedError(f"{site.op} cannot merge {updates.dtype.value} into {data.dtype.value} by {how!r}")
    return site.scatter(index, _MERGES[how], [data, places, updates])


def _scatter_elements(site: OnnxSite) -> Node:
    data, places, updates = (site.input(k) for k in range(3))
    rank = len(data.shape)
    axis = site.axis(site.attribute("axis", 0), rank)
    if len(places.shape) != rank or len(updates.shape) != rank:
        raise UnsupportedError("ScatterElements is given values of several ranks")
    for k, (left, right, most) in enumerate(zip(places.shape, updates.shape, data.shape, strict=True)):
        site.demand_equal(left, right)
        if k != axis:
            site.demand_at_most(left, most)
    own = indices(rank)
    index = [Lookup(1, own) if k == axis else own[k] for k in range(rank)]
    return _merge(site, index, from_the_end(site, places, data.shape[axis]))


def _scatter_nd(site: OnnxSite) -> Node:
    data, places, updates = (site.input(k) for k in range(3))
    count = places.shape[-1].constant if places.shape else None
    rank = None if count is None else len(places.shape) - 1 + len(data.shape) - count
    if count is None or count > len(data.shape) or len(updates.shape) != rank:
        raise UnsupportedError("how many axes ScatterND looks up is only known when the model runs")
    for left, right in zip(updates.shape, (*places.shape[:-1], *data.shape[count:]), strict=True):
        site.demand_equal(left, right)
    own, lead = indices(len(updates.shape)), len(places.shape) - 1
    index: list[Dim | Lookup] = [*(Lookup(1, (*own[:lead], Dim.of(k))) for k in range(count)), *own[lead:]]
    return _merge(site, index, _each_from_the_end(site, places, data.shape[:count]))


def _each_from_the_end(site: OnnxSite, places: Node, extents: Sequence[Dim]) -> Node:
    """Indices whose last axis names an axis each; negative ones have its extent added."""
    lead = len(places.shape) - 1
    columns = [site.slice(places, lead, k, 1) for k in range(len(extents))]
    natural = [from_the_end(site, column, extent) for column, extent in zip(columns, extents, strict=True)]
    if len(natural) == 1:
        return natural[0]
    return site.concat(natural, lead) if natural else places


_MOST_STEPS = 256
_OF_DIMS: dict[str, Callable[..., Dim]] = {  # functions that give Dims of Dims
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negative": operator.neg,
    **dict.fromkeys(("cast", "identity"), lambda dim: dim),
}


def position_at(values: Mapping[str, Node], name: str, index: Sequence[Dim]) -> Dim | None:
    """The integer value `name` at an index, as a Dim of the names in the index; None where it is no such function."""
    position = _at(values, name, tuple(index), [_MOST_STEPS])
    return position if position is not None and light([position]) else None


def _at(values: Mapping[str, Node], name: str, index: tuple[Dim, ...], steps: list[int]) -> Dim | None:
    """`steps` is how many more values may be looked into."""
    node = values[name]
    steps[0] -= 1
    if steps[0] < 0 or not light(index) or node.dtype not in (DType.I32, DType.I64):
        return None
    match node.kind:
        case Iota(at):
            return at.replace(_names(index))
        case Constant(value):
            cell = value.flat[0] if value.size == 1 else _cell(value.shape, index, value)
            return None if cell is None else Dim.of(int(cell))
        case View(at):
            names = _names(index)
            return _at(values, node.inputs[0], tuple(dim.replace(names) for dim in at), steps)
        case Select(axis, starts):
            return _piece_at(values, node, axis, starts, index, steps)
        case Map(function) if function in _OF_DIMS:
            operands = [_at(values, operand, index, steps) for operand in node.inputs]
            return None if None in operands else _OF_DIMS[function](*operands)
        case _:
            return None


def _names(index: Sequence[Dim]) -> dict[str, Dim]:
    return {f"#{axis}": dim for axis, dim in enumerate(index)}


def _cell(shape: Sequence[int], index: Sequence[Dim], value: object) -> int | None:
    at = tuple(dim.constant for dim in index)
    inside = all(k is not None and 0 <= k < extent for k, extent in zip(at, shape, strict=True))
    return int(value[at]) if inside else None  # type: ignore[index]


def _piece_at(
    values: Mapping[str, Node], node: Node, axis: int, starts: Sequence[Dim], index: tuple[Dim, ...], steps: list[int]
) -> Dim | None:
    """The value within the piece that a constant index falls into."""
    at, firsts = index[axis].constant, [start.constant for start in starts]
    if at is None or None in firsts:
        return None
    piece = max((k for k, first in enumerate(firsts) if first is not None and first <= at), default=0)
    inside = (*index[:axis], index[axis] - starts[piece], *index[axis + 1 :])
    return _at(values, node.inputs[piece], inside, steps)


INDEXING: dict[str, Importer] = {
    "Constant": lambda site: _emit_constant(site, constant_array(site)),
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Range": _range,
    "Slice": _slice,
    "Trilu": _trilu,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
