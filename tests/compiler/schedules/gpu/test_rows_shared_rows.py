"""Rows that several programs share: what they compute, in how many launches, and when they are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.errors import GraphError, InputError
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role, TilePolicy
from noyau.ir.walk import on_threads
from tests.compiler.schedules.groups import log_softmax, reduced, residual_rms_norm, tile_sizes
from tests.jobs.check.groups import layer_norm, softmax
from tests.judged import Judge

GRAPHS = {
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "rms_norm": residual_rms_norm(),
    "layer_norm": layer_norm(),
    "argmax": reduced("argmax", "rows", "n", axes=(1,)),
}
SIZES = {TilePolicy.OCCUPYING: 4, TilePolicy.COVERING: 16}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Also rows of a few cells."""
    monkeypatch.setattr(rows, "SHORT", 0)


def kernel_of(graph):
    """The kernel, its first launches alone, in which rows are shared."""
    made = check(on_gpu(lower(normalise(graph), "kernel")))
    first = made.launches[0]
    assert any(tile.policy is TilePolicy.OCCUPYING for tile in first.tiles)
    return replace(made, launches=tuple(launch for launch in made.launches if launch.when == first.when))


def numbers_of(kernel):
    return tile_sizes(kernel, SIZES)


def arrays_of(graph, rows, n):
    noise = np.random.default_rng(rows + n)
    shapes = {"x": (rows, n), "r": (rows, n), "w": (n,), "b": (n,)}
    own = {node.output for node in graph.inputs}
    return {name: noise.standard_normal(s).astype(np.float32) for name, s in shapes.items() if name in own}


def results_of(kernel, graph, inputs):
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    given = [{**constants, **inputs}[buffer.source] for buffer in kernel.of(Role.INPUT)]
    return run(kernel, given, seed=5, sizes=numbers_of(kernel))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("n", [1, 7, 16])
def test_pieces_give_what_the_graph_does(name, n):
    graph = GRAPHS[name]
    kernel, inputs = kernel_of(graph), arrays_of(graph, 3, n)
    judge = Judge(graph, inputs)
    for output, got in zip(normalise(graph).outputs, results_of(kernel, graph, inputs), strict=True):
        assert judge.wrong(output, got) is None


def test_what_pieces_leave_is_merged_by_a_later_launch():
    graph = GRAPHS["softmax"]
    kernel = kernel_of(graph)
    hasty = replace(kernel, launches=kernel.launches[::-1])
    with pytest.raises(GraphError, match="read before it is set"):
        results_of(hasty, graph, arrays_of(graph, 2, 16))


def test_a_sum_that_needs_the_maximum_takes_no_launch_of_its_own():
    assert {name: len(kernel_of(graph).launches) for name, graph in GRAPHS.items()} == dict.fromkeys(GRAPHS, 2)


def test_only_few_rows_are_shared():
    made = on_gpu(lower(normalise(GRAPHS["softmax"]), "kernel"))
    assert len(made.launches) == 4
    assert "128" in str(made.launches[0].when)
    many = on_gpu(lower(normalise(log_softmax(rows=4096)), "kernel"))
    assert not any(tile.policy is TilePolicy.OCCUPYING for launch in many.launches for tile in launch.tiles)


def test_what_a_row_gives_once_is_stored_by_one_program():
    loops = [[loop.var for loop in on_threads(launch.body)[1]] for launch in kernel_of(GRAPHS["argmax"]).launches]
    assert [names[-1] == "#piece" for names in loops] == [True, False]


@noyau.op("f32[rows, n] -> cells: f32[rows, n], most: f32[rows]")
def divided_by_largest(x):
    most = x.max(1)
    return x / most[:, None], most


def test_what_is_stored_beside_cells_is_stored_once():
    graph = divided_by_largest.generate("c", [DType.F32], [2]).graph
    kernel, inputs = kernel_of(graph), arrays_of(graph, 3, 17)
    results = run(kernel, [inputs[b.source] for b in kernel.of(Role.INPUT)], seed=5, sizes=numbers_of(kernel))
    judge = Judge(graph, inputs)
    assert not any(judge.wrong(output, got) for output, got in zip(graph.outputs, results, strict=True))


@noyau.op("f32[rows, n], f32[rows, n] -> f32[rows]")
def sum_of_larger(x, r):
    e = np.exp(x - x.max(1, keepdims=True))
    return np.maximum(r, e.sum(1, keepdims=True)).sum(1)


def test_what_needs_the_sum_alone_waits_for_both():
    graph = sum_of_larger.generate("c", [DType.F32] * 2, [2, 2]).graph
    kernel, inputs = kernel_of(graph), arrays_of(graph, 3, 17)
    (got,) = run(kernel, [inputs[b.source] for b in kernel.of(Role.INPUT)], seed=5, sizes=numbers_of(kernel))
    assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None


def test_a_label_is_asked_to_be_inside_before_a_cell_is_loaded_there():
    graph = nn.cross_entropy_each.generate("c", [DType.F32, DType.I64], [2, 1]).graph
    kernel, labels = kernel_of(graph), np.array([0, 16, 17])
    inputs = [labels if b.dtype is DType.I64 else arrays_of(layer_norm(), 3, 17)["x"] for b in kernel.of(Role.INPUT)]
    with pytest.raises(InputError, match="index out of bounds"):
        run(kernel, inputs, seed=5, sizes=numbers_of(kernel))
