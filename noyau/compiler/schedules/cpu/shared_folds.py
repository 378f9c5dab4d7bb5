"""Folds that several passes over a row need, as the norm of what was pooled does: done once, before the row.

A pass over a row computes anew what it needs; where that is a fold of its own, each of its values would be computed
once a pass. A launch of its own leaves the results in scratch, by all threads, and the passes find them there. That
takes less memory than the array that was folded; folds over what no array holds, as of distances, are done again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules.primitives import Statements, chain, drop_unused, nested, variables_of
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape
from noyau.ir.walk import all_dims, fold_of, folds_in, is_fold, loads_of, rewrite


@dataclass(frozen=True, slots=True)
class _Place:
    """A fold where it stands: the extents of the loops around it, the Lets before it, whether in another fold."""

    let: ir.Let
    extents: Mapping[str, Dim]
    before: Statements
    inside: bool

    @property
    def index(self) -> Shape:
        return self.let.origin[1] if self.let.origin else ()

    @property
    def shape(self) -> Shape | None:
        """The extents that its index goes over; None where it is not one loop along each axis."""
        names = [str(dim) for dim in self.index if dim.constant is None]
        plain = names and len(set(names)) == len(names) and self.extents.keys() >= set(names)
        return tuple(self.extents.get(str(dim), Dim.of(1)) for dim in self.index) if plain else None


def keep_folds(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with a launch before its one for each fold that stands in several passes over a row."""
    if len(kernel.launches) != 1:
        return kernel
    first, (last,) = list[ir.Launch](), kernel.launches
    while (places := _shared(last.body)) is not None:
        place, shape, dtype = places[0], places[0].shape, places[0].let.value.dtype
        assert shape is not None, "as the places that are shared have"
        scratch = ir.Buffer(f"{place.let.name}.once", dtype, shape, ir.Role.SCRATCH)
        loads: dict[ir.Expr, ir.Expr] = {fold_of(each.let): ir.Load(scratch.name, each.index, dtype) for each in places}
        first.append(ir.Launch(_alone(place, scratch.name)))
        last = replace(last, body=rewrite(last.body, partial(_loaded, loads)))
        kernel = replace(kernel, buffers=(*kernel.buffers, scratch))
    return replace(kernel, launches=(*first, last))


def _loaded(loads: Mapping[ir.Expr, ir.Expr], expr: ir.Expr) -> ir.Expr:
    return loads.get(expr, expr) if isinstance(expr, ir.Fold) else expr


def _shared(body: Statements) -> list[_Place] | None:
    """The places of a fold that is needed in several, one of them in another fold, and that can be done by itself."""
    by_value = defaultdict[str, list[_Place]](list)
    for place in _places(body, {}, (), inside=False):
        if place.let.origin:
            by_value[place.let.origin[0]].append(place)
    for places in by_value.values():
        shapes = {place.shape for place in places}
        if len(places) > 1 and any(place.inside for place in places) and len(shapes) == 1 and _stands_alone(places[0]):
            return places
    return None


def _places(body: Statements, extents: Mapping[str, Dim], before: Statements, *, inside: bool) -> Iterator[_Place]:
    """Every fold with where it stands, inner ones first."""
    for statement in body:
        match statement:
            case ir.Loop(var, extent, _, inner):
                yield from _places(inner, {**extents, var: extent}, before, inside=inside)
            case ir.Let(_, ir.Fold(_, loops, inner)):
                yield from _places(inner, {**extents, **dict(loops)}, before, inside=True)
                yield _Place(statement, extents, before, inside)
            case _:
                pass
        before = (*before, statement) if isinstance(statement, ir.Let) else before


def _alone(place: _Place, buffer: str) -> Statements:
    """The loops that leave the results of a fold in a buffer."""
    store = ir.Store((buffer,), place.index, (ir.Var(place.let.name, place.let.value.dtype),))
    loops = (ir.Loop(str(dim), place.extents[str(dim)], ir.Axis.SERIAL, ()) for dim in place.index if dim.names)
    return nested(loops, drop_unused((*place.before, place.let, store)))


def _stands_alone(place: _Place) -> bool:
    """Whether a fold needs no other fold, and goes over an array that is as long along each axis of its index."""
    if place.shape is None:
        return False
    loops, body = chain(_alone(place, ""))
    around = {loop.var for loop in loops}
    bound = around | {name for fold in folds_in(body) for name, _ in fold.loops}
    read = {name for dim in all_dims(body) for name in dim.names if name.startswith("#")}
    whole = any(around <= variables_of(load) for load in loads_of(body))
    return whole and read <= bound and sum(map(is_fold, body)) == 1
