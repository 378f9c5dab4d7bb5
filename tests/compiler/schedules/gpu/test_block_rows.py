"""Rows of blocks and clusters: interpreted, they compute what the graph does, whatever is kept."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen.cuda import printer as cuda_printer
from noyau.codegen.numba_cuda import printer as numba_cuda_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import block_rows, blocks
from noyau.compiler.schedules.gpu.block_rows import Share
from noyau.compiler.schedules.gpu.blocks import in_blocks, in_threads
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Gather, Lookup
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Loop, Role, Space
from noyau.ir.walk import every_statement
from noyau.kernels.programs.program import program
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import GRAPHS as NORMS
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import arrays_of
from tests.compiler.schedules.groups import inputs_of, log_softmax, residual_rms_norm
from tests.jobs.check.groups import Group, layer_norm, softmax
from tests.judged import Judge

SHARES = [Share(1, 16, 32), Share(2, 16, 32), Share(4, 16, 64)]
GRAPHS = {
    "log_softmax": log_softmax(dtype=DType.BF16),
    "residual_rms_norm": residual_rms_norm(dtype=DType.BF16),
    "layer_norm": layer_norm(),
}


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"{share.blocks} blocks")
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("n", [5, 49])
def test_kept_rows_are_right(name, share, n, monkeypatch):
    monkeypatch.setattr(blocks, "KEPT", (share,))
    graph = GRAPHS[name]
    kernel = check(in_blocks(lower(normalise(graph), "kernel")))
    cuda_printer.together([kernel])
    inputs = inputs_of(graph, {binding.size: n for binding in kernel.binding} | {"rows": 2}, seed=n)
    names = [buffer.source or buffer.name for buffer in kernel.of(Role.INPUT)]
    scalars = tuple(name for name in names if name not in inputs)  # that the passes made inputs
    known = inputs | (evaluate(replace(graph, outputs=scalars), inputs) if scalars else {})
    arrays = [known[name] for name in names]
    judge = Judge(graph, inputs)
    for seed in range(2):
        for output, got in zip(normalise(graph).outputs, run(kernel, arrays, seed=seed), strict=True):
            assert judge.wrong(output, np.asarray(got)) is None


def test_a_cluster_keeps_pieces_and_gives_states(monkeypatch):
    monkeypatch.setattr(blocks, "KEPT", (Share(4, 16, 64),))
    launch = in_blocks(lower(normalise(softmax()), "kernel")).launches[0]
    statements = list(every_statement(launch.body))
    spaces = {s.space for s in statements if isinstance(s, Alloc)}
    assert {Space.LANE, Space.CLUSTER} <= spaces
    assert {s.extent.constant for s in statements if isinstance(s, Loop) and s.axis is Axis.BLOCKS} == {4}


def test_sums_of_halves_stay_narrow_and_those_of_floats_do_not():
    def dtypes(graph):
        launches = in_blocks(lower(normalise(graph), "kernel")).launches
        return {
            s.dtype for each in launches for s in every_statement(each.body) if isinstance(s, Alloc) and "sum" in s.name
        }

    assert DType.F64 not in dtypes(log_softmax(dtype=DType.BF16))
    assert DType.F64 in dtypes(log_softmax())


def test_passes_of_other_lengths_are_no_row():
    row = in_blocks(lower(normalise(softmax()), "kernel")).launches[0].body
    assert block_rows.extent_of(row) is None
    assert block_rows.extent_of(()) == Dim.of(0)


def shares_of_looked_up_cells():
    """Cells of a row that are looked up, by the sum of the row."""
    g, (row, cell), shape = Group(), indices(2), ("rows", "n")
    x, ids = g.input("x", DType.F32, *shape), g.input("ids", DType.I64, "n")
    looked_up = g.add(Gather((row, Lookup(1, (cell,)))), [x, ids], DType.F32, shape)
    g.map("divide", looked_up, g.expand(g.reduce("sum", x), shape))
    return g.graph()


def log_sum_of_looked_up_row():
    g, (row, cell), shape = Group(), indices(2), ("rows", "n")
    x, ids = g.input("x", DType.F32, "words", "n"), g.input("ids", DType.I64, "rows")
    looked_up = g.add(Gather((Lookup(1, (row,)), cell)), [x, ids], DType.F32, shape)
    shifted = g.map("subtract", looked_up, g.expand(g.reduce("max", looked_up), shape))
    g.map("log", g.reduce("sum", g.map("exp", shifted)))
    return g.graph()


@pytest.mark.parametrize("graph", [shares_of_looked_up_cells(), log_sum_of_looked_up_row()], ids=["cells", "rows"])
@pytest.mark.parametrize("scheduled", [in_blocks, in_threads])
def test_the_threads_share_what_is_looked_up(graph, scheduled):
    kernel = check(scheduled(lower(normalise(graph), "kernel")))
    (cuda_printer if scheduled is in_blocks else numba_cuda_printer).together([kernel])
    loops = [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    serial = [loop for loop in loops if loop.axis is Axis.SERIAL]
    assert {loop.step for loop in serial} <= {32, 256}
    inputs = inputs_of(graph, {"rows": 2, "n": 5, "words": 3})
    arrays = [inputs[buffer.source] for buffer in kernel.of(Role.INPUT)]
    for output, got in zip(graph.outputs, run(kernel, arrays, seed=1), strict=True):
        assert Judge(graph, inputs).wrong(output, np.asarray(got)) is None


@pytest.fixture
def _small(monkeypatch):
    """Rows of a few cells are long, and few clusters are on the way."""
    monkeypatch.setattr(blocks, "SUMMED", (Share(2, 8, 32), Share(4, 8, 32)))
    for name, number in {"AT_ONCE": 12, "MOST": 12, "MANY": 5}.items():
        monkeypatch.setattr(block_rows, name, number)


def norm_kernel(name):
    return check(program(NORMS[name], "back", None, in_blocks, joining=join_rows_and_columns).single)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(("rows", "n"), [(1, 16), (11, 20), (7, 64), (9, 60), (5, 7), (4, 132)])
def test_rows_and_the_sums_of_their_columns_are_right(name, rows, n):
    kernel, inputs = norm_kernel(name), arrays_of(NORMS[name], rows, n)
    judge = Judge(NORMS[name], inputs)
    arrays = [inputs[buffer.source] for buffer in kernel.of(Role.INPUT)]
    for seed in range(2):
        for output, got in zip(NORMS[name].outputs, run(kernel, arrays, seed=seed), strict=True):
            assert judge.wrong(output, got) is None


def loads_in(launch, name):
    """Whether whole vectors of an array are loaded before the rows of a text, and within them."""
    before, _, rows = launch.partition("for (int64_t round = 0;")
    return [f"_load<float, 4>(&{name}[" in text for text in (before, rows)]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("name", "of_row"), [("layer_norm", [False, True]), ("rms_norm", [True, True])])
def test_a_cluster_reads_each_row_once_for_both_and_weights_once_for_all(name, of_row):
    """The sums of one column leave registers for the next row to be loaded while this one is written."""
    first = cuda_printer.together([norm_kernel(name)]).split('extern "C"')[1]
    assert [loads_in(first, each) for each in ("grad_out", "x", "weight")] == [of_row, of_row, [True, False]]
    assert ("< batch_0) {" in first) is (name == "rms_norm")
    assert first.count("noyau_merge_blocks<2>(") == 1  # of three sums


@pytest.mark.usefixtures("_small")
def test_sums_of_columns_are_loaded_and_stored_as_vectors():
    first = cuda_printer.together([norm_kernel("layer_norm")]).split('extern "C"')[1]
    names = re.findall(r"__shared__ float (\w+_of_thread)\[", first)
    assert len(names) == 2
    for name in names:
        assert f"noyau_vector<float, 4> {name}_cells;" in first
        assert f"{name}_cells.at[cell] = {name}[" in first
        assert f"{name}_cells.at[cell] +=" in first


@pytest.mark.usefixtures("_small")
def test_all_warps_of_a_block_merge_what_clusters_leave():
    merge = norm_kernel("layer_norm").launches[1]
    shared = [s for s in every_statement(merge.body) if isinstance(s, Alloc) and s.space is Space.BLOCK]
    assert [s.shape[-1].constant for s in shared] == [block_rows.BLOCK] * 2


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("sizes", "wanted"), [((6, 16), True), ((6, 12), False), ((6, 18), False), ((4, 16), False)])
def test_sums_of_many_long_rows_are_told(sizes, wanted):
    """Not of short ones, of those that begin anywhere, and of a few."""
    kernel = norm_kernel("rms_norm")
    assert block_rows.sums_rows(kernel, dict(zip(("batch_0", "n"), sizes, strict=True))) is wanted
