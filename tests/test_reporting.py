from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from noyau import planning, reporting
from noyau.builders import cc
from noyau.feeding import feeds_for
from noyau.judging import Bench, Judged, Whole, certified
from noyau.original import open_model
from noyau.planning import Plan
from noyau.reporting import ceiling, end_to_end, moved_bytes, not_fused, record, remarks, report_of
from noyau.reports.records import EndToEnd
from noyau.seeing import Seen, look
from noyau.timing.comparing import Verdict
from tests.small_models import KINDS, compared, twice, written

ROW = 2 * 4 * 6  # bytes of a row of `twice`, read and written


@pytest.fixture(autouse=True)
def _machine_that_copies_a_gigabyte_a_second(monkeypatch):
    monkeypatch.setattr(reporting, "copy_rate", lambda moved, threads: 1e9)
    monkeypatch.setattr(reporting, "floor_ratio", lambda moved, time_s, threads: moved / time_s / 1e9)


@pytest.fixture
def scene(tmp_path):
    original = open_model(written(twice(), tmp_path))
    cut = original.cut()
    plan = planning.plan(cut.groups, original.operators, cc.level())
    feeds = feeds_for(original.imported, [plan.kernels[0].groups[0].original], {"rows": 100}, None, 0)
    return original, cut, plan, feeds, look(original, plan.kernels, feeds)[1]


def test_a_record_has_what_is_known(scene):
    _, _, plan, _, seen = scene
    options = cc.Options(export=True)
    one = dataclasses.replace(certified(Judged(plan.kernels[0]), seen, options, 0), comparison=compared(2), kept=True)
    made = record(one, seen, 1)
    assert (made.name, made.places, made.replaces) == (plan.kernels[0].operator, 2, ("Tanh", "Mul", "Sigmoid"))
    assert (made.verdict, made.speedup, made.speedup_low, made.speedup_high) == (Verdict.FASTER, 2, 2, 2)
    assert (made.bytes, made.after_s, made.kept, made.reason) == (100 * ROW, 1.0, True, "")
    assert made.floor_ratio == pytest.approx(100 * ROW / 1e9)
    assert 0 < made.error == one.certificate.kernel.worst_relative < 1e-6
    assert 0 < made.error_unfused == one.certificate.unfused.worst_relative < 1e-6


def test_a_record_of_a_kernel_that_does_not_build(scene):
    _, _, plan, _, seen = scene
    made = record(Judged(plan.kernels[0], reason="does not build"), seen, 1)
    assert (made.verdict, made.speedup, made.error, made.error_unfused, made.kept) == (None, None, None, None, False)
    assert made.reason == "does not build"


def test_bytes_are_not_known_where_a_size_is_not(scene):
    _, _, plan, _, seen = scene
    assert moved_bytes(Judged(plan.kernels[0]), seen) == 100 * ROW
    assert moved_bytes(Judged(plan.kernels[0]), Seen({}, {}, made_up=True)) is None
    wrong = Seen({"x": np.ones((2, 7), np.float32)}, {}, made_up=True)
    assert moved_bytes(Judged(plan.kernels[0]), wrong) is None
    assert record(Judged(plan.kernels[0], comparison=compared(2)), Seen({}, {}, made_up=True), 1).floor_ratio is None


def test_the_ceiling_is_every_place_at_the_time_of_a_copy(scene):
    _, _, plan, _, seen = scene
    judged = [Judged(plan.kernels[0], comparison=compared(2)), Judged(plan.kernels[1])]
    whole = Whole(compared(10))
    # Two places of 2 s each, less the copies of 4.8 us; the other kernel was not timed.
    assert ceiling(judged, whole, seen, 1) == pytest.approx(10 / (10 - 2 * (2 - 4.8e-6)))
    assert ceiling(judged, Whole(), seen, 1) is None
    assert ceiling([], whole, seen, 1) == 1
    assert ceiling([Judged(plan.kernels[0], comparison=compared(50))], whole, seen, 1) is None


def test_end_to_end():
    assert end_to_end(Whole(note="not timed")) == EndToEnd()
    assert end_to_end(Whole(compared(2), 1e-7)) == EndToEnd(2.0, 1.0, Verdict.FASTER, 2.0, 1e-7)


def test_what_no_kernel_replaces_is_told_by_reason(scene):
    original, cut, plan, _, _ = scene
    assert [(each.nodes, each.reason) for each in not_fused(cut, plan, original.operators)] == [
        (("MatMul#3", "MatMul#7"), "MatMul is a library call")
    ]
    less = planning.without(plan, [(plan.kernels[1].groups[0], "left out as asked")])
    assert [each.nodes for each in not_fused(cut, less, original.operators)][1] == ("Exp#8", "Neg#9")
    none = Plan((), tuple((group, "no") for group in cut.groups))
    assert sum(len(each.nodes) for each in not_fused(cut, none, original.operators)) == 10


def test_the_whole_report(scene):
    original, cut, plan, feeds, seen = scene
    judged = [Judged(kernel, comparison=compared(2), kept=True, note="left out") for kernel in plan.kernels]
    bench = Bench(original, original.model, None, seen)
    report = report_of(bench, cut, plan, feeds, judged, Whole(note="whole: no"), cc.DEFAULTS)
    assert (report.model, report.nodes_before, report.nodes_after, len(report.kept)) == ("model.onnx", 10, 10, 2)
    assert report.inputs == (
        "x f32[100, 6]: made up, standard normal",
        "kernels are checked on smaller ones, of rows=64",
        *(f"{kernel.operator}: left out" for kernel in plan.kernels),
        "whole: no",
    )


def test_remarks_name_what_does_not_run_and_what_is_missing(tmp_path):
    for kind, words in {"strange operator": "com.example::Strange is no operator", "strings": "s: of a type"}.items():
        original = open_model(written(KINDS[kind], tmp_path))
        feeds = feeds_for(original.imported, [group.original for group in original.cut().groups], {"n": 3}, None, 0)
        (told,) = remarks(original, feeds, [], Whole())
        assert told.startswith(words)
