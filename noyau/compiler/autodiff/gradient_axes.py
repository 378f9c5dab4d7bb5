"""Axes of a gradient on its way back through a view, and the groups of axes that its index map ties together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.ir.dims import Dim, Shape, flat_index, index_name, indices
from noyau.ir.graph import Node

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
