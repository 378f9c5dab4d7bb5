"""A few options of a schedule, timed: the best that is right wins, and is kept for this machine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from noyau.codegen import plan as codegen_plan
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options
from noyau.hosts.onnxruntime.activations import capture_twice
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.optimize.onnx import kernel_timing
from noyau.jobs.optimize.onnx.candidates import certify_candidate
from noyau.jobs.optimize.onnx.kernel_timing import (
    SEARCHED,
    recall,
    recall_options,
    surely_faster,
    tune,
    tuning_key,
    variant,
    variants,
)
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.jobs.optimize.pipeline import Candidate
from noyau.kernels.certificates import judge
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler
from tests.scenes import workers
from tests.small_models import CRASHES, NODE, model_of, spoilt, value, written

__all__ = ["workers"]

pytestmark = pytest.mark.usefixtures("lasting_workers")
LEVEL = c_compiler.level()
OPTIONS = c_compiler.CompilerOptions(target=LEVEL, export=True)


def model():
    """One kernel with folds: exp(softmax(x))."""
    nodes = [NODE("Softmax", ["x"], ["s"], axis=-1), NODE("Exp", ["s"], ["y"])]
    return model_of(nodes, [value("x", ("rows", 200))], [value("y", ("rows", 200))])


@pytest.fixture
def scene(tmp_path):
    """The kernel, and what it reads."""
    original = open_model(written(model(), tmp_path))
    (kernel,) = codegen_plan.plan(original.cut().groups, original.operators, LEVEL).kernels
    feeds = model_inputs(original.imported, [kernel.groups[0].original], {"rows": 30}, None, 0)
    return Candidate(kernel), capture_twice(original, [kernel], feeds)[1]


@pytest.fixture
def clock(monkeypatch):
    """Each option is as fast as the test says."""
    said: dict[Options, float] = {}

    def speedup(judged, other, arrays, options, workers):
        return said.get(
            next(each for each, made in variants(judged.planned, LEVEL).items() if made == other.planned), 0.5
        )

    monkeypatch.setattr(kernel_timing, "surely_faster", speedup)
    return said


def right(one: Candidate) -> Candidate:
    return one


def run(scene, workers, certify=right, **given) -> Candidate:
    (made,) = tune([scene[0]], [scene[1]], OPTIONS, workers, certify, **given)
    return made


def test_variants_have_texts_and_names_of_their_own(scene):
    planned = scene[0].planned
    found = variants(planned, LEVEL)
    assert 2 <= len(found) <= len(SEARCHED)
    names = {planned.operator, *(made.operator for made in found.values())}
    assert len(names) == len({made.text for made in (planned, *found.values())}) == len(found) + 1
    assert all(made.operator in made.text and made.groups == planned.groups for made in found.values())
    assert variants(planned, LEVEL) == found
    assert variant(planned, USUAL, LEVEL).text == planned.text


def test_every_variant_is_right(scene, workers):
    for made in variants(scene[0].planned, LEVEL).values():
        one = certify_candidate(Candidate(made), scene[1], OPTIONS, 0, judge)
        assert one.certificate.ok, one.reason


def test_the_fastest_wins_and_is_kept(scene, workers, clock, empty_cache):
    first, second = list(variants(scene[0].planned, LEVEL))[:2]
    clock.update({first: 1.2, second: 1.4})
    winner = run(scene, workers)
    assert winner.planned == variant(scene[0].planned, second, LEVEL)
    (again,) = recall_options([scene[0]], scene[1], OPTIONS, 1)
    assert again.planned == winner.planned


def test_what_is_hardly_faster_does_not_win(scene, workers, clock, empty_cache):
    clock.update(dict.fromkeys(variants(scene[0].planned, LEVEL), 1.02))
    assert run(scene, workers) is scene[0]
    assert recall_options([scene[0]], scene[1], OPTIONS, 1) == [scene[0]]


def test_what_is_slower_for_one_shape_does_not_win(scene, workers, monkeypatch, empty_cache):
    ratios = iter([3.0, 0.9] * len(SEARCHED))
    monkeypatch.setattr(kernel_timing, "surely_faster", lambda *_: next(ratios))
    (made,) = tune([scene[0]], [scene[1], scene[1]], OPTIONS, workers, right)
    assert made is scene[0]


def test_a_wrong_variant_never_wins(scene, workers, clock, empty_cache):
    first, second = list(variants(scene[0].planned, LEVEL))[:2]
    clock.update({first: 1.2, second: 1.4})
    wrong = variant(scene[0].planned, second, LEVEL).operator
    made = run(
        scene, workers, lambda one: dataclasses.replace(one, reason="wrong" if one.planned.operator == wrong else "")
    )
    assert made.planned == variant(scene[0].planned, first, LEVEL)


def test_without_time_nothing_is_tried(scene, workers, monkeypatch, empty_cache):
    monkeypatch.setattr(kernel_timing, "surely_faster", None)
    assert run(scene, workers, budget_s=-1.0) is scene[0]
    assert list(empty_cache.glob("*.json")) == []


def test_a_kernel_that_is_out_is_not_tuned(scene, workers, monkeypatch):
    monkeypatch.setattr(kernel_timing, "surely_faster", None)
    out = dataclasses.replace(scene[0], reason="no")
    assert list(tune([out], [scene[1]], OPTIONS, workers, right)) == [out]
    assert recall_options([out], scene[1], OPTIONS, 1) == [out]


def test_kernels_are_called_directly_in_processes_of_their_own(scene, workers):
    arrays = kernel_timing.arrays_of(*scene)
    found = surely_faster(scene[0], scene[0], arrays, OPTIONS, workers)
    assert 0.2 < found < 1.5
    for ending in (CRASHES, "return 2;"):
        broken = Candidate(spoilt(scene[0].planned, ending))
        assert surely_faster(scene[0], broken, arrays, OPTIONS, workers) == 0.0
    assert surely_faster(scene[0], Candidate(scene[0].planned, reason="no"), arrays, OPTIONS, workers) == 0.0


def test_what_was_found_holds_for_the_machine_and_for_shapes_of_the_class(scene, monkeypatch):
    planned, x = scene[0].planned, np.ones((30, 100), np.float32)
    key = tuning_key(planned, [x], LEVEL, 1)
    assert key == tuning_key(planned, [np.ones((17, 65))], LEVEL, 1)
    assert key != tuning_key(planned, [np.ones((33, 100))], LEVEL, 1)
    assert key != tuning_key(planned, [x], LEVEL, 2)
    here = kernel_timing.this_machine()
    monkeypatch.setattr(kernel_timing, "this_machine", lambda: dataclasses.replace(here, cpu="another"))
    assert key != tuning_key(planned, [x], LEVEL, 1)


def test_a_kernel_is_not_scheduled_anew_to_ask_for_what_was_found(scene, monkeypatch):
    monkeypatch.setattr(kernel_timing, "schedule", None)  # none can be made
    assert recall_options([scene[0]], scene[1], OPTIONS, 1) == [scene[0]]


@pytest.mark.parametrize("told", [{}, {"options": {"nonsense": 3}}, {"options": 3}, []])
def test_a_record_of_options_that_there_are_not_is_none(told, empty_cache):
    cache.keep("0" * 40, told)
    assert recall("0" * 40) is None


@pytest.mark.parametrize("tune", [None, False])
def test_without_a_record_and_where_none_is_wanted_the_options_are_the_usual_ones(tune, scene, tmp_path, empty_cache):
    planned = scene[0].planned
    if tune is False:
        chosen = next(iter(variants(planned, LEVEL)))
        key = tuning_key(planned, [np.ones((3, 100))], LEVEL, 1)
        cache.keep(key, {"options": dataclasses.asdict(chosen), "speedup": 2.0, "tuned_on": "2026-01-01"})
    made = optimize(written(model(), tmp_path), OptimizeOptions(keep="all", budget_s=0.01, dims={"rows": 3}, tune=tune))
    assert [kernel.name for kernel in made.report.kernels] == [planned.operator]


def test_the_main_job_tunes_and_uses_what_was_found(scene, tmp_path, monkeypatch, empty_cache):
    monkeypatch.setattr(kernel_timing, "surely_faster", lambda *_: 2.0)
    wishes = OptimizeOptions(keep="all", budget_s=0.01, dims={"rows": 3}, tune=True)
    first = optimize(written(model(), tmp_path), wishes)
    (name,) = (kernel.name for kernel in first.report.kept)
    assert name in {made.operator for made in variants(scene[0].planned, LEVEL).values()}
    again = optimize(written(model(), tmp_path), dataclasses.replace(wishes, tune=None))
    assert [kernel.name for kernel in again.report.kept] == [name]
    assert again.candidates[0].certificate.ok
