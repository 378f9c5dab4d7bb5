"""Expressions are rewritten operands first; Dims are replaced everywhere."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Call, Index, Require, Var
from noyau.ir.walk import dims_in, every_expression, rewrite, rewrite_expression, substitute
from tests.ir.nest_of_sums import BOOL, COL, F32, FOLD, LOAD, MASK, NEST, ROW, STORE, N


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
