"""Warnings at declared sizes: each kernel that earns one, beside its twin that does not."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, int32, njit, prange

import noyau
from noyau.errors import BuildError, OutputError, SignatureError
from noyau.jobs.check import diagnosis
from noyau.jobs.check.attempts import attempts
from noyau.jobs.check.diagnosis import lint_op


@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x


def in_blocks(threads):
    return lambda n: ((n + threads - 1) // threads, threads)


@cuda.jit
def flat(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]


@cuda.jit
def tile(x, out):
    own = cuda.shared.array(32, float32)
    own[cuda.threadIdx.x] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = 2 * own[cuda.threadIdx.x]


@cuda.jit
def strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] + x[i]


@cuda.jit
def narrow(x, out):
    i = int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < x.size:
        out[i] = x[i] + x[i]


@cuda.jit
def unsynced(x, out):
    i = cuda.grid(1)
    cuda.syncthreads  # noqa: B018
    if i < x.size:
        out[i] = x[i] + x[i]


LAUNCHED = {
    "small": (flat, in_blocks(32)),
    "odd": (flat, in_blocks(100)),
    "usual": (flat, in_blocks(128)),
    "tile": (tile, in_blocks(32)),
    "few": (strided, (4, 128)),
    "by_machine": (strided, lambda device: (4 * device.sm_count, 128)),
    "narrow": (narrow, in_blocks(128)),
    "unsynced": (unsynced, in_blocks(128)),
}
for name, (function, launch) in LAUNCHED.items():
    twice.kernel(function, name=name, launch=launch)


def told(op, name, **declared):
    first = next(attempts(op, {}, 0, lambda instance: True))
    found = lint_op(op.kernels[name], first.instance, first.make(first.sizes), declared, is_usual=op.inputs is not None)
    assert all(each.severity == "warning" and each.remedy for each in found)
    return [(each.kind, each.message) for each in found]


def line_of(op, name, **declared):
    first = next(attempts(op, {}, 0, lambda instance: True))
    (found,) = lint_op(op.kernels[name], first.instance, first.make(first.sizes), declared, is_usual=False)
    with open(found.place.rpartition(":")[0], encoding="utf-8") as file:
        return file.read().splitlines()[int(found.place.rpartition(":")[2]) - 1].strip()


def test_launches_at_no_size_in_particular():
    assert {name: [kind for kind, _ in told(twice, name)] for name in LAUNCHED} == {
        "small": ["launch"],
        "odd": ["launch"],
        "usual": [],
        "tile": [],
        "few": [],
        "by_machine": [],
        "narrow": [],
        "unsynced": ["launch"],
    }
    assert "for n = 1048576" in told(twice, "small")[0][1]


def test_launches_at_sizes_that_are_declared():
    ((_, message),) = told(twice, "few", n=10**7)
    assert message.startswith("[4, 128] has 4 blocks for 10000000 cells")
    assert told(twice, "by_machine", n=10**7) == []
    assert told(twice, "few", n=1000) == []


def test_offsets_of_numba_are_wide_but_for_casts():
    ((kind, message),) = told(twice, "narrow", n=3 * 10**9)
    assert kind == "precision"
    assert message == (
        "int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) reaches 2999999999 for n = 3000000000, and int32 "
        "ends at 2147483647; it overflows from n = 2147483649 on"
    )
    assert line_of(twice, "narrow", n=3 * 10**9).startswith("i = int32(")
    assert told(twice, "usual", n=3 * 10**9) == []
    assert told(twice, "narrow", n=2**31) == []


@noyau.op("f32[rows, cols] -> f32[rows, cols]")
def doubled(x):
    return 2 * x


IN_CUDA = """
__global__ void narrow(const float *x, float *out, int rows, int cols) {
    int row = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += blockDim.x)
        out[row * cols + col] = 2 * x[(long long)row * cols + col]; // here
}
__global__ void wide(const float *x, float *out, int rows, int cols) {
    size_t row = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += blockDim.x) out[row * cols + col] = 2 * x[row * cols + col];
}
__global__ void moved(const float *x, float *out, int rows, int cols) {
    const float *from = x + (long long)blockIdx.x * cols;
    float *to = out + (long long)blockIdx.x * cols;
    for (int col = threadIdx.x; col < cols; col += blockDim.x) to[col] = 2 * from[col];
}
__global__ void unread(const float *x, float *out, int rows, int cols) {
    auto at = [&](int row, int col) { return row * cols + col; };
    out[at(blockIdx.x, threadIdx.x)] = 2 * x[at(blockIdx.x, threadIdx.x)];
}
"""
for entry in ("narrow", "wide", "moved", "unread"):
    doubled.kernel(IN_CUDA, language="cuda", entry=entry, launch=lambda rows: (rows, 128))


@pytest.mark.parametrize("entry", ["wide", "moved", "unread"])
def test_offsets_of_cuda_that_do_not_overflow_or_are_not_read(entry):
    assert told(doubled, entry, rows=100_000, cols=50_000) == []
    assert told(doubled, entry) == []


def test_without_machine_code_resources_are_unknown_and_other_errors_are_raised(monkeypatch):
    errors = [BuildError("no nvcc"), OutputError("the cache folder is full")]

    def cubin_of(*_):
        raise errors.pop(0)

    monkeypatch.setattr(diagnosis, "cubin_of", cubin_of)
    assert told(doubled, "wide", rows=100_000, cols=50_000) == []
    with pytest.raises(OutputError, match="the cache folder is full"):
        told(doubled, "wide", rows=100_000, cols=50_000)


def test_offsets_of_cuda_that_overflow():
    ((_, message),) = told(doubled, "narrow", rows=100_000, cols=50_000)
    assert message.startswith("row * cols reaches 4999950000 for rows = 100000, cols = 50000, and int32 ends")
    assert message.endswith("it overflows from rows = 42950 on")
    assert told(doubled, "narrow", rows=40_000, cols=50_000) == []


def test_offsets_that_overflow_at_sizes_that_nobody_declares():
    ((kind, message),) = told(doubled, "narrow")
    assert kind == "precision"
    assert message == (
        "row * cols reaches 4294966272 for rows = 4194304, cols = 1024, and int32 ends at 2147483647; it overflows "
        "from rows = 2097153 on"
    )
    bounded = IN_CUDA.replace("int row = blockIdx.x;", "int row = blockIdx.x; if (row < 500)")
    doubled.kernel(bounded, name="bounded", language="cuda", entry="narrow", launch=lambda rows: (rows, 128))
    along_y = {"entry": "narrow", "launch": lambda rows: ((1, rows), 128)}  # as many as a grid has there
    doubled.kernel(IN_CUDA.replace("blockIdx.x", "blockIdx.y"), name="along_y", language="cuda", **along_y)
    assert told(doubled, "bounded") == []
    ((_, message),) = told(doubled, "along_y")
    assert "for rows = 1024, cols = 4194304, and" in message


@noyau.op("f32[n] -> f32[1]")
def total(x):
    return x.sum(keepdims=True)


@total.kernel
@njit
def in_float32(x, out):
    s = np.float32(0)
    for i in range(x.shape[0]):
        s += x[i]  # here
    out[0] = s


@total.kernel
@njit
def in_a_cell(x, out):
    out[0] = 0
    for i in range(len(x)):
        out[0] += x[i]


@total.kernel
@njit
def in_float64(x, out):
    s = 0.0
    for i in range(x.shape[0]):
        s = s + x[i]
    out[0] = s


@total.kernel
@njit
def in_blocks_of_1024(x, out):
    s = np.float32(0)
    for start in range(0, x.shape[0], 1024):
        part = np.float32(0)
        for i in range(start, min(start + 1024, x.shape[0])):
            part += x[i]
        s += part
    out[0] = s


@total.kernel
@njit(parallel=True)
def in_threads(x, out):
    s = np.float32(0)
    for i in prange(x.shape[0]):
        s += x[i]
    out[0] = s


@total.kernel(launch=in_blocks(128), init={"out": 0})
@cuda.jit
def by_atomics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


@total.kernel(launch=in_blocks(128), init={"out": 0})
@cuda.jit
def by_blocks(x, out):
    own = cuda.shared.array(1, float32)
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(own, 0, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, own[0])


def test_sums_that_saturate():
    for name in ("in_float32", "in_a_cell", "by_atomics"):
        ((kind, message),) = told(total, name, n=25_000_000)
        assert kind == "precision"
        assert "adds 25000000 numbers in float32, one after the other for n = 25000000: past 16777216" in message
    assert line_of(total, "in_float32", n=25_000_000) == "s += x[i]  # here"
    assert told(total, "in_float32", n=2**24) == []


@pytest.mark.parametrize("name", ["in_float64", "in_blocks_of_1024", "in_threads", "by_blocks"])
def test_sums_that_do_not(name):
    assert told(total, name, n=25_000_000) == []


SHORT = """
void sum(const float *x, float *out, long long n) {
    float s = 0;
    for (long long i = 0; i < n; i++) s += x[i];
    *out = s;
}
"""


def test_a_check_tells_them_and_stays_right():
    @noyau.op("f32[n] -> out: f32[1]", inputs=lambda rng, n=40: (rng.random(n, dtype=np.float32),))
    def short(x):
        return x.sum(keepdims=True)

    short.kernel(SHORT, language="c", entry="sum")
    found = noyau.check(short, generated=False, budget_s=1, declared={"n": 25_000_000})
    (warning,) = [each for each in found.findings if "25000000" in each.message]
    assert (warning.kind, warning.severity, found.ok) == ("precision", "warning", True)
    with pytest.raises(SignatureError, match="short has no size rows"):
        noyau.check(short, declared={"rows": 5})
