"""Operators that only move cells: reshapes, transposes, expansions, tiles, concatenations, splits, and pads.

Resize takes the nearest cell, by the scale of each axis, and only where rounding in floats changes no cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.frontends.onnx.sizes import minimum
from noyau.ir.dims import Dim, Shape, index_name, indices, maximum, never_negative, product
from noyau.ir.graph import Node

LARGEST = 64  # the bound of the numerator and the denominator of a scale that is no quotient of known extents
PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")
PERIODS = 8  # periods of a rule that are checked where an extent is symbolic


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """One axis: its extents before and after, and the scale between them."""

    before: Dim
    after: Dim
    scale: Fraction


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The source position of a cell i: (slope i + start) / step."""

    slope: int
    start: int
    step: int


def resize(site: OnnxSite) -> Node:
    value, mode = site.input(), site.attribute("mode", "nearest")
    for name, plain in (("antialias", 0), ("exclude_outside", 0), ("keep_aspect_ratio_policy", "stretch")):
        if site.attribute(name, plain) != plain:
            raise UnsupportedError(f"Resize with {name} has no meaning here")
    if mode != "nearest" or _how(site) not in PLACES:
        raise UnsupportedError(f"Resize of mode {mode!r} with coordinates {_how(site)!r} has no meaning here")
    resized = value
    for number, axis in _axes(site, value).items():
        if axis.scale != 1:
            resized = _nearest(site, resized, number, axis, _place(site, axis))
    return resized if resized is not value else site.call("identity", value)


def _how(site: OnnxSite) -> str:
    """The transformation of the coordinates of a cell."""
    return str(site.attribute("coordinate_transformation_mode", "half_pixel"))


def _axes(site: OnnxSite, value: Node) -> dict[int, ResizeAxis]:
    """The change of each axis that is resized."""
    rank = len(value.shape)
    axes = [site.axis(axis, rank) for axis in site.attribute("axes", None) or range(rank)]
    extents = [value.shape[axis] for axis in axes]
    if site.has(3):
        after = site.vector(3, "the sizes").dims
        changes = [ResizeAxis(a, b, _quotient(a, b)) for a, b in zip(extents, after, strict=False)]
    else:
        scales = site.array(2, "the scale").ravel().tolist()
        changes = [_scale_axis(extent, scale) for extent, scale in zip(extents, scales, strict=False)]
    if len(changes) != len(set(axes)):
        raise UnsupportedError(f"Resize is given {len(changes)} sizes or scales for {len(axes)} axes")
    return dict(zip(axes, changes, strict=True))


def _quotient(before: Dim, after: Dim) -> Fraction:
    if before == after:
        return Fraction(1)
    if not before.constant or not after.constant:
        raise UnsupportedError(f"Resize from {before} to {after} has a scale that is only known when the model runs")
    return Fraction(after.constant, before.constant)


def _scale_axis(before: Dim, scale: float) -> ResizeAxis:
    """The axis resized by a scale in float32, which must be a fraction of small numbers."""
    exact = Fraction(scale).limit_denominator(LARGEST) if np.isfinite(scale) else Fraction(0)
    if exact <= 0 or exact.numerator > LARGEST or np.float32(exact) != np.float32(scale):
        raise UnsupportedError(f"Resize by {scale} is by no fraction of numbers up to {LARGEST}")
    after = before * exact.numerator // exact.denominator
    if before.constant is None:
        if exact.denominator & (exact.denominator - 1):  # a power of two divides floats exactly
            raise UnsupportedError(f"Resize of {before} by {exact} has an extent that floats may round")
        return ResizeAxis(before, after, exact)
    extents = {int(before.constant * np.float32(scale)), int(before.constant * float(np.float32(scale)))}
    if extents != {after.constant}:
        raise UnsupportedError(f"Resize of {before} by {scale} has an extent that floats round in two ways")
    return ResizeAxis(before, after, exact)


def _place(site: OnnxSite, axis: ResizeAxis) -> SourcePlace:
    """The source positions of cells by the transformation of coordinates."""
    how, scale = _how(site), axis.scale
    whole = axis.before * scale.numerator == axis.after * scale.denominator
    if how in ("align_corners", "half_pixel_symmetric") and not whole:
        raise UnsupportedError(f"Resize with {how} of {axis.before} by {scale} ends between cells")
    match how:
        case "asymmetric":
            return SourcePlace(scale.denominator, 0, scale.numerator)
        case "align_corners" if axis.before.constant and axis.after.constant:
            return SourcePlace(axis.before.constant - 1, 0, max(1, axis.after.constant - 1))
        case "pytorch_half_pixel" if (axis.after.constant or 1) == 1 and axis.after.constant != 0:
            raise UnsupportedError(f"Resize to {axis.after} cells may be to one, where frameworks disagree")
        case "half_pixel" | "half_pixel_symmetric" | "pytorch_half_pixel":
            return SourcePlace(2 * scale.denominator, scale.denominator - scale.numerator, 2 * scale.numerator)
        case _:
            raise UnsupportedError(f"Resize of {axis.before} with {how} has a scale that is only known when it runs")


def _nearest(site: OnnxSite, value: Node, number: int, axis: ResizeAxis, place: SourcePlace) -> Node:
    """Resize one axis: each cell is the cell nearest to its source position."""
    rounding, at = site.attribute("nearest_mode", "round_prefer_floor"), Dim.of(index_name(number))
    if rounding not in _ROUNDINGS:
        raise UnsupportedError(f"Resize has no rounding {rounding!r}")
    chosen = _ROUNDINGS[rounding][0](at * place.slope + place.start, place.step)
    _require_agreement(site, axis, chosen, rounding, index_name(number))
    short = at * axis.scale.denominator // axis.scale.numerator
    chosen = short if _alike(short, chosen, axis, index_name(number)) else minimum(maximum(chosen, 0), axis.before - 1)
    shape, own = (*value.shape[:number], axis.after, *value.shape[number + 1 :]), indices(len(value.shape))
    return site.view(value, shape, [*own[:number], chosen, *own[number + 1 :]])


def _rounds(axis: ResizeAxis) -> range:
    """The cells for which a rule is checked: all, or those of some periods where the extent is symbolic."""
    return range(axis.after.constant if axis.after.constant is not None else 2 * PERIODS * axis.scale.numerator)


def _alike(short: Dim, chosen: Dim, axis: ResizeAxis, name: str) -> bool:
    """Whether the rule `short`, which needs no bounds, selects the same cells as `chosen`."""
    most = axis.before.constant
    for i in _rounds(axis):
        source = max(0, int(chosen.evaluate({name: i})))
        if int(short.evaluate({name: i})) != (source if most is None else min(source, most - 1)):
            return False
    return most is not None or axis.before * axis.scale.numerator == axis.after * axis.scale.denominator


def _require_agreement(site: OnnxSite, axis: ResizeAxis, chosen: Dim, rounding: str, name: str) -> None:
    """Raise UnsupportedError where rounding in floats would choose other cells."""
    i = np.arange(len(_rounds(axis)))
    exact = np.array([int(chosen.evaluate({name: int(k)})) for k in i], np.int64)
    for dtype in (np.float32, np.float64):
        rounded = _ROUNDINGS[rounding][1](_source_positions(_how(site), i.astype(dtype), axis, dtype))
        if (np.maximum(rounded, 0) != np.maximum(exact, 0)).any():
            raise UnsupportedError(f"Resize by {axis.scale} chooses cells that floats may round in two ways")


def _source_positions(how: str, i: np.ndarray, axis: ResizeAxis, dtype: type) -> np.ndarray:
    """The source positions of cells, in floats."""
    half, last = dtype(0.5), max(1, (axis.after.constant or 1) - 1)
    match how:
        case "asymmetric":
            return np.asarray(i / dtype(axis.scale))
        case "align_corners":
            return np.asarray(i * dtype((axis.before.constant or 1) - 1) / dtype(last))
        case _:
            return np.asarray((i + half) / dtype(axis.scale) - half)


# By name, the rounding of x / step for a Dim, and of x for floats.
_ROUNDINGS: dict[str, tuple[Callable[[Dim, int], Dim], Callable[[np.ndarray], np.ndarray]]] = {
    "floor": (lambda x, step: x // step, np.floor),
    "ceil": (lambda x, step: -(-x // step), np.ceil),
    "round_prefer_floor": (lambda x, step: -((step - 2 * x) // (2 * step)), lambda x: np.ceil(x - x.dtype.type(0.5))),
    "round_prefer_ceil": (lambda x, step: (2 * x + step) // (2 * step), lambda x: np.floor(x + x.dtype.type(0.5))),
}


def _pads(site: OnnxSite, rank: int) -> tuple[list[Dim], list[Dim]]:
    """The numbers of cells to add before and after each axis; negative where cells are cut off."""
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
        axes = list(zip(indices(len(value.shape)), low, value.shape, high, strict=True))
        index = [at if a == b == Dim.of(0) else (at - a) % dim for at, a, dim, b in axes]
        return site.view(value, tuple(a + dim + b for _, a, dim, b in axes), index)
    if mode not in ("constant", *_SOURCES):
        raise UnsupportedError(f"Pad has no mode {mode!r}")
    fill = _constant(site, value) if mode == "constant" else None
    for axis, lengths in enumerate(zip(low, high, strict=True)):
        if lengths == (Dim.of(0), Dim.of(0)):
            continue
        shapes = [(*value.shape[:axis], length, *value.shape[axis + 1 :]) for length in lengths]
        ends = [site.expand(fill, s) for s in shapes] if fill else _mirror(site, value, axis, lengths, mode)
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


def _mirror(site: OnnxSite, value: Node, axis: int, lengths: tuple[Dim, Dim], mode: str) -> list[Node]:
    """The pads of an axis as views of the value: ranges, where one formula for all cells would be a lookup for each."""
    at, extent, longest = indices(len(value.shape)), value.shape[axis], maximum(*lengths)
    site.demand_at_most(minimum(longest, Dim.of(1)) + (longest if mode == "reflect" else 0), extent)
    sources = _SOURCES[mode](at[axis], extent, lengths[0])
    shapes = [(*value.shape[:axis], length, *value.shape[axis + 1 :]) for length in lengths]
    pairs = zip(shapes, sources, strict=True)
    return [site.view(value, shape, [*at[:axis], source, *at[axis + 1 :]]) for shape, source in pairs]


_SOURCES: dict[str, Callable[[Dim, Dim, Dim], tuple[Dim, Dim]]] = {
    "reflect": lambda at, extent, low: (low - at, extent - 2 - at),
    "edge": lambda at, extent, low: (Dim.of(0), extent - 1),
}


def concat(site: OnnxSite) -> Node:
    pieces = site.all_inputs()
    axis = site.axis(site.attribute("axis", 0), len(pieces[0].shape))
    if len({(len(piece.shape), piece.dtype) for piece in pieces}) > 1:
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


def reshape_target(shape: Shape, target: Sequence[Dim], *, keep_zero: bool) -> Shape:
    """The shape that Reshape's second input names: -1 is the remaining extent, 0 the old one unless `keep_zero`."""
    extents = list(target)
    for axis, dim in enumerate(extents):
        if dim == Dim.of(0) and not keep_zero:
            if axis >= len(shape):
                raise UnsupportedError(f"Reshape copies axis {axis} of a value of rank {len(shape)}")
            extents[axis] = shape[axis]
    free = [axis for axis, dim in enumerate(extents) if dim == Dim.of(-1)]
    if len(free) > 1 or any((dim.constant or 0) < -1 for dim in extents):
        raise UnsupportedError("Reshape is given a shape that is not valid")
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
    if not keep_zero:  # a symbolic extent of 0 would mean the old extent: demand that this is 0 then
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
