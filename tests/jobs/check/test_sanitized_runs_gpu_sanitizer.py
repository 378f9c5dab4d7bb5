from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import noyau
from noyau.errors import DeviceError, FindingKind
from noyau.jobs.check import sanitized_runs
from noyau.jobs.check.sanitized_runs import second_opinion
from noyau.sanitizer.compute_sanitizer.tool import read_reports
from noyau.verify.checks import KernelCheck, OpCheck
from noyau.verify.findings import Finding

FOLDER = Path(__file__).parents[2] / "sanitizer" / "compute_sanitizer" / "recorded"
TEXT = """
__global__ void twice(const float *x, float *out, int n) { int i = threadIdx.x; out[i] = 2 * x[i]; }
"""


@noyau.op("f32[n] -> out: f32[n]", inputs=lambda rng, n=100: (rng.random(n, dtype=np.float32),))
def doubled(x):
    return x + x


doubled.kernel(f"{TEXT}\n", language="cuda", entry="twice", launch=(1, 128))
doubled.kernel("void in_c(const float *x, float *out, long n) {}", language="c", entry="in_c")
OUTSIDE = Finding(
    "doubled", "twice", "cuda", FindingKind.OUT_OF_BOUNDS, "/somewhere/planted.cu:5", "n = 2", "past the end"
)
CHECKED = OpCheck(
    "doubled", "", (KernelCheck("twice", "cuda", None, (OUTSIDE,)), KernelCheck("in_c", "c", None, ())), note="whole"
)


@pytest.fixture
def asked(monkeypatch):
    """A GPU, and a tool that reports what it did once."""
    told: list = [(FOLDER / "memcheck.outside.xml").read_text(), (FOLDER / "initcheck.unset.xml").read_text()]
    commands = []

    def sanitized(command, environment=None, tools=()):
        commands.append(command)
        return [*read_reports(told[0], "memcheck"), *read_reports(told[1], "initcheck")]

    monkeypatch.setattr(sanitized_runs, "missing", lambda: "")
    monkeypatch.setattr(sanitized_runs, "run_tools", sanitized)
    return commands


def test_what_both_have_seen_is_one_finding(asked):
    found = second_opinion(doubled, CHECKED, "file.py")
    kernel, other = found.kernels
    assert [(each.kind, each.witnesses) for each in kernel.findings] == [
        ("out-of-bounds", ("noyau", "compute-sanitizer")),
        ("uninitialised", ("compute-sanitizer",)),
    ]
    assert kernel.seen == ("compute-sanitizer: memcheck, racecheck, initcheck, synccheck on n = 100",)
    assert other == CHECKED.kernels[1]
    assert "[seen by compute-sanitizer]" in str(found)
    ((_, flag, driver),) = asked
    assert (flag, driver) == ("-m", "noyau.sanitizer.compute_sanitizer.driver")


def test_why_it_was_not_asked(monkeypatch):
    monkeypatch.setattr(sanitized_runs, "missing", lambda: "compute-sanitizer is not installed")
    assert second_opinion(doubled, CHECKED, "file.py").note == "whole; compute-sanitizer is not installed"
    alone = replace(CHECKED, kernels=CHECKED.kernels[1:])
    assert second_opinion(doubled, alone, "file.py") == alone


def test_a_kernel_that_it_cannot_look_at(asked, monkeypatch):
    def refused(*args, **named):
        raise DeviceError("it does not end")

    monkeypatch.setattr(sanitized_runs, "run_tools", refused)
    kernel = second_opinion(doubled, CHECKED, "file.py").kernels[0]
    assert kernel.findings == (OUTSIDE,)
    assert kernel.notes == ("compute-sanitizer: it does not end",)


def test_lines_of_a_text_are_named_as_in_the_rest_of_the_report(asked, monkeypatch):
    record = (FOLDER / "memcheck.outside.xml").read_text()
    record = record.replace("/somewhere/planted.cu", "/anywhere/a text").replace("<line>5<", "<line>2<")
    monkeypatch.setattr(sanitized_runs, "run_tools", lambda *_, **__: read_reports(record, "memcheck"))
    known = replace(OUTSIDE, place="a text:2")
    checked = replace(CHECKED, kernels=(KernelCheck("twice", "cuda", None, (known,)),))
    (found,) = second_opinion(doubled, checked, "file.py").findings
    assert (found.place, found.witnesses) == ("a text:2", ("noyau", "compute-sanitizer"))
    alone = replace(checked, kernels=(KernelCheck("twice", "cuda", None, ()),))
    (found,) = second_opinion(doubled, alone, "file.py").findings
    assert found.place == "a text:2"
