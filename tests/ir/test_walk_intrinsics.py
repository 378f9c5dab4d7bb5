"""Intrinsics are the loops that they stand for: the interpreter runs these, and walks go through them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.errors import GraphError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    If,
    InWholeLines,
    Load,
    Loop,
    MergeLanes,
    Space,
    Store,
    StreamStore,
    Zero,
)
from noyau.ir.walk import dims_in, every_expression, every_statement, expressions, loops_of, rewrite, substitute
from tests.nests import ONE, ONE_CELL, ROW, X8, N, kernel, load, loop, store
from tests.nodes import BOOL, F32

LANES = Alloc("lanes", F32, shape_of([8]), Space.REGISTER)
MERGE = MergeLanes("sum", ("lanes",), (F32,), 8, "#lane")
EIGHT = Dim.of(8)


def filled(name="lanes"):
    return loop("#i", 8, store(name, load("x", ROW), ROW), axis=Axis.LANES)


def test_zero_sets_cells_and_no_more():
    body = (LANES, Zero("lanes", F32, EIGHT, "#lane"), loop("#i", 8, store("y", load("lanes", ROW), ROW)))
    assert run(check(kernel(*body)), [X8])[0].tolist() == [0] * 8
    with pytest.raises(GraphError, match=r"lanes\[7\] is read before it is set"):
        run(kernel(LANES, replace(body[1], extent=Dim.of(7)), body[2]), [X8])


@pytest.mark.parametrize(("monoid", "wanted"), [("sum", 28), ("max", 7), ("prod", 0)])
def test_lanes_are_merged_by_halves(monoid, wanted):
    merge = replace(MERGE, monoid=monoid)
    made = check(kernel(LANES, filled(), merge, store("y", load("lanes", 0), 0), outputs=ONE_CELL))
    assert run(made, [X8])[0].tolist() == [wanted]
    assert [s.extent for s in loops_of(merge)[:-1]] == [Dim.of(4), Dim.of(2)]
    assert loops_of(merge)[-1] == Store(("lanes",), (Dim.of(0),), (Load("lanes", (Dim.of(1),), F32),), monoid)


@pytest.mark.parametrize("lines", [False, True])
def test_a_tile_is_copied_to_its_place(lines):
    stream = StreamStore("y", (N - 8,), "lanes", Dim.of(0), EIGHT, F32, lines)
    assert run(check(kernel(LANES, filled(), stream)), [X8])[0].tolist() == X8.tolist()
    with pytest.raises(GraphError, match="is outside"):
        run(kernel(LANES, filled(), replace(stream, start=Dim.of(1))), [X8])


def test_tiles_begin_with_a_line_or_not():
    """Nobody knows where memory lies, so the interpreter takes either way; a tile that is not whole has one alone."""

    def of(cells):
        whole = InWholeLines(N, cells, (("y", (Dim.of(0),)),))
        no = If(Call("logical_not", (whole,), BOOL), (store("y", load("x", 0), 0),))
        return check(kernel(store("y", load("x", 1), 0), If(whole, (store("y", ONE, 0),)), no, outputs=ONE_CELL))

    x = np.float32([5, 7])
    assert {run(of(2), [x], seed=seed)[0][0] for seed in range(20)} == {1.0, 5.0}
    assert {run(of(3), [x], seed=seed)[0][0] for seed in range(20)} == {5.0}


def test_walks_go_through_intrinsics():
    stream = StreamStore("y", (ROW,), "t", ROW + 1, N, F32)
    body = (Zero("t", F32, N, "#lane"), MERGE, stream)
    stored = {name for s in every_statement(body) if isinstance(s, Store) for name in s.buffers}
    assert stored == {"t", "lanes", "y"}
    assert {expr.buffer for expr in every_expression(body) if isinstance(expr, Load)} == {"lanes", "t"}
    assert sum(isinstance(s, Loop) for s in every_statement(body)) == 4
    assert all(expressions(s) == () for s in body)
    assert rewrite(body, lambda expr: ONE) == body
    moved = substitute(body, {"#i": ROW + 3, "n": 8})
    assert moved[0].extent == EIGHT
    assert moved[1] == MERGE
    assert (moved[2].index, moved[2].start, moved[2].extent) == ((ROW + 3,), ROW + 4, EIGHT)
    asked = If(InWholeLines(N, 8, (("y", (ROW,)),)), ())
    assert set(dims_in((asked,))) == {N, ROW}
    assert substitute((asked,), {"n": 4, "#i": 2}) == (If(InWholeLines(Dim.of(4), 8, (("y", (Dim.of(2),)),)), ()),)
