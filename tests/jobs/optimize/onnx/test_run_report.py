from __future__ import annotations

import dataclasses

import pytest

from noyau.codegen import plan as codegen_plan
from noyau.codegen.plan import Plan
from noyau.compiler.partition.traffic import Traffic
from noyau.hosts.onnxruntime.activations import capture_twice
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.optimize.onnx.host import SizeSchedule
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.run import ceiling, end_to_end, remarks, report_of
from noyau.jobs.optimize.onnx.whole_model import FinalModel, Whole
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, Optimization
from noyau.jobs.optimize.record import EndToEnd, not_fused, uncovered_nodes
from noyau.text import as_json
from noyau.timing.conditions import Conditions
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import KINDS, NODE, model_of, twice, value, written

CALM = Conditions(None, 1e-4, 0.1, None)
FEW, MANY = {"rows": 1}, {"rows": 100}


def timing(ratio: float, after_s: float = 1.0, **given: object) -> BindingTiming:
    """So many times as fast; a megabyte in each direction, of which the floor is a millisecond."""
    found = Comparison((ratio * after_s,) * 10, (after_s,) * 10)
    return BindingTiming(**{"sizes": MANY, "hot": found, "traffic": Traffic(10**6, 10**6), "floor_s": 1e-3, **given})


def alone(original, cut, plan):
    """What no kernel replaces, by reason."""
    names = [f"{operator}#{position}" for position, operator in enumerate(original.operators)]
    return not_fused(uncovered_nodes(names, cut, plan))


@pytest.fixture
def scene(tmp_path):
    original = open_model(written(twice(), tmp_path))
    cut = original.cut()
    plan = codegen_plan.plan(cut.groups, original.operators, c_compiler.level())
    feeds = model_inputs(original.imported, [plan.kernels[0].groups[0].original], {"rows": 100}, None, 0)
    return original, cut, plan, feeds, capture_twice(original, plan.kernels, feeds)[1]


def test_the_ceiling_is_every_place_at_its_floor(scene):
    plan = scene[2]
    judged = [Candidate(plan.kernels[0], timings=(timing(2), timing(9, sizes=FEW))), Candidate(plan.kernels[1])]
    whole = timing(10)
    # Two places of 2 s each, less the floors of a millisecond; the other kernel was not timed.
    assert ceiling(judged, whole) == pytest.approx(10 / (10 - 2 * (2 - 1e-3)))
    idle = [Candidate(plan.kernels[0], timings=(timing(2, idle_s=0.5),))]
    assert ceiling(idle, whole) == pytest.approx(10 / (10 - 2 * (2 - 0.5 - 1e-3)))
    looped = [Candidate(plan.kernels[0], timings=(timing(2, repeats=2),))]
    assert ceiling(looped, whole) == pytest.approx(10 / (10 - 2 * 2 * (2 - 1e-3)))
    assert ceiling([], whole) == 1
    assert ceiling(judged, timing(10, sizes={"rows": 7})) == 1
    assert ceiling([Candidate(plan.kernels[0], timings=(timing(50),))], whole) is None
    assert ceiling([Candidate(plan.kernels[0], timings=(timing(2, calls=("Conv",)),))], whole) is None
    assert ceiling([Candidate(plan.kernels[0], timings=(timing(2, floor_s=None),))], whole) is None


def test_what_was_timed_with_a_call_and_how_it_was_read_is_told(scene):
    original, _, plan, feeds, _ = scene
    with_call = Candidate(plan.kernels[0], timings=(timing(2, calls=("Conv", "Gemm")),))
    told = list(remarks(original, feeds, [with_call], Whole()))
    name = plan.kernels[0].operator
    assert f"timed with the Conv, Gemm before it, into which onnxruntime folds operators: {name}" in told
    old = dataclasses.replace(original, raw=model_of([], [], [], opset=11))
    told = list(remarks(old, dataclasses.replace(feeds, searched=True), [], Whole()))
    assert "the model has opset 11: it is read as onnx converts it to opset 13" in told
    assert any("rows=100 were found by trying" in line for line in told)


def test_who_is_in_no_ceiling_is_told(scene):
    original, _, plan, feeds, _ = scene
    judged = [
        Candidate(plan.kernels[0], timings=(timing(0.5, sizes=FEW),), reason="SLOWER"),
        Candidate(plan.kernels[1]),
    ]
    *_, told = remarks(original, feeds, judged, Whole((timing(2, sizes=FEW), timing(2))))
    name = plan.kernels[0].operator
    assert told == f"{name}: dropped before the times at rows=100, so not in what fusing could gain there"


def test_end_to_end():
    assert end_to_end(Whole(notes=("not timed",)), []) == EndToEnd()
    made = end_to_end(Whole((timing(2), timing(1, sizes=FEW)), 1e-7), [])
    assert (made.before_s, made.after_s, made.verdict, made.speedup, made.apart) == (2, 1, Verdict.FASTER, 2, 1e-7)
    assert [(each.sizes, each.speedup, each.ceiling) for each in made.bindings] == [(MANY, 2, 1), (FEW, 1, 1)]


def test_what_no_kernel_replaces_is_told_by_reason(scene):
    original, cut, plan, _, _ = scene
    assert [(each.nodes, each.reason) for each in alone(original, cut, plan)] == [
        (("MatMul#3", "MatMul#7"), "MatMul is a library call")
    ]
    less = codegen_plan.without(plan, [(plan.kernels[1].groups[0], "left out as asked")])
    assert [each.nodes for each in alone(original, cut, less)][1] == ("Exp#8", "Neg#9")
    none = Plan((), tuple((group, "no") for group in cut.groups))
    assert sum(len(each.nodes) for each in alone(original, cut, none)) == 10


def test_the_whole_report(scene):
    original, cut, plan, feeds, seen = scene
    judged = [Candidate(kernel, timings=(timing(2),), kept=True, note="left out") for kernel in plan.kernels]
    settled = FinalModel(
        OnnxBench(original, original.model, None, seen, workers=None), tuple(judged), Whole(notes=("whole: no",))
    )
    schedule = SizeSchedule(original, feeds, seen, {}, notes=["and more"])
    slower = dataclasses.replace(CALM, pulse_s=1.5e-4)
    report = report_of(Optimization(cut, plan, tuple(judged), settled), schedule, c_compiler.DEFAULTS, (CALM, slower))
    assert (report.model, report.nodes_before, report.nodes_after, len(report.kept)) == ("model.onnx", 10, 10, 2)
    assert report.inputs == (
        "x f32[100, 6]: made up, standard normal",
        "kernels are checked on smaller ones, of rows=64",
        *(f"{kernel.operator}: left out" for kernel in plan.kernels),
        "whole: no",
        "and more",
    )
    assert report.doubts.startswith("the times are doubtful: the processor became 1.50x slower meanwhile")
    assert report.to_json()["conditions"] == [as_json(CALM), as_json(slower)]


def test_a_machine_too_noisy_to_judge_the_whole_model_is_told_with_what_to_do(scene):
    original, _, _, feeds, _ = scene
    noisy = timing(1, hot=Comparison((0.5, 2.0) * 5, (1.0,) * 10))
    (told,) = remarks(original, feeds, [], Whole((noisy, timing(2, sizes=FEW))))
    assert told.startswith("the whole model, AMBIGUOUS at rows=100: 1.25x; the machine is too noisy, [0.50, 2.00]: end")


@pytest.mark.parametrize(
    ("recalled", "some"), [((False, False), None), ((True, True), ""), ((True, False), "some of the ")]
)
def test_times_of_an_earlier_run_are_told(recalled, some, scene):
    original, _, plan, feeds, _ = scene
    timings = tuple(timing(2, recalled=each, timed_on="2026-11-21") for each in recalled)
    told = list(remarks(original, feeds, [Candidate(plan.kernels[0], timings=timings)], Whole()))
    wanted = f"{some}times are of earlier runs: timed on 2026-11-21; --fresh times anew"
    assert told[1:] == ([] if some is None else [wanted])


def test_remarks_name_what_does_not_run_and_what_is_missing(tmp_path):
    for kind, words in {"strange operator": "com.example::Strange is no operator", "strings": "s: of a type"}.items():
        original = open_model(written(KINDS[kind], tmp_path))
        feeds = model_inputs(original.imported, [group.original for group in original.cut().groups], {"n": 3}, None, 0)
        (told,) = remarks(original, feeds, [], Whole())
        assert told.startswith(words)


def test_remarks_say_what_was_fused_already(tmp_path):
    nodes = [NODE("FusedMatMul", ["x", "x"], ["a"], domain="com.microsoft", transB=1), NODE("Tanh", ["a"], ["y"])]
    model = model_of(nodes, [value("x", ("n", 6))], [value("y", ("n", "n"))])
    model.opset_import.add(domain="com.microsoft", version=1)
    original = open_model(written(model, tmp_path))
    feeds = model_inputs(original.imported, [], {}, None, 0)
    assert list(remarks(original, feeds, [], Whole())) == [
        "already fused by onnxruntime: 1 FusedMatMul; nothing else is left to fuse"
    ]
    (left,) = alone(original, original.cut(), Plan(()))[:1]
    assert left.nodes == ("FusedMatMul#0",)
    assert left.reason == "already fused by onnxruntime: FusedMatMul is a library call with what surrounds it"
