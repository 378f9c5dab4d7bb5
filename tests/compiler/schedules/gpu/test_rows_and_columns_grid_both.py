"""Rows and the sums over them on a GPU: gradients of norms from one read, in one pass and in two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.codegen.triton import printer as triton_printer
from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.schedules.gpu import rows as gpu_rows
from noyau.compiler.schedules.gpu import rows_and_columns
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role, TilePolicy, at_most
from noyau.kernels.programs.program import program
from tests.compiler.schedules.groups import tile_sizes
from tests.judged import Judge

SIZES = {
    TilePolicy.COVERING: 16,
    TilePolicy.KEPT: 16,
    TilePolicy.SHARING: 2,
    TilePolicy.OCCUPYING: 4,
    TilePolicy.ALIGNMENT: 1,
}


def gradient(op, ranks, dtype=DType.F32):
    """The backward graph of a norm by all its inputs."""
    graph = op.generate("triton", [dtype] * len(ranks), ranks).graph
    return derive(graph, [node.output for node in graph.inputs]).backward


def kernel_of(graph):
    made = program(graph, "back", None, on_gpu, joining=join_rows_and_columns)
    assert made.single is not None
    return check(made.single)


def arrays_of(graph, rows, n):
    return arrays_of_sizes(graph, {"batch_0": rows, "n": n})


def arrays_of_sizes(graph, sizes):
    noise = np.random.default_rng(sum(sizes.values()))
    made = {}
    for node in graph.inputs:
        shape = tuple(dim.evaluate(sizes) for dim in node.shape)
        made[node.output] = (noise.random(shape) + 0.5).astype(np.float32)
    return made


def numbers_of(kernel):
    return tile_sizes(kernel, SIZES)


GRAPHS = {"rms_norm": gradient(nn.rms_norm, [2, 1]), "layer_norm": gradient(nn.layer_norm, [2, 1, 1])}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Rows of a few cells are long, and a few rows are many."""
    for name, number in {"LEAST": 5, "MOST": 12, "PROGRAMS": 3, "SIDE": 12, "DEEP": 4, "PIECE": 8}.items():
        monkeypatch.setattr(rows_and_columns, name, number)
    monkeypatch.setattr(gpu_rows, "SHORT", 0)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("rows", "n"), [(1, 7), (11, 5), (7, 12), (1, 1), (9, 4), (10, 13), (3, 17)])
def test_gradients_are_what_the_graph_gives(name, rows, n):
    graph = GRAPHS[name]
    kernel, inputs = kernel_of(graph), arrays_of(graph, rows, n)
    judge = Judge(graph, inputs)
    results = run(kernel, [inputs[b.source] for b in kernel.of(Role.INPUT)], seed=3, sizes=numbers_of(kernel))
    for output, got in zip(graph.outputs, results, strict=True):
        assert judge.wrong(output, got) is None


def test_a_row_is_read_once_where_it_fits():
    kernel = kernel_of(GRAPHS["layer_norm"])
    texts = [triton_printer.together([replace(kernel, launches=(launch,))]) for launch in kernel.launches]
    assert [text.count("tl.load(grad_out") for text in texts[:2]] == [1, 0]
    assert all(launch.when is not None for launch in kernel.launches)


@pytest.mark.parametrize(("dtype", "least"), [(DType.F32, 5), (DType.BF16, 10)])
def test_rows_of_halves_are_kept_from_twice_as_many_cells_on(dtype, least):
    launch = kernel_of(gradient(nn.rms_norm, [2, 1], dtype)).launches[0]
    assert repr(at_most(Dim.of(least), Dim.of("n"))) in repr(launch.when)


def test_rounds_are_loaded_ahead():
    text = triton_printer.together([kernel_of(GRAPHS["layer_norm"])])
    assert "    for round in tl.range(0, tl.cdiv(batch_0 - BESIDE * part, " in text
    size = "(COLUMNS * 12 + 8) * BESIDE"
    assert f'STAGES = tiles.get("STAGES", stages_of({size}) if {size} > 16384 else 1)' in text


def test_statistics_that_only_the_sums_need_are_not_written():
    made = program(GRAPHS["layer_norm"], "back", None, on_gpu)
    extra = {node for step in made.steps for node in step.graph.outputs} - set(GRAPHS["layer_norm"].outputs)
    kernel = kernel_of(GRAPHS["layer_norm"])
    assert extra and extra <= {buffer.source for buffer in kernel.of(Role.SCRATCH)}


def test_kernels_that_are_no_such_pair_stay_apart():
    made = program(GRAPHS["layer_norm"], "back", None, lambda kernel: kernel)
    rows, columns = made.kernels
    assert join_rows_and_columns(rows, columns, ()) is not None
    assert join_rows_and_columns(columns, rows, ()) is None
    assert join_rows_and_columns(rows, rows, ()) is None


@noyau.op("f32[n, m], f32[n, m] -> made: f32[n, m], sums: f32[m]")
def moved_and_weighted(x, g):
    mean = x.mean(1)
    return x - mean[:, None], (g * mean[::-1][:, None]).sum(0)


def test_sums_that_take_what_another_row_gives_stay_apart():
    graph = moved_and_weighted.generate("c", [DType.F32] * 2, [2, 2]).graph
    steps = program(graph, "moved", None, on_gpu, joining=join_rows_and_columns).steps
    values = arrays_of_sizes(graph, {"n": 7, "m": 6})
    judge = Judge(graph, values)
    for step in steps:
        given = [values[buffer.source] for buffer in step.kernel.of(Role.INPUT)]
        results = run(check(step.kernel), given, seed=3, sizes=numbers_of(step.kernel))
        values |= {b.source: got for b, got in zip(step.kernel.of(Role.OUTPUT), results, strict=True)}
    assert len(steps) == 2
    assert not any(judge.wrong(output, values[output]) for output in graph.outputs)


def test_the_text_runs(monkeypatch):
    graph = GRAPHS["layer_norm"]
    kernel = kernel_of(graph)
    for rows, n in ((7, 6), (5, 13), (3, 14)):
        inputs = arrays_of(graph, rows, n)
        judge = Judge(graph, inputs)
        results = compiled(kernel)(*(inputs[b.source] for b in kernel.of(Role.INPUT)))
        for output, got in zip(graph.outputs, results, strict=True):
            assert judge.wrong(output, got) is None


def compiled(kernel):
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    return DeviceKernel(triton_printer.together([kernel]), kernel).call_guarded
