"""Session 2: sums in random order
================================

Floating-point addition is not associative: another order gives another sum. Threads that add to one variable as they
arrive give another result in each run. How far apart can the results be, how far apart are they, and what does it cost
to have them equal, bit for bit, in any order? The broken twins: a kernel that adds in another order at each call, and a
compensated sum whose compensation a compiler flag has removed.

Run it: ``python examples/gallery/plot_random_sums.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau
from noyau.dtypes import DType
from noyau.kernels.call import call_kernel

N = 1 << 16


def inputs(rng, n=N):
    """Numbers from 0 to 1: nothing cancels, so all error comes from rounding of sums."""
    return (rng.random(n, np.float32),)


@noyau.op("f32[n] -> f32", inputs=inputs)
def total(x):
    return x.sum()


# %%
# Three ways to add
# -----------------
# One after the other; in pairs, whose error grows with the logarithm of n and not with n; and compensated (Kahan 1965,
# as Neumaier improved it), where a second variable keeps the digits that an addition loses.
total.kernel(
    """
static float pairs(const float *x, long n)
{
    if (n <= 8) {
        float sum = 0;
        for (long i = 0; i < n; i++) sum += x[i];
        return sum;
    }
    return pairs(x, n / 2) + pairs(x + n / 2, n - n / 2);
}

void pairwise(const float *x, float *out, long n) { *out = pairs(x, n); }
""",
    language="c",
    name="pairwise",
    entry="pairwise",
)
COMPENSATED = """
#include <math.h>

void compensated(const float *x, float *out, long n)
{
    float sum = 0, lost = 0;
    for (long i = 0; i < n; i++) {
        const float next = sum + x[i];
        lost += fabsf(sum) >= fabsf(x[i]) ? (sum - next) + x[i] : (x[i] - next) + sum;
        sum = next;
    }
    *out = isfinite(sum) ? sum + lost : sum;
}
"""
total.kernel(COMPENSATED, language="c", name="compensated")

# %%
# The same bits in any order
# --------------------------
# Each number is split at the same places of its binary digits, into parts that are whole multiples of one unit, few
# enough that all their sums are exact (Demmel and Nguyen 2013). An exact sum does not depend on the order. Here the
# parts are in double, so that two of them hold all of a float32.
REPRODUCIBLE = """
#include <math.h>

void reproducible(const float *x, float *out, long n)
{
    double largest = 0, sums[3] = {0};
    for (long i = 0; i < n; i++) {
        if (!isfinite(x[i])) largest = INFINITY;
        if (fabs(x[i]) > largest) largest = fabs(x[i]);
    }
    if (!isfinite(largest)) {  /* infinities and NaN: any order gives the same */
        float sum = 0;
        for (long i = 0; i < n; i++) if (!isfinite(x[i])) sum += x[i];
        *out = sum;
        return;
    }
    int digits;
    frexp(largest * (n + 1), &digits);
    double unit = ldexp(1.5, digits + 1);
    for (int part = 0; part < 3; part++, unit = ldexp(unit, -26))
        for (long i = 0; i < n; i++) {
            double rest = x[i], big = ldexp(1.5, digits + 1);
            for (int k = 0; k < part; k++, big = ldexp(big, -26)) rest -= (big + rest) - big;
            sums[part] += (unit + rest) - unit;
        }
    *out = sums[0] + (sums[1] + sums[2]);
}
"""
total.kernel(REPRODUCIBLE, language="c", name="reproducible")

SEQUENTIAL = """
void sequential(const float *x, float *out, long n)
{
    float sum = 0;
    for (long i = 0; i < n; i++) sum += x[i];
    *out = sum;
}
"""


def twins() -> noyau.Op:
    """The same op with a random order of additions, with a compensation that the compiler removed, and with a plain
    chain."""
    broken = noyau.op("f32[n] -> f32", inputs=inputs, name="total")(total.reference)

    @broken.kernel(returns=True)
    def any_order(x):
        parts = [part.sum() for part in np.array_split(x, 64)]  # as 64 threads would, in the order in which they end
        order = np.random.default_rng().permutation(64)
        return np.add.accumulate(np.array(parts, np.float32)[order])[-1:].reshape(())

    loose = {"flags": ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")}
    broken.kernel(COMPENSATED, language="c", name="compensation_lost", options=loose)
    broken.kernel(SEQUENTIAL, language="c", name="sequential")
    return broken


def main() -> None:
    # %%
    # The observed spread, and the bound
    # ----------------------------------
    # A hundred orders of the same numbers. The bound for n additions one after the other is (n - 1) u times the sum of
    # the magnitudes, u half an ulp of 1; in pairs, log2 n instead of n (Higham 1993).
    rng = np.random.default_rng(0)
    (x,) = inputs(rng, N)
    truth, magnitude, u = x.sum(dtype=np.longdouble), float(np.abs(x).sum(dtype=np.float64)), 2.0**-24
    orders = [x[rng.permutation(N)] for _ in range(100)]
    instance = total.instance([DType.F32], [1])
    op = twins()
    bounds = {"sequential": (N - 1) * u * magnitude, "pairwise": (np.log2(N) + 8) * u * magnitude}
    for kernel in (op.kernels["sequential"], *total.kernels.values()):
        sums = np.array([call_kernel(kernel, instance, [each], {})[0] for each in orders], np.float32)
        spread, worst = float(sums.max() - sums.min()), float(np.abs(sums - truth).max())
        bound = f", bound {bounds[kernel.name]:.2g}" if kernel.name in bounds else ""
        told = f"{len(np.unique(sums))} results in 100 orders, spread {spread:.2g}, worst error {worst:.2g}{bound}"
        print(f"{kernel.name:13}: {told}")
    same = {call_kernel(total.kernels["reproducible"], instance, [each], {})[0].tobytes() for each in orders}
    assert len(same) == 1, "the reproducible sum depends on the order"

    # %%
    # Checked
    # -------
    found = noyau.check(total, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twins
    # ----------------
    # A kernel whose bits differ from run to run is reported as order-dependent; a larger error than that of the
    # reference, by its cell.
    print(noyau.check(op, budget_s=1))

    # %%
    # What it costs
    # -------------
    print(noyau.bench(total, sizes={"n": N}, budget_s=0.5))


if __name__ == "__main__":
    main()
