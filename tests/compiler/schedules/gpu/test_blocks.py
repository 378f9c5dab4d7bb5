"""Grids of blocks of threads: interpreted, they compute what the graph does; what they cannot is refused."""

from __future__ import annotations

import pytest

from noyau.codegen.cuda import printer as cuda_printer
from noyau.codegen.cuda.printer import block_of
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import blocks
from noyau.compiler.schedules.gpu.block_rows import Share
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.errors import UnsupportedError
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Loop, Space, Store, runs
from noyau.ir.walk import every_statement
from tests.codegen.kernels import GOLDEN
from tests.compiler.schedules.groups import assert_keeps, concatenated, reduced, rotary, transposed
from tests.trying import attempt

SMALL = {"BLOCK": 8, "SHORT": 4, "FEW": 2, "CHUNK": 16, "TILE": 16, "WIDE": 4, "SIDE": 4}
SHARES = ((Share(1, 16, 16),), (Share(2, 16, 32),), ())  # a block has a row, a cluster of two, or nobody keeps it


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
        monkeypatch.setattr(blocks, "KEPT", SHARES[seed % 3])
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


def test_short_pieces_of_a_row_are_one_loop_over_neighbouring_cells():
    """A thread has a cell of both halves of a head, whose place it finds by division by a constant alone."""
    graph = normalise(rotary())
    kernel = scheduled(graph)
    assert_keeps(graph, kernel, {"b": 2, "s": 5}, {"b": 1, "s": 40})
    loops = [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    cells = [loop for loop in loops if any(isinstance(s, Store) for s in loop.body)]
    assert [len([s for s in loop.body if isinstance(s, Store)]) for loop in cells] == [2, 2]
    assert "noyau_floor" not in cuda_printer.together([kernel]).partition("kernel_1(")[0].partition("kernel_0(")[2]


@pytest.mark.parametrize("seeds", [range(3158, 3161), pytest.param(range(3000, 3150), marks=pytest.mark.long)])
def test_cells_of_several_values_are_one_thread_s(seeds):
    """As large as they are: a thread takes in the few values of a small fold alone."""
    for seed in seeds:
        if (each := attempt(seed)) is None:
            continue
        try:
            kernel = check(in_blocks(each.lowered))
        except UnsupportedError:
            continue
        assert each.interpreted(kernel) is None, seed


@pytest.mark.parametrize(
    ("n", "shape"),
    [(500, (32, 1)), (4096, (256, 1)), (4097, (256, 2)), (20000, (256, 4)), (65536, (256, 8)), (65537, (256, 1))],
)
def test_a_row_has_a_warp_a_block_or_a_cluster(n, shape):
    kernel = scheduled(GOLDEN["log_softmax_kept"][0])
    (launch,) = [each for each in kernel.launches if each.when is None or runs(each.when, {"rows": 3, "n": n})]
    block = block_of(launch)
    assert (block.threads, block.blocks) == shape


def test_what_is_read_once_is_not_kept():
    kernel = scheduled(GOLDEN["row_argmax"][0])
    assert not any(
        isinstance(s, Alloc) and s.space is Space.LANE for each in kernel.launches for s in every_statement(each.body)
    )


def test_an_array_is_folded_in_chunks_whose_states_are_merged():
    kernel = scheduled(reduced("sum", "n", axes=(0,)))
    assert [buffer.name for buffer in kernel.buffers if "of_block" in buffer.name]
    assert len(kernel.launches) == 2


def test_a_transpose_goes_through_tiles_of_shared_memory():
    graph = transposed(1, 0, shape=("a", "b"))
    kernel = in_blocks(lower(normalise(graph), "kernel"))
    wide, *narrow = kernel.launches
    memory = [s for s in every_statement(wide.body) if isinstance(s, Alloc)]
    assert [(each.space, each.shape[0].constant) for each in memory] == [(Space.BLOCK, 32 * 33)]
    assert not any(isinstance(s, Alloc) for launch in narrow for s in every_statement(launch.body))
    assert_keeps(normalise(graph), kernel, {"a": 45, "b": 40}, {"a": 3, "b": 200}, {"a": 0, "b": 5})


def test_short_rows_of_several_pieces_have_a_warp_each():
    kernel = scheduled(concatenated(1))
    sizes = [binding.size for binding in kernel.binding]
    for cells, threads in ((64, 32), (5000, 256)):
        ran = [each for each in kernel.launches if each.when is None or runs(each.when, dict.fromkeys(sizes, cells))]
        assert [launch.threads for launch in ran] == [threads]
