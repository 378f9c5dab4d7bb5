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
    before, after = _pads(site, len(value.shape))
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        value = _cut(site, value, axis, first, last)
    low = [maximum(dim, 0) for dim in before]
    high = [maximum(dim, 0) for dim in after]
    if mode == "constant":
        return _with_constant(site, value, low, high)
    if mode not in _SOURCES:
        raise UnsupportedError(f"Pad has no mode {mode!r}")
    shape = tuple(a + dim + b for a, dim, b in zip(low, value.shape, high, strict=True))
    index = [
        at if a == b == Dim.of(0) else _SOURCES[mode](at - a, dim)
        for at, a, dim, b in zip(indices(len(shape)), low, value.shape, high, strict=True)
    ]
    return site.view(value, shape, index)


def _cut(site: OnnxSite, value: Node, axis: int, low: Dim, high: Dim) -> Node:
    """The value without the cells that negative pads cut off."""
    if never_negative(low) and never_negative(high):
        return value
    first, last = maximum(-low, 0), maximum(-high, 0)
    length = value.shape[axis] - first - last
    return site.slice(value, axis, first, length if never_negative(length) else maximum(length, 0))


def _with_constant(site: OnnxSite, value: Node, before: list[Dim], after: list[Dim]) -> Node:
    fill = site.input(2) if site.has(2) else site.like(0, value)
    if fill.dtype is not value.dtype:
        raise UnsupportedError(f"Pad fills {value.dtype.value} with {fill.dtype.value}")
    fill = site.drop_axes(fill, range(len(fill.shape)))
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        pieces = [_fill(site, fill, value, axis, low), value, _fill(site, fill, value, axis, high)]
        filled = [piece for piece in pieces if piece is not None]
        value = site.concat(filled, axis) if len(filled) > 1 else value
    return value if value is not site.input() else site.call("identity", value)


def _fill(site: OnnxSite, fill: Node, value: Node, axis: int, length: Dim) -> Node | None:
    if length == Dim.of(0):
        return None
    return site.expand(fill, (*value.shape[:axis], length, *value.shape[axis + 1 :]))


def _reflect(at: Dim, extent: Dim) -> Dim:
    """0 1 2 3 -> ... 2 1 0 1 2 3 2 1 ...: the border is not repeated."""
    far = extent - 1
    distance = far - maximum(at, -at)
    return far - maximum(distance, -distance)


_SOURCES: dict[str, Callable[[Dim, Dim], Dim]] = {
    "reflect": _reflect,
    "edge": lambda at, extent: minimum(maximum(at, 0), extent - 1),
    "wrap": lambda at, extent: at % extent,
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
