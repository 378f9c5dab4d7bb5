"""Loops that copy rows of words to columns, for which a language may have a call that does tiles in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from noyau.compiler.schedules.primitives import stride_of
from noyau.ir import loops as ir
from noyau.ir.dims import Dim

# Where lines become columns, and how far these are apart; where they lie, how far apart; how many; cells of each.
TurnedCopy: TypeAlias = tuple[str, Dim, Dim, str, Dim, Dim, Dim, Dim]


def turned_copy(loop: ir.Loop, memory: Mapping[str, ir.Buffer | ir.Alloc]) -> TurnedCopy | None:
    """The copy that a loop with one in it makes, and nothing else; None of other cells than words."""
    if len(loop.body) != 1 or not isinstance(inner := loop.body[0], ir.Loop):
        return None
    match inner.body:
        case (ir.Store((to,), (place,), (ir.Load(source, (at,), dtype, None) as load,), None) as store,) if (
            to != source
        ):
            ends, begin = (memory[to], memory[source]), {loop.var: 0, inner.var: 0}
        case _:
            return None
    if dtype.bytes != 4 or any(each.dtype is not dtype or getattr(each, "layout", "") == "strided" for each in ends):
        return None
    for lines, cells in ((loop, inner), (inner, loop)):
        there, here = stride_of(store, cells.var), stride_of(load, lines.var)
        beside = stride_of(load, cells.var) == stride_of(store, lines.var) == Dim.of(1)
        if beside and not (there.names | here.names) & begin.keys():
            return to, place.replace(begin), there, source, at.replace(begin), here, lines.extent, cells.extent
    return None
