"""Two folds in one pass: the schedule computes what the graph does, infinities, NaN and empty rows too."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role, TilePolicy
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import log_softmax, tile_sizes
from tests.jobs.check.groups import layer_norm, softmax
from tests.judged import Judge

ROWS = {
    "usual": np.arange(21, dtype=np.float32).reshape(3, 7) % 5,
    "masked": np.where(np.arange(21).reshape(3, 7) < 18, -np.inf, 1).astype(np.float32),
    "infinite": np.where(np.arange(21).reshape(3, 7) == 9, np.inf, 1).astype(np.float32),
    "NaN": np.where(np.arange(21).reshape(3, 7) == 9, np.nan, 1).astype(np.float32),
    "empty": np.zeros((3, 0), np.float32),
}


def streamed(graph, monkeypatch):
    monkeypatch.setattr(rows, "KEPT", 0)
    return check(on_gpu(lower(normalise(graph), "kernel")))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("graph", [log_softmax(), softmax()], ids=["log_softmax", "softmax"])
def test_exponentials_in_one_pass(graph, name, monkeypatch):
    kernel = streamed(graph, monkeypatch)
    assert "logsumexp" in {getattr(s, "merge", None) for s in every_statement(kernel.launches[-1].body)}
    judge = Judge(graph, {"x": ROWS[name]})
    tiles = tile_sizes(kernel, {TilePolicy.COVERING: 16})
    (got,) = run(kernel, [ROWS[name]], seed=3, sizes=tiles)
    assert judge.wrong(graph.outputs[0], got) is None


def test_moments_in_one_pass(monkeypatch):
    graph = layer_norm()
    kernel = streamed(graph, monkeypatch)
    assert any(
        getattr(s, "merge", None) == "variance" for launch in kernel.launches for s in every_statement(launch.body)
    )
    noise = np.random.default_rng(0)
    shapes = {"x": (3, 11), "w": (11,), "b": (11,)}
    inputs = {name: noise.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    given = [{**constants, **inputs}[buffer.source] for buffer in kernel.of(Role.INPUT)]
    tiles = tile_sizes(kernel, {TilePolicy.COVERING: 16})
    (got,) = run(kernel, given, seed=3, sizes=tiles)
    assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None
