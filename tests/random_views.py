"""Views that random graphs are made of: transposes, reshapes, slices, flips, cells of the border."""

from __future__ import annotations

from noyau.ir.dims import Dim, Shape, exact_part, index_name, indices, maximum, never_negative
from noyau.ir.graph import Node
from tests.sketching import STATIC, Sketch

ONE = Dim.of(1)


def view(s: Sketch) -> Node:
    usual = (transpose, transpose, transpose, merge, split, split, cut, cut, expand)
    return s.one_of((*usual, flip, squeeze, diagonal, beyond, pinned))(s)


def transpose(s: Sketch) -> Node:
    operand = s.pick(lambda node: len(node.shape) > 1)
    order = list(range(len(operand.shape)))
    for _ in range(s.chooser.integer(1, 2)):
        a, b = s.one_of(order), s.one_of(order)
        order[a], order[b] = order[b], order[a]
    index = [Dim.of(f"#{order.index(axis)}") for axis in range(len(order))]
    return s.view(operand, [operand.shape[axis] for axis in order], index, "transpose")


def merge(s: Sketch) -> Node:
    """Two axes as one."""
    operand = s.pick(lambda node: len(node.shape) > 1)
    axis = s.chooser.integer(0, len(operand.shape) - 2)
    left, right = operand.shape[axis : axis + 2]
    here = indices(len(operand.shape) - 1)
    index = (*here[:axis], here[axis] // right, here[axis] % right, *here[axis + 1 :])
    return s.view(operand, (*operand.shape[:axis], left * right, *operand.shape[axis + 2 :]), index, "merge")


def split(s: Sketch) -> Node:
    """One axis as two."""
    operand = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(operand.shape) - 1)
    dim = operand.shape[axis]
    parts = [Dim.of(part) for part in (2, 3, 4, 8)] + [Dim.of(name) for name in sorted(dim.names)]
    inner = s.one_of([part for part in parts if not exact_part(dim, part)[1].terms])
    outer = dim // inner
    outer, inner = s.one_of([(outer, inner), (inner, outer)])
    here = indices(len(operand.shape) + 1)
    index = (*here[:axis], here[axis] * inner + here[axis + 1], *here[axis + 2 :])
    return s.view(operand, (*operand.shape[:axis], outer, inner, *operand.shape[axis + 1 :]), index, "split")


def cut(s: Sketch) -> Node:
    """A slice: from a start, with a step, forwards or backwards."""
    operand = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(operand.shape) - 1)
    dim = operand.shape[axis]
    return s.view(operand, *sliced(operand.shape, axis, *s.one_of(slices(s, dim))), "slice")


def slices(s: Sketch, dim: Dim) -> list[tuple[Dim, int, Dim]]:
    """Start, step and length of slices that stay inside the extent, whatever the sizes are."""
    found = [clamped(s, dim)]
    if dim.constant is not None:
        return found
    found += [(Dim.of(0), 1, Dim.of(name)) for name in dim.names if never_negative(dim - name)]
    found += [(dim - name, 1, Dim.of(name)) for name in dim.names if never_negative(dim - name)]
    if never_negative(dim - 1):
        found += [(Dim.of(1), 1, dim - 1), (Dim.of(0), 1, dim - 1), (dim - 1, -1, dim)]
    if not exact_part(dim, Dim.of(2))[1].terms:
        half = dim // 2
        found += [(Dim.of(0), 1, half), (half, 1, half), (Dim.of(1), 2, half), (dim - 1, -2, half)]
    return found


def clamped(s: Sketch, dim: Dim) -> tuple[Dim, int, Dim]:
    """start:stop:step with bounds that are cut to the extent, as NumPy does it."""
    bounds = [Dim.of(s.chooser.integer(0, 5)), dim - s.chooser.integer(0, 3)]
    start, stop = (s.one_of(bounds), s.one_of(bounds))
    step = s.one_of((1, 1, 1, 2, 3, -1, -1, -2))
    low, high = (Dim.of(0), dim) if step > 0 else (Dim.of(-1), dim - 1)
    start, stop = (least(maximum(at, low), high) for at in (start, stop))
    span = stop - start if step > 0 else start - stop
    length = (span + (abs(step) - 1)) // abs(step)
    return start, step, length if never_negative(length) else maximum(length, 0)


def least(left: Dim, right: Dim) -> Dim:
    return left + right - maximum(left, right)


def sliced(shape: Shape, axis: int, start: Dim, step: int, length: Dim) -> tuple[Shape, Shape]:
    here = indices(len(shape))
    index = (*here[:axis], here[axis] * step + start, *here[axis + 1 :])
    return (*shape[:axis], length, *shape[axis + 1 :]), index


def flip(s: Sketch) -> Node:
    operand = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(operand.shape) - 1)
    dim = operand.shape[axis]
    return s.view(operand, *sliced(operand.shape, axis, dim - 1, -1, dim), "flip")


def beyond(s: Sketch) -> Node:
    """More cells before and after: of the border, of the other end, or mirrored."""
    operand = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(operand.shape) - 1)
    dim, before = operand.shape[axis], s.chooser.integer(0, 3)
    at, far = Dim.of(index_name(axis)) - before, dim - 1
    distance = far - maximum(at, -at)
    index = list(indices(len(operand.shape)))
    index[axis] = s.one_of([least(maximum(at, 0), far), at % dim, far - maximum(distance, -distance)])
    total = dim + before + s.chooser.integer(0, 3)
    return s.view(operand, (*operand.shape[:axis], total, *operand.shape[axis + 1 :]), index, "beyond")


def pinned(s: Sketch) -> Node:
    """The first or the last cell along an axis, in all of its cells; an empty axis is the one to try it on."""
    operand = s.pick(lambda node: bool(node.shape))
    empty = [axis for axis, extent in enumerate(s.value(operand).shape) if not extent]
    axis = s.one_of(empty or range(len(operand.shape)))
    index = list(indices(len(operand.shape)))
    index[axis] = s.one_of([Dim.of(0), operand.shape[axis] - 1])
    return s.view(operand, operand.shape, index, "pinned")


def expand(s: Sketch) -> Node:
    """A new axis, of 1 or more."""
    operand = s.pick(lambda node: len(node.shape) < 5)
    axis = s.chooser.integer(0, len(operand.shape))
    dim = s.one_of((ONE, Dim.of(s.one_of(STATIC)), *s.pick(lambda node: bool(node.shape)).shape))
    here = indices(len(operand.shape) + 1)
    shape = (*operand.shape[:axis], dim, *operand.shape[axis:])
    return s.view(operand, shape, here[:axis] + here[axis + 1 :], "unsqueeze" if dim == ONE else "expand")


def squeeze(s: Sketch) -> Node:
    operand = s.pick(lambda node: ONE in node.shape)
    axis = s.one_of([axis for axis, dim in enumerate(operand.shape) if dim == ONE])
    here = indices(len(operand.shape) - 1)
    shape = operand.shape[:axis] + operand.shape[axis + 1 :]
    return s.view(operand, shape, (*here[:axis], Dim.of(0), *here[axis:]), "squeeze")


def diagonal(s: Sketch) -> Node:
    operand = s.pick(lambda node: len(set(node.shape)) < len(node.shape))
    twice = next(dim for dim in operand.shape if operand.shape.count(dim) > 1)
    axis = operand.shape.index(twice, operand.shape.index(twice) + 1)
    here = indices(len(operand.shape) - 1)
    index = (*here[:axis], here[operand.shape.index(twice)], *here[axis:])
    return s.view(operand, operand.shape[:axis] + operand.shape[axis + 1 :], index, "diagonal")
