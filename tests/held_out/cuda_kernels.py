"""Kernels in CUDA C++, right ones and wrong ones by their names. They were written after the checker."""

import numpy as np

import noyau


def table(rng, m=5, n=70):
    return (rng.standard_normal((m, n)).astype(np.float32),)


@noyau.op("f32[m, n] -> f32[m]", inputs=table)
def rowmax(x):
    return x.max(1)


T = """
__global__ void %s(const float *x, float *out, int m, int n) {
    __shared__ float t[64];
    int r = blockIdx.x, k = threadIdx.x;
    float best = -INFINITY;
    for (int i = k; i < n; i += 64) best = fmaxf(best, x[r * n + i]);
    t[k] = best;
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (k < s) t[k] = fmaxf(t[k], t[k + s]);
        %s
    }
    if (k == 0) out[r] = t[%s];
}"""
G = {"launch": lambda m: (m, 64)}
rowmax.kernel(T % ("rm_right", "__syncthreads();", "0"), language="cuda", entry="rm_right", **G)
rowmax.kernel(T % ("rm_wrong_sync", "", "0"), language="cuda", entry="rm_wrong_sync", **G)
rowmax.kernel(T % ("rm_wrong_cell", "__syncthreads();", "k + 1"), language="cuda", entry="rm_wrong_cell", **G)


@noyau.op("f32[n], f32[n] -> f32[n]")
def axpy(x, y):
    return 2 * x + y


A = """
__global__ void %s(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int step = %s;
    for (; i < n; i += step) out[i] %s 2 * x[i] + y[i];
}"""
H = {"launch": lambda n: (3, 32), "init": {"out": 0}}
axpy.kernel(A % ("ax_right", "gridDim.x * blockDim.x", "="), language="cuda", entry="ax_right", **H)
axpy.kernel(A % ("ax_wrong", "blockDim.x", "+="), language="cuda", entry="ax_wrong", **H)


@noyau.op("i32[n] -> i32[8]")
def counts(x):
    return np.bincount(x & 7, minlength=8).astype(np.int32)


C = """
__global__ void %s(const int *x, int *out, int n) {
    __shared__ int h[8];
    if (threadIdx.x < 8) h[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) %s;
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&out[threadIdx.x], h[threadIdx.x]);
}"""
K = {"launch": lambda n: (2, 64), "init": {"out": 0}}
counts.kernel(C % ("co_right", "atomicAdd(&h[x[i] & 7], 1)"), language="cuda", entry="co_right", **K)
counts.kernel(C % ("co_wrong", "h[x[i] & 7]++"), language="cuda", entry="co_wrong", **K)
W = """
__global__ void %s(const float *x, float *out, int m, int n) {
    int r = blockIdx.x, k = threadIdx.x;
    float best = -INFINITY;
    for (int i = k; i < n; i += 32) best = fmaxf(best, x[r * n + i]);
    for (int s = %s; s > 0; s >>= 1) best = fmaxf(best, __shfl_down_sync(0xffffffff, best, s));
    if (k == 0) out[r] = best;
}"""
V = {"launch": lambda m: (m, 32)}
rowmax.kernel(W % ("wa_right", "16"), language="cuda", entry="wa_right", **V)
rowmax.kernel(W % ("wa_wrong", "8"), language="cuda", entry="wa_wrong", **V)
