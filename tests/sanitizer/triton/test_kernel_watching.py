"""A kernel of Triton on an op, watched here or in a process in which Triton interprets."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

import noyau
from noyau.errors import CheckError, UnsupportedError
from noyau.kernels.programs.generate import specialization_of
from noyau.sanitizer.routes import KernelCase, is_watched
from noyau.sanitizer.triton.kernel import end, watch_in_worker
from noyau.signatures.instances import bind
from tests.defects import watch_on


@noyau.op("f32[n] -> f32[n]")
def doubled(x):
    return x + x


@doubled.kernel(launch=lambda n: (2,))
@triton.jit
def same_values(x, out, n):
    at = tl.arange(0, 16)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value + value, mask=at < n)  # noyau: allow(written-twice) both store the same


@doubled.kernel(launch=lambda n: (1,))
@triton.jit
def far_away(x, out, n):
    at = tl.arange(0, 16)
    tl.store(out + at * 100000 * 100000, tl.load(x + at, mask=at < n), mask=at < n)


@doubled.kernel(launch=lambda n: (1,))
@triton.jit
def raises(x, out, n):
    tl.store(out, tl.load(x + tl.arange(0, 3)))


@doubled.kernel(launch=lambda n: (1,), init={"out": 0})
@triton.jit
def swaps_outside(x, out, n):
    tl.atomic_cas(out + n, 0.0, 1.0)


@doubled.kernel(launch=lambda n: (0,))
@triton.jit
def no_programs(x, out, n):
    tl.store(out, tl.load(x))


X = np.arange(5, dtype=np.float32)


def watched(name, x=X):
    return watch_on(doubled, doubled.kernels[name], x)


def test_a_mark_on_the_line_allows_and_is_told():
    found = watched("same_values")
    assert found.findings == ()
    assert "both store the same" in found.allowed[0]
    assert found.outputs[0].tolist() == (X + X).tolist()


def test_what_lies_far_away_is_not_touched_and_the_product_is_named():
    found = watched("far_away")
    kinds = {each.kind: each for each in found.findings}
    assert kinds.keys() == {"out-of-bounds", "unwritten"}
    assert "to(tl.int64)" in kinds["out-of-bounds"].remedy
    assert any(note.startswith("int32: a product overflowed") for note in found.notes)


def test_a_swap_outside_is_left_out():
    (finding,) = watched("swaps_outside").findings
    assert finding.kind == "out-of-bounds"
    assert "merges into out at 5, which has 5 cells" in finding.message


def test_a_grid_of_no_programs_writes_nothing():
    (finding,) = watched("no_programs").findings
    assert finding.message == "no program of the grid (0,) stores out[0] and 4 more cells of 5"


def test_what_the_interpreter_refuses_is_an_error():
    with pytest.raises(CheckError, match="power of 2"):
        watched("raises")


def test_bfloat16_is_watched():
    op = noyau.op("bf16[n] -> bf16[n]", name="halves")(lambda x: x)
    op.kernel(same_values, launch=lambda n: (1,))
    (kernel,) = op.kernels.values()
    import ml_dtypes

    assert watch_on(op, kernel, X.astype(ml_dtypes.bfloat16)).accesses


def test_a_process_of_its_own_sees_the_same():
    bound = bind(doubled.signature, [X], {}, doubled.name)
    instance = specialization_of(doubled.signature, bound, {}).instance
    case = KernelCase(doubled.kernels["far_away"], instance, [X], {}, "n = 5")
    try:
        there = watch_in_worker(case)
    finally:
        end()
    from noyau.sanitizer.triton.run import watch_here

    here = watch_here(case)
    assert there.findings == here.findings
    assert (there.accesses, there.notes) == (here.accesses, here.notes)
    np.testing.assert_array_equal(there.outputs[0], here.outputs[0])


def test_an_op_that_no_other_process_finds_is_refused():
    local = noyau.op("f32[n] -> f32[n]", name="doubled")(lambda x: x + x)
    local.kernel(same_values, launch=lambda n: (1,))
    (kernel,) = local.kernels.values()
    bound = bind(local.signature, [X], {}, local.name)
    with pytest.raises(UnsupportedError, match="put it into one"):
        watch_in_worker(KernelCase(kernel, specialization_of(local.signature, bound, {}).instance, [X], {}))


def test_the_fast_call_knows_triton():
    assert is_watched("triton")
