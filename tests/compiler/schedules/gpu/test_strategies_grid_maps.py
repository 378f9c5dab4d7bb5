"""Maps on a GPU: how many cells a program computes, and with how many warps, as what it reads lies in memory."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.loop_verifier import check
from tests.jobs.check.groups import one_map, swiglu


def tile_of_cells(graph, layout):
    """The tile that says how many cells a program has, of inputs that all lie so, and its warps."""
    layouts = {node.output: layout for node in graph.inputs if layout}
    (launch,) = check(on_gpu(lower(normalise(graph), "kernel", layouts))).launches
    tile = next(t for t in launch.tiles if t.name in ("ROWS", "BLOCK"))
    return tile.number, tile.warps


@pytest.mark.parametrize(("layout", "expected"), [(None, (1024, 0)), ("inner", (4096, 0)), ("strided", (1024, 4))])
def test_cells_that_are_read_apart_are_few_of_a_thread(layout, expected):
    assert tile_of_cells(swiglu(), layout) == expected


@pytest.mark.parametrize(("layout", "expected"), [(None, (1024, 0)), ("strided", (1024, 4))])
def test_lone_loops_too(layout, expected):
    assert tile_of_cells(one_map("exp"), layout) == expected
