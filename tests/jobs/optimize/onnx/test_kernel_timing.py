"""Kernels timed in their places, and what an earlier run found."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from noyau.codegen import plan as codegen_plan
from noyau.compiler.partition.traffic import Traffic
from noyau.errors import CheckError, UnsupportedError
from noyau.hosts.onnxruntime.activations import Activations, capture_twice, folding_calls
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.write_back import library, put_back
from noyau.jobs.optimize.onnx import kernel_timing
from noyau.jobs.optimize.onnx.kernel_timing import BenchmarkCase, OnnxBench, matters, parts, stamps
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, decide, time_at
from noyau.kernels import certificates
from noyau.timing import rates
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler
from tests.scenes import OPTIONS, bench, clear, scene, workers
from tests.small_models import (
    CRASHES,
    HANGS,
    NODE,
    WRONG,
    compared,
    model_of,
    spoilt,
    timed_as,
    value,
    written,
)

__all__ = ["bench", "clear", "scene", "workers"]

ROWS = {"rows": 9}


@pytest.fixture
def machine(monkeypatch):
    """A machine that copies a gigabyte a second."""
    for name in ("copy_rate", "measure_copy", "measure_nontemporal"):
        monkeypatch.setattr(rates, name, lambda moved, threads: 1e9)


def timing_of(kernel, bench):
    return bench.timing(Candidate(kernel))


def test_a_kernel_is_timed_in_its_first_place(scene, bench, machine, empty_cache):
    one = time_at(Candidate(scene[1][0]), bench(), "all")
    (timing,) = one.timings
    assert (one.reason, timing.sizes, timing.recalled, timing.cold) == ("", ROWS, False, None)
    assert timing.hot.pairs >= 6 and len(timing.hot.openings) == 2
    assert timing.traffic == Traffic(4 * 54, 4 * 54)
    assert timing.floor_s == pytest.approx(8 * 54 / 1e9)
    assert one.comparison is timing.hot


@pytest.mark.parametrize(
    ("ratios", "openings", "speedup"),
    [([0.98, 1.01, 1.01, 1.02, 1.01], 10, 1.01), ([0.97] * 9, 6, 0.97), ([1.2] * 9, 2, 1.2), ([0.9] * 9, 2, 0.9)],
)
def test_a_whole_model_near_the_speed_before_is_of_several_sessions(ratios, openings, speedup, bench, monkeypatch):
    """Two sessions of one file differ by some percent: where that may decide, more of both are opened."""
    left, asked = list(ratios), []

    def measured(self, contents, scenes, limit_s):
        asked.append((self.budget_s, len(scenes)))
        pair = Comparison((left.pop(0),) * 20, (1.0,) * 20, openings=(10, 10))
        return [BindingTiming(each.sizes, pair if each.sizes["rows"] == 9 else compared(3.0)) for each in scenes]

    monkeypatch.setattr(OnnxBench, "_measure", measured)
    made = bench(whole=True, budget_s=2.0)
    scenes = [BenchmarkCase({"rows": rows}, {}) for rows in (9, 3)]
    timings = made._surely_measured((b"", b""), scenes, 1.0)
    assert (len(timings[0].hot.openings), timings[0].hot.speedup) == (openings, pytest.approx(speedup))
    assert asked == [(2.0, 2), *[(0.6, 1)] * (openings // 2 - 1)]
    assert timings[1].hot.speedup == 3.0


def test_more_sessions_have_an_end(bench, monkeypatch):
    near = Comparison((1.0,) * 20, (1.0,) * 20, openings=(10, 10))
    monkeypatch.setattr(OnnxBench, "_measure", lambda *_: [BindingTiming({}, near)])
    monkeypatch.setattr(kernel_timing, "MORE_S", -1.0)
    (timing,) = bench(whole=True)._surely_measured((b"", b""), [BenchmarkCase({}, {})], 1.0)
    assert timing.hot is near


def test_what_onnxruntime_folds_into_a_call_is_timed_with_that_call(tmp_path, workers, machine, empty_cache):
    """The Conv is on both sides, and the floor, which is of the kernel alone, on none."""
    nodes = [NODE("Conv", ["x", "w"], ["c"]), NODE("Relu", ["c"], ["r"]), NODE("Mul", ["r", "r"], ["y"])]
    weight = numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    ends = [value("x", (1, 4, 9, 9))], [value("y", (1, 4, 9, 9))]
    original = open_model(written(model_of(nodes, *ends, [weight]), tmp_path))
    kernels = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    feeds = model_inputs(original.imported, [kernels[0].groups[0].original], {}, None, 0)
    seen = capture_twice(original, kernels, feeds)[1]
    fused = put_back(original.model, kernels, original.folder)
    calls = folding_calls(original.model, kernels[0].groups[0])
    before, after, read = parts(kernels[0].groups[0], original, fused, seen.arrays, calls)
    assert [node.op_type for node in before.graph.node] == ["Conv", "Relu", "Mul"]
    assert [node.op_type for node in after.graph.node] == ["Conv", kernels[0].operator]
    assert read.keys() == {"x"}
    made = OnnxBench(original, fused, library(kernels, OPTIONS, fused), seen, workers, budget_s=0.01)
    timing = timing_of(kernels[0], made)
    assert (timing.calls, timing.floor_s, timing.traffic, timing.mistake) == (("Conv",), None, None, "")
    assert timing.hot.pairs >= 6


def test_what_is_made_of_tensors_alone_is_no_input(tmp_path):
    """Weights in a large Constant, and others that are made of one: onnxruntime folds them into the Conv."""
    weight = numpy_helper.from_array(np.ones((32, 32, 3, 3), np.float32))
    nodes = [NODE("Constant", [], ["w"], value=weight), NODE("ConstantOfShape", ["s"], ["b"])]
    nodes += [NODE("Conv", ["x", "w", "b"], ["c"]), NODE("Mul", ["c", "c"], ["m"]), NODE("Relu", ["m"], ["y"])]
    shape = numpy_helper.from_array(np.array([32]), "s")
    ends = [value("x", (1, 32, 9, 9))], [value("y", (1, 32, 7, 7))]
    original = open_model(written(model_of(nodes, *ends, [shape]), tmp_path))
    (kernel,) = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    fused = put_back(original.model, [kernel], original.folder)
    fused.graph.node.add(op_type="Shape", input=["x"])  # onnxruntime opens nodes that give nothing
    feeds = model_inputs(original.imported, [kernel.groups[0].original], {}, None, 0)
    arrays = {**capture_twice(original, [kernel], feeds)[1].arrays, "b": np.zeros(32, np.float32)}
    before, after, read = parts(kernel.groups[0], original, fused, arrays, [2])
    assert set(read) == {"x"} == {end.name for end in before.graph.input} == {end.name for end in after.graph.input}
    assert [node.op_type for node in before.graph.node] == ["Constant", "ConstantOfShape", "Conv", "Mul", "Relu"]
    assert [node.op_type for node in after.graph.node][:3] == ["Constant", "ConstantOfShape", "Conv"]


def test_what_only_the_operators_read_is_an_input_of_both(tmp_path):
    """The target of a Reshape by arithmetic that no body repeats, where the kernel's function is of a place without."""
    nodes = [NODE("Shape", ["x"], ["s"]), NODE("Split", ["s"], ["b", "c"], num_outputs=2)]
    nodes += [NODE("Concat", ["c", "b"], ["t"], axis=0), NODE("Tanh", ["x"], ["h"]), NODE("Reshape", ["h", "t"], ["r"])]
    ends = [value("x", ("n", 6))], [value("y", (6, "n"))]
    original = open_model(written(model_of([*nodes, NODE("Sigmoid", ["r"], ["y"])], *ends), tmp_path))
    (kernel,) = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    feeds = model_inputs(original.imported, [kernel.groups[0].original], {}, None, 0)
    seen = capture_twice(original, [kernel], feeds)[1]
    fused = put_back(original.model, [kernel], original.folder)
    node = next(node for node in fused.graph.node if node.op_type == kernel.operator)
    node.input[:] = kernel.groups[0].inputs
    before, after, read = parts(kernel.groups[0], original, fused, seen.arrays)
    assert (
        set(read) == {"x", "t"} == {end.name for end in before.graph.input} == {end.name for end in after.graph.input}
    )
    assert [node.op_type for node in before.graph.node] == ["Tanh", "Reshape", "Sigmoid"]


def test_a_kernel_is_timed_with_cold_caches_where_that_matters(scene, bench, machine, empty_cache, monkeypatch):
    monkeypatch.setattr(kernel_timing, "last_level_bytes", lambda: 1000)
    assert [matters(size) for size in (7, 8, 1999, 2000)] == [False, True, True, False]
    timing = timing_of(scene[1][0], bench(cold=True))
    assert timing.cold is not None and timing.cold.pairs >= 6
    assert timing_of(scene[1][0], bench()).cold is None


@pytest.mark.parametrize("cold", [False, True])
def test_what_an_earlier_run_found_is_taken_and_told(cold, scene, bench, clear, empty_cache, monkeypatch):
    monkeypatch.setattr(kernel_timing, "last_level_bytes", lambda: 1000)
    first = timing_of(scene[1][0], bench(cold=cold))
    monkeypatch.setattr(Workers, "compare_each", None)  # nothing is timed any more
    again = timing_of(scene[1][0], bench(cold=cold))
    assert (again.hot, again.timed_on, again.recalled) == (first.hot, certificates.today(), True)
    assert (again.cold == first.cold) and (again.cold is not None) is cold


@pytest.mark.parametrize(
    ("ratios", "verdict", "left"),
    [
        ([0.96, 1.0], Verdict.SAME, []),
        ([0.96, 1.5], Verdict.FASTER, []),
        ([0.96, 0.96, 1.5], Verdict.SLOWER, [1.5]),  # twice is no chance
        ([0.94, 1.5], Verdict.SLOWER, [1.5]),
        ([1.0, 1.5], Verdict.SAME, [1.5]),
    ],
)
def test_who_is_slower_by_little_is_timed_a_second_time(ratios, verdict, left, scene, bench, clear, empty_cache):
    clear += ratios
    one = time_at(Candidate(scene[1][0]), bench(), "faster")
    assert one.timings[0].verdict is verdict
    assert (one.reason != "") is (verdict is Verdict.SLOWER)
    assert clear == left
    clear[:] = [3.0]  # what counts is kept, and is no matter of the next run
    assert timing_of(scene[1][0], bench()).verdict is verdict
    assert clear == [3.0]


def test_what_was_too_noisy_is_timed_again_in_the_next_run(scene, bench, empty_cache, monkeypatch):
    noisy = Comparison((0.5, 2.0) * 5, (1.0,) * 10)
    found = iter([noisy, compared(2), compared(3)])
    monkeypatch.setattr(Workers, "compare_each", lambda *_, **given: [next(found)])
    runs = [timing_of(scene[1][0], bench()) for _ in range(3)]
    assert [run.hot for run in runs] == [noisy, compared(2), compared(2)]
    assert [run.recalled for run in runs] == [False, False, True]


def test_what_was_too_noisy_stands_where_nothing_hangs_on_it(scene, bench, empty_cache, monkeypatch):
    noisy = Comparison((0.5, 2.0) * 5, (1.0,) * 10)
    monkeypatch.setattr(Workers, "compare_each", lambda *_, **given: [noisy])
    monkeypatch.setattr(kernel_timing, "MORE_SESSIONS", 0)
    first, again = (timing_of(scene[1][0], dataclasses.replace(bench(), whole=True)) for _ in "ab")
    assert first.verdict is Verdict.AMBIGUOUS and not first.recalled
    assert again.recalled and again.hot == noisy


def test_a_whole_model_is_called_in_another_way_than_a_kernel_alone(scene, bench, empty_cache, monkeypatch):
    """Users of a model call its session, which makes the outputs anew: a timing of one stands for no other."""
    calls = []
    monkeypatch.setattr(Workers, "compare_each", lambda _, *jobs, **given: calls.append(jobs) or [compared(2)])
    for whole in (False, True):
        assert not timing_of(scene[1][0], dataclasses.replace(bench(), whole=whole)).recalled
    assert [[job.whole for job in jobs[:2]] for jobs in calls] == [[False, False], [True, True]]


def test_what_was_left_out_is_tried_again_where_it_would_be_done_in_time(scene, bench, empty_cache, monkeypatch):
    """It was left out since little was left of the limit, or since it takes longer than the whole of it."""
    asked, made = [], bench()
    scenes = [BenchmarkCase({"rows": rows}, {"x": np.ones((rows, 4), np.float32)}) for rows in (2, 3, 4)]

    def compared_each(workers, before, after, others, **given):
        asked.append(1 + len(others))
        return [compared(2), 20.0, 40.0][: 1 + len(others)]

    monkeypatch.setattr(Workers, "compare_each", compared_each)
    model = made.original.model
    found = [made.compare(model, model, scenes, "text", limit_s=limit_s) for limit_s in (30.0, 30.0, 50.0)]
    assert [timing is None for timing in found[0]] == [False, True, True]
    assert asked == [3, 1, 1]  # what takes 40 s is not tried again within 30 s


def test_behind_a_scene_where_it_is_lost_nothing_is_timed(scene, bench, empty_cache, monkeypatch):
    """Nor in the next run, which takes that from the first one; but where all is asked for, all is timed."""
    asked, made = [], bench()
    scenes = [BenchmarkCase({"rows": rows}, {"x": np.ones((rows, 4), np.float32)}, cold=True) for rows in (2, 3)]

    def compared_each(workers, before, after, others, until_lost, **given):
        asked.append((1 + len(others), until_lost))
        return [compared(0.5), *([math.inf] if until_lost else [compared(2)]) * len(others)]

    monkeypatch.setattr(Workers, "compare_each", compared_each)
    model = made.original.model
    for bench_of_all in (made, made, dataclasses.replace(made, until_lost=False)):
        first, second = bench_of_all.compare(model, model, scenes, "text")
        assert first.verdict is Verdict.SLOWER
        assert (first.cold is None) is (second is None) is bench_of_all.until_lost
    assert asked == [(4, True), (4, False)]


@pytest.mark.parametrize("change", ["fresh", "text", "shape", "threads", "date", "machine", "version"])
def test_nothing_is_taken_where_anything_differs(change, scene, bench, clear, empty_cache, monkeypatch):
    kernel, made = scene[1][0], bench()
    timing_of(kernel, made)
    made = bench(fresh=change == "fresh", threads=2 if change == "threads" else 1)
    if change == "text":
        kernel = dataclasses.replace(kernel, text=kernel.text + "\n")
    if change == "shape":
        x = {"x": np.ones((10, 6), np.float32)}
        made = dataclasses.replace(
            made, activations=Activations({**made.activations.arrays, **x}, {"rows": 10}, made_up=True)
        )
    if change == "date":
        monkeypatch.setattr(cache, "today", lambda: "2100-01-01")
    if change in ("machine", "version"):
        here = certificates.this_machine()
        other = {"cpu": "another"} if change == "machine" else {"versions": {**here.versions, "onnxruntime": "9"}}
        monkeypatch.setattr(certificates, "this_machine", lambda: dataclasses.replace(here, **other))
    measured = []
    whole = OnnxBench._measure
    monkeypatch.setattr(OnnxBench, "_measure", lambda self, *given: measured.append(given[1]) or whole(self, *given))
    assert not timing_of(kernel, made).recalled
    assert len(measured[0]) == 1


def test_what_the_same_run_found_is_no_earlier_run(scene, bench, clear, empty_cache):
    made = bench(fresh=True)
    first = timing_of(scene[1][0], made)
    again = timing_of(scene[1][0], made)
    assert again.hot == first.hot
    assert not again.recalled


def test_external_data_that_changed_is_another_model(tmp_path, scene):
    model = scene[0].model
    assert list(stamps(model, tmp_path)) == []
    tensor = model.graph.initializer.add()
    tensor.external_data.add(key="location", value="weights")
    assert list(stamps(model, tmp_path)) == []
    (tmp_path / "weights").write_bytes(b"12")
    (one,) = stamps(model, tmp_path)
    (tmp_path / "weights").write_bytes(b"123")
    assert [one] != list(stamps(model, tmp_path))


def test_external_data_of_bodies_is_part_of_the_model(tmp_path):
    (tmp_path / "weights").write_bytes(b"1234")
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="weights")
    body = onnx.GraphProto(name="body", initializer=[tensor])
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = onnx.ModelProto(graph=onnx.GraphProto(node=[node]))
    assert len(list(stamps(model, tmp_path))) == 1
    constant = onnx.helper.make_node("Constant", [], ["w"], value=tensor)
    function = onnx.ModelProto(functions=[onnx.FunctionProto(name="f", node=[constant])])
    assert len(list(stamps(function, tmp_path))) == 1


def test_who_is_slower_at_one_binding_is_not_timed_at_another(scene, bench, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(0.5))
    one = time_at(Candidate(scene[1][0]), bench(), "faster")
    assert one.reason == "SLOWER at rows=9: 0.50x"
    assert time_at(one, bench(), "faster") is one
    assert decide(one, "faster") is one
    kept = time_at(time_at(Candidate(scene[1][0]), bench(), "all"), bench(), "all")
    assert (kept.reason, len(kept.timings)) == ("", 2)
    assert decide(kept, "all").kept


def test_a_part_that_cannot_be_timed_is_kept_on_demand_alone(scene, bench):
    blind = bench(scene=(*scene[:2], Activations({}, {}, made_up=True)))
    for keep, kept in (("faster", False), ("not-slower", False), ("all", True)):
        one = time_at(Candidate(scene[1][0]), blind, keep)
        assert (one.kept, one.reason) == (kept, "not timed: what it reads could not be captured")


def test_a_binding_that_cannot_be_timed_says_nothing_against_a_kernel(scene, bench):
    before = Candidate(scene[1][0], timings=(BindingTiming({"rows": 1}, compared(2)),))
    assert time_at(before, bench(scene=(*scene[:2], Activations({}, {}, made_up=True))), "faster") is before


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (CRASHES, r"not timed at rows=9: the (first|second) process crashed \(SIG(ILL|TRAP)\)"),
        (HANGS, r"not timed at rows=9: the (first|second) process did not answer within 2 s and was ended"),
    ],
)
def test_a_kernel_that_crashes_or_hangs_while_it_is_timed_is_out(ending, reason, scene, bench, workers, empty_cache):
    """Isolated, reported, and the next one is timed as if nothing had been."""
    spoiled = spoilt(scene[1][0], ending)
    before = Candidate(spoiled, timings=(BindingTiming({"rows": 1}, compared(2)),))
    usual_s = workers.workers[0].patience_s
    for worker in workers.workers:
        worker.start()
        worker.patience_s = 2.0
    try:
        one = time_at(before, bench([spoiled, scene[1][1]]), "faster")
    finally:
        for worker in workers.workers:
            worker.patience_s = usual_s
    assert not one.kept
    assert re.fullmatch(f"{reason}.*", one.reason), one.reason
    assert time_at(Candidate(scene[1][1]), bench([spoiled, scene[1][1]]), "all").timings


def test_a_kernel_that_is_wrong_only_when_it_is_timed_is_out(scene, bench, empty_cache):
    """It counts its calls, and is right in the first ones."""
    ending = WRONG.replace("if (", "static int calls; if (++calls > 40 && ", 1)
    spoiled = spoilt(scene[1][0], ending)
    one = time_at(Candidate(spoiled), bench([spoiled, scene[1][1]], budget_s=0.3), "all")
    assert "a timed run gave another 'a' than the first one did" in one.reason


@pytest.mark.parametrize(("after_s", "caught"), [(8 * 54 / 1e9, False), (0.8 * 8 * 54 / 1e9, True)])
def test_faster_than_the_machine_can_be_is_a_mistake(after_s, caught, scene, bench, machine, monkeypatch):
    found = BindingTiming(ROWS, Comparison((1.0,) * 10, (after_s,) * 10))
    monkeypatch.setattr(OnnxBench, "compare", lambda *_: [found])
    one = decide(time_at(Candidate(scene[1][0]), bench(), "faster"), "faster")
    assert one.kept is not caught
    assert ("not timed: it took" in one.reason and "the clock or the kernel is wrong" in one.reason) is caught


def test_a_time_without_known_bytes_is_not_doubted(scene, bench, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(1e9))
    monkeypatch.setattr(kernel_timing, "names_of", lambda graph: {"a size that nobody knows"})
    assert timing_of(scene[1][0], bench()).mistake == ""


def parts_of(scene, made):
    return parts(scene[1][0].groups[0], made.original, made.fused, made.activations.arrays)


def test_scenes_that_take_too_long_are_left_out_but_the_first(scene, bench, empty_cache, monkeypatch):
    made = dataclasses.replace(bench(), whole=True)  # what noise made AMBIGUOUS is taken again too
    before, after, read = parts_of(scene, made)
    scenes = [BenchmarkCase({"rows": rows}, {"x": np.ones((rows, 6), np.float32)}) for rows in (3, 4)]
    first, second = made.compare(before, after, scenes, "text", 0.0)
    assert first.hot.pairs >= 6 and second is None
    measured = []
    monkeypatch.setattr(OnnxBench, "_measure", lambda self, *given: measured.extend(given[1]) or [5.0] * len(given[1]))
    assert made.compare(before, after, scenes, "text", 0.0)[1] is None and not measured  # that is known now
    made.compare(before, after, scenes, "text", 1e9)
    assert len(measured) == 1
    assert set(read) == {"x"}


def test_scenes_of_an_earlier_run_are_taken_and_others_are_timed(scene, bench, clear, empty_cache):
    before, after, _ = parts_of(scene, bench())
    scenes = [BenchmarkCase({"rows": rows}, {"x": np.ones((rows, 6), np.float32)}) for rows in (3, 4)]
    bench().compare(before, after, scenes[:1], "text")
    recalled, second = bench().compare(before, after, scenes, "text")
    assert recalled.recalled and not second.recalled


def test_what_a_run_takes_that_does_nothing_is_known_to_each_timing(scene, bench, machine, empty_cache):
    made = kernel_timing.with_idle(bench())
    assert made.idle_s > 0
    assert timing_of(scene[1][0], made).idle_s == made.idle_s


def test_where_nothing_can_be_timed_a_run_takes_nothing(bench, monkeypatch):
    def crashed(*_):
        raise CheckError("it crashed")

    monkeypatch.setattr(OnnxBench, "compare", crashed)
    assert kernel_timing.with_idle(bench()).idle_s == 0


def test_strings_cannot_go_to_another_process(scene, bench, empty_cache):
    before, after, _ = parts_of(scene, bench())
    with pytest.raises(UnsupportedError, match="cannot go to another process"):
        bench().compare(before, after, [BenchmarkCase({}, {"x": np.array(["a"], object)})], "")
