"""Groups of axes that an index map ties together, and their inverses: slices padded, diagonals set into zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.ir.dims import Dim, Shape, equal, flat_index, index_name, indices, maximum, never_negative, product
from noyau.ir.graph import Node
from noyau.ir.ranges import simplify

ZERO, ONE = Dim.of(0), Dim.of(1)


class Irregular(Exception):
    """A part of an index map that has no inverse of its own."""


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Axes of the source, the entries that tell their indices, and the axes of the result that these name."""

    source: tuple[int, ...]
    entries: Shape
    result: tuple[int, ...]


def axis_groups(index: Shape) -> list[AxisGroup]:
    """The groups of axes that hang together."""
    groups: list[tuple[list[int], set[int]]] = []
    for axis, entry in enumerate(index):
        names = {int(name[1:]) for name in entry.names if name.startswith("#")}
        near = [group for group in groups if group[1] & names]
        groups = [group for group in groups if group not in near]
        groups.append(([*(each for group in near for each in group[0]), axis], names.union(*(g[1] for g in near))))
    return [
        AxisGroup(tuple(sorted(axes)), tuple(index[axis] for axis in sorted(axes)), tuple(sorted(names)))
        for axes, names in groups
    ]


class GradientAxes:
    """A gradient on its way back. `axes`: for each of its axes, the result's axis, or the source's as -1 - axis."""

    def __init__(self, builder: GradientBuilder, source: Shape, gradient: Node) -> None:
        self.builder, self.source, self.value = builder, source, gradient
        self.axes = list(range(len(gradient.shape)))

    def arrange(self, axes: Sequence[int]) -> None:
        """The axes in that order; those that are left out have one cell."""
        index = [Dim.of(index_name(axes.index(axis))) if axis in axes else ZERO for axis in self.axes]
        shape = tuple(self.value.shape[self.axes.index(axis)] for axis in axes)
        self.value, self.axes = self.builder.view(self.value, shape, index), list(axes)

    def reshape(self, old: Sequence[int], new: Sequence[int], shape: Shape) -> None:
        """Axes as others of that shape, with the same cells in C order; they come last."""
        rest = [axis for axis in self.axes if axis not in old]
        self.arrange([*rest, *old])
        lead, before = self.value.shape[: len(rest)], self.value.shape[len(rest) :]
        shift = {index_name(at): Dim.of(index_name(at + len(rest))) for at in range(len(shape))}
        inner = tuple(dim.replace(shift) for dim in flat_index(before, shape))
        self.value = self.builder.view(self.value, (*lead, *shape), (*indices(len(rest)), *inner))
        self.axes = [*rest, *new]

    def extent(self, axis: int) -> Dim:
        return self.value.shape[self.axes.index(axis)]


def place(work: GradientAxes, axis: int, at: Dim) -> None:
    """The one cell that was read, among zeros."""
    builder, extent, rank = work.builder, work.source[axis], len(work.value.shape)
    work.axes.append(-1 - axis)
    if extent.constant is not None:
        work.value = builder.view(work.value, (*work.value.shape, ONE), indices(rank))
        _pad(work, axis, at)
        return
    shape = (*work.value.shape, extent)  # of a size that may be 0: there would be no place for the cell
    cells = builder.view(work.value, shape, indices(rank))
    there = builder.call("equal", builder.iota(index_name(rank), shape), builder.iota(at, shape))
    work.value = builder.call("where", there, cells, builder.like(0.0, cells))


def _pad(work: GradientAxes, axis: int, start: Dim) -> None:
    """Zeros around what was read of an axis from `start` on."""
    whole, extent = work.source[axis], work.extent(-1 - axis)
    if equal(whole, extent) is True:
        return
    if extent.constant is None and not never_negative(whole - start - extent):  # nothing may be read, from anywhere
        start = -maximum(-whole, -maximum(start, 0))
    work.value = work.builder.pad(work.value, work.axes.index(-1 - axis), start, whole)


def narrow(work: GradientAxes, axis: int, result: int) -> None:
    """An axis that is 1 or as long as the result's, as is known when it runs: the sum, or the gradient as it is."""
    builder, at, extent = work.builder, work.axes.index(result), work.source[axis]
    shape = tuple(extent if place == at else dim for place, dim in enumerate(work.value.shape))
    whole = builder.expand_along(builder.reduce("sum", work.value, [at]), [at], shape)
    one = builder.call("equal", builder.iota(extent, shape), builder.iota(1, shape))
    longer = builder.pad(work.value, at, ZERO, work.value.shape[at] + 1)  # so that there is a cell to read if it is 0
    same = builder.view(longer, shape, indices(len(shape)))
    work.value = builder.call("where", one, whole, same)
    work.axes[at] = -1 - axis


def unslice(work: GradientAxes, part: AxisGroup) -> None:
    """One entry that is linear in its axes: these become one, which is spread out by its step and padded."""
    (axis,), (entry,) = part.source, part.entries
    steps = {result: _slope(entry, index_name(result)) for result in part.result}
    start = entry - sum((Dim.of(index_name(k)) * step for k, step in steps.items()), ZERO)
    if len(steps) == 1 and (only := next(iter(steps.values())).constant) is not None and only < 0:
        (result,) = steps
        work.value = work.builder.flip(work.value, work.axes.index(result))
        start, steps = start + (work.extent(result) - 1) * only, {result: Dim.of(-only)}
    order = _mixed_radix(work, steps)
    if len(order) > 1:
        work.reshape(order, [-1 - axis], (product(work.extent(result) for result in order),))
    else:
        work.axes[work.axes.index(order[0])] = -1 - axis
    _spread(work, -1 - axis, steps[order[-1]])
    _pad(work, axis, start)


def _slope(entry: Dim, name: str) -> Dim:
    """Give the growth of an entry with an index; Irregular where that is no formula of sizes."""
    slope = entry.replace({name: 1}) - entry.replace({name: 0})
    if any(other.startswith("#") for other in slope.names):
        raise Irregular
    if entry - slope * name != entry.replace({name: 0}):
        raise Irregular
    return slope


def _mixed_radix(work: GradientAxes, steps: dict[int, Dim]) -> list[int]:
    """The axes in an order in which each steps over all of the next one; Irregular where there is none."""
    left, order = dict(steps), list[int]()
    numbers = [number for each in steps.values() if (number := each.constant or 0) > 0]
    if not numbers:
        raise Irregular
    step = Dim.of(min(numbers))
    while left:
        fits = [axis for axis, own in left.items() if equal(own, step) is True]
        fits.sort(key=lambda axis: work.extent(axis) != ONE)
        if not fits:
            raise Irregular
        del left[fits[0]]
        order.insert(0, fits[0])
        step = step * work.extent(fits[0])
    return order


def _spread(work: GradientAxes, axis: int, step: Dim) -> None:
    """Zeros between the cells of an axis, so that they lie `step` apart."""
    if step == ONE:
        return
    builder, at = work.builder, work.axes.index(axis)
    length = maximum((work.value.shape[at] - 1) * step + 1, 0)
    shape = tuple(length if place == at else dim for place, dim in enumerate(work.value.shape))
    index = list(indices(len(shape)))
    index[at] = index[at] // step
    cells = builder.view(work.value, shape, index)
    there = builder.call("equal", builder.iota(indices(len(shape))[at] % step, shape), builder.iota(0, shape))
    work.value = builder.call("where", there, cells, builder.like(0.0, cells))


def diagonal(work: GradientAxes, part: AxisGroup) -> None:
    """Cells whose indices were alike: zeros beside them."""
    (result,), builder = part.result, work.builder
    if any(equal(work.source[axis], work.extent(result)) is not True for axis in part.source):
        raise Irregular
    rest = [axis for axis in work.axes if axis != result]
    work.arrange([*rest, result])
    shape = (*work.value.shape[:-1], *(work.source[axis] for axis in part.source))
    own = indices(len(shape))[len(rest) :]
    cells = builder.view(work.value, shape, indices(len(rest) + 1))
    alike = [builder.call("equal", builder.iota(own[0], shape), builder.iota(other, shape)) for other in own[1:]]
    for condition in alike:
        cells = builder.call("where", condition, cells, builder.like(0.0, cells))
    work.value, work.axes = cells, [*rest, *(-1 - axis for axis in part.source)]


def unmerge(work: GradientAxes, part: AxisGroup) -> None:
    """Axes of the source that were merged, or split otherwise, in C order."""
    shape = tuple(work.source[axis] for axis in part.source)
    before = tuple(work.extent(result) for result in part.result)
    if equal(product(shape), product(before)) is not True:
        raise Irregular
    inverse = {index_name(k): dim for k, dim in zip(part.result, flat_index(before, shape), strict=True)}
    extents = {index_name(at): dim for at, dim in enumerate(shape)}
    for at, entry in enumerate(part.entries):
        if simplify(entry.replace(inverse), extents) != simplify(Dim.of(index_name(at)), extents):
            raise Irregular
    work.reshape(part.result, [-1 - axis for axis in part.source], shape)
