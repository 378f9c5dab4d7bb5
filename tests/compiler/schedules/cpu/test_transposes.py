from __future__ import annotations

import pytest

from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.cpu.transposes import hoist, reads_along, transpose
from noyau.dtypes import DType
from noyau.ir.dims import indices, shape_of
from noyau.ir.graph import Select, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis
from tests.compiler.schedules.groups import assert_keeps, flat, loops, lowered, transposed
from tests.jobs.check.groups import F32, Group

SIZES = [{"a": a, "b": b, "c": c} for a, b, c in ((3, 5, 4), (1, 1, 1), (16, 2, 17), (5, 33, 2), (0, 3, 2), (3, 2, 0))]
ORDERS = [(1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 3, 1, 2)]


def moved(order):
    shape = ("a", "b", "c", 2)[: len(order)]
    return transposed(*order, shape=shape)


@pytest.mark.parametrize("tile", [1, 4, 16])
@pytest.mark.parametrize("order", ORDERS)
def test_tiles_that_need_not_divide(order, tile):
    graph = moved(order)
    made = flat(graph)
    found = reads_along(made.launches[0].body)
    if found is None:  # the innermost axis stays where it is
        assert order[-1] == len(order) - 1
        return
    assert_keeps(graph, transpose(made, along=found[0], across=found[1], tile=tile), *SIZES)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.BOOL])
def test_as_they_are_chosen(order, dtype):
    after = "logical_not" if dtype is DType.BOOL else "negative"
    graph = transposed(*order, shape=("a", "b", "c", 2)[: len(order)], dtype=dtype, after=after)
    assert_keeps(graph, schedule(lowered(graph), Options()), *SIZES)


def test_the_tiles_go_outside_of_the_loop_that_reads_run_along():
    made = check(schedule(lowered(moved((1, 0))), Options()))
    assert loops(made) == ["#i1t", "#i0", "#i1"]
    assert loops(made, Axis.THREADS) == ["#i1t"]
    assert loops(made, Axis.LANES) == ["#i1"]


def test_pieces_of_a_transposed_row():
    """rotate_half, then a transpose: two loops over the pieces, in one loop over tiles."""
    g = Group()
    x, (b, s, e) = g.input("x", F32, "b", "s", 6), indices(3)
    low, high = (g.add(View((b, s, e + start)), [x], F32, ("b", "s", 3)) for start in (0, 3))
    turned = g.add(Select(2, shape_of((0, 3))), [g.map("negative", high), low], F32, ("b", "s", 6))
    g.add(View((b, e, s)), [g.map("exp", turned)], F32, ("b", 6, "s"))
    graph = g.graph()
    made = check(schedule(lowered(graph)))
    assert_keeps(graph, made, *({"b": 2, "s": s} for s in (0, 1, 16, 17, 40)))
    assert loops(made) == ["#i0", "#i2t", "#i1", "#i2", "#i1", "#i2"]


def test_what_is_not_there_is_not_tiled():
    (launch,) = flat(moved((1, 0))).launches
    assert hoist(launch.body, "#i0", "#i9", 4) == launch.body
