"""Loops that copy rows to columns."""

from __future__ import annotations

import pytest

from noyau.codegen.statements import turned_copy
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Load, Loop, Space, Store

F32 = DType.F32
ROW, CELL, N, M = Dim.of("#r"), Dim.of("#c"), Dim.of("n"), Dim.of("m")
MEMORY = {name: Alloc(name, F32, (N * 32,), Space.THREAD) for name in ("t", "x")}


def copied(place, at, dtype=F32, source="x"):
    """Loops over cells of rows, and rows, in which one cell is copied."""
    store = Store(("t",), (place,), (Load(source, (at,), dtype),))
    return Loop("#c", N, Axis.SERIAL, (Loop("#r", M, Axis.LANES, (store,)),))


def test_rows_become_columns_and_columns_rows():
    to = copied(CELL * 32 + ROW + 3, ROW * N + CELL + 5)
    assert turned_copy(to, MEMORY) == ("t", Dim.of(3), Dim.of(32), "x", Dim.of(5), N, M, N)
    back = copied(ROW * N + CELL, CELL * 32 + ROW)
    assert turned_copy(back, MEMORY) == ("t", Dim.of(0), N, "x", Dim.of(0), Dim.of(32), N, M)


@pytest.mark.parametrize(
    ("loop", "memory"),
    [
        (copied(CELL * 32 + ROW, CELL * 32 + ROW), MEMORY),  # as it lies
        (copied(CELL * 32 + ROW, ROW * 2 + CELL * 2), MEMORY),  # cells apart
        (copied(CELL * 32 + ROW, ROW * ROW + CELL), MEMORY),  # rows that lie farther and farther apart
        (copied(CELL * 32 + ROW, ROW * N + CELL, source="t"), MEMORY),
        (copied(CELL * 32 + ROW, ROW * N + CELL, DType.F64), MEMORY),
        (copied(CELL * 32 + ROW, ROW * N + CELL), {**MEMORY, "x": Alloc("x", DType.I32, (N,), Space.THREAD)}),
        (Loop("#c", N, Axis.LANES, (Store(("t",), (CELL,), (Load("x", (CELL,), F32),)),)), MEMORY),
    ],
)
def test_other_loops_are_none(loop, memory):
    assert turned_copy(loop, memory) is None
