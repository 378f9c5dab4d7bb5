"""Operators that only move cells: reshapes, transposes, expansions, tiles."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.pieces import concat, pad, split
from noyau.frontends.onnx.resampling import resize
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim, Shape, indices, maximum, product
from noyau.ir.graph import Node


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
    if not keep_zero:  # a size of the target is 0 only where the old extent is, for which it would stand
        for old, dim in zip(value.shape, target, strict=False):
            if dim.constant is None and old % dim != Dim.of(0):
                site.demand_at_most(old * maximum(1 - dim, 0), Dim.of(0))
    if Dim.of(-1) in target:
        free = target.index(Dim.of(-1))
        others = product(dim for axis, dim in enumerate(shape) if axis != free)
        if others * shape[free] != product(value.shape):
            site.demand_at_most(Dim.of(1), others)
    return site.reshape(value, shape)


def _flatten(site: OnnxSite) -> Node:
    value = site.input()
    rank, axis = len(value.shape), site.attribute("axis", 1)
    if not -rank <= axis <= rank:
        raise UnsupportedError(f"the axis {axis} of Flatten is outside a rank of {rank}")
    return site.reshape(value, (product(value.shape[:axis]), product(value.shape[axis:])))


def _transpose(site: OnnxSite) -> Node:
    value = site.input()
    order = site.attribute("perm", list(range(len(value.shape)))[::-1])
    if sorted(order) != list(range(len(value.shape))):
        raise UnsupportedError(f"{order} does not permute the axes of a value of rank {len(value.shape)}")
    return site.transpose(value, order)


def _squeeze(site: OnnxSite) -> Node:
    value = site.input()
    if site.has(1):
        return site.drop_axes(value, site.axes(site.integers(1, "the axes"), len(value.shape)))
    if any(dim.constant is None for dim in value.shape):
        raise UnsupportedError("which axes Squeeze drops is only known when the model runs")
    return site.drop_axes(value, [axis for axis, dim in enumerate(value.shape) if dim == Dim.of(1)])


def _unsqueeze(site: OnnxSite) -> Node:
    value, axes = site.input(), site.integers(1, "the axes")
    return site.restore_axes(value, site.axes(axes, len(value.shape) + len(axes)))


def _expand(site: OnnxSite) -> Node:
    value, target = site.input(), site.vector(1, "the extents").dims
    if any((dim.constant or 0) < 0 for dim in target):
        raise UnsupportedError("Expand is given a negative extent")
    return site.expand(value, site.broadcast([value.shape, target]))


def _tile(site: OnnxSite) -> Node:
    value, repeats = site.input(), site.vector(1, "the repeats").dims
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
    "Concat": concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Split": split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Pad": pad,
    "Resize": resize,
}
