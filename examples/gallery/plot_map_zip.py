"""Session 3: map and zip, over any function of numbers
====================================================

Three loops are enough for most of a tensor library: one that changes each cell, one that joins the cells of two arrays,
and one that folds an axis, which has a page of its own (``plot_reduce.py``). What differs is a function of numbers,
which noyau traces into kernels for whatever rank, dtype and layout it is called with. Whoever writes the loops by hand
makes the same mistakes again and again, and each has its twin here: a zip that forgets to broadcast, a map that takes
the shape for the strides.

Run it: ``python examples/gallery/plot_map_zip.py`` (needs a C compiler). ``examples/teaching_tensor.py`` is the tensor
library: on these loops and a matrix product it trains a classifier.
"""

from __future__ import annotations

import operator

import numpy as np

import noyau


# %%
# Functions of numbers
# --------------------
# `math` and Python's own `max` are NumPy's over arrays. An `if` on a number is refused, for it is known only when the
# kernel runs: np.where chooses.
def leaky(x, slope=0.1):
    return np.where(x > 0, x, slope * x)


activate = noyau.map(leaky)
scale = noyau.zip(operator.mul, name="scale")


# %%
# The same loops by hand
# ----------------------
@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def scale_rows(x, factors):
    return scale(x, factors)


@noyau.op("f32[n, m] -> f32[n, m]")
def activated(x):
    return activate(x)


ZIP = """
void zip(const float *x, const float *factors, float *out, long rows, long n)
{
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * factors[AT];
}
"""
scale_rows.kernel(ZIP.replace("AT", "j"), language="c", name="by_index")


@activated.kernel(name="by_strides")
def by_strides(x, out):
    """NumPy's own iterator knows where the cells lie."""
    for at in np.ndindex(x.shape):
        out[at] = leaky(x[at])


def twins() -> list[noyau.Op]:
    """The same ops, each with its mistake."""
    zipped = noyau.op("f32[rows, n], f32[n] -> f32[rows, n]", name="scale_rows")(scale_rows.reference)
    zipped.kernel(ZIP.replace("AT", "i * n + j"), language="c", name="forgets_to_broadcast")
    mapped = noyau.op("f32[n, m] -> f32[n, m]", name="activated")(activated.reference)

    @mapped.kernel(name="by_shape")
    def by_shape(x, out):
        """Cell k is the k-th in memory: true of packed arrays alone."""
        cells = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,))
        out[...] = leaky(cells).reshape(x.shape)

    return [zipped, mapped]


def main() -> None:
    # %%
    # Any rank, any layout
    # --------------------
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(activate(x.transpose(2, 0, 1), slope=0.2).shape, scale(x[:, :, :1], x[0, 0]).shape)
    print(activate.explain(x))

    # %%
    # Right, and how right
    # --------------------
    for op in (scale_rows, activated):
        found = noyau.check(op, budget_s=1, generated=False)
        print(found)
        found.raise_if_bad()
    # An op of any rank is checked by forms of it, of which this is one.
    print(noyau.check(scale.forms[-1], budget_s=1))

    # %%
    # The broken twins
    # ----------------
    for op in twins():
        print(noyau.check(op, budget_s=1, generated=False))


if __name__ == "__main__":
    main()
