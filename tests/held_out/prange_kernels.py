"""Kernels of Numba with prange, right ones and wrong ones by their names. They were written after the checker."""

import numba
import numpy as np

import noyau


@noyau.op("f64[m, n] -> f64[n]")
def colsum(x):
    return x.sum(0)


@colsum.kernel
@numba.njit(parallel=True)
def cs_right(x, out):
    for j in numba.prange(x.shape[1]):
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i, j]
        out[j] = s


@colsum.kernel(init={"out": 0})
@numba.njit(parallel=True)
def cs_wrong(x, out):
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]


def some(rng, n=50):
    return (rng.standard_normal(max(n, 1)),)


@noyau.op("f64[n] -> f64[n]", inputs=some)
def sorted_pairs(x):
    y = x.copy()
    k = len(x) // 2 * 2
    p = y[:k].reshape(-1, 2)
    p.sort(1)
    return y


@sorted_pairs.kernel
@numba.njit(parallel=True)
def sp_right(x, out):
    for i in numba.prange((len(x) + 1) // 2):
        a = 2 * i
        if a + 1 < len(x):
            out[a] = min(x[a], x[a + 1])
            out[a + 1] = max(x[a], x[a + 1])
        else:
            out[a] = x[a]


@sorted_pairs.kernel
@numba.njit(parallel=True)
def sp_wrong(x, out):
    for i in numba.prange(len(x) // 2):
        a = 2 * i
        out[a] = min(x[a], x[a + 1])
        out[a + 1] = max(x[a], x[a + 1])


@noyau.op("f64[n] -> f64[]", inputs=some)
def mean(x):
    return x.mean()


@mean.kernel
@numba.njit(parallel=True)
def me_right(x, out):
    s = 0.0
    for i in numba.prange(len(x)):
        s += x[i]
    out[()] = s / len(x)


@mean.kernel
@numba.njit(parallel=True)
def me_wrong(x, out):
    t = np.zeros(1)
    for i in numba.prange(len(x)):
        t[0] += x[i]
    out[()] = t[0] / len(x)
