from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.partition.recomputation import repeat_cheap
from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType
from noyau.ir.graph import Map, Reduce
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from noyau.ir.walk import targets_of
from noyau.kernels.programs.program import KernelStep, program
from tests.compiler.autodiff.numeric import traced

SHAPE = (7, 5)


def scaled(x, g):
    rows = g * x * 0.3
    return rows * rows.sum(-1, keepdims=True), rows.sum(0)


def costly(x, g):
    rows = np.tanh(x) * np.exp(g)
    return rows * rows.sum(-1, keepdims=True), rows.sum(0)


def returned(x, g):
    rows = g * x
    return rows, rows.sum(0)


def of_many(x, g, y, z):
    rows = g * x + y * z
    return rows * rows.sum(-1, keepdims=True), rows.sum(0)


def unshared(x, g):
    return (g * x).sum(0), (x + 1).sum(-1)


def of_rows(x, g):
    rows = g * x
    return rows * rows.sum(-1, keepdims=True)


def of_a_narrow_row(x, g):
    rows = x * np.sqrt((g * g).sum(-1, keepdims=True))
    return rows * rows.sum(-1, keepdims=True), rows.sum(0)


@pytest.mark.parametrize(
    ("function", "copies"),
    [(scaled, 3), (costly, 0), (returned, 0), (of_many, 0), (unshared, 0), (of_rows, 0), (of_a_narrow_row, 2)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_column_sum_has_to_itself_what_is_cheap_and_others_read_too(function, copies):
    names = function.__code__.co_argcount
    graph = traced(function, *[SHAPE] * names, dtype=DType.F32)
    made = check(repeat_cheap(graph))
    found = [node for node in made.nodes if node.output not in graph.by_name]
    assert len(found) == copies
    inputs = {node.output: np.random.default_rng(0).normal(size=SHAPE) for node in graph.inputs}
    for name, want in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(evaluate(made, inputs)[name], want)


def of_numbers_alone(x):
    return np.nanmean(x, axis=0)


def test_what_two_column_sums_share_and_nobody_else_reads_is_gone():
    graph = traced(of_numbers_alone, SHAPE, dtype=DType.F32)
    made = check(repeat_cheap(graph))
    assert drop_unused(made) == made != graph
    assert all(isinstance(step, KernelStep) for step in program(graph, "of_numbers_alone").steps)


def test_a_row_s_own_number_is_not_computed_again():
    graph = traced(of_a_narrow_row, SHAPE, SHAPE, dtype=DType.F32)
    roots = [node for node in repeat_cheap(graph).nodes if node.kind == Map("sqrt")]
    assert len(roots) == 1


def test_no_kernel_writes_what_the_other_one_can_compute():
    graph = traced(scaled, SHAPE, SHAPE, dtype=DType.F32)
    (step,) = program(graph, "scaled").steps
    assert isinstance(step, KernelStep)
    assert [len(targets_of(launch.body)) for launch in step.lowered.launches] == [1, 1]
    assert any(isinstance(node.kind, Reduce) and node.kind.axes == (0,) for node in graph.nodes)
