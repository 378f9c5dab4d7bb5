"""Grids of threads and of blocks for those who learn: interpreted, they compute what the graph does."""

from __future__ import annotations

import pytest

from noyau.codegen.numba_cuda import printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import blocks
from noyau.compiler.schedules.gpu.blocks import in_threads
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop
from noyau.ir.walk import every_statement, on_threads
from noyau.sanitizer.numba_cuda.launch import SimulatedCall
from noyau.toolchain.numba.kernel import load
from tests.codegen.kernels import GOLDEN
from tests.compiler.schedules.groups import assert_keeps, reduced, scattered, scattered_cells
from tests.trying import attempt

SMALL = {"BLOCK": 8, "FEW": 2, "ROWS": 4, "CHUNK": 16}


def scheduled(graph):
    return check(in_threads(lower(normalise(graph), "kernel")))


@pytest.mark.parametrize(
    "seeds", [range(700, 720), pytest.param(range(720, 1200), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_graphs_of_seeds_come_out_right(seeds, monkeypatch):
    """So small that a few cells are several rounds of a block: interpreted, and printed and launched without a GPU."""
    for name, number in SMALL.items():
        monkeypatch.setattr(blocks, name, number)
    monkeypatch.setattr(printer, "THREADS", blocks.BLOCK)
    tried = 0
    for seed in seeds:
        if (each := attempt(seed)) is None:
            continue
        try:
            kernel = check(in_threads(each.lowered))
            text = printer.together([kernel])
        except UnsupportedError:
            continue
        tried += 1
        arrays, call = each.arrays(kernel), SimulatedCall(load(text)[1], kernel)
        assert each.wrong(kernel, run(kernel, arrays, seed=seed)) is None, seed
        assert each.wrong(kernel, call(*arrays)) is None, seed
        assert list(call.findings("op", "kernel", "")) == [], seed
    assert tried > len(seeds) // 2


def lanes(launch):
    return [s for s in every_statement(launch.body) if isinstance(s, Loop) and s.axis is Axis.LANES]


def test_a_row_has_a_block_and_a_cell_a_thread():
    (row,) = scheduled(GOLDEN["softmax_inner"][0]).launches
    (cells,) = scheduled(GOLDEN["transposed"][0]).launches
    assert [len(on_threads(launch.body)[1]) for launch in (row, cells)] == [1, 3]
    assert (bool(lanes(row)), bool(lanes(cells))) == (True, False)


@pytest.mark.parametrize(("sizes", "axes"), [(("n",), (0,)), (("rows", "n"), (0,))], ids=["chunks", "pieces"])
def test_a_whole_array_and_long_columns_are_folded_in_two_launches(sizes, axes):
    kernel = scheduled(reduced("sum", *sizes, axes=axes))
    assert [buffer.name for buffer in kernel.buffers if "of_block" in buffer.name]
    assert [bool(lanes(launch)) for launch in kernel.launches] == [len(sizes) == 1] * 2


@pytest.mark.parametrize("graph", [scattered(), scattered_cells(1, dtype=DType.I32)], ids=["rows", "cells"])
def test_sums_are_added_as_they_come(graph):
    sizes = {"a": 7, "n": 30, "b": 3, "words": 3, "rows": 4}
    assert_keeps(normalise(graph), scheduled(graph), sizes)


@pytest.mark.parametrize(("graph", "way"), [(scattered_cells(0, "max"), Way.ATOMIC), (scattered(), Way.OWNER)])
def test_what_is_no_sum_or_has_an_order_is_refused(graph, way):
    with pytest.raises(UnsupportedError, match=r"^kernel: no strategy for threads of a GPU scatters but sums"):
        in_threads(lower(normalise(graph), "kernel"), way)
