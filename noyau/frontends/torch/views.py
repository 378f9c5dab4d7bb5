"""ATen's views: index maps."""

from __future__ import annotations

import torch
from torch import fx

from noyau.frontends.torch.sites import ATEN, AtenSite
from noyau.frontends.torch.tensors import dim_of, size_hint
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Node


def _transpose(site: AtenSite) -> Node:
    value = site.value(0)
    order = list(range(len(value.shape)))
    if order:
        one, two = (site.axis(site.argument(at), len(order)) for at in (1, 2))
        order[one], order[two] = order[two], order[one]
    return site.builder.transpose(value, order)


def _permute(site: AtenSite) -> Node:
    return site.builder.transpose(site.value(0), [site.axis(k, len(site.shape)) for k in site.argument(1)])


def _reshape(site: AtenSite) -> Node:
    return site.builder.reshape(site.value(0), site.shape)


def _unsqueeze(site: AtenSite) -> Node:
    value = site.value(0)
    return site.builder.restore_axes(value, (site.axis(site.argument(1), len(value.shape) + 1),))


def _squeeze(site: AtenSite) -> Node:
    """Axes of 1 gone: all of them, or those that are asked for and are 1."""
    value = site.value(0)
    axes = site.axes(site.argument(1, "dim"), len(value.shape), none_is_all=False)
    return site.builder.drop_axes(value, [axis for axis in axes if value.shape[axis] == Dim.of(1)])


def first_of(site: AtenSite, start_argument: object, whole: torch.Tensor, axis: int) -> Dim:
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
    index[axis] = index[axis] * step + first_of(site, site.argument(2, "start"), site.argument(0).meta["val"], axis)
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
    along_it = Dim.of(f"#{rank - 2}")
    others = iter(indices(len(site.shape) - 1))
    places = {one: along_it + max(-offset, 0), two: along_it + max(offset, 0)}
    return site.view(value, [places[k] if k in places else next(others) for k in range(rank)])


ATEN |= {
    **{f"{name}.default": _reshape for name in ("view", "_unsafe_view", "reshape")},
    "permute.default": _permute,
    "transpose.int": _transpose,
    "t.default": lambda site: site.builder.transpose(site.value(0), range(len(site.value(0).shape))[::-1]),
    "unsqueeze.default": _unsqueeze,
    **{f"squeeze.{kind}": _squeeze for kind in ("default", "dim", "dims")},
    "expand.default": lambda site: site.builder.expand(site.value(0), site.shape),
    "slice.Tensor": _slice,
    "select.int": _select,
    "flip.default": _flip,
    "repeat.default": _repeat,
    "diagonal.default": _diagonal,
}
