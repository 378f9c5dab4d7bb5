from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from noyau.errors import BuildError
from noyau.hosts.onnxruntime.activations import Activations
from noyau.jobs.optimize.onnx import candidates as onnx_candidates
from noyau.jobs.optimize.onnx.candidates import activation_cases, certify_candidate, compile_kernels
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, right
from noyau.toolchain.c import compiler as c_compiler
from tests.scenes import OPTIONS, scene
from tests.small_models import WRONG, compared, spoilt

__all__ = ["scene"]


def test_kernels_are_compiled_and_those_that_fail_say_why(scene):
    _, kernels, _ = scene
    broken = dataclasses.replace(kernels[0], text="this is not C;")
    first, second = compile_kernels([broken, kernels[1]], OPTIONS)
    assert first.reason.startswith("does not build: ")
    assert second.reason == ""
    assert right([first, second]) == [kernels[1]]
    assert compile_kernels([], c_compiler.CompilerOptions(compiler="no such compiler")) == []
    with pytest.raises(BuildError, match="no such compiler"):
        compile_kernels(kernels, c_compiler.CompilerOptions(compiler="no such compiler"))


def test_a_certificate_has_activations_and_adversarial_cases(scene):
    _, kernels, seen = scene
    one = certify_candidate(Candidate(kernels[0]), seen, OPTIONS, 0)
    assert (one.reason, one.note) == ("", "")
    labels = [outcome.label for outcome in one.certificate.outcomes]
    assert labels[:2] == ["captured at a", "captured at c"]
    assert any("NaN" in label for label in labels)
    assert one.evidence == one.certificate.summary()
    assert "activations of made-up inputs among them" in one.evidence


def test_a_certificate_is_the_same_each_time(scene):
    _, kernels, seen = scene
    one, other = (certify_candidate(Candidate(kernels[0]), seen, OPTIONS, 3).certificate for _ in "ab")
    assert one.to_json() == other.to_json()


def test_a_wrong_kernel_has_a_reason(scene):
    _, kernels, seen = scene
    one = certify_candidate(Candidate(spoilt(kernels[0], WRONG)), seen, OPTIONS, 0)
    assert not one.certificate.ok
    assert "wrong at a[0, 0]" in one.reason
    assert right([one]) == []
    assert certify_candidate(one, seen, OPTIONS, 0) is one


def test_a_graph_that_does_not_fit_what_was_seen_is_a_reason(scene):
    _, kernels, _ = scene
    strange = Activations({"x": np.ones((2, 7), np.float32)}, {}, made_up=True)
    one = certify_candidate(Candidate(kernels[0]), strange, OPTIONS, 0)
    assert one.reason.startswith("cannot be checked: ")
    assert one.evidence == one.reason


def test_captured_cases_are_bounded(scene, monkeypatch):
    _, kernels, seen = scene
    made, note = activation_cases(kernels[0], seen)
    assert ([case.captured for case in made], note) == ([True, True], "")
    monkeypatch.setattr(onnx_candidates, "MOST_CELLS", 60)
    made, note = activation_cases(kernels[0], seen)
    assert (len(made), note) == (1, "")
    monkeypatch.setattr(onnx_candidates, "MOST_CELLS", 53)
    made, note = activation_cases(kernels[0], seen)
    assert (made, note) == ([], "its activations, of 54 cells, are too large to be among the cases")
    made, note = activation_cases(kernels[0], Activations({}, {}, made_up=True))
    assert (made, note) == ([], "what it reads could not be captured")


def test_the_comparison_of_a_kernel_is_the_one_that_decides(scene):
    fast, slow = (BindingTiming({"rows": rows}, compared(ratio)) for rows, ratio in ((1, 2), (2, 0.5)))
    assert Candidate(scene[1][0], timings=(fast, slow)).comparison is slow.hot
    assert Candidate(scene[1][0]).comparison is None
