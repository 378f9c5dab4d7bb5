"""ATen's views, and what only moves cells: index maps, pieces side by side, values made of nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.calculations import apply, times
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler, Made, dim_of, shape_from, size_hint
from noyau.ir.dims import Dim, Shape, index_name, indices
from noyau.ir.graph import Lookup, Node


def _permute(site: AtenSite) -> Node:
    value = site.value(0)
    return site.builder.transpose(value, [site.axis(axis, len(value.shape)) for axis in site.argument(1)])


def _transpose(site: AtenSite) -> Node:
    value = site.value(0)
    order = list(range(len(value.shape)))
    if order:
        one, two = (site.axis(site.argument(at), len(order)) for at in (1, 2))
        order[one], order[two] = order[two], order[one]
    return site.builder.transpose(value, order)


def _unsqueeze(site: AtenSite) -> Node:
    value = site.value(0)
    return site.builder.restore_axes(value, (site.axis(site.argument(1), len(value.shape) + 1),))


def _squeeze(site: AtenSite) -> Node:
    """Axes of 1 gone: all of them, or those that are asked for and are 1."""
    value = site.value(0)
    axes = site.axes(site.argument(1, "dim"), len(value.shape))
    return site.builder.drop_axes(value, [axis for axis in axes if value.shape[axis] == Dim.of(1)])


def _first(site: AtenSite, start_argument: object, whole: torch.Tensor, axis: int) -> Dim:
    """The begin of a slice of a fake tensor, cut off as Python does: below 0 it counts from the end, and it stays
    within the extent. What holds of the sizes that torch saw holds of all that its graph is run on: it has guards."""
    if start_argument is None or start_argument == 0:
        return Dim.of(0)  # whatever the extent is, also one that depends on values
    extent, last, start = dim_of(whole.shape[axis]), size_hint(whole.shape[axis]), site.dim(start_argument)
    at = size_hint(start_argument.meta["val"] if isinstance(start_argument, fx.Node) else start_argument)
    if at < 0:
        start, at = extent + start, last + at
    return Dim.of(0) if at < 0 else extent if at > last else start


def _slice(site: AtenSite) -> Node:
    value = site.value(0)
    axis = site.axis(site.argument(1, "dim", 0), len(value.shape))
    step, index = int(site.number(4, "step", 1)), list(indices(len(value.shape)))
    index[axis] = index[axis] * step + _first(site, site.argument(2, "start"), site.argument(0).meta["val"], axis)
    return site.view(value, index)


def _select(site: AtenSite) -> Node:
    value = site.value(0)
    axis = site.axis(site.argument(1), len(value.shape))
    place = site.dim(site.argument(2))
    if place.constant is not None and place.constant < 0:
        place = value.shape[axis] + place
    return site.builder.pick(value, axis, place)


def _flip(site: AtenSite) -> Node:
    value = site.value(0)
    axes = site.axes(site.argument(1), len(value.shape)) if site.argument(1) else ()
    index = [value.shape[k] - 1 - dim if k in axes else dim for k, dim in enumerate(indices(len(value.shape)))]
    return site.view(value, index)


def _split(site: AtenSite) -> tuple[Node, ...]:
    value = site.value(0)
    axis = site.axis(site.argument(2, "dim", 0), len(value.shape))
    return tuple(site.builder.split(value, axis, [shape_from(piece)[axis] for piece in site.meta]))


def _unbind(site: AtenSite) -> tuple[Node, ...]:
    value = site.value(0)
    axis = site.axis(site.argument(1, "dim", 0), len(value.shape))
    pieces = site.builder.split(value, axis, [Dim.of(1)] * len(site.meta))
    return tuple(site.builder.drop_axes(piece, (axis,)) for piece in pieces)


def _concatenate(site: AtenSite) -> Node:
    pieces = [site.operand(piece, site.dtype) for piece in site.argument(0)]
    whole = [piece for piece in pieces if piece.shape != (Dim.of(0),)] or pieces  # torch skips empty vectors
    return site.builder.concat(whole, site.axis(site.argument(1, "dim", 0), len(whole[0].shape)))


def _stack(site: AtenSite) -> Node:
    pieces = [site.operand(piece, site.dtype) for piece in site.argument(0)]
    axis = site.axis(site.argument(1, "dim", 0), len(pieces[0].shape) + 1)
    return site.builder.concat([site.builder.restore_axes(piece, (axis,)) for piece in pieces], axis)


def _pad(site: AtenSite) -> Node:
    """Constant padding: pairs of before and after, from the last axis on; a negative one cuts."""
    value, pads = site.value(0), [site.dim(pad) for pad in site.argument(1)]
    filling = site.builder.constant(site.number(2, "value", 0), value.dtype)
    for at in range(len(pads) // 2):
        axis = len(value.shape) - 1 - at
        value = _pad_axis(site, value, axis, pads[2 * at], pads[2 * at + 1], filling)
    return value


def _pad_axis(site: AtenSite, value: Node, axis: int, before: Dim, after: Dim, filling: Node) -> Node:
    for pad in (before, after):
        if pad.constant is None or pad.constant < 0:
            raise UnsupportedError(f"constant_pad_nd by {pad} is left to torch")

    def side(length: Dim) -> list[Node]:
        shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
        return [site.builder.expand(filling, shape)] if length != Dim.of(0) else []

    pieces = [*side(before), value, *side(after)]
    return site.builder.concat(pieces, axis) if len(pieces) > 1 else value


def _within(site: AtenSite, piece: Node, axis: int, start: Dim, whole: Node) -> Node:
    """A piece between what `whole` has before and after it along an axis."""
    end = start + piece.shape[axis]
    _, before = site.builder.split(whole, axis, [Dim.of(0), start])
    _, after = site.builder.split(whole, axis, [end, whole.shape[axis] - end])
    filled = [each for each in (before, piece, after) if each.shape[axis] != Dim.of(0)] or [piece]
    return site.builder.concat(filled, axis) if len(filled) > 1 else filled[0]


def _put(*, slices: bool, backward: bool) -> Handler:
    """A slice or a place along an axis as another value, of whole `value(0)`; or its gradient, which lies where the
    slice was, and 0 elsewhere."""

    def handle(site: AtenSite) -> Node:
        axis = site.axis(site.argument(2, "dim", 0), len(site.shape))
        if slices and int(site.number(5, "step", 1)) != 1:
            raise UnsupportedError(f"{site.node.target} of every n-th cell is left to torch")
        piece = site.value(0) if backward else site.operand(site.argument(1), site.dtype)
        piece = piece if slices else site.builder.restore_axes(piece, (axis,))
        whole = site.builder.full(0, site.dtype, site.shape) if backward else site.value(0)
        return _within(site, piece, axis, _first(site, site.argument(3, "start"), site.meta, axis), whole)

    return handle


def _repeat(site: AtenSite) -> Node:
    """Copies side by side: an index modulo the extent."""
    value, times = site.value(0), [site.dim(time) for time in site.argument(1)]
    value = site.builder.restore_axes(value, range(len(times) - len(value.shape)))
    index = [
        Dim.of(0) if extent == Dim.of(1) else dim if time == Dim.of(1) else dim % extent
        for dim, extent, time in zip(indices(len(value.shape)), value.shape, times, strict=True)
    ]
    return site.view(value, index)


def _diagonal(site: AtenSite) -> Node:
    value = site.value(0)
    rank = len(value.shape)
    offset = int(site.number(1, "offset", 0))
    one, two = (site.axis(site.number(*each), rank) for each in ((2, "dim1", 0), (3, "dim2", 1)))
    along_it = Dim.of(f"#{rank - 2}")
    others = iter(indices(len(site.shape) - 1))
    places = {one: along_it + max(-offset, 0), two: along_it + max(offset, 0)}
    return site.view(value, [places[k] if k in places else next(others) for k in range(rank)])


def _full(position: int) -> Handler:
    """A value of one number everywhere."""
    return lambda site: site.builder.expand(site.operand(site.argument(position), site.dtype), site.shape)


def _number(number: float) -> Handler:
    return lambda site: site.builder.full(number, site.dtype, site.shape)


def _arange(site: AtenSite) -> Node:
    """start + step i: of integers an index, of floats computed."""
    count = {"aten.arange.default": 1, "aten.arange.start": 2}.get(str(site.node.target), 3)
    bounds = [site.argument(at) for at in range(count)]
    start, step = (bounds[0] if count > 1 else 0), (site.argument(2, "step", 1) if count > 2 else 1)
    if all(isinstance(each, int) or not isinstance(each, float) for each in (start, step)):
        index = Dim.of("#0") * site.dim(step) + site.dim(start)
        return site.builder.cast(site.builder.iota(index, site.shape), site.dtype)
    places = site.builder.cast(site.builder.iota(Dim.of("#0"), site.shape), site.dtype)
    first, by = (site.operand(each, site.dtype) for each in (start, step))
    return apply(site, "add", first, apply(site, "multiply", places, by))


def _triangle(lower: bool) -> Handler:
    """The cells on one side of a diagonal; 0 elsewhere."""

    def handle(site: AtenSite) -> Node:
        value, diagonal = site.value(0), int(site.number(1, "diagonal", 0))
        *_, rows, columns = indices(len(value.shape))
        away = site.builder.iota(columns - rows, value.shape)
        mask = apply(site, "less_equal" if lower else "greater_equal", away, site.builder.constant(diagonal, DType.I64))
        return apply(site, "where", mask, value, site.builder.constant(0, value.dtype))

    return handle


ATEN.update(
    {
        **dict.fromkeys(
            ("view.default", "_unsafe_view.default", "reshape.default"),
            lambda site: site.builder.reshape(site.value(0), site.shape),
        ),
        "permute.default": _permute,
        "transpose.int": _transpose,
        "t.default": lambda site: site.builder.transpose(site.value(0), range(len(site.value(0).shape))[::-1]),
        "unsqueeze.default": _unsqueeze,
        **{f"squeeze.{kind}": _squeeze for kind in ("default", "dim", "dims")},
        "expand.default": lambda site: site.builder.expand(site.value(0), site.shape),
        "slice.Tensor": _slice,
        "select.int": _select,
        "flip.default": _flip,
        **{f"split.{kind}": _split for kind in ("Tensor", "default")},
        "split_with_sizes.default": _split,
        "chunk.default": _split,
        "unbind.int": _unbind,
        "cat.default": _concatenate,
        "stack.default": _stack,
        "constant_pad_nd.default": _pad,
        "slice_backward.default": _put(slices=True, backward=True),
        "select_backward.default": _put(slices=False, backward=True),
        "slice_scatter.default": _put(slices=True, backward=False),
        "select_scatter.default": _put(slices=False, backward=False),
        "repeat.default": _repeat,
        "diagonal.default": _diagonal,
        "full.default": _full(1),
        "full_like.default": _full(1),
        "scalar_tensor.default": _full(0),
        "fill.Scalar": _full(1),
        **{f"{name}.default": _number(0) for name in ("zeros", "zeros_like", "new_zeros")},
        **{f"{name}.default": _number(1) for name in ("ones", "ones_like", "new_ones")},
        "new_full.default": _full(2),
        **{f"arange.{kind}": _arange for kind in ("default", "start", "start_step")},
        "tril.default": _triangle(True),
        "triu.default": _triangle(False),
    }
)


_MONOIDS = {"sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "amax": "max", "amin": "min"}


def _from_the_end(site: AtenSite, places: Node, extent: Dim) -> Node:
    """Indices in int64, of which those below 0 count from the end."""
    wide = site.builder.cast(places, DType.I64)
    below = apply(site, "less", wide, site.builder.constant(0, DType.I64))
    return apply(site, "where", below, apply(site, "add", wide, site.builder.size(extent, DType.I64)), wide)


def _embedding(site: AtenSite) -> Node:
    table, where = site.value(0), site.builder.cast(site.value(1), DType.I64)
    at = indices(len(where.shape))
    index: list[Dim | Lookup] = [Lookup(1, at), Dim.of(index_name(len(at)))]
    return site.builder.gather(index, [table, where], site.shape)


def _looked_along(site: AtenSite) -> tuple[Node, int, Node]:
    """A value, the axis along which it is looked up, and the indices."""
    value = site.value(0)
    return value, site.axis(site.argument(1), len(value.shape)), site.builder.cast(site.value(2), DType.I64)


def _gather(*, row: bool) -> Handler:
    """out[i, j] = value[where[i, j], j] along an axis; of a `row`, value[where[i], j]."""

    def handle(site: AtenSite) -> Node:
        value, axis, where = _looked_along(site)
        index = _along(axis, indices(len((value if row else where).shape)), row=row)
        return site.builder.gather(index, [value, where], site.shape)

    return handle


def _along(axis: int, own: Shape, *, row: bool = False) -> list[Dim | Lookup]:
    """An index whose entry at an axis is looked up for each cell, or for each place along the axis (`row`)."""
    return [Lookup(1, (at,) if row else own) if k == axis else at for k, at in enumerate(own)]


def _index(site: AtenSite) -> Node:
    """value[i, :, j]: arrays of indices, broadcast together; their axes come where the first one stands if they are
    neighbours, else in front."""
    value, entries = site.value(0), list(site.argument(1))
    places = [at for at, each in enumerate(entries) if each is not None]
    arrays = [site.tensor(entries[at]) for at in places]
    if any(array.dtype is DType.BOOL for array in arrays):
        raise UnsupportedError("a mask of bools has a result of unknown shape; it is left to torch")
    common = site.builder.broadcast([array.shape for array in arrays])
    first = places[0] if places == list(range(places[0], places[0] + len(places))) else 0
    own, last = indices(len(value.shape) - len(places) + len(common)), first + len(common)
    index: list[Dim | Lookup] = []
    operands, others = [value], iter((*own[:first], *own[last:]))
    for axis in range(len(value.shape)):
        if axis in places:
            array = arrays[places.index(axis)]
            operands.append(site.builder.expand(_from_the_end(site, array, value.shape[axis]), common))
            index.append(Lookup(len(operands) - 1, own[first:last]))
        else:
            index.append(next(others))
    return site.builder.gather(index, operands, site.shape)


def _scatter(monoid: str | None) -> Handler:
    """The inverse of gather: updates merged at the places that are looked up along an axis."""

    def handle(site: AtenSite) -> Node:
        value, axis, where = _looked_along(site)
        updates, own = site.operand(site.argument(3), value.dtype), indices(len(where.shape))
        if updates.shape != where.shape and updates.shape:
            updates = site.builder.view(updates, where.shape, own)  # the first of its cells
        updates = site.builder.expand(updates, where.shape)
        return site.builder.scatter(_along(axis, own), monoid, [value, where, updates])

    return handle


def _scatter_reduce(site: AtenSite) -> Made:
    """scatter_reduce, over what is there."""
    kind = site.number(4, "reduce", None)
    if kind not in _MONOIDS or not site.argument(5, "include_self", True):
        raise UnsupportedError(f"scatter_reduce by {kind!r} without what is there is left to torch")
    return _scatter(_MONOIDS[kind])(site)


def _index_add(site: AtenSite) -> Node:
    """value[where[i]] += updates[i] along an axis."""
    value, axis, where = _looked_along(site)
    updates = times(site, site.value(3), site.number(4, "alpha", 1))
    index = _along(axis, indices(len(updates.shape)), row=True)
    return site.builder.scatter(index, "sum", [value, where, updates])


def _index_put(site: AtenSite) -> Node:
    """value[i] = updates, or += them, by one array of indices."""
    value, entries = site.value(0), list(site.argument(1))
    places = [at for at, each in enumerate(entries) if each is not None]
    arrays: Sequence[Node] = [site.tensor(entries[at]) for at in places]
    if len(arrays) != 1 or arrays[0].dtype is DType.BOOL:
        raise UnsupportedError("index_put by several arrays or a mask is left to torch")
    axis, rank = places[0], len(arrays[0].shape)
    where = _from_the_end(site, arrays[0], value.shape[axis])
    shape = (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :])
    updates = site.builder.expand(site.operand(site.argument(2), value.dtype), shape)
    own, monoid = indices(len(shape)), "sum" if site.argument(3, "accumulate", False) else None
    index: list[Dim | Lookup] = [*own[:axis], Lookup(1, own[axis : axis + rank]), *own[axis + rank :]]
    return site.builder.scatter(index, monoid, [value, where, updates])


ATEN.update(
    {
        "embedding.default": _embedding,
        "index_select.default": _gather(row=True),
        "gather.default": _gather(row=False),
        "index.Tensor": _index,
        "_unsafe_index.Tensor": _index,
        **{f"scatter.{kind}": _scatter(None) for kind in ("src", "value")},
        "scatter_add.default": _scatter("sum"),
        "scatter_reduce.two": _scatter_reduce,
        "index_add.default": _index_add,
        **{f"{name}.default": _index_put for name in ("index_put", "_unsafe_index_put")},
    }
)
