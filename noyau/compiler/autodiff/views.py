"""The inverse of a view: each cell of the gradient goes back to the cell that was read; what was read twice is a sum.

Source and result axes hang together where an index entry names them; each such group is inverted by itself: a slice is
padded, a flip flipped, a strided slice spread out, a split or a merge of axes undone, a diagonal set into zeros, and
axes that nothing names are summed. What is none of these (windows that overlap, borders that repeat) is a Scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from noyau.compiler.autodiff import axis_inverses
from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape, index_name, indices, strides_of
from noyau.ir.graph import Gather, Lookup, Map, Node, Scatter, Select, View, step_of
from noyau.ir.ranges import simplify


def view_back(builder: GradientBuilder, index: Shape, source: Shape, gradient: Node) -> Node:
    """The gradient of what a view of that index map shows, of that shape."""
    exact = tuple(simplify(dim, gradient.extents) for dim in index)
    try:
        return _regular(builder, exact, source, gradient)
    except axis_inverses.Irregular:
        return scatter_to_zeros(builder, index, source, gradient)


def scatter_to_zeros(
    builder: GradientBuilder, index: Sequence[Dim | Lookup], source: Shape, gradient: Node, *at: Node
) -> Node:
    """Cells of the gradient summed where an index says; half types are summed in float32."""
    exact = gradient.dtype.compute
    none = at[0] if at else builder.iota(0, ())
    operands = (builder.full(0.0, exact, source), none, builder.cast(gradient, exact))
    return builder.cast(builder.scatter(index, "sum", operands), gradient.dtype)


def sum_over(builder: GradientBuilder, value: Node, axes: Sequence[int]) -> Node:
    """The sum over axes: of -x as that of x, of products and quotients by what is alike along them as that of the rest,
    of sums of such products one by one, so that no sum waits for what another one scales, and of what was scattered
    into zeros along them as that of the updates."""
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
        case Scatter(index, "sum") if axes and builder.known(inputs[0]) == 0:
            others = [axis for axis in range(len(index)) if axis not in axes]
            entries = tuple(entry for axis in others if isinstance(entry := index[axis], Dim))
            if len(entries) == len(others):
                return view_back(builder, entries, tuple(value.shape[axis] for axis in others), inputs[2])
        case _:
            pass
    return builder.reduce("sum", value, axes)


def _comes_apart(builder: GradientBuilder, value: Node, axes: Sequence[int]) -> bool:
    """Whether a value is made of products with what is alike along axes."""
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
    """Drop axes of a value that is a view that does not depend on them; None of another."""
    dropped = {index_name(axis) for axis in axes}
    if not isinstance(value.kind, View) or any(dim.names & dropped for dim in value.kind.index):
        return None
    others = [axis for axis in range(len(value.shape)) if axis not in axes]
    moved = {index_name(axis): Dim.of(index_name(at)) for at, axis in enumerate(others)}
    index = tuple(dim.replace(moved) for dim in value.kind.index)
    return builder.view(builder.by_name[value.inputs[0]], tuple(value.shape[axis] for axis in others), index)


def _regular(builder: GradientBuilder, index: Shape, source: Shape, gradient: Node) -> Node:
    """Each group of axes inverted by itself; Irregular where one cannot be."""
    parts = axis_inverses.axis_groups(index)
    work = axis_inverses.GradientAxes(builder, source, gradient)
    if any(dim == axis_inverses.ZERO for dim in gradient.shape):
        return builder.full(0.0, gradient.dtype, source)
    _sum_unnamed(work, {axis for part in parts for axis in part.result})
    for part in parts:
        _invert(work, part)
    work.arrange([-1 - axis for axis in range(len(source))])
    return work.value


def _sum_unnamed(work: axis_inverses.GradientAxes, named: set[int]) -> None:
    """Sum what was read again along axes, of which those with one cell just go."""
    unnamed = [axis for axis in work.axes if axis not in named]
    ones = [axis for axis in unnamed if work.value.shape[axis] == axis_inverses.ONE]
    work.value = sum_over(work.builder, work.value, [axis for axis in unnamed if axis not in ones])
    work.axes = [axis for axis in work.axes if axis in named or axis in ones]
    work.arrange([axis for axis in work.axes if axis in named])


def _invert(work: axis_inverses.GradientAxes, part: axis_inverses.AxisGroup) -> None:
    match len(part.source), len(part.result):
        case 1, 0:
            axis_inverses.place(work, part.source[0], part.entries[0])
        case 1, 1 if _is_one_or_all(part, step_of(work.source[part.source[0]])):
            axis_inverses.narrow(work, part.source[0], part.result[0])
        case 1, _:
            axis_inverses.unslice(work, part)
        case _ if len(set(part.entries)) == 1 and part.entries[0] == Dim.of(index_name(part.result[0])):
            axis_inverses.diagonal(work, part)
        case _:
            axis_inverses.unmerge(work, part)


def _is_one_or_all(part: axis_inverses.AxisGroup, step: Dim) -> bool:
    """Whether an axis is only known when it runs to be 1, so that its one cell is read everywhere, or not to be."""
    return step.constant is None and part.entries[0] == Dim.of(index_name(part.result[0])) * step


Index = tuple[Dim | Lookup, ...]


def select_back(
    builder: GradientBuilder, kind: Select, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The cells of the gradient where the piece at a position lies."""
    index, shape = list(indices(len(gradient.shape))), operands[position].shape
    index[kind.axis] = index[kind.axis] + kind.starts[position]
    return builder.view(gradient, shape, index)


def gather_back(builder: GradientBuilder, kind: Gather, operands: Sequence[Node], gradient: Node) -> Node:
    """Each cell of the gradient added where it was looked up."""
    lookups = [entry for entry in kind.index if isinstance(entry, Lookup)]
    if len({entry.input for entry in lookups}) <= 1:
        index = tuple(Lookup(1, e.at) if isinstance(e, Lookup) else e for e in kind.index)
        return scatter_to_zeros(builder, index, operands[0].shape, gradient, *(operands[e.input] for e in lookups[:1]))
    shape, rank = gradient.shape, len(gradient.shape)
    pieces = [builder.view(operands[entry.input], shape, entry.at) for entry in lookups]
    pieces = [builder.view(builder.cast(each, DType.I64), (*shape, Dim.of(1)), indices(rank)) for each in pieces]
    count = iter(range(len(lookups)))
    beside = tuple(
        Lookup(1, (*indices(rank), Dim.of(next(count)))) if isinstance(entry, Lookup) else entry for entry in kind.index
    )
    return scatter_to_zeros(builder, beside, operands[0].shape, gradient, builder.concat(pieces, rank))


def scatter_back(
    builder: GradientBuilder, node: Node, kind: Scatter, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The gradient of what was merged into (0) or of what was merged (2). UnsupportedError for products."""
    match kind.monoid:
        case "sum":
            return gradient if position == 0 else _seen(builder, kind.index, gradient, operands)
        case None:
            return _overwritten(builder, kind.index, operands, gradient, position)
        case "max" | "min":
            return _shared(builder, node, kind.index, operands, gradient, position)
        case _:
            raise UnsupportedError(f"{node.output}: a Scatter that merges by {kind.monoid} has no derivative")


def _seen(builder: GradientBuilder, index: Index, value: Node, operands: Sequence[Node]) -> Node:
    """A value read at the places that a Scatter writes to."""
    dims = tuple(entry for entry in index if isinstance(entry, Dim))
    if len(dims) == len(index):
        return builder.view(value, operands[2].shape, dims)
    return builder.gather(index, [value, operands[1]], operands[2].shape)


def _overwritten(
    builder: GradientBuilder, index: Index, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """To what is left of the first; of what was written, to the one that was written last."""
    shape, updates = gradient.shape, operands[2]
    own = sum(
        (at * step for at, step in zip(indices(len(updates.shape)), strides_of(updates.shape), strict=True)), Dim.of(0)
    )
    number = builder.iota(own, updates.shape)
    last = builder.scatter(index, None, [builder.iota(-1, shape), operands[1], number])
    if position == 0:
        is_last = builder.call("less", last, builder.iota(0, shape))
        return builder.call("where", is_last, gradient, builder.like(0.0, gradient))
    wins = builder.call("equal", _seen(builder, index, last, operands), number)
    return builder.call("where", wins, _seen(builder, index, gradient, operands), builder.like(0.0, updates))


def _shared(
    builder: GradientBuilder, node: Node, index: Index, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """Evenly among all that equal what came out."""
    call, exact = builder.call, gradient.dtype.compute
    out, first, updates, above = (builder.cast(each, exact) for each in (node, operands[0], operands[2], gradient))
    hit = call("equal", first, out)
    hits = call("equal", updates, _seen(builder, index, out, operands))
    ones = call("where", hits, builder.like(1.0, updates), builder.like(0.0, updates))
    start = call("where", hit, builder.like(1.0, first), builder.like(0.0, first))
    count = builder.scatter(index, "sum", [start, operands[1], ones])
    share = call("divide", above, count)
    if position == 0:
        return call("where", hit, share, builder.like(0.0, share))
    return call("where", hits, _seen(builder, index, share, operands), builder.like(0.0, updates))
