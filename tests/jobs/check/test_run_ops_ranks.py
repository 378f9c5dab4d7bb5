"""Kernels that are written for some of what their signature takes: numbers of axes, dtypes."""

from __future__ import annotations

import time
from functools import partial

import numba
import numpy as np
import pytest

import noyau
from noyau.errors import SignatureError

check = partial(noyau.check, generated=False, budget_s=0.5)
pytestmark = pytest.mark.usefixtures("empty_cache")  # what was checked before is not known


def softmax_of(signature="f32[*batch, n] -> f32[*batch, n]"):
    @noyau.op(signature)
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return softmax


def softmax_by_rows(x, out):
    for row in numba.prange(x.shape[0]):
        largest, total = x[row, 0], 0.0
        for k in range(1, x.shape[1]):
            largest = max(largest, x[row, k])
        for k in range(x.shape[1]):
            out[row, k] = np.exp(x[row, k] - largest)
            total += out[row, k]
        for k in range(x.shape[1]):
            out[row, k] /= total


def by_slices(x, out):
    """Right where x[row] is one row: of fewer axes it is a number, of more a table."""
    for row in range(x.shape[0]):
        e = np.exp(x[row] - x[row].max())
        out[row] = e / e.sum()


def for_tables(x, out):
    if x.ndim != 2:
        raise ValueError("two axes")
    by_slices(x, out)


def for_tables_of_rows(x, out):
    if x.ndim != 3:
        raise ValueError("three axes")
    for table, result in zip(x, out, strict=True):
        by_slices(table, result)


def always_raises(x, out):
    raise ValueError("never mind")


def reason(op, rank, dtype=np.float32):
    """Why the kernel of an op may not run on arrays of so many axes, or nothing."""
    return dict(op.explain(np.ones((2,) * rank, dtype)).rejected).get(next(iter(op.kernels)), "")


def test_the_kernel_of_the_design_is_right_on_the_axes_that_it_is_written_for():
    softmax = softmax_of()
    softmax.kernel(numba.njit(parallel=True)(softmax_by_rows))
    found = check(softmax)
    assert found.ok, str(found)
    assert "not run with 0 axes for *batch or 2 axes for *batch" in str(found)
    assert "where it raised TypingError" in str(found)
    assert "was not finished" not in str(found)
    assert [reason(softmax, rank) == "" for rank in (1, 2, 3, 4)] == [False, True, False, False]
    assert "noyau.check has not found it right with 2 axes for *batch: it says why" in reason(softmax, 3)
    assert np.allclose(softmax(np.zeros((3, 4), np.float32)), 0.25)


@pytest.mark.parametrize(("kernel", "axes"), [(for_tables, 1), (for_tables_of_rows, 2)])
def test_what_raises_on_other_axes_is_not_written_for_them(kernel, axes):
    softmax = softmax_of()
    softmax.kernel(kernel)
    found = check(softmax)
    assert found.ok, str(found)
    assert [rank - 1 for rank in (1, 2, 3, 4, 5) if not reason(softmax, rank)] == [axes]
    (only,) = found.kernels
    assert only.certificate.cells and len(only.certificate.outcomes) > 12


def test_wrong_values_on_other_axes_are_a_finding_that_says_what_would_do():
    softmax = softmax_of()
    softmax.kernel(by_slices)
    found = check(softmax)
    assert not found.ok
    (finding,) = found.findings
    assert finding.kind == "wrong-value"
    told = "it is right with 1 axis for *batch: where it is for no others, let it raise an error there"
    assert finding.remedy.endswith(told)
    assert reason(softmax, 2)


def test_what_raises_on_all_axes_is_a_crash():
    softmax = softmax_of()
    softmax.kernel(always_raises)
    found = check(softmax)
    (finding,) = found.findings
    assert finding.kind == "crash"
    assert "it raised ValueError: never mind" in finding.message


def test_what_raises_on_some_inputs_of_as_many_axes_is_a_crash():
    def without_ends(x, out):
        if x.shape[0] == 1:
            raise ValueError("one row")
        for_tables(x, out)

    softmax = softmax_of()
    softmax.kernel(without_ends)
    found = check(softmax, budget_s=2.0)
    assert [each.kind for each in found.findings] == ["crash"]
    assert "it raised ValueError: one row; for x: f32[1" in found.findings[0].message


def test_a_dtype_for_which_a_kernel_has_no_code_is_left_out():
    softmax = softmax_of("float[rows, n] -> float[rows, n]")
    softmax.kernel(numba.njit("void(f8[:, :], f8[:, :])")(softmax_by_rows))
    found = check(softmax, budget_s=2.0)
    assert found.ok, str(found)
    assert "not run with f32, where it raised TypeError: No matching definition" in str(found)
    assert reason(softmax, 2, np.float64) == ""
    assert "has not found it right with f32" in reason(softmax, 2)


def test_other_dtypes_are_tried_on_axes_that_the_kernel_is_written_for():
    softmax = softmax_of("float[*batch, n] -> float[*batch, n]")
    softmax.kernel(for_tables_of_rows)
    assert check(softmax, budget_s=3.0).ok
    assert reason(softmax, 3, np.float64) == ""


def test_a_reference_that_is_of_another_dtype_than_signed_is_told_though_no_kernel_was_generated():
    """As of np.zeros(3) for float32: every call of such an op is refused."""

    @noyau.op("f32[n] -> f32[3]")
    def first(x):
        out = np.zeros(3)
        for i in range(3):
            out[i] = x[i]
        return out

    with pytest.raises(
        SignatureError, match="gives out as f64, and it is declared f32; cast it there, or declare it so"
    ):
        noyau.check(first)


def test_a_reference_of_one_dtype_is_left_out_for_others():
    @noyau.op("float[n] -> float[3]")
    def first(x):
        out = np.zeros(3, np.float32)
        for i in range(3):
            out[i] = x[i]
        return out

    @first.kernel
    def copied(x, out):
        out[:] = x[:3]

    found = check(first, budget_s=2.0)
    assert found.ok, str(found)
    assert "left out that the reference refuses" in str(found)
    assert reason(first, 1, np.float64)


def test_a_reference_of_a_fixed_shape_says_how_to_sign_it():
    @noyau.op("f32[n, k] -> f32[k]")
    def sums(x):
        out = np.zeros(3, np.float32)
        for i in range(3):
            out[i] = x[:, i].sum()
        return out

    with pytest.raises(
        SignatureError, match=r"declared as f32\[k\], here f32\[\d+\]; declare it f32\[3\] if it always"
    ):
        noyau.check(sums)


def test_each_rank_is_tried_however_late_it_is():
    """On how many axes a kernel may run does not hang on how long it takes."""

    @noyau.op("f32[*rows, n] -> f32[*rows, n]")
    def doubled(x):
        return 2 * x

    @doubled.kernel
    def by_rows(x, out):
        time.sleep(0.05)
        for row in range(x.shape[0]):
            for at in range(x.shape[1]):
                out[row, at] = 2 * x[row, at]

    found = check(doubled, budget_s=0.01)
    assert found.ok
    assert "not run with 0 axes for *rows, where it raised IndexError" in str(found)
    assert [rank for rank in range(1, 7) if not reason(doubled, rank)] == [2, 3, 4]
