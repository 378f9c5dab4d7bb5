from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import BuildError
from noyau.jobs.check import candidates
from noyau.jobs.check.attempts import attempts
from noyau.jobs.check.candidates import FromReference, from_reference
from noyau.jobs.check.diagnosis import TwoRuns
from noyau.jobs.check.kernel import AttemptResults, OneKernel
from noyau.kernels.programs.generate import BuiltProgram
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.guard_zones import How

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@noyau.op("f32[rows, n] -> f32[rows, n]")
def doubled(x):
    return x * 2


@noyau.op("f32[rows, n] -> f32[rows, n]")
def exponential(x):
    return np.exp(x - x.max(-1, keepdims=True)) + np.log1p(x * x)


@noyau.op("f32[n] -> f32[n]")
def untraced(x):
    return np.array([float(each) for each in x], np.float32)


def test_an_op_that_has_only_a_reference_is_checked():
    found = noyau.check(doubled, budget_s=3)
    assert found.ok, str(found)
    kernel = found.kernels[0]
    assert (kernel.name, kernel.language) == ("c", "c")
    assert "doubled[c]: agreed on " in str(found)
    assert "generated; in pieces, and with 1, 2, " in str(found)
    labels = {outcome.label.partition(" arrays")[0] for outcome in kernel.certificate.outcomes}
    assert {"transposed", "sliced", "offset", "flipped", "expanded"} <= labels


def test_neither_kernels_nor_scalar_functions_are_compiled_to_be_watched(monkeypatch):
    """Numba takes seconds for those of a few shapes."""

    def refuse(*told):
        raise AssertionError("something was compiled")

    monkeypatch.setattr("numba.core.dispatcher.Dispatcher.compile", refuse)
    seen = OneKernel(exponential, FromReference(exponential, "numba"), None, 1.0, {}).sanitize(AttemptResults(), {}, 0)
    assert (seen.findings, seen.why) == ({}, "")
    assert "raised" not in seen.notes
    assert len(seen.shapes) >= 6
    assert seen.accesses > 100


def test_means_of_nothing_are_watched():
    """0 / 0 is NaN in what is generated, and raises in Python."""
    spread = noyau.op("f64[n] -> f64")(lambda x: x.var())
    seen = OneKernel(spread, FromReference(spread, "numba"), None, 1.0, {}).sanitize(AttemptResults(), {}, 0)
    assert "n = 0" in seen.shapes
    assert (seen.findings, seen.why, seen.notes) == ({}, "", {})


def test_what_was_watched_is_the_text_that_runs():
    made = FromReference(doubled, "numba")
    bound = made.bound([X])
    watched, run = made.program(bound, runs=False), made.program(bound)
    assert watched.generated is run.generated
    assert made.program(bound, runs=False) is run


def test_kernels_that_are_not_wanted_are_left_out():
    assert noyau.check(doubled, generated=False).kernels == ()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "offset", "flipped"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_layout_has_a_kernel_of_its_own(layout, threads):
    made = FromReference(doubled, "c")
    instance = doubled.instance([DType.F32], [2])
    assert made.takes(instance, [X])
    assert np.array_equal(made.run(instance, [X], How(layout, threads))[0], 2 * X)
    layouts = {str(each.generated.wanted.layouts[0]) for known in made.built.values() for each in known}
    assert ("packed" in layouts) and (len(layouts) == 1 if layout == "contiguous" else len(layouts) == 2)


def test_a_reference_that_cannot_be_traced_is_told():
    found = noyau.check(untraced)
    assert found.ok
    assert "untraced[c]: not checked: " in str(found)
    assert "line" in found.kernels[0].skipped or ".py:" in found.kernels[0].skipped


def test_a_wrong_generated_kernel_is_found(monkeypatch):
    def wrong(self, *arrays, out=None, threads=1):
        made = right(self, *arrays, out=out, threads=threads)
        made[0][...] *= 1 + (threads > 1)
        return made

    right = BuiltProgram.__call__
    monkeypatch.setattr(BuiltProgram, "__call__", wrong)
    one = noyau.check(doubled, budget_s=1).findings[0]
    assert one.kind == "race"
    assert "runs with 1 and 2 threads differ" in one.message


def test_what_is_watched_is_not_compiled(monkeypatch):
    from noyau.toolchain.numba import kernel as numba

    monkeypatch.delattr(numba.NumbaKernel, "_compile")
    made = FromReference(doubled, "numba")
    attempt = next(attempts(doubled, {}, 0, lambda instance: True))
    found = made.watch(attempt, [X], "n = 4")
    assert found.accesses == 2 * X.size
    assert np.array_equal(found.outputs[0], 2 * X)


def test_in_pieces_each_kernel_is_between_guards():
    runs = TwoRuns(FromReference(doubled, "c"), doubled.instance([DType.F32], [2]))
    runs([X])
    assert runs.alike
    assert runs.other.pieces == 3


def test_without_a_compiler_it_is_skipped(monkeypatch):
    def none():
        raise BuildError("no compiler")

    monkeypatch.setattr(c_compiler, "find_compiler", none)
    assert FromReference(doubled, "c").skipped == "no compiler"
    monkeypatch.setattr(candidates, "_is_there", lambda package: False)
    assert FromReference(doubled, "numba").skipped == "numba is not installed"


@pytest.mark.parametrize(("lacks", "is_verified"), [("c", False), ("numba", True)])
def test_a_compiler_that_is_not_there_leaves_a_check_unverified(monkeypatch, lacks, is_verified):
    """What a package of Python would run is no gap: an installation without it promises nothing of it."""
    monkeypatch.setattr(FromReference, "skipped", property(lambda one: "not here" * (one.language == lacks)))
    found = noyau.check(doubled)
    assert (found.ok, found.is_verified) == (True, is_verified)
    assert f"{doubled.name}[{lacks}]: not checked: not here" in str(found)


def test_a_kernel_by_hand_has_its_name_first():
    @noyau.op("f32[n] -> f32[n]")
    def double(x):
        return x + x

    assert [each.name for each in from_reference(double)][:1] == ["c"]
    double.kernel(lambda x, out: np.add(x, x, out=out), name="c")
    assert "c" not in [each.name for each in from_reference(double)]
    assert from_reference(noyau.op(lambda x: x)) == []


def test_sizes_that_a_reference_asks_for_have_programs_of_their_own():
    @noyau.op("f32[n] -> f32")
    def unrolled(x):
        total = x[:1].sum()
        for at in range(1, len(x)):
            total = total + x[at]
        return total

    made = FromReference(unrolled, "c")
    instance = unrolled.instance([DType.F32], [1])
    for n in (2, 3):
        given = np.ones(n, np.float32)
        if made.takes(instance, [given]):
            assert made.run(instance, [given], How())[0] == n
