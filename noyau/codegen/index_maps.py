"""Kinds of index maps of arrays: a broadcast, slices, a reshape, a lookup of whole axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from noyau.ir.dims import Dim, Shape, index_name, indices, product, strides_of
from noyau.ir.graph import Lookup, Node
from noyau.ir.graph import step_of as unit_step
from noyau.ir.ranges import simplify

ONE, ZERO = Dim.of(1), Dim.of(0)


@dataclass(frozen=True, slots=True)
class AxisStep:
    """The index into one axis of an operand: `start + step * index of the result's axis out`, or `start` alone."""

    out: int | None
    start: Dim
    step: int = 1


def is_within(at: Dim, dim: Dim) -> bool:
    """Whether an index depends on one of the result, or is a constant that is certainly within the axis."""
    moves = any(name.startswith("#") for name in at.names)
    return moves or (at.constant is not None and 0 <= at.constant < (dim.constant or 0))


def is_broadcast(index: Shape, source: Shape, target: Shape) -> bool:
    """Whether NumPy's broadcasting makes the view: axes aligned at the end, and those of extent 1 repeated."""
    if len(source) > len(target):
        return False
    aligned, here = target[len(target) - len(source) :], indices(len(target))[len(target) - len(source) :]
    return all(
        (at == own and dim == goal) or (at == ZERO and dim == ONE) or (at == own * unit_step(dim) != own)
        for at, own, dim, goal in zip(index, here, source, aligned, strict=True)
    )


def step_of(dim: Dim, shape: Shape) -> AxisStep | None:
    """The AxisStep of an index that is affine in at most one index of the result; None for any other."""
    if not (axes := [axis for axis in range(len(shape)) if index_name(axis) in dim.names]):
        return AxisStep(None, dim)
    name = index_name(axes[0])
    factor = dict(dim.terms).get((name,), 0)
    start = dim - Dim.of(name) * factor
    if len(axes) > 1 or not factor or any(each.startswith("#") for each in start.names):
        return None
    return AxisStep(axes[0], start, factor)


def slices_of(index: Shape, operand: Shape, source: Shape, target: Shape) -> list[AxisStep] | None:
    """The steps of a view along the operand's own axes, if slices can take them, else None; it broadcasts otherwise."""
    steps = [step for step in (step_of(dim, target) for dim in index) if step is not None]
    missing = len(source) - len(operand)
    outs = [step.out for step in steps[missing:] if step.out is not None]
    if len(steps) < len(index) or len(set(outs)) < len(outs):
        return None
    usable, grows = [], len(outs) < len(target)
    for step, dim, there in zip(steps[missing:], source[missing:], operand, strict=True):
        at, alike = step.start.constant, dim != there
        if alike and there != ONE:
            return None
        # Indexing an axis that may be empty is an error, except if the result is empty, which a new axis can cause.
        risky = grows or (at is not None and at < 0)
        if step.out is None and not alike and risky and not is_within(step.start, dim):
            return None
        usable.append(AxisStep(step.out, ZERO) if alike else step)
    return usable


def is_reshape(index: Shape, source: Shape, target: Shape) -> bool:
    """Whether a view keeps the memory order of the cells."""
    if product(source) != product(target):
        return False
    extents = {index_name(axis): dim for axis, dim in enumerate(target)}
    there = sum((at * stride for at, stride in zip(index, strides_of(source), strict=True)), ZERO)
    here = sum((at * stride for at, stride in zip(indices(len(target)), strides_of(target), strict=True)), ZERO)
    return simplify(there, extents) == simplify(here, extents)


def is_whole_lookup(index: Sequence[Dim | Lookup], axis: int, node: Node, sources: Sequence[Node]) -> bool:
    """Whether `index[axis]` looks up whole slices: the other entries are whole axes, in order, around its own."""
    entry, here, table = index[axis], list(indices(len(node.shape))), sources[0].shape
    assert isinstance(entry, Lookup)
    rank = len(sources[entry.input].shape)
    around = [*here[:axis], *here[axis + rank :]]
    others = [each for each in index if not isinstance(each, Lookup)]
    lengths = [*node.shape[:axis], *node.shape[axis + rank :]]
    whole = list(entry.at) == here[axis : axis + rank] and sources[entry.input].shape == node.shape[axis : axis + rank]
    return whole and others == around and lengths == [*table[:axis], *table[axis + 1 :]]
