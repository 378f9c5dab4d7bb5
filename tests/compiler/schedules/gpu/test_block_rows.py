"""Rows of blocks and clusters: interpreted, they compute what the graph does, whatever is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen.cuda import printer as cuda_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import block_rows, blocks
from noyau.compiler.schedules.gpu.block_rows import Share
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Loop, Role, Space
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import inputs_of, log_softmax, residual_rms_norm
from tests.jobs.check.groups import layer_norm, softmax
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
