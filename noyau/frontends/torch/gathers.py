"""ATen's gathers and scatters, whose indices are values."""

from collections.abc import Sequence
from functools import partial

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.calculations import apply, times
from noyau.frontends.torch.sites import ATEN, AtenSite, Made
from noyau.ir.dims import Dim, Shape, index_name, indices
from noyau.ir.graph import Lookup, Node

_MONOIDS = {"sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "amax": "max", "amin": "min"}


def _from_the_end(site: AtenSite, places: Node, extent: Dim) -> Node:
    """Indices in int64, with the extent added to negative ones."""
    wide = site.builder.cast(places, DType.I64)
    below = apply(site, "less", wide, site.builder.constant(0, DType.I64))
    return apply(site, "where", below, apply(site, "add", wide, site.builder.size(extent, DType.I64)), wide)


def _embedding(site: AtenSite) -> Node:
    table, where = site.value(0), site.builder.cast(site.value(1), DType.I64)
    at = indices(len(where.shape))
    return site.builder.gather([Lookup(1, at), Dim.of(index_name(len(at)))], [table, where], site.shape)


def _lookup_parts(site: AtenSite) -> tuple[Node, int, Node]:
    """A value, the axis along which it is looked up, and the indices; scalars are vectors of one cell, as in torch."""
    value = site.with_axis(site.value(0))
    where = site.with_axis(site.builder.cast(site.value(2), DType.I64))
    return value, site.axis(site.argument(1), len(value.shape)), where


def _gather(site: AtenSite, *, row: bool) -> Node:
    """out[i, j] = value[where[i, j], j] along an axis; with `row`, value[where[i], j]."""
    value, axis, where = _lookup_parts(site)
    if not row and len(where.shape) != len(value.shape):  # torch accepts empty indices of any rank
        return site.builder.full(0, site.dtype, site.shape)
    shape = (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :]) if row else where.shape
    picked = site.builder.gather(_along(axis, indices(len(shape)), row=row), [value, where], shape)
    return site.builder.reshape(picked, site.shape)


def _along(axis: int, own: Shape, *, row: bool = False) -> list[Dim | Lookup]:
    """An index whose entry at an axis is looked up for each cell, or for each index along the axis (`row`)."""
    return [Lookup(1, (at,) if row else own) if k == axis else at for k, at in enumerate(own)]


def _index(site: AtenSite) -> Node:
    """value[i, :, j]: index arrays, broadcast together; their axes stand in place if adjacent, else in front."""
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


def _scatter(monoid: str | None, site: AtenSite) -> Node:
    """The inverse of gather: updates are merged at the indices that are looked up along an axis."""
    value, axis, where = _lookup_parts(site)
    if len(where.shape) != len(value.shape):  # as above
        return site.value(0)
    updates, own = site.operand(site.argument(3), value.dtype), indices(len(where.shape))
    if updates.shape != where.shape and updates.shape:
        updates = site.builder.view(updates, where.shape, own)  # the leading cells of the updates
    updates = site.builder.expand(updates, where.shape)
    return site.builder.reshape(site.builder.scatter(_along(axis, own), monoid, [value, where, updates]), site.shape)


def _scatter_reduce(site: AtenSite) -> Made:
    """scatter_reduce with include_self."""
    kind = site.number(4, "reduce", None)
    if kind not in _MONOIDS or not site.argument(5, "include_self", True):
        raise UnsupportedError(f"scatter_reduce by {kind!r} with include_self=False is left to torch")
    return partial(_scatter, _MONOIDS[kind])(site)


def _index_add(site: AtenSite) -> Node:
    """value[where[i]] += updates[i] along an axis."""
    value, axis, where = _lookup_parts(site)
    updates = site.with_axis(times(site, site.value(3), site.number(4, "alpha", 1)))
    if updates.shape != (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :]):  # torch checks it at run time
        raise UnsupportedError("index_add of another shape than that of the places is left to torch, which refuses it")
    index = _along(axis, indices(len(updates.shape)), row=True)
    return site.builder.reshape(site.builder.scatter(index, "sum", [value, where, updates]), site.shape)


def _index_put(site: AtenSite) -> Node:
    """value[i] = updates, or += them, by one index array."""
    value, entries = site.value(0), list(site.argument(1))
    places = [at for at, each in enumerate(entries) if each is not None]
    arrays: Sequence[Node] = [site.tensor(entries[at]) for at in places]
    if len(arrays) != 1 or arrays[0].dtype is DType.BOOL:
        raise UnsupportedError("index_put by several arrays or a mask is left to torch")
    axis, rank = places[0], len(arrays[0].shape)
    where = _from_the_end(site, arrays[0], value.shape[axis])
    shape = (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :])
    updates = site.operand(site.argument(2), value.dtype)
    updates = site.builder.drop_axes(updates, range(len(updates.shape) - len(shape)))  # torch allows more axes of 1
    updates = site.builder.expand(updates, shape)
    own, monoid = indices(len(shape)), "sum" if site.argument(3, "accumulate", False) else None
    index: list[Dim | Lookup] = [*own[:axis], Lookup(1, own[axis : axis + rank]), *own[axis + rank :]]
    return site.builder.scatter(index, monoid, [value, where, updates])


ATEN |= {
    "embedding.default": _embedding,
    "index_select.default": partial(_gather, row=True),
    "gather.default": partial(_gather, row=False),
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    **{f"scatter.{kind}": partial(_scatter, None) for kind in ("src", "value")},
    "scatter_add.default": partial(_scatter, "sum"),
    "scatter_reduce.two": _scatter_reduce,
    "index_add.default": _index_add,
    **{f"{name}.default": _index_put for name in ("index_put", "_unsafe_index_put")},
}
