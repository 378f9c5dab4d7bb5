"""Right kernels in the manner of tutorials: a check is silent on each, and their values are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sanitizer.c.cases import Wanted, floats, told, watched

FOLDER = Path(__file__).parent
N = 1000
X, Y = floats(N), floats(N, seed=1)
BINS = np.random.default_rng(2).integers(0, 10, N).astype("i4")
A, B = floats(37, 21), floats(21, 45)
TALL = floats(33, 50)
LINE = floats(100)


def grid(entry, signature, parameters, arguments, launch, sizes=None, **usage):
    return Wanted(entry, signature, parameters, arguments, {"launch": launch, **usage}, sizes or {})


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def stencil(x):
    return np.convolve(np.pad(x.astype("f8"), 3), [1, 2, 3, 4, 3, 2, 1], "valid")


def compacted(x):
    kept = np.zeros(N, "i4")
    kept[: (x > 4).sum()] = np.sort(x[x > 4])
    return kept


MAP, SUM, MATMUL = "f32[n], f32[n] -> out: f32[n]", "f32[n] -> out: f32[]", "f32[m, k], f32[k, n] -> c: f32[m, n]"
START = {"out": 0}
CUDA = {
    grid("add", MAP, "x y", (X, Y), (4, 256)): X + Y,
    grid("saxpy_grid_stride", "f32, f32[n], f32[n] -> out: f32[n]", "a x y", (2.0, X, Y), (2, 64)): 2 * X + Y,
    grid("sum_in_shared", SUM, "x", (X,), (4, 256), init=START): X.sum(),
    grid("sum_by_shuffles", SUM, "x", (X,), (3, 96), init=START): X.sum(),
    grid("matmul_naive", MATMUL, "a b", (A, B), ((3, 3), (16, 16))): A @ B,
    grid("matmul_tiled", MATMUL, "a b", (A, B), ((3, 3), (16, 16))): A @ B,
    grid("transpose_padded", "f32[rows, cols] -> out: f32[cols, rows]", "x", (TALL,), ((4, 3), (16, 16))): TALL.T,
    grid("histogram_atomics", "i32[n] -> hist: i32[10]", "x", (BINS,), (4, 64), init={"hist": 0}): np.bincount(BINS),
    grid("histogram_private", "i32[n] -> hist: i32[10]", "x", (BINS,), (4, 64, 40), init={"hist": 0}): (
        np.bincount(BINS)
    ),
    grid("scan_hillis_steele", "f32[n] -> out: f32[n]", "x", (LINE,), (1, 128)): LINE.cumsum(),
    grid("scan_blelloch", "f32[n] -> out: f32[n]", "x", (LINE,), (1, 64)): LINE.cumsum() - LINE,
    grid("stencil_halo", "f32[n] -> out: f32[n]", "x", (X,), (16, 64)): stencil(X),
    grid("sum_last_block", "f32[n] -> partial: f32[8], out: f32[]", "x", (X,), (8, 64)): X.sum(),
    grid("softmax_rows", "f32[rows, cols] -> out: f32[rows, cols]", "x", (TALL,), (33, 32, 200)): softmax(TALL),
    grid("double_buffered", "f32[n] -> out: f32[32]", "x", (X[:960],), (1, 32)): np.full(32, X[:960].sum()),
    grid("vectorised_copy", "f32[n] -> out: f32[n]", "x", (X,), (1, 256), args=lambda x, out, n: (x, out, n // 4)): 2
    * X,
    grid("warp_synchronous", "f32[32] -> out: f32[32]", "x", (X[:32],), (1, 32)): np.full(32, X[:32].sum()),
    grid("tiles_of_groups", SUM, "x", (X,), (8, 128), init=START): X.sum(),
    grid("aggregated_by_active", "i32[n] -> count: i32[]", "x", (BINS,), (8, 128), init={"count": 0}): (BINS > 4).sum(),
    grid("max_by_atomics", SUM, "x", (X,), (1, 64)): X.max(),
    grid("scale_of<float>", "f32[n], f32 -> out: f32[n]", "x a", (X, 3.0), (16, 64)): 3 * X,
    Wanted("launched_from_host", "f32[n] -> out: f32[n]", "x", (X,)): 3 * X,
}
"""Each with its last result."""


@pytest.fixture(scope="module")
def grids():
    return watched(FOLDER / "correct.cu", list(CUDA))


@pytest.mark.parametrize("wanted", CUDA, ids=lambda each: each.entry)
def test_a_right_grid_is_silent_and_right(grids, wanted):
    seen = grids[wanted.entry]
    assert told(seen) == []
    assert seen.accesses > 0
    np.testing.assert_allclose(seen.outputs[-1], CUDA[wanted], rtol=2e-4, atol=1e-6)
