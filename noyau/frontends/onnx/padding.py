"""Pad: cells put before and after, constant or read from the value itself."""

from __future__ import annotations

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.indexing import minimum
from noyau.frontends.onnx.sites import Importer, Site
from noyau.ir.dims import Dim, indices, maximum, never_negative
from noyau.ir.graph import Node


def _pads(site: Site, rank: int) -> tuple[list[Dim], list[Dim]]:
    """What is put before and after each axis; negative where cells are cut off."""
    pads = site.known(1, "the pads").dims
    axes = [site.axis(axis, rank) for axis in site.integers(3, "the axes")] if site.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise UnsupportedError(f"Pad is given {len(pads)} pads for {len(axes)} axes")
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def _pad(site: Site) -> Node:
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


def _cut(site: Site, value: Node, axis: int, low: Dim, high: Dim) -> Node:
    """The value without the cells that negative pads cut off."""
    if never_negative(low) and never_negative(high):
        return value
    first, last = maximum(-low, 0), maximum(-high, 0)
    length = value.shape[axis] - first - last
    return site.slice(value, axis, first, length if never_negative(length) else maximum(length, 0))


def _with_constant(site: Site, value: Node, before: list[Dim], after: list[Dim]) -> Node:
    fill = site.input(2) if site.has(2) else site.like(0, value)
    if fill.dtype is not value.dtype:
        raise UnsupportedError(f"Pad fills {value.dtype.value} with {fill.dtype.value}")
    fill = site.drop_axes(fill, range(len(fill.shape)))
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        pieces = [_filled(site, fill, value, axis, low), value, _filled(site, fill, value, axis, high)]
        kept = [piece for piece in pieces if piece is not None]
        value = site.concat(kept, axis) if len(kept) > 1 else value
    return value if value is not site.input() else site.apply("identity", value)


def _filled(site: Site, fill: Node, value: Node, axis: int, length: Dim) -> Node | None:
    if length == Dim.of(0):
        return None
    return site.expand(fill, (*value.shape[:axis], length, *value.shape[axis + 1 :]))


def _reflected(at: Dim, extent: Dim) -> Dim:
    """0 1 2 3 -> ... 2 1 0 1 2 3 2 1 ...: the border is not repeated."""
    far = extent - 1
    distance = far - maximum(at, -at)
    return far - maximum(distance, -distance)


def _nearest(at: Dim, extent: Dim) -> Dim:
    return minimum(maximum(at, 0), extent - 1)


def _wrapped(at: Dim, extent: Dim) -> Dim:
    return at % extent


_SOURCES = {"reflect": _reflected, "edge": _nearest, "wrap": _wrapped}
PADDING: dict[str, Importer] = {"Pad": _pad}
