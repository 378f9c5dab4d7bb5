"""Session 3: map, zip and reduce, over any function of numbers
============================================================

Three loops are enough for most of a tensor library: one that changes each cell, one that joins the cells of two arrays,
one that folds an axis. What differs is a function of numbers, which noyau traces into kernels for whatever rank, dtype
and layout it is called with. Whoever writes the loops by hand makes the same mistakes again and again, and each has its
twin here: a fold that begins with the wrong number, a zip that forgets to broadcast, a map that takes the shape for the
strides.

Run it: ``python examples/gallery/plot_map_zip_reduce.py`` (needs a C compiler). ``examples/teaching_tensor.py`` is the
tensor library: on these three and a matrix product it trains a classifier.
"""

from __future__ import annotations

import math
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
largest = noyau.reduce(max, -math.inf, name="largest")

# %%
# What a reduction is is told from its graph: this one is a sum of squares, by lanes and blocks. The next one is no
# monoid at all, since the order matters; it is folded from left to right, one row beside the other.
energy = noyau.reduce(lambda state, x: state + x * x, 0.0, name="energy")
decayed = noyau.reduce(lambda state, x: 0.5 * state + x, 0.0, name="decayed")


# %%
# The same loops by hand
# ----------------------
@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def scale_rows(x, factors):
    return scale(x, factors)


@noyau.op("f32[rows, n] -> f32[rows]")
def largest_of_rows(x):
    return largest(x, axis=1)


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
REDUCE = """
#include <math.h>

void reduce(const float *x, float *out, long begin, long end, long n)
{
    for (long i = begin; i < end; i++) {
        float state = START;
        for (long j = 0; j < n; j++) state = (x[i * n + j] > state || isnan(x[i * n + j])) ? x[i * n + j] : state;
        for (long j = 0; j < n; j++) if (isnan(x[i * n + j])) state = x[i * n + j];
        out[i] = state;
    }
}
"""
scale_rows.kernel(ZIP.replace("AT", "j"), language="c", name="by_index")
largest_of_rows.kernel(REDUCE.replace("START", "-INFINITY"), language="c", name="from_the_least")


@activated.kernel(name="by_strides")
def by_strides(x, out):
    """NumPy's own iterator knows where the cells lie."""
    for at in np.ndindex(x.shape):
        out[at] = leaky(x[at])


def below(rng, rows=5, n=3):
    """Numbers of which none is above 0: a fold that begins there cannot be right on them."""
    return -np.abs(rng.normal(size=(rows, n))).astype(np.float32)


def twins() -> list[noyau.Op]:
    """The same ops, each with its mistake."""
    zipped = noyau.op("f32[rows, n], f32[n] -> f32[rows, n]", name="scale_rows")(scale_rows.reference)
    zipped.kernel(ZIP.replace("AT", "i * n + j"), language="c", name="forgets_to_broadcast")
    reduced = noyau.op("f32[rows, n] -> f32[rows]", name="largest_of_rows", inputs=below)(largest_of_rows.reference)
    reduced.kernel(REDUCE.replace("START", "0.0f"), language="c", name="from_zero")
    mapped = noyau.op("f32[n, m] -> f32[n, m]", name="activated")(activated.reference)

    @mapped.kernel(name="by_shape")
    def by_shape(x, out):
        """Cell k is the k-th in memory: true of packed arrays alone."""
        cells = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,))
        out[...] = leaky(cells).reshape(x.shape)

    return [zipped, reduced, mapped]


def main() -> None:
    # %%
    # Any rank, any layout
    # --------------------
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(
        activate(x.transpose(2, 0, 1), slope=0.2).shape,
        scale(x[:, :, :1], x[0, 0]).shape,
        largest(x, axis=(0, 2)).shape,
    )
    print(activate.explain(x))
    step = next(line for line in decayed.source("c").splitlines() if "0.5f" in line)
    print(f"the fold from left to right, in C: {step.strip()}")

    # %%
    # Right, and how right
    # --------------------
    for op in (scale_rows, largest_of_rows, activated):
        found = noyau.check(op, budget_s=1, generated=False)
        print(found)
        found.raise_if_bad()
    # An op of any rank is checked by forms of it, of which this is one.
    print(noyau.check(energy.forms[-1], budget_s=1))

    # %%
    # The broken twins
    # ----------------
    for op in twins():
        print(noyau.check(op, budget_s=1, generated=False))


if __name__ == "__main__":
    main()
