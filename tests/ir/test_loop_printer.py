"""The text of a kernel: every kind of statement, as docs/architecture.md has the grammar."""

from __future__ import annotations

import pytest

from noyau.dtypes import DType
from noyau.ir import loops
from noyau.ir.dims import Dim
from noyau.ir.loop_printer import kernel_text
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Const,
    Fold,
    Guard,
    If,
    Index,
    InWholeLines,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    MergeLanes,
    Prefetch,
    Require,
    Role,
    Space,
    Store,
    StreamStore,
    Tile,
    TilePolicy,
    Var,
    Zero,
)

F32, I64 = DType.F32, DType.I64
n, rows = Dim.of("n"), Dim.of("rows")


def kernel(*body: loops.Statement, when: loops.Expr | None = None) -> Kernel:
    buffers = (
        Buffer("x", F32, (rows, n), Role.INPUT, "x.1", (Dim.of("s"), Dim.of(1))),
        Buffer("out", F32, (rows,), Role.OUTPUT, "out"),
    )
    guards = (Guard(Dim.of(1), Dim.of(1), n), Guard(rows, Dim.of(2), n))
    return Kernel("k", buffers, (), (Launch(body, when),), guards)


HEAD = """kernel k
    input x: f32[rows, n] strides [s, 1]  # x.1
    output out: f32[rows]
    guard 1 <= n
    guard 2 <= n unless rows = 0
"""
LOAD = Load("x", (Dim.of("#r"), Dim.of("#c")), F32)
FOLD = Fold("sum", (("#c", n),), (Let("y", LOAD),), Var("y", F32), F32)
STATEMENTS: dict[str, loops.Statement] = {
    "y = exp(x[#r, #c])": Let("y", Call("exp", (LOAD,), F32)),
    "y = cast i64(f32 2.0)": Let("y", Call("cast", (Const(2.0, F32),), I64)),
    "y = add(#r + 1, z)": Let("y", Call("add", (Index(Dim.of("#r") + 1), Var("z", I64)), I64)),
    "y = x[#r, #c] where less(z, 1) else f32 0.0": Let(
        "y",
        Load(
            "x",
            LOAD.index,
            F32,
            Call("less", (Var("z", I64), Index(Dim.of(1))), DType.BOOL),
            Const(0.0, F32),
        ),
    ),
    "y = fold sum over #c < n:\n    y = x[#r, #c]\n    yield y": Let("y", FOLD),
    "y = exp(fold sum over #c < n {y = x[#r, #c]; yield y})": Let("y", Call("exp", (FOLD,), F32)),
    "out[#r] = y": Store(("out",), (Dim.of("#r"),), (Var("y", F32),)),
    "out[0] atomic sum= y": Store(("out",), (Dim.of(0),), (Var("y", F32),), "sum", is_atomic=True),
    "a[0], b[0] argmax= y, z": Store(("a", "b"), (Dim.of(0),), (Var("y", F32), Var("z", F32)), "argmax"),
    "for #r < rows on threads:\n    prefetch x[#r, 0]": Loop(
        "#r", rows, Axis.THREADS, (Prefetch("x", (Dim.of("#r"), Dim.of(0))),)
    ),
    "if y:\n    require 0 <= #r < n": If(Var("y", DType.BOOL), (Require(Dim.of("#r"), n),)),
    "alloc register tile: f32[16]": Alloc("tile", F32, (Dim.of(16),), Space.REGISTER),
    "for #r < n in BLOCK on lanes:\n    zero s[n]": Loop(
        "#r", n, Axis.LANES, (Zero("s", F32, n, "#lane"),), Tile("BLOCK", TilePolicy.FIXED, 64)
    ),
    "prefetch x[#r], 4 lines": Prefetch("x", (Dim.of("#r"),), 4),
    "zero s[n]": Zero("s", F32, n, "#lane"),
    "merge argmax a, b[16]": MergeLanes("argmax", ("a", "b"), (F32, DType.I64), 16, "#lane"),
    "stream y[#r] = t[0], n cells": StreamStore("y", (Dim.of("#r"),), "t", Dim.of(0), n, F32),
    "stream lines y[#r] = t[0], 32 cells": StreamStore("y", (Dim.of("#r"),), "t", Dim.of(0), Dim.of(32), F32, True),
    "if in_whole_lines(n = 256, y[#r]):\n    zero s[n]": If(
        InWholeLines(n, 256, (("y", (Dim.of("#r"),)),)), (Zero("s", F32, n, "#lane"),)
    ),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement(text):
    body = "\n".join(f"    {line}" for line in text.splitlines())
    assert kernel_text(kernel(STATEMENTS[text])) == f"{HEAD}launch\n{body}"


def test_a_launch_that_runs_for_some_sizes():
    when = Call("less", (Index(n), Index(Dim.of(64))), DType.BOOL)
    assert kernel_text(kernel(when=when)) == f"{HEAD}launch when less(n, 64)"
