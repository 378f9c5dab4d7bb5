"""Rounds at each binding, memory, and time that runs out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.hosts.onnxruntime import inputs
from noyau.hosts.onnxruntime.inputs import ModelInputs
from noyau.jobs.optimize.onnx import host, options
from noyau.jobs.optimize.onnx.candidates import activation_cases
from noyau.jobs.optimize.onnx.host import OnnxHost, SizeSchedule
from noyau.jobs.optimize.onnx.kernel_timing import BenchmarkCase, OnnxBench
from noyau.jobs.optimize.onnx.options import DEFAULTS, Deadline
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, announce, race
from noyau.timing.comparison import briefly
from noyau.verify.inputs import Inputs
from tests.scenes import OPTIONS, bench, fed, scene, workers
from tests.small_models import compared, timed_as

__all__ = ["bench", "scene", "workers"]

LONG, OVER = Deadline(math.inf), Deadline(0.0, -math.inf)


@dataclass
class Raced:
    judged: list[Candidate]
    scenes: list[BenchmarkCase]


def raced(bench, judged, course, deadline, keep, say):
    """Every round of a host whose kernels are certified."""
    deadline = Deadline(math.inf) if deadline is LONG else deadline  # it begins now
    here = OnnxHost(course.original, DEFAULTS, OPTIONS, bench.workers, deadline, say)
    here.schedule, here.base = course, dataclasses.replace(bench, deadline=deadline)
    return Raced(race(here, judged, keep, say), here.scenes)


@pytest.fixture
def course(scene):
    original, kernels, seen = scene
    feeds = fed(original, kernels, rows=1)
    return SizeSchedule(original, feeds, seen, {})


@pytest.fixture
def judged(scene):
    return [Candidate(kernel) for kernel in scene[1]]


@pytest.fixture
def asked(monkeypatch):
    """The sizes of each comparison; everything is twice as fast, but at those of `slow`."""
    found: list[dict[str, int]] = []
    slow: list[int] = []

    def compare(bench, before, after, scenes, *_):
        found.append(dict(bench.sizes))
        return [BindingTiming(bench.sizes, compared(0.5 if bench.sizes["rows"] in slow else 2))]

    monkeypatch.setattr(OnnxBench, "compare", compare)
    return found, slow


def sizes(found) -> list[int]:
    return [each["rows"] for each in found]


def test_each_kernel_is_timed_at_each_binding(course, judged, bench, asked):
    made = raced(bench(), judged, course, LONG, "faster", lambda _: None)
    assert sizes(asked[0]) == [1, 1, 128, 128, 1024, 1024]
    assert [one.kept for one in made.judged] == [True, True]
    assert sizes(scene.sizes for scene in made.scenes) == [1, 128, 1024]
    assert [scene.arrays["x"].shape for scene in made.scenes[1:]] == [(128, 6), (1024, 6)]
    assert course.notes == []


def test_where_clocks_are_to_be_brief_there_is_one_round(course, judged, bench, asked):
    with briefly():
        made = raced(bench(), judged, course, LONG, "faster", lambda _: None)
    assert sizes(asked[0]) == [1, 1]
    assert [one.kept for one in made.judged] == [True, True]
    assert course.notes == []


@pytest.mark.parametrize("limit", ["ROUNDS_S", "MOST_RUN_S", "MODEL_S"])
def test_sizes_that_nobody_asked_for_have_only_so_much_time(limit, course, judged, bench, asked, monkeypatch):
    monkeypatch.setattr(host, limit, -1.0)
    made = raced(bench(), judged, course, LONG, "faster", lambda _: None)
    assert sizes(asked[0]) == [1, 1] and [one.kept for one in made.judged] == [True, True]
    left_out = [f"not timed at rows={rows}: it takes long; --dim asks for that" for rows in (128, 1024)]
    assert course.notes == left_out and sizes(scene.sizes for scene in made.scenes) == [1]


def test_who_loses_a_round_is_out(course, judged, bench, asked):
    asked[1].append(128)
    said: list[str] = []
    made = raced(bench(), judged, course, LONG, "faster", said.append)
    assert sizes(asked[0]) == [1, 1, 128, 128]
    assert {one.reason for one in made.judged} == {"SLOWER at rows=128: 0.50x"}
    assert said[0] == f"timing at rows=1, 1 of 2: {judged[0].planned.operator}"
    assert said[-1] == "running the model at rows=1024"


def test_sizes_that_are_asked_for_are_the_rounds(scene, judged, bench, asked):
    original, kernels, seen = scene
    course = SizeSchedule(original, fed(original, kernels, 5), seen, {"rows": (5, 7)})
    raced(bench(), judged, course, LONG, "all", lambda _: None)
    assert sizes(asked[0]) == [5, 5, 7, 7]


def test_a_user_s_arrays_are_one_round(scene, judged, bench, asked):
    original, _, seen = scene
    given = Inputs({"x": np.ones((9, 6), np.float32)}, {"rows": 9}, ())
    raced(
        bench(),
        judged,
        SizeSchedule(original, ModelInputs(given, given, made_up=False), seen, {}),
        LONG,
        "all",
        lambda _: None,
    )
    assert sizes(asked[0]) == [9, 9]


@pytest.fixture
def sampled(scene):
    """A schedule of three samples, of two sizes."""
    original, kernels, seen = scene
    first, *others = (Inputs({"x": np.full((rows, 6), rows, np.float32)}, {"rows": rows}, ()) for rows in (9, 4, 9))
    return SizeSchedule(original, ModelInputs(first, first, made_up=False, others=tuple(others)), seen, {}), kernels


def test_of_several_samples_each_is_checked_and_each_sizes_are_a_round(sampled, scene):
    schedule, kernels = sampled
    assert sizes(schedule.bindings()) == [9, 4]
    flows = schedule.with_samples(kernels, scene[2])
    assert [each.sizes["rows"] for each in flows.others] == [4, 9]
    alone, _ = activation_cases(kernels[0], scene[2])
    cases, _ = activation_cases(kernels[0], flows)
    assert len(cases) == len(alone) + 2
    assert schedule.activations([], {"rows": 4}).arrays["x"].max() == 4


def test_samples_beyond_the_memory_are_told_and_those_that_do_not_run_refused(sampled, scene, monkeypatch):
    schedule, kernels = sampled
    monkeypatch.setattr(host, "MOST_BYTES", 8)
    assert len(schedule.with_samples(kernels, scene[2]).others) == 1
    assert schedule.notes == ["no kernel is checked on sample 3 and later ones: what flows takes over 1 GiB"]

    def refusing(*_):
        raise InputError("it must be odd")

    monkeypatch.setattr(host, "capture_at", refusing)
    with pytest.raises(InputError, match="the model does not run with sample 2: it must be odd"):
        schedule.with_samples(kernels, scene[2])


def test_sizes_beyond_the_memory_are_left_out_and_told(course, judged, bench, asked, monkeypatch):
    monkeypatch.setattr(host, "MOST_BYTES", 128 * 6 * 4)
    raced(bench(), judged, course, LONG, "faster", lambda _: None)
    assert sizes(asked[0]) == [1, 1, 128, 128]
    assert course.notes == ["not timed at rows=1024: a value takes 0.0 GiB; --dim asks for that"]
    assert inputs.MOST_BYTES == 1 << 30


def test_sizes_that_the_model_does_not_run_with_are_told(course, judged, bench, asked, monkeypatch):
    look = host.capture_at

    def refusing(original, kernels, inputs, made_up, capturing):
        if inputs.sizes["rows"] == 128:
            raise InputError("it must be odd")
        return look(original, kernels, inputs, made_up, capturing)

    monkeypatch.setattr(host, "capture_at", refusing)
    made = raced(bench(), judged, course, LONG, "faster", lambda _: None)
    assert sizes(asked[0]) == [1, 1, 1024, 1024]
    assert course.notes == ["not timed at rows=128: it must be odd"]
    assert all(one.kept for one in made.judged)


def test_without_time_nothing_is_timed_and_nothing_is_kept(course, judged, bench, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", None)
    made = raced(bench(), judged, course, OVER, "faster", lambda _: None)
    assert {(one.kept, one.reason) for one in made.judged} == {(False, "not timed: the 0 s that were given are over")}
    assert course.notes == []
    asked_for = raced(bench(), judged, course, OVER, "all", lambda _: None)
    assert all(one.kept for one in asked_for.judged)


def test_what_was_timed_before_the_time_was_over_counts(course, judged, bench, monkeypatch):
    clock = iter([0.0, 1.0, *[99.0] * 20])
    deadline = Deadline(10.0, 0.0)
    monkeypatch.setattr(options.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))
    first, second = raced(bench(), judged, course, deadline, "faster", lambda _: None).judged
    assert first.kept and len(first.timings) == 1
    assert not second.kept and "the 10 s that were given are over" in second.reason


def test_only_those_in_the_race_are_said_as_their_turn_comes(judged):
    happened: list[object] = []
    out = Candidate(judged[0].planned, reason="no")
    turn = announce("checking", 3, happened.append, lambda one: happened.append(one) or one)
    numbered = list(enumerate([out, judged[1], judged[0]], 1))
    assert list(map(turn, numbered)) == [one for _, one in numbered]
    first, second = (each.planned.operator for each in judged[:2])
    assert happened == [out, f"checking, 2 of 3: {second}", judged[1], f"checking, 3 of 3: {first}", judged[0]]


def test_what_the_whole_model_reads_must_be_known(course, judged, bench, asked, scene):
    original, _, seen = scene
    blind = SizeSchedule(original, course.feeds, type(seen)({}, {}, made_up=True), {})
    assert len(raced(bench(), judged, blind, LONG, "all", lambda _: None).scenes) == 2
