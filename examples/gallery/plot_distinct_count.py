"""Session 10: distinct values and a sample, in one pass
======================================================

An exact count of the distinct values of a stream takes as much memory as there are values. BJKST keeps the values whose
hash ends in z zeros, and increases z when they become too many: some 10,000 numbers give the count within a few
percent. HyperLogLog keeps the rarest hash of each of 16,384 registers. A reservoir keeps some rows, each with the same
probability. Two twins merge in the way that comes to mind first: one mixes different levels, and the other weighs both
halves equally.

Run it: ``python examples/gallery/plot_distinct_count.py`` (needs a C compiler).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import noyau

ROWS = 1_000_000


def values(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    """Numbers of which a few occur often and most occur once or twice."""
    return np.random.default_rng(seed).zipf(1.2, rows) % (1 << 40)


# %%
# The twin of BJKST
# -----------------
# A state is a level and the hashes that end in that many zeros. Two states of different levels are different samples:
# before they are joined, the finer one must be thinned to the level of the coarser. This twin forgets that.
def mixed_levels() -> type:
    sample = noyau.reductions.DistinctSample(eps=1.0)  # so small that the levels soon differ

    @noyau.reduction
    class MixedLevels:
        zero, step, finish = sample.zero, sample.step, sample.finish

        def merge(self, a: Any, b: Any) -> Any:
            return max(a[0], b[0]), np.union1d(a[1], b[1])

    return MixedLevels


# %%
# The twin of the reservoir
# -------------------------
# The twin takes half of each of two samples, which is right if both come from the same number of rows. A state that
# does not know its number of rows has no right merge, unless it has random keys and keeps the smallest of them, as
# `noyau.reductions.Reservoir` does.
def half_of_each() -> type:
    @noyau.reduction
    class HalfOfEach:
        def zero(self) -> Any:
            return np.empty(0)

        def step(self, state: Any, x: Any) -> Any:
            return self.merge(state, x[:20])

        def merge(self, a: Any, b: Any) -> Any:
            return np.concatenate([a[:10], b[:10]]) if len(a) and len(b) else a if len(a) else b

        def finish(self, state: Any) -> Any:
            return np.sort(state)

    return HalfOfEach


def main() -> None:
    # %%
    # Exact, and approximate
    # ----------------------
    x = values()
    truth = len(np.unique(x))
    for kind in (noyau.reductions.DistinctSample, noyau.reductions.HyperLogLog):
        counter = kind()
        counter.over(x[:1000])  # builds its kernels
        begin_s, count = time.perf_counter(), counter.over(x)
        time_s = time.perf_counter() - begin_s
        size = len(counter.pack(counter.step(counter.zero(), x)))
        print(f"{counter.name}: off by {abs(count / truth - 1):.2%}, {size} bytes, {ROWS / time_s:.3g} values/s")
        print("within 5 %:", abs(count / truth - 1) < 0.05, noyau.stream(counter, x, memory="16M").value == count)

    # %%
    # The same, however it is cut
    # ---------------------------
    # Ten parts, merged backwards in a chain, give the count of one pass to the last bit, because the states are sets.
    counter = noyau.reductions.DistinctSample()
    states = [counter.step(counter.zero(), part) for part in np.array_split(x, 10)]
    while len(states) > 1:
        states.append(counter.merge(states.pop(), states.pop()))
    print("ten parts are one pass:", counter.finish(states[0]) == counter.over(x))

    # %%
    # A sample
    # --------
    rows = np.arange(ROWS)
    sample = noyau.stream(noyau.reductions.Reservoir, {"key": rows, "x": rows}, arguments={"count": 10_000}).value
    print("mean place of a sample, of 1:", round(float(sample.mean()) / ROWS, 1), "of", len(sample), "rows")

    # %%
    # The broken twins
    # ----------------
    for kind in (noyau.reductions.DistinctSample, noyau.reductions.Reservoir, mixed_levels(), half_of_each()):
        print(noyau.check(kind))


if __name__ == "__main__":
    main()
