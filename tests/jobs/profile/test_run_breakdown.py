from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.profile import run
from noyau.jobs.profile.attribution import with_numbers
from noyau.jobs.profile.onnx_overheads import Overhead
from noyau.jobs.profile.record import NodeTime, OperatorTime
from noyau.jobs.profile.run import (
    break_down,
    count_removed,
    largest_values,
    source_shapes,
    subject_of,
    traffic_of,
)
from noyau.jobs.profile.session_runs import TimedSession
from noyau.timing.verdict import Comparison
from noyau.verify.inputs import make_inputs
from tests.jobs.profile.traced import event
from tests.small_models import NODE, chain, model_of, twice, value, with_loop, written

ROWS = 4
NONE = Overhead()


@pytest.fixture(autouse=True)
def _machine_that_moves_a_gigabyte_a_second(monkeypatch):
    monkeypatch.setattr(run, "floor_s", lambda read, written, threads: (read + written) * 1e-9)


@pytest.fixture
def opened(tmp_path):
    def open_it(model: onnx.ModelProto, **sizes: int):
        original = open_model(written(model, tmp_path))
        subject = subject_of(original, None)
        return subject, make_inputs(
            original.imported.graph, sizes, np.random.default_rng(0), without=original.imported.initializers
        )

    return open_it


def ran(
    model: onnx.ModelProto, optimized: onnx.ModelProto, lasted: list[int], run_us: float, outer_us: float = 0.0
) -> TimedSession:
    """The nodes of an optimized model one after the other, each for so many microseconds and a half, in ten runs."""
    events, start = [], 0
    for node, each in zip(optimized.graph.node, lasted, strict=True):
        outputs = [("float", (ROWS, 6))] * len(node.output)
        events.append(event(node.name, start, each, node.op_type, outputs))
        start += each + 1
    traced_us = sum(lasted) + 0.5 * len(lasted) + outer_us
    comparison = Comparison((run_us * 1e-6,) * 10, (traced_us * 1e-6,) * 10)
    return TimedSession(comparison, [events] * 10, with_numbers(model), optimized)


def fused(model: onnx.ModelProto) -> onnx.ModelProto:
    """`twice` as an optimizer might leave it: the second chain is one node, the last two are one with the product."""
    made = with_numbers(model)
    nodes = list(made.graph.node)
    together = NODE("Fused", ["b"], ["c"], name="n6/Fused/")
    end = NODE("MatMulExpNeg", ["c", "w"], ["y"], name="n7/Fused/")
    del made.graph.node[:]
    made.graph.node.extend([*nodes[:4], together, end])
    return made


def test_the_times_add_up_to_a_run(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    found = break_down(subject, inputs, ran(twice(), with_numbers(twice()), [10] * 10, 120.0, 15.0), NONE, 1)
    assert found.between_s == pytest.approx(15e-6)
    assert found.scaled == 1
    assert sum(node.record.time_s for node in found.nodes) + found.between_s == pytest.approx(120e-6)


def test_a_profiler_that_was_full_before_the_end(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    whole = ran(twice(), with_numbers(twice()), [10] * 10, 120.0, 15.0)
    part = replace(whole, runs=whole.runs[:3])
    assert break_down(subject, inputs, part, NONE, 1) == break_down(subject, inputs, whole, NONE, 1)


@pytest.mark.parametrize(("run_us", "between_us", "scaled"), [(200.0, 15.0, 185 / 105), (60.0, 0.0, 60 / 105)])
def test_a_machine_that_drifts_does_not_make_time_that_is_in_no_node(run_us, between_us, scaled, opened):
    subject, inputs = opened(twice(), rows=ROWS)
    found = break_down(subject, inputs, ran(twice(), with_numbers(twice()), [10] * 10, run_us, 15.0), NONE, 1)
    assert found.between_s == pytest.approx(between_us * 1e-6)
    assert found.scaled == pytest.approx(scaled)
    assert sum(node.record.time_s for node in found.nodes) + found.between_s == pytest.approx(run_us * 1e-6)


def test_what_the_profiler_adds_is_taken_off(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    added = Overhead(node_s=4e-6, after_s=1e-6)  # 50 us in all
    found = break_down(subject, inputs, ran(twice(), with_numbers(twice()), [10] * 10, 65.0, 10.0), added, 1)
    assert [node.record.time_s for node in found.nodes] == pytest.approx([6.5e-6] * 10)


def test_paths_are_the_places_of_a_kernel_together(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    found = break_down(subject, inputs, ran(twice(), with_numbers(twice()), [10] * 10, 105.0), NONE, 1)
    first, second = found.paths
    moved = 2 * 2 * ROWS * 6 * 4  # in and out, twice
    assert (first.places, first.replaces, first.runs_as, first.nodes) == (
        2,
        ("Tanh", "Mul", "Sigmoid"),
        first.replaces,
        6,
    )
    assert (first.bytes, first.floor_s) == (moved, pytest.approx(moved * 1e-9))
    assert first.gain_s == pytest.approx(63e-6 - moved * 1e-9)
    assert (second.replaces, second.time_s) == (("Exp", "Neg"), pytest.approx(21e-6))
    assert {node.record.kernel for node in found.nodes} == {first.kernel, second.kernel, ""}


def test_a_node_that_stands_for_some_outside_of_paths_is_in_none(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    found = break_down(subject, inputs, ran(twice(), fused(twice()), [10] * 6, 63.0), NONE, 1)
    records = [node.record for node in found.nodes]
    assert [record.made_by_optimizer for record in records] == [False] * 4 + [True] * 2
    assert records[4].stands_for == ("Tanh#4", "Mul#5", "Sigmoid#6")
    assert records[4].kernel == found.paths[0].kernel
    assert records[5].stands_for == ("MatMul#7", "Exp#8", "Neg#9")
    assert records[5].kernel == ""
    last = found.paths[1]
    assert (last.time_s, last.runs_as, last.gain_s) == (0, (), 0)
    assert count_removed(found.nodes, subject.original) == 0


def test_nodes_that_do_not_run_are_counted(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    made = with_numbers(twice())
    del made.graph.node[8:]
    found = break_down(subject, inputs, ran(twice(), made, [10] * 8, 84.0), NONE, 1)
    assert count_removed(found.nodes, subject.original) == 2


def test_a_path_of_unknown_size_gains_nothing_that_is_known(opened):
    nodes = [NODE("NonZero", ["x"], ["i"]), NODE("Cast", ["i"], ["f"], to=1), *chain("f", "y")]
    model = model_of(nodes, [value("x")], [value("y", (1, "k"))])
    subject, inputs = opened(model, n=5)
    (kernel,) = subject.plan.kernels
    assert traffic_of(kernel.groups[0], inputs.sizes, {}) is None
    assert traffic_of(kernel.groups[0], inputs.sizes, {"i": (1, 3)}).bytes == 3 * (8 + 4)
    assert traffic_of(kernel.groups[0], inputs.sizes, {"i": (1, 3, 3)}) is None
    assert "i" not in source_shapes(subject.original, inputs)
    found = break_down(subject, inputs, ran(model, with_numbers(model), [10] * 5, 53.0), NONE, 1)
    assert found.paths[0].bytes is None or found.paths[0].gain_s > 0


def test_nodes_within_a_loop_stand_for_it(opened):
    subject, inputs = opened(with_loop(), n=5)
    model, optimized = with_loop(), with_numbers(with_loop())
    events = [event(f"n{k}", 20 * k, 10) for k in range(3)]
    events += [event("n3_0", 65, 5, "Tanh"), event("n3_0", 75, 5, "Tanh"), event("n3", 60, 30, "Loop")]
    comparison = Comparison((100e-6,) * 10, (100e-6,) * 10)
    found = break_down(
        subject, inputs, TimedSession(comparison, [events] * 10, with_numbers(model), optimized), NONE, 1
    )
    inner = next(node.record for node in found.nodes if node.record.operator == "Tanh")
    assert (inner.stands_for, inner.calls, inner.kernel, inner.made_by_optimizer) == (("Loop#3",), 2, "", False)


def test_a_model_of_which_nothing_runs(opened):
    subject, inputs = opened(twice(), rows=ROWS)
    made = with_numbers(twice())
    del made.graph.node[:]
    found = break_down(subject, inputs, ran(twice(), made, [], 5.0), NONE, 1)
    assert (found.nodes, found.between_s) == ((), pytest.approx(5e-6))
    assert sum(path.gain_s for path in found.paths) == 0


def test_operator_types_are_ordered_by_their_time():
    nodes = [NodeTime("Mul", (), False, 1, 2.0), NodeTime("Mul", (), False, 1, 4.0), NodeTime("Odd", (), True, 1, 9.0)]
    rows = OperatorTime.rows(nodes, ["Mul", "Add"])
    assert [(row.operator, row.nodes, row.time_s, row.median_s, row.in_file) for row in rows] == [
        ("Odd", 1, 9.0, 9.0, False),
        ("Mul", 2, 6.0, 3.0, True),
    ]


def test_the_largest_values_have_the_names_of_the_model():
    model = twice()
    optimized = with_numbers(model)
    optimized.graph.node[0].output[0] = "odd"
    events = [
        event("n0", 0, 1, outputs=[("float", (9, 9))]),
        event("n1", 5, 1, outputs=[("float16", (100,))]),
        event("n2", 5, 1, outputs=[("string", (10**6,))]),
        event("n3", 9, 1, outputs=[]),
    ]
    found = largest_values(TimedSession(Comparison((1.0,), (1.0,)), [events], with_numbers(model), optimized))
    assert [(one.name, one.dtype, one.shape, one.bytes) for one in found] == [
        ("", "float", (9, 9), 324),
        (model.graph.node[1].output[0], "float16", (100,), 200),
    ]
