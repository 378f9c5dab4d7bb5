"""Merges by halves, found among the statements that schedules make."""

from __future__ import annotations

from noyau.codegen.numba.idioms import HALF, halving, lines_ahead
from noyau.compiler.schedules.cpu.folds import State, halves
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Prefetch
from tests.nests import ONE, load, loop, store

STATE = State("sum", ("s",), (DType.F32,))


def test_merges_by_halves_are_one_loop():
    count, merge = halving([*halves(STATE, 16, "#lane"), store("y", ONE, 0)])
    assert count == 4
    assert merge is not None
    assert merge.extent == Dim.of(HALF)
    assert load("s", Dim.of("#lane") + Dim.of(HALF)) in merge.body[0].values


def test_what_is_no_merge_by_halves_is_left_alone():
    made = halves(STATE, 16, "#lane")
    for other in (made[:2], [made[0], *made[2:]], [store("y", ONE, 0)], halves(STATE, 4, "#lane")[1:]):
        assert halving(other) == (0, None)
    plain = [loop("#lane", width, store("s", ONE, Dim.of("#lane"))) for width in (8, 4, 2, 1)]
    assert halving(plain) == (0, None)


def test_lines_that_follow_one_another_are_fetched_at_once():
    start = Dim.of("#row") * "n"
    lines = [Prefetch("x", (start + at,)) for at in (0, 16, 32)]
    assert lines_ahead([*lines, store("y", ONE, 0)], 16) == 3
    assert lines_ahead(lines, 8) == 1
    assert lines_ahead([*lines[:2], Prefetch("y", (start + 32,))], 16) == 2
