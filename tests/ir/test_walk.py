from __future__ import annotations

from noyau.ir.loops import Axis, Const, Index, Load, Loop, Prefetch, Var
from noyau.ir.walk import (
    dims_in,
    every_expression,
    every_statement,
    expressions,
    on_threads,
    operands,
    rewrite,
    substitute,
)
from tests.ir.nest_of_sums import BODY, COL, F32, FOLD, LOAD, MASK, NEST, ROW, STORE, SUM, N


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
