"""Session 1: a dot product, from a Python loop to SIMD and threads
================================================================

One op and a ladder of kernels. Each rung has the reason why it is faster than the one before: no interpreter, no
intermediate array, no chain of additions, more than one core. BLAS is a candidate like any other: the reference calls
it through NumPy. All kernels are right within the error of the reference itself. The broken twin is not: it adds up in
one float32.

Run it: ``python examples/gallery/plot_dot_ladder.py`` (needs a C compiler; has one more rung with Numba).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau


def inputs(rng, n=1000):
    """Numbers from 0 to 1: their sum has rounding errors, and no cancellation."""
    return rng.random(n, np.float32), rng.random(n, np.float32)


def wide_inputs(rng, n=1000):
    return rng.random(n), rng.random(n)


@noyau.op("f32[n], f32[n] -> f32", inputs=inputs)
def dot(x, y):
    return np.dot(x, y)


@noyau.op("f64[n], f64[n] -> f64", inputs=wide_inputs)
def dot64(x, y):
    return np.dot(x, y)


# %%
# The rungs
# ---------
# First in Python: each step makes objects of two numbers, and looks up the meaning of `*` for them.
@dot.kernel(returns=True)
def python_loop(x, y):
    total = 0.0
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        total += a * b
    return np.asarray(total, x.dtype)


# A plain loop in C adds up in a wider type, so that no digits are lost. It is a chain: an addition takes some four
# cycles, and the next one waits for it.
CHAIN = """
void chain(const TYPE *x, const TYPE *y, TYPE *out, long n)
{
    SUM sum = 0;
    for (long i = 0; i < n; i++) sum += (SUM)x[i] * y[i];
    *out = sum;
}
"""
# With partial sums in lanes there are as many chains as the processor can overlap, and each addition is of a whole
# vector. Blocks of some thousand cells keep the rounding error small.
LANES = """
void lanes(const TYPE *x, const TYPE *y, TYPE *out, long n)
{
    double total = 0;
    for (long start = 0; start < n; start += 4096) {
        const long end = start + 4096 < n ? start + 4096 : n;
        TYPE sums[64] = {0};
        long i = start;
        for (; i + 64 <= end; i += 64)
            for (int lane = 0; lane < 64; lane++) sums[lane] += x[i + lane] * y[i + lane];
        for (; i < end; i++) total += x[i] * y[i];
        for (int lane = 0; lane < 64; lane++) total += sums[lane];
    }
    *out = total;
}
"""


def in_c(text: str, dtype: str, total: str = "double") -> str:
    return text.replace("TYPE", dtype).replace("SUM", total)


for op, dtype, wider in ((dot, "float", "double"), (dot64, "double", "long double")):
    op.kernel(in_c(CHAIN, dtype, wider), language="c", name="chain")
    op.kernel(in_c(LANES, dtype), language="c", name="lanes")

if importlib.util.find_spec("numba"):
    import numba

    @dot.kernel(returns=True)
    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def numba_threads(x, y):
        total = 0.0
        for i in numba.prange(x.size):
            total += x[i] * y[i]
        return np.asarray(total).astype(x.dtype)


def twin() -> noyau.Op:
    """The same op with a chain in float32: after a million cells an addition loses what it adds."""
    broken = noyau.op("f32[n], f32[n] -> f32", inputs=inputs, name="dot")(dot.reference)
    broken.kernel(in_c(CHAIN, "float", "float"), language="c", name="chain_in_float32")
    return broken


def main() -> None:
    # %%
    # Right, in float32 and in float64
    # --------------------------------
    # The allowed error follows from the error of the reference itself.
    for op in (dot, dot64):
        print(noyau.check(op, budget_s=1))

    # %%
    # The broken twin
    # ---------------
    print(noyau.bench(twin(), inputs(np.random.default_rng(0), 1 << 20), budget_s=0.05))

    # %%
    # The clock
    # ---------
    # Small vectors stay in a cache, where a kernel can be many times as fast as memory; large ones come from memory,
    # and once a rung is as fast as that, the next one gains nothing.
    print(noyau.bench(dot, peers={"numpy": lambda x, y: (x * y).sum()}, sizes={"n": [1 << 14, 1 << 17]}, budget_s=0.5))


if __name__ == "__main__":
    main()
