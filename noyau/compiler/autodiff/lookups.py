"""Derivatives of pieces, lookups and merges: what they give back to what they were made of."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.compiler.autodiff.views import scatter_to_zeros
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, indices, strides_of
from noyau.ir.graph import Gather, Lookup, Node, Scatter, Select

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
