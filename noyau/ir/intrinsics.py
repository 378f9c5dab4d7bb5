"""Loops that intrinsics stand for: their meaning, and the text of languages that have no word for them."""

from __future__ import annotations

from typing import assert_never

from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike

LINE, CELL = "#line_of_tile", "#cell_of_tile"


def loops_of(intrinsic: ir.Intrinsic) -> tuple[ir.Statement, ...]:
    """Statements that compute the same."""
    line, cell = Dim.of(LINE), Dim.of(CELL)
    match intrinsic:
        case ir.Zero(memory, dtype, extent, var):
            zero = ir.Const(0.0 if dtype.is_float else 0, dtype)
            return (ir.Loop(var, extent, ir.Axis.LANES, (ir.Store((memory,), (Dim.of(var),), (zero,)),)),)
        case ir.MergeLanes(lanes=lanes, var=var):
            halves = [lanes >> level for level in range(1, lanes.bit_length())]
            loops = (
                ir.Loop(var, Dim.of(n), ir.Axis.LANES, (merge_of(intrinsic, Dim.of(var), n),)) for n in halves[:-1]
            )
            return (*loops, merge_of(intrinsic, 0, 1))
        case ir.TransposeTile(memory, to, to_step, buffer, start, step, dtype):
            value = ir.Load(buffer, (start + line * step + cell,), dtype)
            turned = ir.Loop(
                CELL, Dim.of(ir.SIDE), ir.Axis.LANES, (ir.Store((memory,), (to + cell * to_step + line,), (value,)),)
            )
            return (ir.Loop(LINE, Dim.of(ir.SIDE), ir.Axis.SERIAL, (turned,)),)
        case ir.StreamStore(buffer, index, memory, start, extent, dtype):
            *outer, last = index
            copied = ir.Store((buffer,), (*outer, last + cell), (ir.Load(memory, (start + cell,), dtype),))
            return (ir.Loop(CELL, extent, ir.Axis.LANES, (copied,)),)
        case _:
            assert_never(intrinsic)


def merge_of(merge: ir.MergeLanes, lane: DimLike, half: DimLike) -> ir.Store:
    """The merge of a lane of the upper half into its lane of the lower one."""
    upper = (Dim.of(lane) + half,)
    values = tuple(ir.Load(name, upper, dtype) for name, dtype in zip(merge.buffers, merge.dtypes, strict=True))
    return ir.Store(merge.buffers, (Dim.of(lane),), values, merge.monoid)
