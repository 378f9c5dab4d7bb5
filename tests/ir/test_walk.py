from __future__ import annotations

from dataclasses import replace

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    Const,
    Fold,
    If,
    Index,
    Let,
    Load,
    Loop,
    Prefetch,
    Require,
    Space,
    Store,
    Var,
)
from noyau.ir.walk import (
    dims_in,
    every_expression,
    every_statement,
    expressions,
    on_threads,
    operands,
    rewrite,
    rewrite_expression,
    substitute,
)

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


def kinds(things):
    return [type(thing).__name__ for thing in things]


def test_what_stands_directly_in_a_statement():
    assert expressions(SUM) == (FOLD,)
    assert expressions(STORE) == STORE.values
    assert expressions(BODY[2]) == (BODY[2].condition,)
    assert expressions(NEST[0]) == expressions(BODY[0]) == ()


def test_what_stands_directly_in_an_expression():
    assert operands(LOAD) == (MASK,)
    assert operands(FOLD) == (FOLD.value,)
    assert operands(MASK) == MASK.operands
    assert operands(Const(1, F32)) == operands(Index(ROW)) == operands(Load("x", (), F32)) == ()


def test_every_statement_goes_into_loops_and_folds():
    assert kinds(every_statement(NEST)) == ["Loop", "Alloc", "Let", "Let", "If", "Require", "Store"]


def test_every_expression_goes_into_masks_and_folds():
    found = list(every_expression(NEST))
    assert {"Fold", "Load", "Var", "Call", "Index"} <= set(kinds(found))
    assert LOAD in found
    assert found.count(MASK) == 1
    assert found.index(FOLD) < found.index(Var("a", F32))


def test_dims_of_loads_stores_requirements_and_indices():
    assert {ROW, COL * 2, ROW + 1, COL, N} <= set(dims_in(NEST))


def test_rewrite_reaches_every_expression_operands_first():
    seen = []

    def note(expr):
        seen.append(expr)
        return replace(expr, name=expr.name.upper()) if isinstance(expr, Var) else expr

    made = rewrite(NEST, note)
    assert {expr.name for expr in every_expression(made) if isinstance(expr, Var)} == {"A", "S"}
    assert seen.index(MASK) < seen.index(LOAD) < seen.index(replace(FOLD, value=Call("exp", (Var("A", F32),), F32)))
    assert rewrite(NEST, lambda expr: expr) == NEST


def test_rewriting_an_expression_rebuilds_it():
    doubled = rewrite_expression(LOAD, lambda e: Index(e.dim * 2) if isinstance(e, Index) else e)
    assert doubled.where == Call("less", (Index(COL * 2), Index(N * 2)), BOOL)


def test_substitute_replaces_names_everywhere():
    made = substitute(NEST, {"#i": ROW + 7, "#j": COL * 3, "n": 5})
    (loop,) = made
    alloc, total, guarded = loop.body
    assert loop.extent == Dim.of(20)
    assert alloc.shape == (Dim.of(5),)
    assert total.value.loops == (("#j", Dim.of(5)),)
    assert total.value.at == COL * 3 + 5
    assert total.value.body[0].value.index == (ROW + 7, COL * 6)
    assert total.value.body[0].value.where == Call("less", (Index(COL * 3), Index(Dim.of(5))), BOOL)
    assert guarded.condition == Call("less", (Index(ROW + 7), Index(Dim.of(5))), BOOL)
    assert guarded.body == (Require(ROW + 7, Dim.of(5)), replace(STORE, index=(ROW + 8,)))
    assert not any("n" in dim.names for dim in dims_in(made))


def test_a_prefetch_has_an_index_and_nothing_else():
    hint = Prefetch("x", (ROW * 2,))
    assert expressions(hint) == ()
    assert list(dims_in((hint,))) == [ROW * 2]
    assert rewrite((hint,), lambda expr: Const(0.0, F32)) == (hint,)
    assert substitute((hint,), {"#i": COL + 1}) == (Prefetch("x", (COL * 2 + 2,)),)


def test_loops_on_threads_are_those_that_stand_alone_in_each_other():
    item = (STORE,)
    pair = Loop("#i", N, Axis.THREADS, (Loop("#j", N, Axis.THREADS, item),))
    before, loops, inner = on_threads((SUM, pair))
    assert (before, [loop.var for loop in loops], inner) == ((SUM,), ["#i", "#j"], item)
    between = Loop("#i", N, Axis.THREADS, (SUM, *pair.body))
    assert on_threads((between,)) == ((), [between], between.body)
    assert on_threads((SUM, STORE)) == ((), [], (SUM, STORE))
    assert on_threads(()) == ((), [], ())
