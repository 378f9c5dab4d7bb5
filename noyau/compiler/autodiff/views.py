"""The inverse of a view: each cell of the gradient goes back to the cell that was read; several reads add up.

Axes of the source and of the result are connected where an index entry names them; each such group is inverted by
itself: a slice is padded, a flip flipped, a strided slice spread out, a split or a merge undone, a diagonal placed into
zeros, and axes that no entry names are summed. Any other view (overlapping windows, repeated borders) is a Scatter."""

from collections.abc import Sequence
from dataclasses import dataclass

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape, equal, flat_index, index_name, indices, maximum, never_negative, product
from noyau.ir.graph import Gather, Lookup, Map, Node, Scatter, View, step_of
from noyau.ir.ranges import simplify

ZERO, ONE = Dim.of(0), Dim.of(1)
Index = tuple[Dim | Lookup, ...]


class Irregular(Exception):
    """A part of an index map that has no inverse of its own."""


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Axes of the source, the entries that give their indices, and the axes of the result that these name."""

    source: tuple[int, ...]
    entries: Shape
    result: tuple[int, ...]


def axis_groups(index: Shape) -> list[AxisGroup]:
    """The connected groups of axes."""
    groups: list[tuple[list[int], set[int]]] = []
    for axis, entry in enumerate(index):
        names = {int(name[1:]) for name in entry.names if name.startswith("#")}
        near = [group for group in groups if group[1] & names]
        groups = [group for group in groups if group not in near]
        groups.append(([*(each for group in near for each in group[0]), axis], names.union(*(g[1] for g in near))))
    ordered = ((tuple(sorted(axes)), tuple(sorted(names))) for axes, names in groups)
    return [AxisGroup(axes, tuple(index[axis] for axis in axes), names) for axes, names in ordered]


class GradientAxes:
    """A gradient on its way back. `axes`: for each of its axes, the result's axis, or the source's as -1 - axis."""

    def __init__(self, builder: GradientBuilder, source: Shape, gradient: Node) -> None:
        self.builder, self.source, self.value = builder, source, gradient
        self.axes = list(range(len(gradient.shape)))

    def arrange(self, axes: Sequence[int]) -> None:
        """Put the axes into an order; axes that are left out have one cell."""
        index = [Dim.of(index_name(axes.index(axis))) if axis in axes else ZERO for axis in self.axes]
        shape = tuple(self.value.shape[self.axes.index(axis)] for axis in axes)
        self.value, self.axes = self.builder.view(self.value, shape, index), list(axes)

    def reshape(self, old: Sequence[int], new: Sequence[int], shape: Shape) -> None:
        """Replace axes by others of a shape, with the same cells in C order; the new ones come last."""
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
    """Place the one cell that was read among zeros."""
    builder, extent, rank = work.builder, work.source[axis], len(work.value.shape)
    work.axes.append(-1 - axis)
    if extent.constant is not None:
        work.value = builder.view(work.value, (*work.value.shape, ONE), indices(rank))
        _pad(work, axis, at)
        return
    shape = (*work.value.shape, extent)  # of an extent that may be 0: there would be no place for the cell
    cells = builder.view(work.value, shape, indices(rank))
    there = builder.call("equal", builder.iota(index_name(rank), shape), builder.iota(at, shape))
    work.value = builder.call("where", there, cells, builder.like(0.0, cells))


def _pad(work: GradientAxes, axis: int, start: Dim) -> None:
    """Pad an axis with zeros around the cells that were read, which begin at `start`."""
    whole, extent = work.source[axis], work.extent(-1 - axis)
    if equal(whole, extent) is True:
        return
    if extent.constant is None and not never_negative(whole - start - extent):  # an empty slice may start anywhere
        start = -maximum(-whole, -maximum(start, 0))
    work.value = work.builder.pad(work.value, work.axes.index(-1 - axis), start, whole)


def narrow(work: GradientAxes, axis: int, result: int) -> None:
    """An axis whose extent is 1 or the result's, known only at run time: the sum, or the gradient unchanged."""
    builder, at, extent = work.builder, work.axes.index(result), work.source[axis]
    shape = tuple(extent if place == at else dim for place, dim in enumerate(work.value.shape))
    whole = builder.expand_along(builder.reduce("sum", work.value, [at]), [at], shape)
    one = builder.call("equal", builder.iota(extent, shape), builder.iota(1, shape))
    longer = builder.pad(work.value, at, ZERO, work.value.shape[at] + 1)  # a cell to read if the extent is 0
    work.value = builder.call("where", one, whole, builder.view(longer, shape, indices(len(shape))))
    work.axes[at] = -1 - axis


def unslice(work: GradientAxes, part: AxisGroup) -> None:
    """Invert an entry that is linear in its axes: merge them into one, spread it by its step and pad it."""
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
    """The growth of an entry with an index; Irregular where that is no formula of sizes."""
    start = entry.replace({name: 0})
    slope = entry.replace({name: 1}) - start
    if any(other.startswith("#") for other in slope.names) or entry - slope * name != start:
        raise Irregular
    return slope


def _mixed_radix(work: GradientAxes, steps: dict[int, Dim]) -> list[int]:
    """The axes in an order in which the step of each spans all cells of the next one; Irregular where there is none."""
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
    """Place cells whose indices were equal on a diagonal of zeros."""
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
    """Undo a merge or another split of axes of the source in C order."""
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


def view_back(builder: GradientBuilder, index: Shape, source: Shape, gradient: Node) -> Node:
    """The gradient of a view's operand, which has the shape `source`."""
    try:
        return _regular(builder, tuple(simplify(dim, gradient.extents) for dim in index), source, gradient)
    except Irregular:
        return scatter_to_zeros(builder, index, source, gradient)


def scatter_to_zeros(
    builder: GradientBuilder, index: Sequence[Dim | Lookup], source: Shape, gradient: Node, *at: Node
) -> Node:
    """The sum of the gradient's cells at the places of an index map; half types are summed in float32."""
    exact = gradient.dtype.compute
    none = at[0] if at else builder.iota(0, ())
    operands = (builder.full(0.0, exact, source), none, builder.cast(gradient, exact))
    return builder.cast(builder.scatter(index, "sum", operands), gradient.dtype)


def sum_over(builder: GradientBuilder, value: Node, axes: Sequence[int]) -> Node:
    """Sum over axes, with the sum pushed inside: sum(-x) = -sum(x); factors that do not vary along the axes move out; a
    sum of products is summed term by term; a scatter into zeros along the axes sums its updates."""
    inputs = [builder.by_name[name] for name in value.inputs]
    match value.kind:
        case Map("negative") if axes:
            return builder.call("negative", sum_over(builder, inputs[0], axes))
        case Map("multiply" | "divide" as function) if axes:
            for this, other in ((0, 1), (1, 0))[: 2 if function == "multiply" else 1]:
                factor = _alike_along(builder, inputs[other], axes)
                if factor is not None:
                    return builder.call(function, sum_over(builder, inputs[this], axes), factor)
        case Map("add" | "subtract" as function) if all(_comes_apart(builder, each, axes) for each in inputs):
            return builder.call(function, *(sum_over(builder, each, axes) for each in inputs))
        case Scatter(index, "sum") if axes and builder.number_of(inputs[0]) == 0:
            others = [axis for axis in range(len(index)) if axis not in axes]
            entries = tuple(entry for axis in others if isinstance(entry := index[axis], Dim))
            if len(entries) == len(others):
                return view_back(builder, entries, tuple(value.shape[axis] for axis in others), inputs[2])
        case _:
            pass
    return builder.reduce("sum", value, axes)


def _comes_apart(builder: GradientBuilder, value: Node, axes: Sequence[int]) -> bool:
    """Whether a value consists of products with factors that are constant along axes."""
    inputs = [builder.by_name[name] for name in value.inputs]
    match value.kind:
        case Map("negative" | "add" | "subtract"):
            return all(_comes_apart(builder, each, axes) for each in inputs)
        case Map("multiply"):
            return any(_alike_along(builder, each, axes) is not None for each in inputs)
        case Map("divide"):
            return _alike_along(builder, inputs[1], axes) is not None
        case _:
            return False


def _alike_along(builder: GradientBuilder, value: Node, axes: Sequence[int]) -> Node | None:
    """A view without axes that it does not depend on; None for any other value."""
    dropped = {index_name(axis) for axis in axes}
    if not isinstance(value.kind, View) or any(dim.names & dropped for dim in value.kind.index):
        return None
    others = [axis for axis in range(len(value.shape)) if axis not in axes]
    moved = {index_name(axis): Dim.of(index_name(at)) for at, axis in enumerate(others)}
    index = tuple(dim.replace(moved) for dim in value.kind.index)
    return builder.view(builder.by_name[value.inputs[0]], tuple(value.shape[axis] for axis in others), index)


def _regular(builder: GradientBuilder, index: Shape, source: Shape, gradient: Node) -> Node:
    """Invert each group of axes by itself; Irregular where a group has no inverse."""
    parts = axis_groups(index)
    work = GradientAxes(builder, source, gradient)
    if any(dim == ZERO for dim in gradient.shape):
        return builder.full(0.0, gradient.dtype, source)
    # Sum over the axes along which cells were read again; axes with one cell are just dropped
    named = {axis for part in parts for axis in part.result}
    summed = [axis for axis, dim in enumerate(gradient.shape) if axis not in named and dim != ONE]
    work.value = sum_over(builder, gradient, summed)
    work.axes = [axis for axis in work.axes if axis not in summed]
    work.arrange([axis for axis in work.axes if axis in named])
    for part in parts:
        _invert(work, part)
    work.arrange([-1 - axis for axis in range(len(source))])
    return work.value


def _invert(work: GradientAxes, part: AxisGroup) -> None:
    match len(part.source), len(part.result):
        case 1, 0:
            place(work, part.source[0], part.entries[0])
        case 1, 1 if (step := step_of(work.source[part.source[0]])).constant is None and (
            part.entries[0] == Dim.of(index_name(part.result[0])) * step
        ):  # by its extent at run time the axis may be 1, so that its only cell is read everywhere
            narrow(work, part.source[0], part.result[0])
        case 1, _:
            unslice(work, part)
        case _ if len(set(part.entries)) == 1 and part.entries[0] == Dim.of(index_name(part.result[0])):
            diagonal(work, part)
        case _:
            unmerge(work, part)


def gather_back(builder: GradientBuilder, kind: Gather, operands: Sequence[Node], gradient: Node) -> Node:
    """Add each cell of the gradient at the place that was looked up."""
    lookups = [entry for entry in kind.index if isinstance(entry, Lookup)]
    if len({entry.input for entry in lookups}) <= 1:
        index = tuple(Lookup(1, e.at) if isinstance(e, Lookup) else e for e in kind.index)
        return scatter_to_zeros(builder, index, operands[0].shape, gradient, *(operands[e.input] for e in lookups[:1]))
    shape, rank = gradient.shape, len(gradient.shape)
    pieces = [builder.view(operands[entry.input], shape, entry.at) for entry in lookups]
    pieces = [builder.view(builder.cast(each, DType.I64), (*shape, Dim.of(1)), indices(rank)) for each in pieces]
    places = (Lookup(1, (*indices(rank), Dim.of(number))) for number in range(len(lookups)))
    beside = tuple(next(places) if isinstance(entry, Lookup) else entry for entry in kind.index)
    return scatter_to_zeros(builder, beside, operands[0].shape, gradient, builder.concat(pieces, rank))


def scatter_back(
    builder: GradientBuilder, node: Node, kind: Scatter, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The gradient of the base of a Scatter (0) or of its updates (2). UnsupportedError for products."""
    match kind.monoid:
        case "sum":
            return gradient if position == 0 else _read_places(builder, kind.index, gradient, operands)
        case None:
            return _overwritten(builder, kind.index, operands, gradient, position)
        case "max" | "min":
            return _share_evenly(builder, node, kind.index, operands, gradient, position)
        case _:
            raise UnsupportedError(f"{node.output}: a Scatter that merges by {kind.monoid} has no derivative")


def _read_places(builder: GradientBuilder, index: Index, value: Node, operands: Sequence[Node]) -> Node:
    """A value read at the places that a Scatter writes to."""
    dims = tuple(entry for entry in index if isinstance(entry, Dim))
    if len(dims) == len(index):
        return builder.view(value, operands[2].shape, dims)
    return builder.gather(index, [value, operands[1]], operands[2].shape)


def _overwritten(builder: GradientBuilder, index: Index, operands: Sequence[Node], above: Node, position: int) -> Node:
    """The gradient of cells without an update (0), or of the last update of each cell (2); 0 for the others."""
    shape, updates = above.shape, operands[2]
    number = builder.iota(flat_index((product(updates.shape),), updates.shape)[0], updates.shape)
    last = builder.scatter(index, None, [builder.iota(-1, shape), operands[1], number])
    if position == 0:
        is_last = builder.call("less", last, builder.iota(0, shape))
        return builder.call("where", is_last, above, builder.like(0.0, above))
    wins = builder.call("equal", _read_places(builder, index, last, operands), number)
    return builder.call("where", wins, _read_places(builder, index, above, operands), builder.like(0.0, updates))


def _share_evenly(
    builder: GradientBuilder, node: Node, index: Index, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """Share the gradient evenly among all values that equal the result."""
    call, exact = builder.call, gradient.dtype.compute
    out, first, updates, above = (builder.cast(each, exact) for each in (node, operands[0], operands[2], gradient))
    hit = call("equal", first, out)
    hits = call("equal", updates, _read_places(builder, index, out, operands))
    ones = call("where", hits, builder.like(1.0, updates), builder.like(0.0, updates))
    start = call("where", hit, builder.like(1.0, first), builder.like(0.0, first))
    share = call("divide", above, builder.scatter(index, "sum", [start, operands[1], ones]))
    if position == 0:
        return call("where", hit, share, builder.like(0.0, share))
    return call("where", hits, _read_places(builder, index, share, operands), builder.like(0.0, updates))
