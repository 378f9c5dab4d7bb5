"""What a report tells of a judged kernel."""

from __future__ import annotations

import dataclasses

import pytest

from noyau.codegen import plan as codegen_plan
from noyau.compiler.partition.traffic import Traffic
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate
from noyau.jobs.optimize.record import record
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.floats import Errors
from tests.small_models import twice, written

FEW, MANY = {"rows": 1}, {"rows": 100}


def timing(ratio: float, after_s: float = 1.0, **given: object) -> BindingTiming:
    """So many times as fast; a megabyte in each direction, of which the floor is a millisecond."""
    found = Comparison((ratio * after_s,) * 10, (after_s,) * 10)
    return BindingTiming(**{"sizes": MANY, "hot": found, "traffic": Traffic(10**6, 10**6), "floor_s": 1e-3, **given})


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    original = open_model(written(twice(), tmp_path_factory.mktemp("model")))
    return codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels[0]


def test_a_record_has_what_is_known(planned):
    case = Outcome("normal numbers", True, 4, kernel=Errors(1.0, 2.0, 1e-7, 2e-7, 4), unfused=Errors(2.0, 3.0, 2e-7))
    judged = Candidate(planned, certificate=Certificate("k", (case,)))
    in_triton = dataclasses.replace(judged, planned=dataclasses.replace(planned, language="triton"))
    made = record(dataclasses.replace(judged, timings=(timing(2, 2e-3),), kept=True))
    assert (made.name, made.places, made.replaces) == (planned.operator, 2, ("Tanh", "Mul", "Sigmoid"))
    assert (made.verdict, made.speedup, made.speedup_low, made.speedup_high) == (Verdict.FASTER, 2, 2, 2)
    assert (made.bytes, made.after_s, made.kept, made.reason) == (2 * 10**6, 2e-3, True, "")
    assert made.floor_ratio == pytest.approx(0.5)
    assert (made.error, made.error_unfused) == (1e-7, 2e-7)
    assert (made.language, record(in_triton).language) == ("c", "triton")


def test_a_record_has_what_came_of_each_binding(planned):
    cold = Comparison((3.0,) * 10, (1.0,) * 10)
    timings = (timing(2, sizes=FEW, cold=cold, timed_on="2026-01-02"), timing(4, 1e-3, recalled=True))
    made = record(Candidate(planned, timings=timings, kept=True))
    few, many = made.bindings
    assert (few.sizes, few.verdict, few.speedup, few.cold) == (FEW, Verdict.FASTER, 2, (3, 3, 3))
    assert (few.timed_on, few.recalled, few.before_s, few.after_s) == ("2026-01-02", False, 2.0, 1.0)
    assert (many.sizes, many.speedup, many.cold, many.floor_ratio, many.recalled) == (MANY, 4, None, 1.0, True)
    assert made.speedup == 2  # there is the most to do


def test_the_numbers_are_of_the_binding_that_decides(planned):
    lost = record(Candidate(planned, timings=(timing(5), timing(0.5, sizes=FEW)), reason="no"))
    assert (lost.verdict, lost.speedup) == (Verdict.SLOWER, 0.5)


def test_a_record_of_a_kernel_that_does_not_build(planned):
    made = record(Candidate(planned, reason="does not build"))
    assert (made.verdict, made.speedup, made.error, made.error_unfused, made.kept) == (None, None, None, None, False)
    assert (made.reason, made.bindings) == ("does not build", ())


def test_bytes_and_floor_are_not_known_where_a_size_is_not(planned):
    made = record(Candidate(planned, timings=(timing(2, traffic=None, floor_s=None),)))
    assert (made.bytes, made.floor_ratio, made.verdict) == (None, None, Verdict.FASTER)
