"""Session 2: the ladder of caches, and what a random order costs
==============================================================

Walk through an array in which each cell holds the index of the next one. If the next cell is a neighbour, the processor
has fetched it before it is needed. In a random order the processor cannot fetch ahead: each step waits for the one
before, and takes the latency of the memory that holds the array. Increase the size, and the steps of the ladder appear:
level one, level two, level three, memory. `noyau machine` prints the same ladder as bandwidths.

Adding cells up in a random order is less slow, because no visit waits for another: many loads are in flight at once.
There are more of them if fewer instructions stand between the loads, or if the program prefetches.

The broken twin ignores the order. It is right for every permutation, since a sum does not depend on the order, and so
passes every test that shuffles. An order that names a cell twice, or leaves one out, reveals it.

Run it: ``python examples/gallery/plot_cache_ladder.py`` (needs a C compiler).
"""

from __future__ import annotations

import time

import numpy as np

import noyau
from noyau.timing.conditions import cache_ladder

SIZES = tuple(1 << bits for bits in (9, 11, 13, 15, 17, 19, 21, 23))
STEPS = 1 << 17


def draws(rng, n=500):
    return rng.standard_normal(n, np.float32), rng.integers(0, max(n, 1), n)


@noyau.op("f32[n], i64[n] -> f64", inputs=draws)
def visited(x, order):
    return np.sum(x[order], dtype=np.float64)


def tours(rng, n=100):
    """A tour through all cells, and the number of its steps."""
    return tour(rng.permutation(max(n, 1))), np.int64(2 * n)


def tour(order: np.ndarray) -> np.ndarray:
    """The successor of each cell, for a tour that visits the cells in this order and begins again."""
    after = np.empty_like(order)
    after[order] = np.roll(order, -1)
    return after


@noyau.op("i64[n], i64 -> i64", inputs=tours)
def walked(after, steps):
    at = 0
    for _ in range(int(steps)):
        at = after[at]
    return np.int64(at)


walked.kernel(
    """
void walk(const long *after, long steps, long *out)
{
    long at = 0;
    for (long k = 0; k < steps; k++) at = after[at];
    *out = at;
}
""",
    language="c",
    name="walk",
)

# %%
# The kernels
# -----------
# One chain of additions waits four cycles for each addition; four chains wait for memory alone. The third kernel
# prefetches the cell of 16 visits ahead: the processor cannot guess it, but the program knows it.
visited.kernel(
    """
void one_chain(const float *x, const long *order, double *out, long n)
{
    double sum = 0;
    for (long k = 0; k < n; k++) sum += x[order[k]];
    *out = sum;
}
""",
    language="c",
    name="one_chain",
)

FOUR = """
void NAME(const float *x, const long *order, double *out, long n)
{
    double sum[4] = {0};
    long k = 0;
    for (; k + 4 <= n; k += 4)
        for (int lane = 0; lane < 4; lane++) {
            AHEAD
            sum[lane] += x[order[k + lane]];
        }
    for (; k < n; k++) sum[0] += x[order[k]];
    *out = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
"""
AHEAD = "if (k + lane + 16 < n) __builtin_prefetch(&x[order[k + lane + 16]]);"
visited.kernel(FOUR.replace("NAME", "four_chains").replace("AHEAD", ""), language="c", name="four_chains")
visited.kernel(FOUR.replace("NAME", "told_ahead").replace("AHEAD", AHEAD), language="c", name="told_ahead")


def twin() -> noyau.Op:
    """The same op with a kernel that assumes a permutation."""
    broken = noyau.op("f32[n], i64[n] -> f64", name="visited", inputs=draws)(visited.reference)
    broken.kernel(
        """
void whatever_the_order(const float *x, const long *order, double *out, long n)
{
    double sum = 0;
    for (long k = 0; k < n; k++) sum += x[k];
    *out = sum;
}
""",
        language="c",
        name="whatever_the_order",
    )
    return broken


def step_ns(order: np.ndarray) -> float:
    """Nanoseconds per step of a tour, the least of a few runs: the machine's best."""
    after, spent = tour(order), []
    for _ in range(3):
        start = time.perf_counter()
        walked(after, STEPS)
        spent.append(time.perf_counter() - start)
    return min(spent) / STEPS * 1e9


def main() -> None:
    # %%
    # Right, for orders of any kind
    # -----------------------------
    for op in (walked, visited):
        found = noyau.check(op, generated=False, budget_s=0.3)
        print(found)
        found.raise_if_bad()
    print(noyau.check(twin(), generated=False, budget_s=0.3))
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1000, np.float32)
    order = rng.permutation(1000)
    assert np.isclose(np.sum(x[order], dtype=np.float64), np.sum(x, dtype=np.float64))
    print("a permutation does not show it: the sums are equal")

    # %%
    # The ladder
    # ----------
    # The ladder rises where the array outgrows a cache. In order it is nearly flat.
    for level, size in sorted(cache_ladder().items()):
        print(f"{level}: {size >> 10} KiB")
    print(f"{'KiB':>8}  {'to the neighbour':>18}  {'anywhere':>12}")
    for n in SIZES:
        near, far = step_ns(np.arange(n)), step_ns(rng.permutation(n))
        print(f"{8 * n >> 10:>8}  {near:>15.2f} ns  {far:>9.2f} ns")

    # %%
    # The clock
    # ---------
    # Sums in a random order, side by side. The generated kernel checks the bounds of each index, and so has fewer loads
    # in flight. The floor is that of a plain read of the same bytes, which no random order comes near.
    n = SIZES[-3]
    x, order = rng.standard_normal(n, np.float32), rng.permutation(n)
    print(noyau.bench(visited, (x, order), budget_s=0.5))


if __name__ == "__main__":
    main()
