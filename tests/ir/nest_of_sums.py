"""A nest of every kind of statement, for the tests of walks and of substitution."""

from __future__ import annotations

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Axis, Call, Const, Fold, If, Index, Let, Load, Loop, Require, Space, Store, Var

ROW, COL, N = Dim.of("#i"), Dim.of("#j"), Dim.of("n")
F32, BOOL = DType.F32, DType.BOOL
MASK = Call("less", (Index(COL), Index(N)), BOOL)
LOAD = Load("x", (ROW, COL * 2), F32, MASK, Const(0.0, F32))
INNER = Let("a", LOAD)
FOLD = Fold("sum", (("#j", N),), (INNER,), Call("exp", (Var("a", F32),), F32), F32, COL + 5)
SUM = Let("s", FOLD)
STORE = Store(("y",), (ROW + 1,), (Call("negative", (Var("s", F32),), F32),))
BODY = (
    Alloc("kept", F32, (N,), Space.THREAD),
    SUM,
    If(Call("less", (Index(ROW), Index(N)), BOOL), (Require(ROW, N), STORE)),
)
NEST = (Loop("#i", N * 4, Axis.THREADS, BODY),)
