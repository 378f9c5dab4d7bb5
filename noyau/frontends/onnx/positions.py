"""Indices that are values: looked up, counted from the end, or derived as Dims."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import light
from noyau.ir.dims import Dim, Shape, never_negative
from noyau.ir.graph import Constant, Iota, Lookup, Map, Node, Select, View
from noyau.ir.ranges import lowest, simplify, within

Entry: TypeAlias = "Dim | tuple[Node, Sequence[Dim]]"  # of an index: known, or a value and where it is looked up


def lookup(site: OnnxSite, table: Node, index: Sequence[Entry], shape: Shape) -> Node:
    """out[i] = table[index(i)]; an entry (value, at) is value[at], and counts from the end if it is negative."""
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
    """The index as a Dim, if it is surely within the axis, or if a kernel can compare its bounds, formulas of sizes."""
    position = position_at(site.values.by_name, value.output, at)
    if position is None:
        return None
    position = simplify(position, extents)
    if position.constant is not None and position.constant < 0:
        position = position + extent
    return position if within(position, extent, extents) or _is_bounded(position, extents) else None


def _is_bounded(index: Dim, extents: dict[str, Dim]) -> bool:
    """Whether an index is surely not negative, and linear and increasing, so that its maximum is at its axes' ends."""
    low, axes = lowest(index, extents), sorted(index.names & extents.keys())
    slopes = [index.replace({name: Dim.of(name) + 1}) - index for name in axes]
    linear = all(slope.constant is not None and slope.constant > 0 for slope in slopes)
    return bool(axes) and linear and low is not None and never_negative(low)


def from_the_end(site: OnnxSite, value: Node, extent: Dim) -> Node:
    """Indices as i32 or i64, with the extent added to negative ones."""
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


_MOST_STEPS = 256
_OF_DIMS: dict[str, Callable[..., Dim]] = {  # functions from Dims to a Dim
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negative": operator.neg,
    **dict.fromkeys(("cast", "identity"), lambda dim: dim),
}


def position_at(values: Mapping[str, Node], name: str, index: Sequence[Dim]) -> Dim | None:
    """The integer value `name` at an index, as a Dim over the names in the index; None where no Dim expresses it."""
    position = _at(values, name, tuple(index), [_MOST_STEPS])
    return position if position is not None and light([position]) else None


def _at(values: Mapping[str, Node], name: str, index: tuple[Dim, ...], steps: list[int]) -> Dim | None:
    """`steps`: the number of values that may still be visited."""
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
    return _at(values, node.inputs[piece], (*index[:axis], index[axis] - starts[piece], *index[axis + 1 :]), steps)
