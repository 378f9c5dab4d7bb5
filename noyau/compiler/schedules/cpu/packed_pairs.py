"""Loops in lanes over narrow cells, in pairs.

A vector of floats has room for half as many cells as one of bfloat16, so a compiler spreads and packs cells, which
takes longer than what is computed of them. Two neighbours are one word of 32 bits, of which each half is a float but
for a shift or a mask. So loops whose cells all are of bfloat16 do an even and an odd one in each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from noyau.compiler.schedules.primitives import Statements, change_each, stride_of, with_bodies
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.substitution import rewrite, substitute
from noyau.ir.walk import every_statement, loads_of

PAIRED = 16  # cells of a loop of known length that is worth it


def in_pairs(kernel: ir.Kernel) -> ir.Kernel:
    """The loops in lanes over neighbouring cells of bfloat16, which load and store nothing else that differs from cell
    to cell, two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, ir.Alloc)}

        def change(loop: ir.Statement) -> Statements | None:
            return _paired(loop) if isinstance(loop, ir.Loop) and _is_of_halves(loop, memory) else None

        return change_each(body, change)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: ir.Loop, memory: Mapping[str, DType]) -> bool:
    """Whether a loop goes from cell to cell of bfloat16 alone, and nothing it does may be left out."""
    stores = [s for s in loop.body if isinstance(s, ir.Store)]
    plain = all([value.dtype for value in s.values] == [DType.F32] and s.merge is None for s in stores)
    straight = plain and all(isinstance(s, ir.Let | ir.Store) for s in loop.body)
    if loop.axis is not ir.Axis.LANES or not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[ir.Load | ir.Store] = [*loads_of(loop.body), *stores]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, ir.Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_half(access: ir.Load | ir.Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, ir.Load) else access.buffers[0]
    masked = isinstance(access, ir.Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _paired(loop: ir.Loop) -> Statements:
    """The loop over pairs, and one over the last cell where their number is odd."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    even = substitute(loop.body, {loop.var: first})
    odd = _renamed(substitute(loop.body, {loop.var: first + 1}))
    pairs = ir.Loop(half, loop.extent // 2, ir.Axis.LANES, (*even, *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _renamed(body: Statements) -> Statements:
    """The statements with names of their own for their Lets."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, ir.Let)}

    def read(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, ir.Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, ir.Let) else s for s in rewrite(body, read))
