"""Kernels in C with OpenMP, right ones and wrong ones by their names. They were written after the checker."""

import numpy as np

import noyau

F = {"flags": ["-fopenmp"]}


@noyau.op("f32[n] -> f32[n]")
def prefix(x):
    return np.cumsum(x.astype(np.float64)).astype(np.float32) if x.dtype == np.float32 else np.cumsum(x)


R = """
#include <stdlib.h>
#include <omp.h>
void %s(const float *x, float *out, long n) {
    int most = omp_get_max_threads();
    double *ends = calloc(most + 1, sizeof(double));
    #pragma omp parallel
    {
        int t = omp_get_thread_num(), k = omp_get_num_threads();
        long a = n * t / k, b = n * (t + 1) / k;
        double s = 0;
        for (long i = a; i < b; i++) { s += x[i]; }
        ends[t + 1] = s;
        %s
        double before = 0;
        for (int i = 0; i <= t; i++) before += ends[i];
        for (long i = a; i < b; i++) { before += x[i]; out[i] = before; }
    }
    free(ends);
}"""
prefix.kernel(R % ("scan_right", "#pragma omp barrier"), language="c", entry="scan_right", options=F, name="scan_right")
prefix.kernel(R % ("scan_wrong", ""), language="c", entry="scan_wrong", options=F)


def row(rng, n=50):
    return (rng.permutation(n).astype(np.float32),)


@noyau.op("f32[n] -> top: f32[], at: i32[]", inputs=row)
def largest(x):
    return x.max(), np.int32(x.argmax())


L = """
void %s(const float *x, float *top, int *at, long n) {
    float best = x[0]; long where = 0;
    #pragma omp parallel
    {
        float own = x[0]; long place = 0;
        #pragma omp for nowait
        for (long i = 1; i < n; i++) if (x[i] > own) { own = x[i]; place = i; }
        %s
        if (own > best || (own == best && place < where)) { best = own; where = place; }
    }
    *top = best; *at = where;
}"""
largest.kernel(L % ("max_right", "#pragma omp critical"), language="c", entry="max_right", options=F, name="max_right")
largest.kernel(L % ("max_wrong", ""), language="c", entry="max_wrong", options=F, name="max_wrong")


@noyau.op("f64[n] -> f64[n]")
def smooth(x):
    y = x.copy()
    y[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3
    return y


S = """
void %s(const double *x, double *out, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) out[i] = i %s n - 1 && i > 0 ? (x[i - 1] + x[i] + x[i + 1]) / 3 : x[i];
}"""
smooth.kernel(S % ("sm_right", "<"), language="c", entry="sm_right", options=F)
smooth.kernel(S % ("sm_wrong", "<="), language="c", entry="sm_wrong", options=F)


@noyau.op("f64[n, k], f64[k, m] -> f64[n, m]")
def product(a, b):
    return a @ b


M = """
void %s(const double *a, const double *b, double *out, long n, long k, long m) {
    for (long i = 0; i < n * m; i++) out[i] = 0;
    #pragma omp parallel for collapse(2)
    for (long i = 0; i < n; i++)
        for (long p = 0; p < k; p++)
            for (long j = 0; j < m; j++) {
                %s
                out[i * m + j] += a[i * k + p] * b[p * m + j];
            }
}"""
product.kernel(M % ("mp_right", "#pragma omp atomic"), language="c", entry="mp_right", options=F, name="mp_right")
product.kernel(M % ("mp_wrong", ""), language="c", entry="mp_wrong", options=F, name="mp_wrong")
