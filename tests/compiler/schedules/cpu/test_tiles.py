from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.cpu.tiles import side_by_side
from noyau.compiler.schedules.primitives import chain, nest
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Const, Index, Launch, Let, Loop, Require, Space, Var
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import assert_keeps, flat, loops, reduced, scanned
from tests.nests import COL, F32, ONE, ROW, N, call, kernel, load, loop, store
from tests.nodes import I64

MEMORY = [("m", 3, Space.THREAD), ("s", 1, Space.REGISTER)]


def tiled(graph, width):
    made = flat(graph)
    outer, body = chain(made.launches[0].body)
    last = side_by_side(replace(outer[-1], body=expand_folds(body, 1, wide=False)), width)
    return check(replace(made, launches=(Launch(nest(outer[:-1], (last,))),)))


@pytest.mark.parametrize("width", [1, 4, 16])
@pytest.mark.parametrize("monoid", ["sum", "argmax", "variance", "max"])
def test_a_fold_outside_of_its_cells(monoid, width):
    graph = reduced(monoid, "rows", "n", axes=(0,), after="negative")
    sizes = [{"rows": rows, "n": n} for rows, n in ((3, 5), (1, 16), (5, 17), (2, 0))]
    assert_keeps(graph, tiled(graph, width), *sizes)


def test_a_fold_over_two_loops():
    graph = reduced("sum", "a", "b", "n", axes=(0, 1))
    made = tiled(graph, 4)
    assert_keeps(graph, made, {"a": 2, "b": 3, "n": 5}, {"a": 0, "b": 3, "n": 5})
    assert loops(made) == ["#i0t", "#i0", "#r1", "#r2", "#i0", "#i0"]


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_scan_of_all_cells_of_a_tile(exclusive, reverse):
    graph = scanned("sum", "rows", "n", axis=0, exclusive=exclusive, reverse=reverse)
    assert_keeps(graph, tiled(graph, 4), {"rows": 3, "n": 5}, {"rows": 0, "n": 5}, {"rows": 5, "n": 8})


def test_the_cells_are_the_innermost_loop_and_have_memory_each():
    made = tiled(reduced("sum", "rows", "n", axes=(0,)), 8)
    (alloc,) = [s for s in every_statement(made.launches[0].body) if isinstance(s, Alloc)]
    assert alloc.shape == (Dim.of(8),)
    inner = [s for s in every_statement(made.launches[0].body) if isinstance(s, Loop) and s.axis is Axis.LANES]
    assert all(not any(isinstance(s, Loop) for s in lane.body) for lane in inner)
    assert inner[0].extent == Dim.of(8)  # emptied whole, whatever the tile's length


def test_values_that_a_later_loop_needs_are_made_again():
    body = (
        Let("a", load("x", ROW)),
        Alloc("m", F32, shape_of([1]), Space.REGISTER),
        store("m", Var("a", F32), 0),
        loop("#j", 3, store("m", Var("a", F32), 0, merge="sum")),
        Let("b", load("m", 0)),
        store("y", call("add", Var("a", F32), Var("b", F32)), ROW),
    )
    made = check(kernel(side_by_side(loop("#i", "n", *body), 4)))
    x = np.arange(10, dtype=np.float32)
    for seed in range(3):
        np.testing.assert_array_equal(run(made, [x], seed=seed)[0], 5 * x)


def test_looked_up_indices_go_along():
    body = (
        Let("#at", load("ids", ROW, dtype=I64)),
        Require(Dim.of("#at"), N),
        Alloc("m", F32, shape_of([1]), Space.REGISTER),
        store("m", load("x", "#at"), 0),
        loop("#j", 2, store("m", load("x", "#at"), 0, merge="sum")),
        store("y", load("m", 0), ROW),
    )
    given = [("x", F32, ["n"]), ("ids", I64, ["n"])]
    made = check(kernel(side_by_side(loop("#i", "n", *body), 4), inputs=given))
    x, ids = np.arange(6, dtype=np.float32), np.array([5, 0, 3, 3, 1, 2])
    np.testing.assert_array_equal(run(made, [x, ids])[0], 3 * x[ids])


def test_loops_that_depend_on_the_cell_cannot_run_side_by_side():
    unequal = loop("#i", "n", Loop("#j", ROW + 1, Axis.SERIAL, (store("y", ONE, ROW),)))
    with pytest.raises(UnsupportedError, match="the cells of #i cannot run side by side: each has loops of its own"):
        side_by_side(unequal, 4)


def test_memory_of_several_cells_has_as_many_for_each():
    fill = loop("#j", 3, store("m", call("add", load("x", ROW), call("cast", Index(COL))), COL))
    take = loop("#j", 3, store("s", load("m", COL), 0, merge="sum"))
    memory = [Alloc(name, F32, shape_of([count]), space) for name, count, space in MEMORY]
    body = (*memory, store("s", Const(0.0, F32), 0), fill, take, store("y", load("s", 0), ROW))
    made = check(kernel(side_by_side(loop("#i", "n", *body), 4)))
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(run(made, [x])[0], 3 * x + 3)


def test_what_two_loops_need_of_memory_is_kept_for_each_cell():
    """A value made of what a loop has left is stored once, and read again in the loops after it."""
    total = loop("#j", 3, store("s", load("x", ROW), 0, merge="sum"))
    again = loop("#j", 2, store("t", Var("root", F32), 0, merge="sum"))
    body = (
        *(Alloc(name, F32, shape_of([1]), Space.REGISTER) for name in "st"),
        *(store(name, Const(0.0, F32), 0) for name in "st"),
        total,
        Let("all", load("s", 0)),
        Let("root", call("negative", Var("all", F32))),
        again,
        store("y", call("add", load("t", 0), Var("root", F32)), ROW),
    )
    made = check(kernel(side_by_side(loop("#i", "n", *body), 4)))
    assert [s.name for s in every_statement(made.launches[0].body) if isinstance(s, Alloc)] == ["s", "t", "root.cell"]
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(run(made, [x])[0], -9 * x)


def test_an_index_made_of_memory_stays_where_it_is():
    body = (
        Alloc("m", I64, shape_of([1]), Space.REGISTER),
        store("m", Const(0, I64), 0),
        loop("#j", 2, store("m", Const(1, I64), 0, merge="sum")),
        Let("#at", load("m", 0, dtype=I64)),
        loop("#j", 2, store("y", load("x", "#at"), ROW)),
    )
    with pytest.raises(UnsupportedError, match="an index that is computed, at, is needed in two loops"):
        side_by_side(loop("#i", "n", *body), 4)


def test_a_loop_without_loops_is_only_tiled():
    made = check(kernel(side_by_side(loop("#i", "n", Let("a", Index(ROW)), store("y", load("x", ROW), ROW)), 4)))
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(run(made, [x])[0], x)
    assert loops(made, Axis.LANES) == ["#i"]
