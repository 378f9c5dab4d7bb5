"""Operators that only move cells: reshapes, transposes, splits, expansions, tiles.

Pad: cells put before and after, constant or read from the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.gathers import minimum
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, Shape, indices, maximum, never_negative, product
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


def _pad(site: OnnxSite) -> Node:
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


def _nearest(at: Dim, extent: Dim) -> Dim:
    return minimum(maximum(at, 0), extent - 1)


def _wrap(at: Dim, extent: Dim) -> Dim:
    return at % extent


_SOURCES = {"reflect": _reflect, "edge": _nearest, "wrap": _wrap}
PADDING: dict[str, Importer] = {"Pad": _pad}


def reshape_target(shape: Shape, target: Sequence[Dim], *, keep_zero: bool) -> Shape:
    """The shape that Reshape's second input asks for: -1 is what is left, 0 the old extent unless `keep_zero`."""
    extents = list(target)
    for axis, dim in enumerate(extents):
        if dim == Dim.of(0) and not keep_zero:
            if axis >= len(shape):
                raise UnsupportedError(f"Reshape copies axis {axis} of a value of rank {len(shape)}")
            extents[axis] = shape[axis]
    free = [axis for axis, dim in enumerate(extents) if dim == Dim.of(-1)]
    if len(free) > 1 or any((dim.constant or 0) < -1 for dim in extents):
        raise UnsupportedError("Reshape is given a shape that is none")
    if free:
        others = product(dim for axis, dim in enumerate(extents) if axis != free[0])
        if others == Dim.of(0):
            raise UnsupportedError("Reshape cannot tell an extent of a value without cells")
        extents[free[0]] = product(shape) // others
    return tuple(extents)


def _reshape(site: OnnxSite) -> Node:
    value, target = site.input(), site.vector(1, "the extents").dims
    keep_zero = bool(site.attribute("allowzero", 0))
    shape = reshape_target(value.shape, target, keep_zero=keep_zero)
    if not keep_zero:
        _demand_extents(site, value.shape, target)
    if Dim.of(-1) in target:
        free = target.index(Dim.of(-1))
        others = product(dim for axis, dim in enumerate(shape) if axis != free)
        if others * shape[free] != product(value.shape):
            site.demand_at_most(Dim.of(1), others)
    return site.reshape(value, shape)


def _demand_extents(site: OnnxSite, shape: Shape, target: Sequence[Dim]) -> None:
    """That a size of the target is 0 only where the old extent is, for which it would stand."""
    for old, dim in zip(shape, target, strict=False):
        if dim.constant is None and old % dim != Dim.of(0):
            site.demand_at_most(old * maximum(1 - dim, 0), Dim.of(0))


def _flatten(site: OnnxSite) -> Node:
    value = site.input()
    rank, axis = len(value.shape), site.attribute("axis", 1)
    if not -rank <= axis <= rank:
        raise UnsupportedError(f"the axis {axis} of Flatten is outside a rank of {rank}")
    axis = axis + rank if axis < 0 else axis
    return site.reshape(value, (product(value.shape[:axis]), product(value.shape[axis:])))


def _transpose(site: OnnxSite) -> Node:
    value = site.input()
    order = site.attribute("perm", list(range(len(value.shape)))[::-1])
    if sorted(order) != list(range(len(value.shape))):
        raise UnsupportedError(f"{order} does not permute the axes of a value of rank {len(value.shape)}")
    return site.transpose(value, order)


def axes_input(site: OnnxSite, rank: int) -> tuple[int, ...] | None:
    """The axes of Squeeze and Unsqueeze, a constant input; None where there are none."""
    return site.axes(site.integers(1, "the axes"), rank) if site.has(1) else None


def _squeeze(site: OnnxSite) -> Node:
    value = site.input()
    axes = axes_input(site, len(value.shape))
    if axes is None:
        if any(dim.constant is None for dim in value.shape):
            raise UnsupportedError("which axes Squeeze drops is only known when the model runs")
        axes = tuple(axis for axis, dim in enumerate(value.shape) if dim == Dim.of(1))
    return site.drop_axes(value, axes)


def _unsqueeze(site: OnnxSite) -> Node:
    value = site.input()
    axes = site.integers(1, "the axes")
    return site.restore_axes(value, site.axes(axes, len(value.shape) + len(axes)))


def _expand(site: OnnxSite) -> Node:
    value = site.input()
    target = site.vector(1, "the extents").dims
    if any((dim.constant or 0) < 0 for dim in target):
        raise UnsupportedError("Expand is given a negative extent")
    return site.expand(value, site.broadcast([value.shape, target]))


def _concat(site: OnnxSite) -> Node:
    pieces = site.all_inputs()
    rank = len(pieces[0].shape)
    axis = site.axis(site.attribute("axis", 0), rank)
    for piece in pieces:
        if len(piece.shape) != rank or piece.dtype is not pieces[0].dtype:
            raise UnsupportedError("Concat is given pieces of several ranks or types")
    return site.concat(pieces, axis)


def _split(site: OnnxSite) -> list[Node]:
    value = site.input()
    axis = site.axis(site.attribute("axis", 0), len(value.shape))
    lengths = _split_lengths(site, value.shape[axis])
    pieces, start = [], Dim.of(0)
    for length in lengths:
        pieces.append(site.slice(value, axis, start, length))
        start = start + length
    site.demand_equal(start, value.shape[axis])
    return pieces


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


def _tile(site: OnnxSite) -> Node:
    value = site.input()
    repeats = site.vector(1, "the repeats").dims
    if len(repeats) != len(value.shape) or any((count.constant or 0) < 0 for count in repeats):
        raise UnsupportedError(f"Tile is given {len(repeats)} repeats for a rank of {len(value.shape)}")
    shape = tuple(dim * count for dim, count in zip(value.shape, repeats, strict=True))
    if Dim.of(0) in shape:
        return site.view(value, shape, [0] * len(shape))
    return site.view(value, shape, [at % dim for at, dim in zip(indices(len(shape)), value.shape, strict=True)])


def _space_to_depth(site: OnnxSite) -> Node:
    value, block = site.input(), _block(site)
    n, c, h, w = value.shape
    cut = site.reshape(value, (n, c, h // block, Dim.of(block), w // block, Dim.of(block)))
    moved = site.transpose(cut, [0, 1, 3, 5, 2, 4] if _column_first(site) else [0, 3, 5, 1, 2, 4])
    return site.reshape(moved, (n, c * block * block, h // block, w // block))


def _depth_to_space(site: OnnxSite) -> Node:
    value, block = site.input(), _block(site)
    n, c, h, w = value.shape
    rest, size = c // (block * block), Dim.of(block)
    if _column_first(site):
        moved = site.transpose(site.reshape(value, (n, rest, size, size, h, w)), [0, 1, 4, 2, 5, 3])
    else:
        moved = site.transpose(site.reshape(value, (n, size, size, rest, h, w)), [0, 3, 4, 1, 5, 2])
    return site.reshape(moved, (n, rest, h * block, w * block))


def _column_first(site: OnnxSite) -> bool:
    """Whether the depth is ordered column, row, depth: mode CRD."""
    mode = site.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise UnsupportedError(f"{site.op} has no mode {mode!r}")
    return bool(mode == "CRD")


def _block(site: OnnxSite) -> int:
    block = int(site.attribute("blocksize", 0))
    if block < 1 or site.rank() != 4:
        raise UnsupportedError(f"{site.op} needs a rank of 4 and a block size")
    return block


VIEWS: dict[str, Importer] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
