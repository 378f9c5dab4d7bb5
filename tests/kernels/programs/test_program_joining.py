"""Which kernels of a program are asked to be one."""

from __future__ import annotations

import numpy as np

import noyau
from noyau import nn
from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.ir.loops import Role
from noyau.kernels.programs.program import KernelStep, program


@noyau.op("f32[m, n], f32[n, n] -> made: f32[m, n], sums: f32[n]")
def multiplied(x, w):
    made = x / x.sum(-1, keepdims=True)
    return made, (made @ w).sum(0)


def asked(graph):
    """The outputs of the pairs that are asked."""
    pairs = []

    def joining(one, other, wanted):
        pairs.append(tuple({buffer.source for buffer in kernel.of(Role.OUTPUT)} for kernel in (one, other)))

    program(graph, "asked", None, on_gpu, joining=joining)
    return pairs


def test_two_that_read_the_same_are_one_with_what_others_need():
    norm = nn.layer_norm.generate("c", [DType.F32] * 3, [2, 1, 1]).graph
    graph = derive(norm, [node.output for node in norm.inputs]).backward
    (step,) = program(graph, "norm", None, on_gpu, joining=join_rows_and_columns).steps
    assert isinstance(step, KernelStep)
    assert step.graph.outputs == graph.outputs
    assert [buffer.source for buffer in step.kernel.of(Role.OUTPUT)] == list(graph.outputs)
    assert len(program(graph, "norm", None, on_gpu).steps) == 2


def test_one_that_waits_for_a_product_of_the_other_is_not_asked():
    graph = multiplied.generate("c", [DType.F32] * 2, [2, 2]).graph
    made, sums = graph.outputs
    assert not any(made in one and sums in other for one, other in asked(graph))


@noyau.op("f32[m, n], f32[n, n], f32[m, n] -> made: f32[m, n], sums: f32[n]")
def gated_product(x, w, g):
    z = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w
    return z / (1 + np.exp(-z)), (g * x).sum(0)


def test_what_a_product_alone_reads_is_still_made():
    graph = gated_product.generate("c", [DType.F32] * 3, [2, 2, 2]).graph
    steps = program(graph, "gated", None, on_gpu, joining=join_rows_and_columns).steps
    (library,) = (step for step in steps if not isinstance(step, KernelStep))
    made = {name for step in steps if isinstance(step, KernelStep) for name in step.graph.outputs}
    assert {node.output for node in library.graph.inputs} <= {*made, *(node.output for node in graph.inputs)}
    assert len(steps) == 3


@noyau.op("f32[m, n], f32[k, n] -> p: f32[m, n], q: f32[k, n], one: f32[n], other: f32[n]")
def crosswise(x, y):
    p, q = x - x.max(-1, keepdims=True), y - y.max(-1, keepdims=True)
    return p, q, (x * q[:1]).sum(0), (y * p[:1]).sum(0)


def test_two_joins_that_would_wait_for_each_other_are_not_made():
    graph = crosswise.generate("c", [DType.F32] * 2, [2, 2]).graph
    steps = program(graph, "crosswise", None, on_gpu, joining=join_rows_and_columns).steps
    assert steps == program(graph, "crosswise", None, on_gpu).steps
