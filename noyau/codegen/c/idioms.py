"""What C text may say shorter than statements do: arrays of zeros, copies around the caches, loops in registers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from noyau.codegen.c.expressions import Expressions
from noyau.codegen.expressions import is_variable
from noyau.codegen.idioms import turned
from noyau.codegen.tables import closed
from noyau.ir.dims import Dim, product
from noyau.ir.loops import Alloc, Buffer, Const, Load, Loop, Space, Statement, Store
from noyau.ir.walk import every_expression, every_statement

WIDE = 8  # lanes of a loop that is worth vectors


def copied_around(loop: Loop, said: Expressions) -> str:
    """A loop that copies a tile to its place in an output."""
    (store,) = loop.body
    assert isinstance(store, Store)
    tile = store.values[0]
    assert isinstance(tile, Load)
    start, first = (tuple(dim.replace({loop.var: 0}) for dim in index) for index in (store.index, tile.index))
    place, cells = said.cell(store.buffers[0], start), said.names.value(tile.buffer)
    begin = cells if first == (Dim.of(0),) else f"&{said.cell(tile.buffer, first)}"
    count = closed(said.dim(loop.extent))
    return f"noyau_write_around(&{place}, {begin}, (size_t){count} * sizeof(*{cells}));"


def turned_by_word(loop: Loop, said: Expressions) -> str | None:
    """A tile that turn.h turns; None for any other loop."""
    if (tile := turned(loop, said.memory)) is None:
        return None
    to, from_ = (f"&{said.cell(name, (at,))}" for name, at in ((tile.own, tile.at), (tile.source, tile.begin)))
    return f"noyau_turn({to}, {said.dim(tile.there)}, {from_}, {said.dim(tile.here)});"


def starts_at_zero(memory: Alloc, after: Statement) -> bool:
    """Whether the next statement sets all of an array to 0."""
    match after:
        case Loop(var, extent, _, (Store((name,), (at,), (Const(value),), None),)) if name == memory.name:
            filled = at == Dim.of(var) and extent == product(memory.shape)
            return filled and not is_variable(memory) and value == 0 and math.copysign(1, value) == 1
        case _:
            return False


def is_in_registers(loop: Loop, memory: Mapping[str, Buffer | Alloc]) -> bool:
    """Whether a loop of known length stores in registers only: the compiler sees by itself what depends on what.

    But not where many lanes read what others hold: it would do them one by one."""
    stored = [name for s in every_statement(loop.body) if isinstance(s, Store) for name in s.buffers]
    loads = {expr.buffer for expr in every_expression(loop.body) if isinstance(expr, Load)}
    held = [memory.get(name) for name in stored]
    registers = all(isinstance(each, Alloc) and each.space is Space.REGISTER for each in held)
    known = loop.extent.constant
    return registers and known is not None and not (loads & set(stored) and known >= WIDE)
