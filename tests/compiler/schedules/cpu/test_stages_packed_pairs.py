from __future__ import annotations

import pytest

from noyau.compiler.schedules.cpu.stages import in_pairs
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import assert_keeps, loops, lowered, residual_rms_norm, rotary, transposed
from tests.jobs.check.groups import F32, Group, softmax, swiglu

BF16 = DType.BF16
SIZES = [{"rows": 3, "n": n, "b": 2, "s": 3, "a": 2, "c": 5} for n in (0, 1, 2, 7, 33)]
ALONE = Options(pairs=False)


def paired(graph):
    """The variables of the loops over pairs."""
    return [name for name in loops(check(schedule(lowered(graph)))) if name.endswith("h")]


@pytest.mark.parametrize("graph", [swiglu(BF16), residual_rms_norm(BF16), rotary(BF16, half=16), softmax(dtype=BF16)])
def test_pairs_compute_what_cells_do(graph):
    assert_keeps(graph, schedule(lowered(graph)), *SIZES)


def test_maps_of_bfloat16_go_in_pairs_and_others_do_not():
    assert paired(swiglu(BF16))
    assert paired(residual_rms_norm(BF16))
    assert paired(swiglu(DType.F16)) == paired(swiglu(F32)) == []
    assert paired(transposed(1, 0, shape=("a", "b"), dtype=BF16)) == []


def test_a_loop_with_a_float_beside_stays_as_it_is():
    g = Group()
    x, w = g.input("x", BF16, "rows", "n"), g.input("w", F32, "n")
    wide = g.map("multiply", g.map("cast", x, dtype=F32), g.expand(w, ("rows", "n")))
    assert paired(g.graph(g.map("cast", wide, dtype=BF16))) == []


def test_a_float_of_the_row_is_no_hindrance():
    g = Group()
    x, w = g.input("x", BF16, "rows", "n"), g.input("w", F32, "rows")
    along = g.add(View((Dim.of("#0"),)), [w], F32, ("rows", "n"))
    graph = g.graph(g.map("cast", g.map("multiply", g.map("cast", x, dtype=F32), along), dtype=BF16))
    assert paired(graph)
    assert_keeps(graph, schedule(lowered(graph)), *SIZES)


def test_the_last_cell_of_an_odd_number_has_a_loop_of_its_own():
    made = schedule(lowered(swiglu(BF16)))
    found = [s for launch in made.launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    extents = [s.extent for s in found if s.axis is Axis.LANES]
    assert Dim.of("#i1_count") // 2 in extents
    assert Dim.of("#i1_count") % 2 in extents


def test_an_even_number_that_is_known_has_no_last_cell():
    g = Group()
    x = g.input("x", BF16, "rows", 32)
    graph = g.graph(g.map("multiply", x, x), g.add(View((Dim.of("#0"), Dim.of(0))), [x], BF16, ("rows",)))
    made = check(schedule(lowered(graph)))
    assert not [name for name in loops(made) if name.endswith("h_2")]
    assert_keeps(graph, made, {"rows": 3})


def test_it_is_left_where_it_is_not_wanted():
    made = schedule(lowered(swiglu(BF16)), ALONE)
    assert not [name for name in loops(made) if name.endswith("h")]
    assert in_pairs(made) == schedule(lowered(swiglu(BF16)))
