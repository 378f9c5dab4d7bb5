"""Rows that several programs share: what they compute, that they must wait for each other, and when they are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, If, Loop, Role, Space, Sync
from noyau.ir.running import run
from noyau.ir.walk import every_statement
from noyau.ir.wellformed import check
from noyau.lowering.nest import lower
from noyau.passes.normal import normalise
from noyau.schedules import grid_shared
from noyau.schedules.grid import on_gpu
from noyau.schedules.grid_tiles import tiles_in
from tests.checking.groups import layer_norm, softmax
from tests.judged import Judge
from tests.schedules.groups import log_softmax, reduced, residual_rms_norm

GRAPHS = {
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "rms_norm": residual_rms_norm(),
    "layer_norm": layer_norm(),
    "argmax": reduced("argmax", "rows", "n", axes=(1,)),
}
SIZES = {"pieces": 4, "fits": 16}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Also rows of a few cells."""
    monkeypatch.setattr(grid_shared, "SHORT", 0)


def kernel_of(graph):
    """The kernel, its first launch alone, in which rows are shared."""
    made = check(on_gpu(lower(normalise(graph), "kernel")))
    assert any(isinstance(s, Sync) and s.scope is Space.CLUSTER for s in every_statement(made.launches[0].body))
    return replace(made, launches=made.launches[:1])


def numbers_of(kernel):
    return {str(t.size): SIZES.get(t.how, 4) for launch in kernel.launches for t in tiles_in(launch.body)}


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


def test_programs_that_do_not_wait_are_found():
    def hasty(statement):
        match statement:
            case Loop() | If():
                inner = tuple(hasty(s) for s in statement.body if not isinstance(s, Sync))
                return replace(statement, body=inner)
            case _:
                return statement

    graph = GRAPHS["softmax"]
    kernel = kernel_of(graph)
    (launch,) = kernel.launches
    kernel = replace(kernel, launches=(replace(launch, body=tuple(map(hasty, launch.body))),))
    with pytest.raises(GraphError, match=r"without a Sync|read before it is set"):
        results_of(kernel, graph, arrays_of(graph, 2, 16))


def test_a_sum_that_needs_the_maximum_waits_once():
    count = {
        name: sum(isinstance(s, Sync) for s in every_statement(kernel_of(GRAPHS[name]).launches[0].body))
        for name in GRAPHS
    }
    assert count == {"softmax": 1, "log_softmax": 1, "rms_norm": 1, "layer_norm": 1, "argmax": 1}


def test_only_few_rows_are_shared():
    made = on_gpu(lower(normalise(GRAPHS["softmax"]), "kernel"))
    assert len(made.launches) == 3
    assert "128" in str(made.launches[0].when)
    many = on_gpu(lower(normalise(log_softmax(rows=4096)), "kernel"))
    assert not any(isinstance(s, Sync) for launch in many.launches for s in every_statement(launch.body))


def test_what_a_row_gives_once_is_stored_by_one_program():
    kernel = kernel_of(GRAPHS["argmax"])
    loops = [s for s in every_statement(kernel.launches[0].body) if isinstance(s, Loop) and s.axis is Axis.THREADS]
    assert [loop.var for loop in loops][-1] == "#piece"
    assert loops[-1].extent != Dim.of(1)
    assert any(isinstance(s, If) for s in every_statement(kernel.launches[0].body))


@noyau.op("f32[rows, n], f32[rows, n] -> f32[rows]")
def sum_of_larger(x, r):
    e = np.exp(x - x.max(1, keepdims=True))
    return np.maximum(r, e.sum(1, keepdims=True)).sum(1)


def test_what_needs_the_sum_alone_waits_for_both():
    graph = sum_of_larger.generated("c", [DType.F32] * 2, [2, 2]).graph
    kernel, inputs = kernel_of(graph), arrays_of(graph, 3, 17)
    (got,) = run(kernel, [inputs[b.source] for b in kernel.of(Role.INPUT)], seed=5, sizes=numbers_of(kernel))
    assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None
