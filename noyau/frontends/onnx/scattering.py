"""ScatterElements and ScatterND: updates merged into a copy at places that are looked up."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.indexing import from_the_end
from noyau.frontends.onnx.sites import Importer, Site
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Lookup, Node, Scatter

_MERGES = {"none": None, "add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _merged(site: Site, index: Sequence[Dim | Lookup], places: Node) -> Node:
    """A copy of input 0 with the updates merged at `index` over the axes of the updates."""
    data, updates, how = site.input(0), site.input(2), site.attribute("reduction", "none")
    if how not in _MERGES or updates.dtype is not data.dtype:
        raise UnsupportedError(f"{site.op} cannot merge {updates.dtype.value} into {data.dtype.value} by {how!r}")
    return site.emit(Scatter(tuple(index), _MERGES[how]), [data, places, updates], data.dtype, data.shape)


def _scatter_elements(site: Site) -> Node:
    data, places, updates = (site.input(k) for k in range(3))
    rank = len(data.shape)
    axis = site.axis(site.attribute("axis", 0), rank)
    if len(places.shape) != rank or len(updates.shape) != rank:
        raise UnsupportedError("ScatterElements is given values of several ranks")
    for k, (left, right, most) in enumerate(zip(places.shape, updates.shape, data.shape, strict=True)):
        site.demand_equal(left, right)
        if k != axis:
            site.demand_at_most(left, most)
    own = indices(rank)
    index = [Lookup(1, own) if k == axis else own[k] for k in range(rank)]
    return _merged(site, index, from_the_end(site, places, data.shape[axis]))


def _scatter_nd(site: Site) -> Node:
    data, places, updates = (site.input(k) for k in range(3))
    count = places.shape[-1].constant if places.shape else None
    rank = None if count is None else len(places.shape) - 1 + len(data.shape) - count
    if count is None or count > len(data.shape) or len(updates.shape) != rank:
        raise UnsupportedError("how many axes ScatterND looks up is only known when the model runs")
    for left, right in zip(updates.shape, (*places.shape[:-1], *data.shape[count:]), strict=True):
        site.demand_equal(left, right)
    own, lead = indices(len(updates.shape)), len(places.shape) - 1
    index: list[Dim | Lookup] = [*(Lookup(1, (*own[:lead], Dim.of(k))) for k in range(count)), *own[lead:]]
    return _merged(site, index, _each_from_the_end(site, places, data.shape[:count]))


def _each_from_the_end(site: Site, places: Node, extents: Sequence[Dim]) -> Node:
    """Indices whose last axis names an axis each; negative ones have its extent added."""
    lead = len(places.shape) - 1
    columns = [site.slice(places, lead, k, 1) for k in range(len(extents))]
    natural = [from_the_end(site, column, extent) for column, extent in zip(columns, extents, strict=True)]
    if len(natural) == 1:
        return natural[0]
    return site.concat(natural, lead) if natural else places


SCATTERING: dict[str, Importer] = {"ScatterElements": _scatter_elements, "ScatterND": _scatter_nd}
