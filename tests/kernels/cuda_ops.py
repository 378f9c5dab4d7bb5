"""Ops with kernels of their own in CUDA C++ and for Numba-CUDA, which tests launch."""

from __future__ import annotations

import numpy as np
from numba import cuda

import noyau


@noyau.op("f32[n], f32 -> f32[n]")
def scaled(x, by):
    return x * by


SCALED = """
__global__ void scaled(const float *x, float by, float *out, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = by * x[i];
}
"""
scaled.kernel(SCALED, language="cuda", name="text", launch=lambda n: (max(1, -(-n // 256)), 256))


@scaled.kernel(launch=lambda n: (max(1, -(-n // 256)), 256), name="jit")
@cuda.jit
def scale(x, by, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = by * x[i]


@noyau.op("f32[rows, n] -> f32[rows]")
def row_sums(x):
    return x.sum(axis=1)


ROW_SUMS = """
__global__ void row_sums(const float *x, float *out, int n) {
    __shared__ float lanes[THREADS];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[blockIdx.x * (long long)n + i];
    lanes[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = lanes[0];
}
"""
row_sums.kernel(
    ROW_SUMS,
    language="cuda",
    name="text",
    launch=lambda rows, THREADS: (rows, THREADS),
    constants={"THREADS": [128, 64, 256]},
)


@noyau.op("i64[n], f32[n] -> f32[bins]", sizes={"bins": 8}, inputs=lambda rng, n=500: (
    rng.integers(0, 8, n), rng.standard_normal(n, dtype=np.float32)))  # fmt: skip
def binned(key, x):
    out = np.zeros(8, np.float32)
    np.add.at(out, key, x)
    return out


binned.kernel(
    "__global__ void binned(const long long *key, const float *x, float *out, int n) {\n"
    "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) atomicAdd(out + key[i], x[i]);\n}\n",
    language="cuda",
    name="text",
    launch=lambda n: (max(1, -(-n // 128)), 128),
    init={"out": 0},
)
