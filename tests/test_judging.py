from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from noyau import judging, planning
from noyau.builders import cc
from noyau.errors import BuildError, InputError, ModelError
from noyau.feeding import feeds_for
from noyau.judging import (
    Bench,
    Judged,
    apart,
    captured_cases,
    certified,
    compiled,
    right,
    timed,
    timed_whole,
    verdict,
)
from noyau.original import open_model
from noyau.runtimes.putting_back import library, put_back
from noyau.seeing import Seen, look
from noyau.timing.comparing import Verdict
from noyau.timing.onnxruntime_workers import Workers
from tests.small_models import KINDS, WRONG, compared, spoilt, twice, written

OPTIONS = cc.Options(export=True)


@pytest.fixture
def scene(tmp_path):
    """The model of two kernels, opened, planned and looked at."""
    original = open_model(written(twice(), tmp_path))
    kernels = planning.plan(original.cut().groups, original.operators, cc.level()).kernels
    feeds = feeds_for(original.imported, [kernel.groups[0].original for kernel in kernels], {"rows": 9}, None, 0)
    return original, kernels, look(original, kernels, feeds)[0]


@pytest.fixture(scope="module")
def workers():
    with Workers() as made:
        yield made


@pytest.fixture
def bench(scene, workers):
    """A bench of the scene's kernels, or of others."""

    def made(kernels=None, scene=scene) -> Bench:
        original, planned, seen = scene
        kernels = planned if kernels is None else kernels
        fused = put_back(original.model, kernels, original.folder)
        return Bench(original, fused, library(kernels, OPTIONS), seen, workers=workers, budget_s=0.01)

    return made


def test_kernels_are_compiled_and_those_that_fail_say_why(scene):
    _, kernels, _ = scene
    broken = dataclasses.replace(kernels[0], text="this is not C;")
    first, second = compiled([broken, kernels[1]], OPTIONS)
    assert first.reason.startswith("does not build: ")
    assert second.reason == ""
    assert right([first, second]) == [kernels[1]]
    assert compiled([], cc.Options(compiler="no such compiler")) == []
    with pytest.raises(BuildError, match="no such compiler"):
        compiled(kernels, cc.Options(compiler="no such compiler"))


def test_a_certificate_has_activations_and_adversarial_cases(scene):
    _, kernels, seen = scene
    one = certified(Judged(kernels[0]), seen, OPTIONS, 0)
    assert (one.reason, one.note) == ("", "")
    labels = [outcome.label for outcome in one.certificate.outcomes]
    assert labels[:2] == ["captured at a", "captured at c"]
    assert any("NaN" in label for label in labels)
    assert one.evidence == one.certificate.summary()
    assert "activations of made-up inputs among them" in one.evidence


def test_a_certificate_is_the_same_each_time(scene):
    _, kernels, seen = scene
    one, other = (certified(Judged(kernels[0]), seen, OPTIONS, 3).certificate for _ in "ab")
    assert one.to_json() == other.to_json()


def test_a_wrong_kernel_has_a_reason(scene, bench):
    _, kernels, seen = scene
    one = certified(Judged(spoilt(kernels[0], WRONG)), seen, OPTIONS, 0)
    assert not one.certificate.ok
    assert "wrong at a[0, 0]" in one.reason
    assert right([one]) == []
    assert certified(one, seen, OPTIONS, 0) is one
    assert timed(one, bench(), "all") is one


def test_a_graph_that_does_not_fit_what_was_seen_is_a_reason(scene):
    _, kernels, _ = scene
    strange = Seen({"x": np.ones((2, 7), np.float32)}, {}, made_up=True)
    one = certified(Judged(kernels[0]), strange, OPTIONS, 0)
    assert one.reason.startswith("cannot be checked: ")
    assert one.evidence == one.reason


def test_captured_cases_are_bounded(scene, monkeypatch):
    _, kernels, seen = scene
    made, note = captured_cases(kernels[0], seen)
    assert ([case.captured for case in made], note) == ([True, True], "")
    monkeypatch.setattr(judging, "MOST_CELLS", 60)
    made, note = captured_cases(kernels[0], seen)
    assert (len(made), note) == (1, "")
    monkeypatch.setattr(judging, "MOST_CELLS", 53)
    made, note = captured_cases(kernels[0], seen)
    assert (made, note) == ([], "its activations, of 54 cells, are too large to be among the cases")
    made, note = captured_cases(kernels[0], Seen({}, {}, made_up=True))
    assert (made, note) == ([], "what it reads in the model could not be captured")


def test_a_kernel_is_timed_in_its_first_place(scene, bench):
    _, kernels, _ = scene
    one = timed(Judged(kernels[0]), bench(), "all")
    assert one.kept and one.reason == ""
    assert one.comparison.pairs >= 6
    assert one.comparison.before_median_s > 0


@pytest.mark.parametrize(
    ("ratio", "keep", "kept", "reason"),
    [
        (2, "faster", True, ""),
        (1, "faster", False, "same: 1.00x"),
        (1, "not-slower", True, ""),
        (0.5, "not-slower", False, "slower: 0.50x"),
        (0.5, "all", True, ""),
    ],
)
def test_verdicts(scene, ratio, keep, kept, reason):
    one = verdict(Judged(scene[1][0], comparison=compared(ratio)), keep)
    assert (one.kept, one.reason) == (kept, reason)


def test_every_verdict_is_kept_or_not_by_every_wish():
    assert judging.KEEPS["faster"] < judging.KEEPS["not-slower"] < judging.KEEPS["all"] == frozenset(Verdict)
    assert judging.KEEPS["all"] - judging.KEEPS["not-slower"] == {Verdict.SLOWER}


def test_a_part_that_cannot_be_timed_is_kept_on_demand_alone(scene, bench):
    _, kernels, _ = scene
    blind = dataclasses.replace(bench(), seen=Seen({}, {}, made_up=True))
    for keep, kept in (("faster", False), ("not-slower", False), ("all", True)):
        one = timed(Judged(kernels[0]), blind, keep)
        assert (one.kept, one.reason) == (kept, "not timed: what it reads could not be captured")


def test_the_whole_model_is_timed_and_its_outputs_are_compared(bench):
    whole = timed_whole(bench())
    assert whole.comparison.pairs >= 6
    assert 0 <= whole.apart < 1e-5
    assert whole.note == ""
    assert timed_whole(bench([])) == judging.Whole()


def test_the_whole_model_of_a_wrong_kernel_is_apart(scene, bench, monkeypatch):
    monkeypatch.setattr(Bench, "compare", lambda *_: compared(2))
    assert timed_whole(bench([spoilt(scene[1][1], WRONG)])).apart > 1e-3


@pytest.mark.parametrize("failing", ["judging.ends_run", "judging.Bench.compare"])
def test_a_whole_model_that_does_not_run_is_told(failing, bench, monkeypatch):
    def fail(*_):
        raise InputError("not with these")

    monkeypatch.setattr(f"noyau.{failing}", fail)
    whole = timed_whole(bench())
    assert (whole.comparison, whole.note) == (None, "the whole model is not timed: not with these")


def test_a_fused_model_that_does_not_open_is_no_secret(bench):
    broken = bench()
    broken.fused.graph.node[0].op_type = "nonsense"
    with pytest.raises(ModelError, match="nonsense"):
        timed_whole(broken)


def test_large_weights_are_timed_as_they_lie(bench, monkeypatch):
    monkeypatch.setattr("noyau.original.LARGE", 0)
    monkeypatch.setattr(Bench, "compare", lambda *_: compared(2))
    assert "as they lie in the file" in timed_whole(bench()).note


class Drawn:
    """A run that writes what it is given, one after another, and the last again and again."""

    def __init__(self, *values: object) -> None:
        self.values, self.outputs = list(values), {}

    def __call__(self) -> None:
        self.outputs = {"y": np.asarray(self.values[0] if len(self.values) == 1 else self.values.pop(0))}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([1.0, -2.0], [1.0, -2.0], 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan, 1.0], [1.0, np.nan], math.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], math.inf),
        ([0.0, 0.0], [0.25, 0.0], 0.25),
        (np.array([1, 2]), np.array([1, 2]), 0.0),
        (np.array([1, 2]), np.array([1, 3]), math.inf),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.zeros(3), np.zeros(4), math.inf),
    ],
)
def test_how_far_outputs_are_apart(before, after, found):
    assert apart(Drawn(before), Drawn(after)) == found


def test_a_model_that_draws_numbers_is_apart_from_itself():
    assert apart(Drawn([1.0], [2.0]), Drawn([3.0])) is None


def test_a_whole_model_with_ends_that_cannot_be_bound_is_timed(tmp_path, bench):
    original = open_model(written(KINDS["sequence out"], tmp_path))
    kernels = planning.plan(original.cut().groups, original.operators, cc.level()).kernels
    feeds = feeds_for(original.imported, [kernels[0].groups[0].original], {}, None, 0)
    whole = timed_whole(bench(scene=(original, kernels, look(original, kernels, feeds)[1])))
    assert whole.comparison.pairs >= 6
    assert whole.apart is None
