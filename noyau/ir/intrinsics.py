"""The loops that intrinsics of the loop IR stand for: their meaning, and the text of languages that have no word for
them."""

from __future__ import annotations

from typing import assert_never

from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import (
    SIDE,
    Axis,
    Const,
    Intrinsic,
    Load,
    Loop,
    MergeLanes,
    Statement,
    Store,
    StreamStore,
    TransposeTile,
    Zero,
)

LINE, CELL = "#line_of_tile", "#cell_of_tile"


def loops_of(intrinsic: Intrinsic) -> tuple[Statement, ...]:
    """Statements that compute the same."""
    line, cell = Dim.of(LINE), Dim.of(CELL)
    match intrinsic:
        case Zero(memory, dtype, extent, var):
            zero = Const(0.0 if dtype.is_float else 0, dtype)
            return (Loop(var, extent, Axis.LANES, (Store((memory,), (Dim.of(var),), (zero,)),)),)
        case MergeLanes(lanes=lanes, var=var):
            halves = [lanes >> level for level in range(1, lanes.bit_length())]
            loops = (Loop(var, Dim.of(n), Axis.LANES, (merge_of(intrinsic, Dim.of(var), n),)) for n in halves[:-1])
            return (*loops, merge_of(intrinsic, 0, 1))
        case TransposeTile(memory, to, to_step, buffer, start, step, dtype):
            value = Load(buffer, (start + line * step + cell,), dtype)
            turned = Loop(CELL, Dim.of(SIDE), Axis.LANES, (Store((memory,), (to + cell * to_step + line,), (value,)),))
            return (Loop(LINE, Dim.of(SIDE), Axis.SERIAL, (turned,)),)
        case StreamStore(buffer, index, memory, start, extent, dtype):
            *outer, last = index
            copied = Store((buffer,), (*outer, last + cell), (Load(memory, (start + cell,), dtype),))
            return (Loop(CELL, extent, Axis.LANES, (copied,)),)
        case _:
            assert_never(intrinsic)


def merge_of(merge: MergeLanes, lane: DimLike, half: DimLike) -> Store:
    """The merge of a lane of the upper half into its lane of the lower one."""
    upper = (Dim.of(lane) + half,)
    values = tuple(Load(name, upper, dtype) for name, dtype in zip(merge.buffers, merge.dtypes, strict=True))
    return Store(merge.buffers, (Dim.of(lane),), values, merge.monoid)
