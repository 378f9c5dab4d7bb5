"""Session 3: map, over any function of numbers
============================================

Three loops are enough for most of a tensor library: one that changes each cell, one that joins the cells of two arrays
(``plot_zip.py``), and one that folds an axis (``plot_reduce.py``). Each takes a function of numbers, which noyau traces
into kernels for the rank, dtype and layout of each call. Loops written by hand show the same mistakes again and again,
and each mistake has its twin: here, a map that ignores the strides and uses the shape alone.

Run it: ``python examples/gallery/plot_map.py`` (needs a C compiler). ``examples/teaching_tensor.py`` is the tensor
library: on the three loops and a matrix product it trains a classifier.
"""

from __future__ import annotations

import numpy as np

import noyau


# %%
# A function of a number
# ----------------------
# An `if` on a number is refused, because the number is known only when the kernel runs: use np.where.
def leaky(x, slope=0.1):
    return np.where(x > 0, x, slope * x)


activate = noyau.map(leaky)


# %%
# The same loop by hand
# ---------------------
@noyau.op("f32[n, m] -> f32[n, m]")
def activated(x):
    return activate(x)


@activated.kernel(name="by_strides")
def by_strides(x, out):
    """NumPy's own iterator knows where the cells lie."""
    for at in np.ndindex(x.shape):
        out[at] = leaky(x[at])


def twin() -> noyau.Op:
    """The same op with a kernel that goes through memory."""
    broken = noyau.op("f32[n, m] -> f32[n, m]", name="activated")(activated.reference)

    @broken.kernel(name="by_shape")
    def by_shape(x, out):
        """Cell k is the k-th in memory: true for packed arrays alone."""
        cells = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,))
        out[...] = leaky(cells).reshape(x.shape)

    return broken


def main() -> None:
    # %%
    # Any rank, any layout
    # --------------------
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(activate(x.transpose(2, 0, 1), slope=0.2).shape)
    print(activate.explain(x))

    # %%
    # Right, and how right
    # --------------------
    found = noyau.check(activated, budget_s=1, generated=False)
    print(found)
    found.raise_if_bad()
    # An op of any rank is checked by instances of fixed rank.
    print(noyau.check(activate, budget_s=1))

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(twin(), budget_s=1, generated=False))


if __name__ == "__main__":
    main()
