"""Grids of blocks of threads: interpreted, they compute what the graph does; what they cannot is refused."""

from __future__ import annotations

import pytest

from noyau.codegen.cuda import printer as cuda_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import blocks
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.errors import UnsupportedError
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop
from noyau.ir.walk import every_statement
from tests.codegen.kernels import GOLDEN
from tests.compiler.schedules.groups import reduced, scanned, scattered
from tests.trying import attempt

SMALL = {"BLOCK": 8, "WARP": 2, "SHORT": 4, "FEW": 2, "CHUNK": 16, "TILE": 16, "WIDE": 4}


def scheduled(graph):
    return check(in_blocks(lower(normalise(graph), "kernel")))


@pytest.mark.parametrize(
    "seeds", [range(700, 740), pytest.param(range(740, 1200), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_graphs_of_seeds_come_out_right(seeds, monkeypatch):
    """So small that a few cells are several blocks, and rows of some cells are long."""
    for name, number in SMALL.items():
        monkeypatch.setattr(blocks, name, number)
    tried = 0
    for seed in seeds:
        if (each := attempt(seed)) is None:
            continue
        try:
            kernel = check(in_blocks(each.lowered))
            cuda_printer.together([kernel])
        except UnsupportedError:
            continue
        tried += 1
        assert each.wrong(kernel, run(kernel, each.arrays(kernel), seed=seed)) is None, seed
    assert tried > len(seeds) // 2


def test_long_rows_have_a_block_and_short_ones_a_warp():
    long, short = scheduled(GOLDEN["log_softmax_kept"][0]).launches
    threads = [
        {s.extent.constant for s in every_statement(each.body) if isinstance(s, Loop) and s.axis is Axis.LANES}
        for each in (long, short)
    ]
    assert blocks.BLOCK in threads[0]
    assert blocks.WARP in threads[1]
    assert long.when is not None


def test_an_array_is_folded_in_chunks_whose_states_are_merged():
    kernel = scheduled(reduced("sum", "n", axes=(0,)))
    assert [buffer.name for buffer in kernel.buffers if "of_block" in buffer.name]
    assert len(kernel.launches) == 2


@pytest.mark.parametrize(
    ("graph", "lacks"),
    [(scattered(), "scatters"), (scanned("sum", "rows", "n", axis=1), "carries a state along an axis")],
)
def test_what_meets_in_cells_is_refused(graph, lacks):
    with pytest.raises(UnsupportedError, match=f"^kernel: no strategy for blocks of threads {lacks} yet$"):
        scheduled(graph)
