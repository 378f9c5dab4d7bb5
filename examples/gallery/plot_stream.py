"""Session 10: data that does not fit
=====================================

A stream is read in chunks. Each chunk is folded by itself, and the states of chunks are merged. That is right for a
monoid: the result then does not depend on where a chunk ends, or on who folds it and when. noyau derives the monoid
from a NumPy function whose folds are sums, products or extremes; others are written by hand, and their laws are tested.
The broken twin keeps a mean without its number of rows, so that its merge is not associative.

Run it: ``python examples/gallery/plot_stream.py`` (needs a C compiler).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import noyau
from noyau.errors import CheckError

ROWS, GROUPS = 400_000, 5


# %%
# An op is a reduction already
# ----------------------------
# The graph is cut at its fold, ``np.add.at`` into zeros; a kernel in C folds each chunk.
@noyau.op("i64[n], f64[n] -> f64[groups]", sizes={"groups": GROUPS})
def group_sums(key, x):
    out = np.zeros(GROUPS)
    np.add.at(out, key, x)
    return out


# %%
# A reduction by hand
# -------------------
# A state is the mean and the number of rows: with both, two states have one merge.
@noyau.reduction
class Mean:
    def zero(self):
        return 0, 0.0

    def step(self, state, x):
        return self.merge(state, (len(x), x.mean()))

    def merge(self, a, b):
        rows = a[0] + b[0]
        return rows, (a[0] * a[1] + b[0] * b[1]) / max(rows, 1)

    def finish(self, state):
        return state[1]


def twin() -> type:
    """The same without the number of rows."""

    @noyau.reduction
    class MeanOfMeans:
        def zero(self):
            return np.nan

        def step(self, state, x):
            return self.merge(state, x.mean())

        def merge(self, a, b):
            return b if np.isnan(a) else a if np.isnan(b) else (a + b) / 2

        def finish(self, state):
            return state

    return MeanOfMeans


def main() -> None:
    # %%
    # Larger than the memory
    # ----------------------
    # The columns are mapped from files, and chunks are as large as the memory allows.
    noise = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, column in (("key", noise.integers(0, GROUPS, ROWS)), ("x", noise.integers(0, 100, ROWS) / 4)):
            np.save(Path(folder) / name, column)
        columns = {name: np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in ("key", "x")}
        sums = noyau.stream(group_sums, columns, memory="4M")
        print(sums)
        print("exact:", np.array_equal(sums.value, np.bincount(columns["key"], columns["x"])))

        # %%
        # The laws, and the broken twin
        # -----------------------------
        print(noyau.check(Mean))
        print(noyau.check(twin()))
        print("mean:", noyau.stream(Mean, columns["x"], memory="4M").value, "NumPy's:", np.mean(columns["x"]))
        try:
            noyau.stream(twin(), columns["x"])
        except CheckError as error:
            print(error)


if __name__ == "__main__":
    main()
