"""The whole model: timed at each binding, and never handed back slower."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from noyau.codegen import plan as codegen_plan
from noyau.errors import CheckError, InputError, ModelError, UnsupportedError
from noyau.hosts.onnxruntime.activations import capture_twice
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.optimize.onnx import whole_model
from noyau.jobs.optimize.onnx.kernel_timing import BenchmarkCase, OnnxBench
from noyau.jobs.optimize.onnx.options import Deadline
from noyau.jobs.optimize.onnx.whole_model import (
    ATTEMPTS,
    Whole,
    gain_s,
    loss_alone,
    loss_of,
    settle,
    time_whole,
    with_kernels,
    without_worst,
)
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain.c import compiler as c_compiler
from tests.scenes import OPTIONS, bench, clear, scene, workers
from tests.small_models import CRASHES, KINDS, WRONG, compared, spoilt, timed_as, written

__all__ = ["bench", "clear", "scene", "workers"]

X = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32)
SCENES = [BenchmarkCase({"rows": 9}, {"x": X}), BenchmarkCase({"rows": 3}, {"x": X[:3]})]


def took(rows: int, before_s: float, after_s: float) -> BindingTiming:
    return BindingTiming({"rows": rows}, Comparison((before_s,) * 10, (after_s,) * 10))


def test_the_whole_model_is_timed_at_each_binding_and_its_outputs_are_compared(bench, empty_cache):
    found = time_whole(bench(), SCENES)
    assert [timing.sizes for timing in found.timings] == [{"rows": 9}, {"rows": 3}]
    assert all(timing.hot.pairs >= 6 for timing in found.timings)
    assert 0 <= found.apart < 1e-5
    assert (found.notes, found.fault) == ((), "")


def test_what_an_earlier_run_found_of_the_whole_model_is_taken(bench, clear, empty_cache):
    first, again = (time_whole(bench(), SCENES) for _ in "ab")
    assert [[timing.recalled for timing in each.timings] for each in (first, again)] == [[False, False], [True, True]]
    assert again.apart == first.apart


def test_without_inputs_there_is_nothing_to_time(bench, scene):
    missing = "not all of its inputs can be made up: give --inputs F.npz"
    assert time_whole(bench(), []) == Whole(untimed=missing)
    late = bench(deadline=Deadline(0.0, 0.0))
    assert time_whole(late, SCENES).untimed == "the 0 s that were given are over"
    made = bench()
    scene[0].model.graph.node[0].domain = "com.example"
    assert time_whole(made, SCENES).untimed == "com.example::Tanh is no operator of plain onnxruntime"
    assert (Whole().verdict, Whole().comparison) == (None, None)


def test_what_takes_too_long_is_told(bench, empty_cache):
    found = time_whole(bench(), SCENES, limit_s=0.0)
    assert len(found.timings) == 1
    assert found.notes == ("the whole model is not timed at rows=3: it takes long; --dim asks for that",)


def test_the_whole_model_of_a_wrong_kernel_is_apart(scene, bench, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))
    assert time_whole(bench([spoilt(scene[1][1], WRONG)]), SCENES).apart > 1e-3


@pytest.mark.parametrize(("error", "fault"), [(InputError, ""), (ModelError, ""), (CheckError, "not with these")])
def test_a_whole_model_that_does_not_run_is_told(error, fault, bench, monkeypatch):
    def fail(*_):
        raise error("not with these")

    monkeypatch.setattr(OnnxBench, "compare", fail)
    found = time_whole(bench(), SCENES)
    assert found.comparison is None
    assert (found.fault, found.untimed) == (fault, "not with these")


def test_sizes_at_which_a_model_does_not_run_are_left_out(bench, monkeypatch):
    def compare(self, before, after, scenes, *_):
        if len(scenes) > 1:
            raise InputError("not with three rows")
        return [took(9, 2.0, 1.0)]

    monkeypatch.setattr(OnnxBench, "compare", compare)
    found = time_whole(bench(), SCENES)
    assert ([timing.sizes for timing in found.timings], found.untimed) == ([{"rows": 9}], "")
    message = "the whole model is timed at rows=9 alone, for it does not run at others: not with three rows"
    assert found.notes == (message,)


def test_a_fused_model_that_does_not_open_is_no_secret(bench):
    broken = bench()
    broken.fused.graph.node[0].op_type = "nonsense"
    found = time_whole(broken, SCENES)
    assert "with its kernels, onnxruntime does not open the model: " in found.fault
    assert "nonsense" in found.fault
    assert found.timings == ()


def test_large_weights_are_timed_as_they_lie(bench, monkeypatch):
    monkeypatch.setattr("noyau.hosts.onnxruntime.source_model.LARGE", 0)
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))
    assert "as they lie in the file" in time_whole(bench(), SCENES).notes[0]


def test_a_whole_model_with_ends_that_cannot_be_bound_is_timed(tmp_path, bench):
    original = open_model(written(KINDS["sequence out"], tmp_path))
    kernels = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    feeds = model_inputs(original.imported, [kernels[0].groups[0].original], {}, None, 0)
    seen = capture_twice(original, kernels, feeds)[1]
    made = time_whole(bench(scene=(original, kernels, seen)), [BenchmarkCase({"n": 1}, {"x": seen.arrays["x"]})])
    assert made.comparison.pairs >= 6
    assert made.apart is None


@pytest.fixture
def judged(scene):
    """Two kernels that are kept, of which the second gains less: in one place, a second; the first two each."""
    timings = [(took(9, 5.0, 3.0), took(3, 5.0, 1.0)), (took(9, 2.0, 1.0),)]
    return [Candidate(kernel, timings=each, kept=True) for kernel, each in zip(scene[1], timings, strict=True)]


@pytest.fixture
def clock(monkeypatch):
    """The whole model is as fast as the number of its nodes says: {nodes: ratio}, at the second binding."""
    said: dict[int, float] = {}

    def compare(bench, before, after, scenes, *_):
        ratio = said[len(after.graph.node)]
        return [
            BindingTiming(each.sizes, compared(2.0 if number == 0 else ratio)) for number, each in enumerate(scenes)
        ]

    monkeypatch.setattr(OnnxBench, "compare", compare)
    return said


def test_what_a_kernel_gains_at_a_binding(judged):
    assert [gain_s(one, {"rows": 9}) for one in judged] == [4.0, 1.0]
    assert [gain_s(one, {"rows": 3}) for one in judged] == [8.0, 0.0]


def test_a_model_that_is_not_slower_stays(judged, bench, clock):
    clock[5] = 1.0
    made = settle(bench(), judged, SCENES, OPTIONS)
    assert [one.kept for one in made.candidates] == [True, True]
    assert len(made.bench.fused.graph.node) == 5
    assert made.whole.verdict is Verdict.FASTER


def test_where_the_whole_model_is_slower_the_kernel_that_gains_least_there_goes(judged, bench, clock):
    clock.update({5: 0.9, 6: 1.0})
    said: list[str] = []
    made = settle(bench(), judged, SCENES, OPTIONS, say=said.append)
    assert [one.kept for one in made.candidates] == [True, False]
    assert made.candidates[1].reason == "the whole model is SLOWER at rows=3: 0.90x"
    assert len(made.bench.fused.graph.node) == 6
    assert said == ["timing the whole model", "timing the whole model with fewer kernels, 1"]


def test_where_nothing_helps_the_model_is_handed_back_as_it_was(judged, bench, clock):
    clock.update({5: 0.9, 6: 0.9})
    made = settle(bench(), judged, SCENES, OPTIONS)
    assert [one.kept for one in made.candidates] == [False, False]
    assert made.bench.library is None
    assert made.whole == Whole(refused="the whole model is SLOWER at rows=3: 0.90x")
    assert made.bench.fused.graph.SerializeToString() == made.bench.original.model.graph.SerializeToString()


def test_a_kernel_with_which_the_file_is_slower_without_its_library_goes(judged, bench, clock, monkeypatch):
    """Of a file with the second kernel onnxruntime makes other nodes, and that file is slower without its library."""
    name, looks = judged[1].planned.operator, []

    def operators(_, model):
        return Counter(["Transpose"] * any(node.op_type == name for node in model.graph.node))

    def compare(bench, before, after, scenes, *_):
        looks.append((bench.library is None, round(bench.budget_s, 4), [each.sizes["rows"] for each in scenes]))
        loses = {9: bench.library is None}
        return [BindingTiming(each.sizes, compared(0.98 if loses.get(each.sizes["rows"]) else 2.0)) for each in scenes]

    monkeypatch.setattr(whole_model, "optimized_operators", operators)
    monkeypatch.setattr(OnnxBench, "compare", compare)
    made = settle(bench(), judged, SCENES, OPTIONS)
    assert [one.kept for one in made.candidates] == [True, False]
    assert made.candidates[1].reason == "without its library the whole model is SAME at rows=9: 0.98x"
    assert looks == [(True, 0.0033, [9, 3]), (False, 0.01, [9, 3])]
    assert made.whole.verdict is Verdict.FASTER


def test_what_is_not_timed_without_its_library(bench, monkeypatch):
    """What onnxruntime makes the nodes of the model of, and what cannot go to another process."""
    monkeypatch.setattr(OnnxBench, "compare", None)
    assert loss_alone(bench(), SCENES, 1.0) == ("", None)
    monkeypatch.setattr(whole_model, "optimized_operators", lambda _, model: len(model.graph.node))
    for error, reason in ((UnsupportedError, ""), (CheckError, "without its library it crashed")):
        monkeypatch.setattr(OnnxBench, "compare", lambda *_, error=error: (_ for _ in ()).throw(error("it crashed")))
        assert loss_alone(bench(), SCENES, 1.0) == (reason, None)


@pytest.mark.parametrize(("worst", "stays"), [(0.99, True), (0.985, False), (0.9, False)])
def test_in_doubt_the_model_is_handed_back_as_it_was(judged, bench, worst, stays, monkeypatch):
    """Rightly or not, a model that is 2x as fast at one size may lose a percent at another; none may lose ten."""
    unsure = Comparison((worst,) * 4 + (2.0,) * 2 + (0.5,) * 2, (1.0,) * 8)

    def compare(bench, before, after, scenes, *_):
        return [BindingTiming(SCENES[0].sizes, compared(2.0)), BindingTiming(SCENES[1].sizes, unsure)]

    assert unsure.verdict is Verdict.AMBIGUOUS
    monkeypatch.setattr(OnnxBench, "compare", compare)
    made = settle(bench(), judged, SCENES, OPTIONS)
    assert any(one.kept for one in made.candidates) is stays
    alone = Whole((BindingTiming({}, unsure),))
    assert loss_of(alone) == f"the whole model is AMBIGUOUS: {worst:.2f}x"
    assert loss_of(Whole((BindingTiming({}, dataclasses.replace(unsure, before_s=(1.01,) * 8)),))) == ""


def test_what_is_not_timed_as_a_whole_is_handed_back_unless_it_is_asked_for(judged, bench):
    made = settle(bench(), judged, [], OPTIONS)
    assert not any(one.kept for one in made.candidates)
    assert made.whole.refused == (
        "the whole model was not timed: not all of its inputs can be made up: give --inputs F.npz; --keep all keeps it "
        "all the same"
    )
    made = settle(bench(), judged, [], OPTIONS, keep="all")
    assert all(one.kept for one in made.candidates) and made.bench.library is not None
    assert made.whole.untimed.startswith("not all of its inputs")


def test_with_many_kernels_that_do_not_help_none_is_left_in_the_file(scene, judged, bench, monkeypatch):
    """More than all attempts leave out one after the other: what is handed back then has none of them."""

    def compare(bench, before, after, scenes, *_):
        return [BindingTiming(each.sizes, compared(0.9)) for each in scenes]

    many = [judged[0], *(dataclasses.replace(judged[1], planned=judged[1].planned) for _ in range(2**ATTEMPTS))]
    monkeypatch.setattr(OnnxBench, "compare", compare)
    monkeypatch.setattr(whole_model, "without_worst", lambda these, count, *_: these if count < len(these) else ())
    monkeypatch.setattr(whole_model, "with_kernels", lambda bench, kernels, *_: bench if kernels else bench0)
    bench0 = with_kernels(bench(), [], OPTIONS)
    made = settle(bench(), many, SCENES, OPTIONS)
    assert made.bench.library is None and made.whole.refused == "the whole model is SLOWER at rows=9: 0.90x"


def test_what_is_asked_for_stays_though_it_is_slower(judged, bench, clock):
    clock[5] = 0.5
    made = settle(bench(), judged, SCENES, OPTIONS, keep="all")
    assert [one.kept for one in made.candidates] == [True, True]
    assert made.whole.verdict is Verdict.SLOWER


def test_a_whole_model_that_crashes_is_handed_back_as_it_was(scene, bench, empty_cache):
    """A kernel that was right and fast alone, and ends the process in the model."""
    spoiled = [spoilt(kernel, CRASHES) for kernel in scene[1]]
    judged = [Candidate(kernel, kept=True) for kernel in spoiled]
    made = settle(bench(), judged, SCENES, OPTIONS)
    assert not any(one.kept for one in made.candidates)
    assert all(
        "the whole model does not run with it: the first process crashed" in one.reason for one in made.candidates
    )
    assert made.bench.library is None


def test_the_worst_go_first_and_more_each_time(scene, judged):
    slower = took(9, 1.0, 2.0)
    assert loss_of(Whole((slower,))) == "the whole model is SLOWER at rows=9: 0.50x"
    assert loss_of(Whole((took(9, 2.0, 1.0),))) == ""
    many = [dataclasses.replace(judged[0], planned=dataclasses.replace(scene[1][0], operator=f"k{k}")) for k in "abc"]
    four = [*many, judged[1]]
    for count, loser, guilty, kept in (
        (2, slower, four, [False, True, True, False]),
        (2, slower, many, [False, False, True, True]),
        (9, None, many[1:], [True, False, False, True]),
    ):
        assert [one.kept for one in without_worst(four, count, loser, "no", guilty)] == kept
    assert ATTEMPTS >= 2


def test_a_large_model_may_take_long_to_open(judged, bench, clock):
    clock[5] = 2.0
    made = bench()
    settle(made, judged, SCENES, OPTIONS)
    assert all(worker.patience_s >= whole_model.PATIENCE_S for worker in made.workers.workers)


def test_the_bench_of_other_kernels(scene, bench):
    made = with_kernels(bench(), scene[1][:1], OPTIONS)
    assert sum(is_own(node.domain) for node in made.fused.graph.node) == 2
    assert with_kernels(made, [], OPTIONS).library is None
    without = with_kernels(made, scene[1][:1])
    assert (without.library, without.fused.graph) == (None, made.fused.graph)


def test_what_cannot_be_timed_elsewhere_is_timed_here(bench, monkeypatch):
    def fail(*_):
        raise UnsupportedError("strings")

    monkeypatch.setattr(OnnxBench, "compare", fail)
    found = time_whole(bench(), SCENES)
    assert len(found.timings) == 1 and found.timings[0].hot.pairs >= 6
    assert found.timings[0].timed_on == whole_model.today()
