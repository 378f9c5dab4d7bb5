"""Cells of 16 bits in pairs: a lane does two neighbours.

A vector of floats has room for half as many cells as one of bfloat16, so a compiler spreads and packs cells, which
takes longer than what is computed of them. Two neighbours are one word of 32 bits, of which each half is a float but
for a shift or a mask. So loops whose cells all are of bfloat16 do an even and an odd one in each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from noyau.compiler.schedules.primitives import Statements, change_each, stride_of, with_bodies
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Expr, Kernel, Let, Load, Loop, Statement, Store, Var
from noyau.ir.walk import every_statement, loads_of, rewrite, substitute

PAIRED = 16  # cells of a loop of known length that is worth it


def in_pairs(kernel: Kernel) -> Kernel:
    """The loops in lanes over neighbouring cells of bfloat16, which load and store nothing else that differs from cell
    to cell, two cells a round."""
    buffers = {buffer.name: buffer.dtype for buffer in kernel.buffers if buffer.layout != "strided"}

    def in_body(body: Statements) -> Statements:
        memory = buffers | {s.name: s.dtype for s in every_statement(body) if isinstance(s, Alloc)}

        def change(loop: Statement) -> Statements | None:
            return _paired(loop) if isinstance(loop, Loop) and _is_of_halves(loop, memory) else None

        return change_each(body, change)

    return with_bodies(kernel, in_body)


def _is_of_halves(loop: Loop, memory: Mapping[str, DType]) -> bool:
    """Whether a loop goes from cell to cell of bfloat16 alone, and nothing it does may be left out."""
    straight = all(isinstance(s, Let) or (isinstance(s, Store) and _is_plain(s)) for s in loop.body)
    if loop.axis is not Axis.LANES or not straight or (loop.extent.constant or PAIRED) < PAIRED:
        return False
    accesses: list[Load | Store] = [*loads_of(loop.body), *(s for s in loop.body if isinstance(s, Store))]
    moving = [each for each in accesses if any(loop.var in dim.names for dim in each.index)]
    stored = any(isinstance(each, Store) for each in moving)
    return stored and all(_is_half(each, loop.var, memory) for each in moving)


def _is_plain(store: Store) -> bool:
    kinds = [value.dtype for value in store.values]
    return kinds == [DType.F32] and store.merge is None


def _is_half(access: Load | Store, variable: str, memory: Mapping[str, DType]) -> bool:
    name = access.buffer if isinstance(access, Load) else access.buffers[0]
    masked = isinstance(access, Load) and access.where is not None
    return memory.get(name) is DType.BF16 and stride_of(access, variable) == Dim.of(1) and not masked


def _paired(loop: Loop) -> Statements:
    """The loop over pairs, and one over the last cell where their number is odd."""
    half, first = f"{loop.var}h", Dim.of(f"{loop.var}h") * 2
    even = substitute(loop.body, {loop.var: first})
    odd = _renamed(substitute(loop.body, {loop.var: first + 1}))
    pairs = Loop(half, loop.extent // 2, Axis.LANES, (*even, *odd))
    if loop.extent % 2 == Dim.of(0):
        return (pairs,)
    last = substitute(loop.body, {loop.var: loop.extent // 2 * 2 + Dim.of(loop.var)})
    return pairs, replace(loop, extent=loop.extent % 2, body=last)


def _renamed(body: Statements) -> Statements:
    """The statements with names of their own for their Lets."""
    names = {s.name: f"{s.name}.odd" for s in body if isinstance(s, Let)}

    def read(expr: Expr) -> Expr:
        return replace(expr, name=names.get(expr.name, expr.name)) if isinstance(expr, Var) else expr

    return tuple(replace(s, name=names[s.name]) if isinstance(s, Let) else s for s in rewrite(body, read))
