"""Kernels that are wrong past a number of their own: each beside its right twin."""

from __future__ import annotations

from functools import partial

import pytest
from numba import cuda, float32

import noyau
from noyau.errors import FindingKind

check = partial(noyau.check, generated=False, budget_s=2.0)
T, B = 8, 64


@noyau.op("f32[m, k], f32[k, n] -> f32[m, n]")
def matmul(a, b):
    return a @ b


def tiles(m, n):
    return ((m + T - 1) // T, (n + T - 1) // T), (T, T)


@matmul.kernel(launch=tiles)
@cuda.jit
def without_second_barrier(a, b, out):
    sa = cuda.shared.array((T, T), float32)
    sb = cuda.shared.array((T, T), float32)
    i, j = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for t in range((a.shape[1] + T - 1) // T):
        sa[x, y] = a[i, t * T + y] if i < a.shape[0] and t * T + y < a.shape[1] else float32(0)
        sb[x, y] = b[t * T + x, j] if t * T + x < b.shape[0] and j < b.shape[1] else float32(0)
        cuda.syncthreads()
        for q in range(T):
            total += sa[x, q] * sb[q, y]
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = total


@noyau.op("f32[rows, cols] -> f32[rows]")
def row_sums(x):
    return x.sum(1)


@row_sums.kernel(launch=lambda rows: (rows, B))
@cuda.jit
def of_one_block(x, out):
    part = cuda.shared.array(B, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    part[t] = x[row, t] if t < x.shape[1] else float32(0)
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for q in range(B):
            total += part[q]
        out[row] = total


@row_sums.kernel(launch=lambda rows: (rows, 1))
@cuda.jit
def of_all(x, out):
    row = cuda.blockIdx.x
    total = float32(0)
    for q in range(x.shape[1]):
        total += x[row, q]
    out[row] = total


def test_a_race_between_two_tiles_is_found_where_values_are_wrong_too():
    (one,) = check(matmul).kernels
    assert FindingKind.RACE in {each.kind for each in one.findings}
    race = next(each for each in one.findings if each.kind is FindingKind.RACE)
    assert "k = 9" in race.size
    assert any("no barrier in between" in line for line in race.drawing)


def test_a_sum_that_stops_at_its_block_is_wrong_past_it():
    wrong, right = check(row_sums).kernels
    (finding,) = wrong.errors
    assert finding.kind is FindingKind.WRONG_VALUE
    assert "it is right up to cols = 64 (B = 64) and wrong past that" in finding.message
    assert right.ok and right.coverage.sizes["cols"][1] >= 65


CAPPED = """void twice(const float *x, float *out, long n) {
    for (long i = 0; i < n; i++) out[i] = i < 512 ? 2 * x[i] : x[i];
}"""


@pytest.mark.parametrize(("text", "is_right"), [(CAPPED, False), (CAPPED.replace(": x[i]", ": x[i] + x[i]"), True)])
def test_a_number_that_an_index_is_compared_with(text, is_right):
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x + x)
    op.kernel(text, language="c", entry="twice")
    (one,) = check(op).kernels
    assert one.ok is is_right
    assert is_right or "n = 512 and wrong past that" in one.errors[0].message


def test_the_sizes_that_are_named_are_among_those_that_ran():
    (one, *_) = check(row_sums, sizes={"cols": 200}).kernels
    assert one.coverage.sizes["cols"][1] >= 200


@noyau.op("f32[n] -> f32[n]")
def copied(x):
    return x * 1


@copied.kernel(launch=lambda n: ((n + B - 1) // B, B))
@cuda.jit
def without_end(x, out):
    half = B
    while half > 0:
        cuda.syncthreads()
        half //= 1
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


def test_a_kernel_that_never_ends_gives_no_answer():
    (seen,) = check(copied, patience_s=1.0).kernels
    (finding,) = seen.findings
    assert finding.kind is FindingKind.CRASH
    assert "did not answer within 1 s and was ended" in finding.message
