from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from noyau.errors import InputError, ModelError, OutputError
from noyau.hosts.onnxruntime.sessions import WEIGHTS
from noyau.jobs.profile.session_runs import SessionBench, timed_runs
from noyau.timing.verdict import Comparison
from tests.jobs.profile.traced import event
from tests.small_models import BARE, NODE, arrays_for, model_of, twice, value, with_loop, written

ARRAYS = {"x": np.ones((3, 6), np.float32)}


@pytest.fixture
def bench(near):
    with SessionBench(1) as made:
        yield made


def heavy() -> onnx.ModelProto:
    """A product with a weight of 1 MiB."""
    weight = numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    return model_of([NODE("MatMul", ["x", "w"], ["y"])], [value("x", ("n", 512))], [value("y", ("n", 512))], [weight])


def test_the_runs_are_those_that_were_timed_with_the_profiler(bench):
    ran = bench.run(twice(), ARRAYS, 0.02)
    assert len(ran.runs) == ran.comparison.pairs * ran.comparison.calls
    assert {len(events) for events in ran.runs} == {len(twice().graph.node)}
    assert [node.name for node in ran.numbered.graph.node] == [f"n{k}" for k in range(10)]
    assert {node.name for node in ran.nodes()} == {node.name for node in ran.optimized.graph.node}


def test_nodes_of_subgraphs_are_within_theirs(bench):
    ran = bench.run(with_loop(), arrays_for(with_loop()), 0.02)
    found = {node.name: (node.within, node.calls) for node in ran.nodes()}
    assert found["n3"] == (None, 1)
    assert found["n3_0"] == ("n3", 3)


def test_weights_are_written_nowhere(bench):
    ran = bench.run(heavy(), {"x": np.ones((2, 512), np.float32)}, 0.02)
    (tensor,) = ran.optimized.graph.initializer
    assert {entry.key: entry.value for entry in tensor.external_data}["location"] == WEIGHTS
    assert list(bench.folder.iterdir()) == []


def test_the_timed_runs_are_the_last_ones():
    runs = [[event(f"n{k}", 0, 1)] for k in range(9)]
    comparison = Comparison((1.0,) * 3, (2.0,) * 3, calls=2)
    assert timed_runs(runs, comparison) == runs[3:]
    assert timed_runs(runs[:5], comparison) == runs[2:5]
    assert timed_runs([], comparison) == []


def test_a_model_that_onnxruntime_refuses(bench, tmp_path):
    with pytest.raises(ModelError, match="onnxruntime does not open the model"):
        bench.run(BARE["a newer opset"], ARRAYS, 0.02)
    with pytest.raises(InputError, match="onnxruntime does not run"):
        bench.run(twice(), {"x": np.ones((3, 7), np.float32)}, 0.02)
    assert list(bench.folder.iterdir()) == []
    path = written(twice(), tmp_path)
    assert bench.weigh(path, ARRAYS, True)["running"] > 0


def test_a_bench_leaves_nothing(near):
    with SessionBench(1) as bench:
        bench.run(twice(), ARRAYS, 0.02)
    assert not bench.folder.exists()


def test_no_room_left(near, bench, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space left on device; TMPDIR=FOLDER names another place"):
        bench.run(twice(), ARRAYS, 0.02)
