"""Pieces side by side: Concat and Split; Pad, whose cells are constant or read from the value itself."""

from __future__ import annotations

from collections.abc import Callable

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.sizes import minimum
from noyau.ir.dims import Dim, indices, maximum, never_negative
from noyau.ir.graph import Node


def _pads(site: OnnxSite, rank: int) -> tuple[list[Dim], list[Dim]]:
    """The cells to put before and after each axis; negative where cells are cut off."""
    pads = site.vector(1, "the pads").dims
    axes = [site.axis(axis, rank) for axis in site.integers(3, "the axes")] if site.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise UnsupportedError(f"Pad is given {len(pads)} pads for {len(axes)} axes")
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def pad(site: OnnxSite) -> Node:
    value, mode = site.input(), site.attribute("mode", "constant")
    pads = _pads(site, len(value.shape))
    for axis, (first, last) in enumerate(zip(*pads, strict=True)):
        value = _cut(site, value, axis, first, last)
    low, high = ([maximum(dim, 0) for dim in dims] for dims in pads)
    if mode == "wrap":
        shape = tuple(a + dim + b for a, dim, b in zip(low, value.shape, high, strict=True))
        index = [
            at if a == b == Dim.of(0) else (at - a) % dim
            for at, a, dim, b in zip(indices(len(shape)), low, value.shape, high, strict=True)
        ]
        return site.view(value, shape, index)
    if mode not in ("constant", *_SOURCES):
        raise UnsupportedError(f"Pad has no mode {mode!r}")
    fill = _constant(site, value) if mode == "constant" else None
    for axis, lengths in enumerate(zip(low, high, strict=True)):
        if lengths == (Dim.of(0), Dim.of(0)):
            continue
        ends = _filled(site, fill, value, axis, lengths) if fill else _mirrored(site, value, axis, lengths, mode)
        before, after = ([end] if length != Dim.of(0) else [] for end, length in zip(ends, lengths, strict=True))
        pieces = [*before, value, *after]
        value = site.concat(pieces, axis) if len(pieces) > 1 else value
    return value if value is not site.input() else site.call("identity", value)


def _cut(site: OnnxSite, value: Node, axis: int, low: Dim, high: Dim) -> Node:
    """The value without the cells that negative pads cut off."""
    if never_negative(low) and never_negative(high):
        return value
    first, last = maximum(-low, 0), maximum(-high, 0)
    length = value.shape[axis] - first - last
    return site.slice(value, axis, first, length if never_negative(length) else maximum(length, 0))


def _constant(site: OnnxSite, value: Node) -> Node:
    fill = site.input(2) if site.has(2) else site.like(0, value)
    if fill.dtype is not value.dtype:
        raise UnsupportedError(f"Pad fills {value.dtype.value} with {fill.dtype.value}")
    return site.drop_axes(fill, range(len(fill.shape)))


def _filled(site: OnnxSite, fill: Node, value: Node, axis: int, lengths: tuple[Dim, Dim]) -> list[Node]:
    return [site.expand(fill, (*value.shape[:axis], length, *value.shape[axis + 1 :])) for length in lengths]


def _mirrored(site: OnnxSite, value: Node, axis: int, lengths: tuple[Dim, Dim], mode: str) -> list[Node]:
    """Pieces of the value that continue it: ranges, where one formula for all cells would look each of them up."""
    at, extent, longest = indices(len(value.shape)), value.shape[axis], maximum(*lengths)
    site.demand_at_most(minimum(longest, Dim.of(1)) + (longest if mode == "reflect" else 0), extent)
    sources = _SOURCES[mode](at[axis], extent, lengths[0])
    shapes = [(*value.shape[:axis], length, *value.shape[axis + 1 :]) for length in lengths]
    return [
        site.view(value, shape, [*at[:axis], source, *at[axis + 1 :]])
        for shape, source in zip(shapes, sources, strict=True)
    ]


_SOURCES: dict[str, Callable[[Dim, Dim, Dim], tuple[Dim, Dim]]] = {
    "reflect": lambda at, extent, low: (low - at, extent - 2 - at),
    "edge": lambda at, extent, low: (Dim.of(0), extent - 1),
}


def concat(site: OnnxSite) -> Node:
    pieces = site.all_inputs()
    rank = len(pieces[0].shape)
    axis = site.axis(site.attribute("axis", 0), rank)
    for piece in pieces:
        if len(piece.shape) != rank or piece.dtype is not pieces[0].dtype:
            raise UnsupportedError("Concat is given pieces of several ranks or types")
    return site.concat(pieces, axis)


def split(site: OnnxSite) -> list[Node]:
    value = site.input()
    axis = site.axis(site.attribute("axis", 0), len(value.shape))
    lengths = _split_lengths(site, value.shape[axis])
    site.demand_equal(sum(lengths, Dim.of(0)), value.shape[axis])
    return site.split(value, axis, lengths)


def _split_lengths(site: OnnxSite, extent: Dim) -> list[Dim]:
    count = len(site.outputs)
    if site.has(1):
        lengths = list(site.vector(1, "the lengths").dims)
        if len(lengths) != count or any((length.constant or 0) < 0 for length in lengths):
            raise UnsupportedError(f"Split has {count} outputs and {len(lengths)} lengths")
        return lengths
    if site.attribute("num_outputs", count) != count:
        raise UnsupportedError(f"Split has {count} outputs and num_outputs={site.attribute('num_outputs', count)}")
    chunk = -(-extent // count) if site.opset >= 18 else extent // count
    last = extent - chunk * (count - 1)
    if (last.constant or 0) < 0 or (site.opset < 18 and last != chunk):
        raise UnsupportedError(f"Split cannot cut {extent} into {count} pieces")
    if last.constant is None and last != chunk:
        raise UnsupportedError(f"whether Split cuts {extent} into {count} pieces is only known when the model runs")
    return [chunk] * (count - 1) + [last]
