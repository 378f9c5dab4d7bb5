"""Operators with computed indices: Gather and its kin; slices; ScatterElements and ScatterND, which merge updates."""

from collections.abc import Sequence

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.positions import from_the_end, lookup
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.frontends.onnx.sizes import minimum
from noyau.ir.dims import Dim, DimLike, indices, maximum, never_negative
from noyau.ir.graph import Lookup, Node


def _gather(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    axis, rank = site.axis(site.attribute("axis", 0), len(table.shape)), len(value.shape)
    shape = (*table.shape[:axis], *value.shape, *table.shape[axis + 1 :])
    own = indices(len(shape))
    return lookup(site, table, [*own[:axis], (value, own[axis : axis + rank]), *own[axis + rank :]], shape)


def _gather_elements(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    axis, own = site.axis(site.attribute("axis", 0), len(table.shape)), indices(len(table.shape))
    if len(value.shape) != len(table.shape):
        raise UnsupportedError("GatherElements is given indices of another rank")
    for k, (least, most) in enumerate(zip(value.shape, table.shape, strict=True)):
        if k != axis:
            site.demand_at_most(least, most)
    return lookup(site, table, [(value, own) if k == axis else own[k] for k in range(len(own))], value.shape)


def _gather_nd(site: OnnxSite) -> Node:
    table, value = site.input(0), site.input(1)
    batch = site.attribute("batch_dims", 0)
    count = value.shape[-1].constant if value.shape else None
    if count is None or batch + count > len(table.shape) or not 0 <= batch < len(value.shape):
        raise UnsupportedError("how many axes GatherND looks up is only known when the model runs")
    for left, right in zip(value.shape[:batch], table.shape, strict=False):
        site.demand_equal(left, right)
    lead, rest = value.shape[:-1], table.shape[batch + count :]
    own = indices(len(lead) + len(rest))
    lookups = [(value, (*own[: len(lead)], Dim.of(k))) for k in range(count)]
    return lookup(site, table, [*own[:batch], *lookups, *own[len(lead) :]], (*lead, *rest))


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
    low, high = (Dim.of(0), extent) if step > 0 else (Dim.of(-1), extent - 1)
    first, last = (_clamp(extent, at, low, high) for at in (start, end))
    span = last - first if step > 0 else first - last
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
    """Index vectors along the last axis, a cell for each axis of the data; negative cells have its extent added."""
    lead = len(places.shape) - 1
    columns = [site.slice(places, lead, k, 1) for k in range(len(extents))]
    natural = [from_the_end(site, column, extent) for column, extent in zip(columns, extents, strict=True)]
    return site.concat(natural, lead) if len(natural) > 1 else [*natural, places][0]


INDEXING: dict[str, Importer] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Slice": _slice,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
