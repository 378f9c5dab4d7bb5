"""ATen's views as index maps."""

import torch
from torch import fx

from noyau.frontends.torch.sites import ATEN, AtenSite
from noyau.frontends.torch.tensors import dim_of, size_hint
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _transpose(site: AtenSite) -> Node:
    value = site.value(0)
    if order := list(range(len(value.shape))):
        one, two = (site.axis(site.argument(at), len(order)) for at in (1, 2))
        order[one], order[two] = order[two], order[one]
    return site.builder.transpose(value, order)


def _squeeze(site: AtenSite) -> Node:
    """Drop axes of extent 1: all of them, or those among `dim`."""
    value = site.value(0)
    axes = site.axes(site.argument(1, "dim"), len(value.shape), none_is_all=False)
    return site.builder.drop_axes(value, [axis for axis in axes if value.shape[axis] == Dim.of(1)])


def first_of(site: AtenSite, start_argument: object, whole: torch.Tensor, axis: int) -> Dim:
    """The start of a slice of a fake tensor, clamped as in Python: a negative start counts from the end, and it stays
    within the extent. The sizes that torch saw decide: guards ensure the same for all sizes that its graph runs on."""
    if start_argument is None or start_argument == 0:
        return Dim.of(0)  # for any extent, also one that depends on values
    extent, last, start = dim_of(whole.shape[axis]), size_hint(whole.shape[axis]), site.dim(start_argument)
    at = size_hint(start_argument.meta["val"] if isinstance(start_argument, fx.Node) else start_argument)
    if at < 0:
        start, at = extent + start, last + at
    return Dim.of(0) if at < 0 else extent if at > last else start


def _slice(site: AtenSite) -> Node:
    value = site.value(0)
    axis = site.axis(site.argument(1, "dim", 0), len(value.shape))
    step, index = int(site.number(4, "step", 1)), list(indices(len(value.shape)))
    index[axis] = index[axis] * step + first_of(site, site.argument(2, "start"), site.argument(0).meta["val"], axis)
    return site.view(value, index)


def _select(site: AtenSite) -> Node:
    value, place = site.value(0), site.dim(site.argument(2))
    axis = site.axis(site.argument(1), len(value.shape))
    return site.builder.pick(value, axis, value.shape[axis] + place if (place.constant or 0) < 0 else place)


def _flip(site: AtenSite) -> Node:
    value = site.value(0)
    axes = site.axes(site.argument(1), len(value.shape), none_is_all=False)
    index = [value.shape[k] - 1 - dim if k in axes else dim for k, dim in enumerate(indices(len(value.shape)))]
    return site.view(value, index)


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
    rank, offset = len(value.shape), int(site.number(1, "offset", 0))
    one, two = (site.axis(site.number(*each), rank) for each in ((2, "dim1", 0), (3, "dim2", 1)))
    *rest, own = indices(rank - 1)
    places, others = {one: own + max(-offset, 0), two: own + max(offset, 0)}, iter(rest)
    return site.view(value, [places[k] if k in places else next(others) for k in range(rank)])


ATEN |= {
    **dict.fromkeys(
        ("view.default", "_unsafe_view.default", "reshape.default"),
        lambda site: site.builder.reshape(site.value(0), site.shape),
    ),
    "permute.default": lambda site: site.builder.transpose(
        site.value(0), [site.axis(axis, len(site.shape)) for axis in site.argument(1)]
    ),
    "transpose.int": _transpose,
    "t.default": lambda site: site.builder.transpose(site.value(0), range(len(site.value(0).shape))[::-1]),
    "unsqueeze.default": lambda site: site.builder.restore_axes(
        site.value(0), (site.axis(site.argument(1), len(site.shape)),)
    ),
    **{f"squeeze.{kind}": _squeeze for kind in ("default", "dim", "dims")},
    "expand.default": lambda site: site.builder.expand(site.value(0), site.shape),
    "slice.Tensor": _slice,
    "select.int": _select,
    "flip.default": _flip,
    "repeat.default": _repeat,
    "diagonal.default": _diagonal,
}
