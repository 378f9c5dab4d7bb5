"""Right kernels with OpenMP in the manner of tutorials: a check is silent on each, and their values are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sanitizer.c.cases import Wanted, floats, told, watched

N = 1000
X, Y = floats(N), floats(N, seed=1)
D = floats(N, dtype="f8")
BINS = np.random.default_rng(2).integers(0, 10, N).astype("i4")
LONG = BINS.astype("i8")
A, B = floats(13, 7, dtype="f8"), floats(7, 11, dtype="f8")
SUM, LINE, HIST = "f32[n] -> out: f64[]", "f64[n] -> out: f64[n]", "i32[n] -> hist: i32[10]"


def relaxed(x):
    for _ in range(4):
        x = np.concatenate([x[:1], 0.5 * (x[:-2] + x[2:]), x[-1:]])
    return x


CASES = {
    Wanted("add", "f32[n], f32[n] -> out: f32[n]", "x y", (X, Y)): X + Y,
    Wanted("sum_by_reduction", SUM, "x", (X,)): X.sum(dtype="f8"),
    Wanted("sum_by_atomic", SUM, "x", (X,)): X.sum(dtype="f8"),
    Wanted("sum_by_critical", SUM, "x", (X,)): X.sum(dtype="f8"),
    Wanted("sum_of_partials", SUM, "x", (X,)): X.sum(dtype="f8"),
    Wanted("matmul", "f64[m, k], f64[k, n] -> c: f64[m, n]", "a b", (A, B)): A @ B,
    Wanted("jacobi", LINE, "x", (D,)): relaxed(D),
    Wanted("histogram", HIST, "x", (BINS,), {"init": {"hist": 0}}): np.bincount(BINS),
    Wanted("histogram_of_locks", HIST, "x", (BINS,), {"init": {"hist": 0}}): np.bincount(BINS),
    Wanted("scan_in_two_passes", LINE, "x", (D,)): D.cumsum(),
    Wanted("fib", "i32 -> out: i64[]", "n", (np.int32(11),)): 89,
    Wanted("sum_by_tasks", "i64[n] -> out: i64[]", "x", (LONG,)): LONG.sum(),
    Wanted("pipeline_of_tasks", LINE, "x", (D[:50],)): D[:50] / 2 + 1,
    Wanted("sections", "f64[n] -> least: f64[], most: f64[]", "x", (D,)): D.max(),
    Wanted("ordered_output", "i32[n] -> out: i32[n]", "x", (BINS,)): BINS * 2,
}
"""Each with its last result."""


@pytest.fixture(scope="module")
def loops():
    return watched(Path(__file__).parent / "correct.c", list(CASES))


@pytest.mark.parametrize("wanted", CASES, ids=lambda each: each.entry)
def test_right_loops_are_silent_and_right(loops, wanted):
    seen = loops[wanted.entry]
    assert told(seen) == []
    assert seen.accesses > 0
    np.testing.assert_allclose(seen.outputs[-1], CASES[wanted], rtol=1e-9)
