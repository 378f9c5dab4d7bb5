"""ATen's lookups and their inverses: embedding, index, gather, and the scatters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch.elementwise import apply
from noyau.frontends.torch.sites import ATEN, AtenSite, Handler
from noyau.ir.dims import Dim, Shape, index_name, indices
from noyau.ir.graph import Lookup, Node

_MONOIDS = {"sum": "sum", "add": "sum", "prod": "prod", "multiply": "prod", "amax": "max", "amin": "min"}


def _indices(site: AtenSite, indices: Node, extent: Dim, *, wraps: bool) -> Node:
    """Indices in int64; with `wraps`, those below 0 count from the end."""
    wide = site.builder.cast(indices, DType.I64)
    if not wraps:
        return wide
    below = apply(site, "less", wide, site.builder.constant(0, DType.I64))
    return apply(site, "where", below, apply(site, "add", wide, site.builder.size(extent, DType.I64)), wide)


def _embedding(site: AtenSite) -> Node:
    table, where = site.value(0), _indices(site, site.value(1), Dim.of(0), wraps=False)
    at = indices(len(where.shape))
    index: list[Dim | Lookup] = [Lookup(1, at), Dim.of(index_name(len(at)))]
    return site.builder.gather(index, [table, where], site.shape)


def _index_select(site: AtenSite) -> Node:
    value = site.value(0)
    axis = site.axis(site.argument(1), len(value.shape))
    where = _indices(site, site.value(2), value.shape[axis], wraps=False)
    index: list[Dim | Lookup] = list(indices(len(value.shape)))
    index[axis] = Lookup(1, (Dim.of(index_name(axis)),))
    return site.builder.gather(index, [value, where], site.shape)


def _gather(site: AtenSite) -> Node:
    """out[i, j] = value[where[i, j], j] along an axis."""
    value = site.value(0)
    axis = site.axis(site.argument(1), len(value.shape))
    where = _indices(site, site.value(2), value.shape[axis], wraps=False)
    own = indices(len(where.shape))
    index: list[Dim | Lookup] = list(own)
    if index:
        index[axis] = Lookup(1, own)
    return site.builder.gather(index, [value, where], site.shape)


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
    at = tuple(Dim.of(index_name(first + k)) for k in range(len(common)))
    index: list[Dim | Lookup] = []
    operands, others = [value], _others(len(value.shape) - len(places), first, len(common))
    for axis in range(len(value.shape)):
        if axis in places:
            array = arrays[places.index(axis)]
            wrapped = _indices(site, array, value.shape[axis], wraps=True)
            operands.append(site.builder.expand(wrapped, common))
            index.append(Lookup(len(operands) - 1, at))
        else:
            index.append(next(others))
    return site.builder.gather(index, operands, site.shape)


def _others(count: int, first: int, inserted: int) -> Iterator[Dim]:
    """The indices of the axes that are not looked up, around those that are."""
    return iter(Dim.of(index_name(k if k < first else k + inserted)) for k in range(count))


def _scatter(monoid: str | None) -> Handler:
    """The inverse of gather: updates merged at the places that are looked up along an axis."""

    def handle(site: AtenSite) -> Node:
        value = site.value(0)
        axis = site.axis(site.argument(1), len(value.shape))
        where = _indices(site, site.value(2), value.shape[axis], wraps=False)
        argument = site.argument(3)
        updates = site.operand(argument, value.dtype)
        if updates.shape != where.shape:
            updates = _begin(site, updates, where.shape) if updates.shape else site.builder.expand(updates, where.shape)
        own = indices(len(where.shape))
        index: list[Dim | Lookup] = list(own)
        if index:
            index[axis] = Lookup(1, own)
        return site.builder.scatter(index, monoid, [value, where, updates])

    return handle


def _begin(site: AtenSite, value: Node, shape: Shape) -> Node:
    """The first cells of a value, of a smaller shape."""
    return site.builder.view(value, shape, indices(len(shape)))


def _scatter_reduce(site: AtenSite) -> Node:
    """scatter_reduce, over what is there."""
    kind = site.number(4, "reduce", None)
    if kind not in _MONOIDS or not site.argument(5, "include_self", True):
        raise UnsupportedError(f"scatter_reduce by {kind!r} without what is there is left to torch")
    return _only(_scatter(_MONOIDS[kind])(site))


def _index_add(site: AtenSite) -> Node:
    """value[where[i]] += updates[i] along an axis."""
    value = site.value(0)
    axis = site.axis(site.argument(1), len(value.shape))
    where, updates = _indices(site, site.value(2), value.shape[axis], wraps=False), site.value(3)
    alpha = site.number(4, "alpha", 1)
    if alpha != 1:
        updates = apply(site, "multiply", updates, site.builder.constant(alpha, updates.dtype))
    index: list[Dim | Lookup] = list(indices(len(updates.shape)))
    index[axis] = Lookup(1, (Dim.of(index_name(axis)),))
    return site.builder.scatter(index, "sum", [value, where, updates])


def _index_put(site: AtenSite) -> Node:
    """value[i] = updates, or += them, by one array of indices."""
    value, entries = site.value(0), list(site.argument(1))
    places = [at for at, each in enumerate(entries) if each is not None]
    arrays: Sequence[Node] = [site.tensor(entries[at]) for at in places]
    if len(arrays) != 1 or arrays[0].dtype is DType.BOOL:
        raise UnsupportedError("index_put by several arrays or a mask is left to torch")
    axis, rank = places[0], len(arrays[0].shape)
    where = _indices(site, arrays[0], value.shape[axis], wraps=True)
    shape = (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :])
    updates = site.builder.expand(site.operand(site.argument(2), value.dtype), shape)
    at = tuple(Dim.of(index_name(axis + k)) for k in range(rank))
    index: list[Dim | Lookup] = [Dim.of(index_name(k if k < axis else k + rank - 1)) for k in range(len(value.shape))]
    index[axis] = Lookup(1, at)
    monoid = "sum" if site.argument(3, "accumulate", False) else None
    return site.builder.scatter(index, monoid, [value, where, updates])


def _only(result: object) -> Node:
    assert isinstance(result, Node)
    return result


ATEN.update(
    {
        "embedding.default": _embedding,
        "index_select.default": _index_select,
        "gather.default": _gather,
        "index.Tensor": _index,
        "_unsafe_index.Tensor": _index,
        **{f"scatter.{kind}": _scatter(None) for kind in ("src", "value")},
        "scatter_add.default": _scatter("sum"),
        "scatter_reduce.two": _scatter_reduce,
        "index_add.default": _index_add,
        **{f"{name}.default": _index_put for name in ("index_put", "_unsafe_index_put")},
    }
)
