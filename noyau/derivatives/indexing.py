"""What pieces, lookups and merges at looked-up places give back to what they were made of."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.derivatives.views import scattered
from noyau.derivatives.writing import Writer
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, indices, strides_of
from noyau.ir.graph import Gather, Lookup, Node, Scatter, Select

Index = tuple[Dim | Lookup, ...]


def select_back(writer: Writer, kind: Select, operands: Sequence[Node], gradient: Node, position: int) -> Node:
    """The cells of the gradient where the piece at a position lies."""
    index, shape = list(indices(len(gradient.shape))), operands[position].shape
    index[kind.axis] = index[kind.axis] + kind.starts[position]
    return writer.view(gradient, shape, index)


def gather_back(writer: Writer, kind: Gather, operands: Sequence[Node], gradient: Node) -> Node:
    """Each cell of the gradient added where it was looked up."""
    lookups = [entry for entry in kind.index if isinstance(entry, Lookup)]
    if len({entry.input for entry in lookups}) <= 1:
        index = tuple(Lookup(1, e.at) if isinstance(e, Lookup) else e for e in kind.index)
        return scattered(writer, index, operands[0].shape, gradient, *(operands[e.input] for e in lookups[:1]))
    shape, rank = gradient.shape, len(gradient.shape)
    pieces = [writer.view(operands[entry.input], shape, entry.at) for entry in lookups]
    pieces = [writer.view(writer.cast(each, DType.I64), (*shape, Dim.of(1)), indices(rank)) for each in pieces]
    count = iter(range(len(lookups)))
    beside = tuple(
        Lookup(1, (*indices(rank), Dim.of(next(count)))) if isinstance(entry, Lookup) else entry for entry in kind.index
    )
    return scattered(writer, beside, operands[0].shape, gradient, writer.join(pieces, rank))


def scatter_back(
    writer: Writer, node: Node, kind: Scatter, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The gradient of what was merged into (0) or of what was merged (2). UnsupportedError for products."""
    match kind.monoid:
        case "sum":
            return gradient if position == 0 else _seen(writer, kind.index, gradient, operands)
        case None:
            return _overwritten(writer, kind.index, operands, gradient, position)
        case "max" | "min":
            return _shared(writer, node, kind.index, operands, gradient, position)
        case _:
            raise UnsupportedError(f"{node.output}: a Scatter that merges by {kind.monoid} has no derivative")


def _seen(writer: Writer, index: Index, value: Node, operands: Sequence[Node]) -> Node:
    """A value read at the places that a Scatter writes to."""
    known = tuple(entry for entry in index if isinstance(entry, Dim))
    if len(known) == len(index):
        return writer.view(value, operands[2].shape, known)
    return writer.emit(Gather(index), [value, operands[1]], value.dtype, operands[2].shape)


def _overwritten(writer: Writer, index: Index, operands: Sequence[Node], gradient: Node, position: int) -> Node:
    """To what is left of the first; of what was written, to the one that was written last."""
    shape, updates = gradient.shape, operands[2]
    own = sum(
        (at * step for at, step in zip(indices(len(updates.shape)), strides_of(updates.shape), strict=True)), Dim.of(0)
    )
    number = writer.iota(own, updates.shape)
    last = writer.emit(Scatter(index, None), [writer.iota(-1, shape), operands[1], number], DType.I64, shape)
    if position == 0:
        kept = writer.call("less", last, writer.iota(0, shape))
        return writer.call("where", kept, gradient, writer.like(0.0, gradient))
    wins = writer.call("equal", _seen(writer, index, last, operands), number)
    return writer.call("where", wins, _seen(writer, index, gradient, operands), writer.like(0.0, updates))


def _shared(writer: Writer, node: Node, index: Index, operands: Sequence[Node], gradient: Node, position: int) -> Node:
    """Evenly among all that equal what came out."""
    call, exact = writer.call, gradient.dtype.compute
    out, first, updates, above = (writer.cast(each, exact) for each in (node, operands[0], operands[2], gradient))
    hit = call("equal", first, out)
    hits = call("equal", updates, _seen(writer, index, out, operands))
    ones = call("where", hits, writer.like(1.0, updates), writer.like(0.0, updates))
    start = call("where", hit, writer.like(1.0, first), writer.like(0.0, first))
    count = writer.emit(Scatter(index, "sum"), [start, operands[1], ones], exact, node.shape)
    share = call("divide", above, count)
    if position == 0:
        return call("where", hit, share, writer.like(0.0, share))
    return call("where", hits, _seen(writer, index, share, operands), writer.like(0.0, updates))
