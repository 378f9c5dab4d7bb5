"""Maps on a GPU: how many cells a program computes, and with how many warps, as what it reads lies in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen.triton import printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import strategies
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Map, Select, View
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop, TilePolicy
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import Group, in_order, tile_sizes
from tests.jobs.check.groups import F32, one_map, swiglu
from tests.nodes import given, graph, value

ROW = Dim.of("#0")


def tile_of_cells(graph, layout):
    """The tile that says how many cells a program has, of inputs that all lie so, and its warps."""
    layouts = {node.output: layout for node in graph.inputs if layout}
    *_, launch = check(on_gpu(lower(normalise(graph), "kernel", layouts))).launches
    tile = next(t for t in launch.tiles if t.name in ("ROWS", "BLOCK"))
    return tile.number, tile.warps


@pytest.mark.parametrize(("layout", "expected"), [(None, (1024, 0)), ("inner", (4096, 0)), ("strided", (1024, 4))])
def test_cells_that_are_read_apart_are_few_of_a_thread(layout, expected):
    assert tile_of_cells(swiglu(), layout) == expected


@pytest.mark.parametrize(("layout", "expected"), [(None, (1024, 0)), ("strided", (1024, 4))])
def test_lone_loops_too(layout, expected):
    assert tile_of_cells(one_map("exp"), layout) == expected


def with_bias(rows="rows", columns="n"):
    """Rows plus what all of them have in common."""
    g = Group()
    x, bias = g.input("x", DType.F32, rows, columns), g.input("bias", DType.F32, columns)
    g.map("add", x, g.expand(bias, (rows, columns)))
    return g.graph()


@pytest.mark.parametrize(("rows", "n"), [(3, 5), (4, 8), (11, 5), (14, 7), (9, 6), (0, 5)])
def test_rows_that_begin_alike_lie_side_by_side(rows, n, monkeypatch):
    monkeypatch.setattr(strategies, "FEW", 3)
    monkeypatch.setattr(strategies, "NARROW", replace(strategies.NARROW, number=4))
    kernel = check(on_gpu(lower(normalise(with_bias()), "kernel")))
    assert len(kernel.launches) == 2
    rng = np.random.default_rng(n)
    x, bias = rng.standard_normal((rows, n), np.float32), rng.standard_normal(n, np.float32)
    sizes = {TilePolicy.COVERING: 4, TilePolicy.SHARING: 2, TilePolicy.ALIGNMENT: 4}
    (got,) = run(kernel, in_order(kernel, {"x": x, "bias": bias}), seed=n, sizes=tile_sizes(kernel, sizes))
    assert np.array_equal(got, x + bias)


@pytest.mark.parametrize(("row", "launches"), [((ROW + 1) % Dim.of("rows"), 1), (ROW // 3, 1), (ROW, 2)])
def test_rows_that_are_rolled_do_not_begin_alike(row, launches, monkeypatch):
    """The row before the first one is the last: what lies between them is no whole number of lines."""
    monkeypatch.setattr(strategies, "FEW", 3)
    monkeypatch.setattr(strategies, "NARROW", replace(strategies.NARROW, number=4))
    g = Group()
    x, y, bias = g.input("x", F32, "rows", "n"), g.input("y", F32, "rows", "n"), g.input("bias", F32, "n")
    moved = [g.add(View((row, Dim.of("#1"))), [name], F32, ("rows", "n")) for name in (x, y)]
    g.map("add", g.map("multiply", *moved), g.expand(bias, ("rows", "n")))
    kernel = check(on_gpu(lower(normalise(g.graph()), "kernel")))
    assert len(kernel.launches) == launches
    rng = np.random.default_rng(7)
    arrays = {name: rng.random((11, 5), np.float32) for name in ("x", "y")} | {"bias": rng.random(5, np.float32)}
    sizes = {TilePolicy.COVERING: 4, TilePolicy.SHARING: 2, TilePolicy.ALIGNMENT: 4}
    (got,) = run(kernel, in_order(kernel, arrays), seed=7, sizes=tile_sizes(kernel, sizes))
    rows = [int(row.evaluate({"#0": at, "rows": 11})) for at in range(11)]
    assert np.array_equal(got, arrays["x"][rows] * arrays["y"][rows] + arrays["bias"])


def test_what_they_have_in_common_is_loaded_once():
    text = printer.together([check(on_gpu(lower(normalise(with_bias()), "kernel")))])
    assert "lead = (i0r * n) % ALIGN" in text
    assert "bias_i = tl.load(bias + i1, mask=i1_inside, other=0)" in text


@pytest.mark.parametrize(("rows", "columns"), [("rows", 64), ("rows", 66), (100, 1001)])
def test_aligned_short_and_few_rows_follow_each_other(rows, columns):
    assert len(on_gpu(lower(normalise(with_bias(rows, columns)), "kernel")).launches) == 1
    assert "i0r" not in printer.together([on_gpu(lower(normalise(with_bias(rows, columns)), "kernel"))])


def test_pieces_along_a_middle_axis_have_launches_of_their_own():
    first, rows = Dim.of("a"), Dim.of("a") + "b"
    inputs = given("x", F32, "n", "a", "m"), given("y", F32, "n", "b", "m"), given("w", F32, "m")
    both = value("xy", Select(1, (Dim.of(0), first)), "x y", F32, "n", rows, "m")
    weights = value("v", View((Dim.of("#2"),)), "w", F32, "n", rows, "m")
    joined = graph("z", *inputs, both, weights, value("z", Map("add"), "xy v", F32, "n", rows, "m"))
    launches = check(on_gpu(lower(normalise(joined), "joined"))).launches
    loops = [s for launch in launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    assert len(launches) > 1
    assert not [loop for loop in loops if loop.axis is Axis.SERIAL]
