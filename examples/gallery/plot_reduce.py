"""Session 3: reduce, over any function of two numbers
===================================================

The third loop of a tensor library folds an axis, beside the loop that changes cells (``plot_map.py``) and the loop that
joins the cells of two arrays (``plot_zip.py``). It takes a start value, and a function that joins the result so far
with the next cell. The right start value is the identity of the function: the number that changes no other number. The
broken twin starts with another number, and is right on most inputs.

Run it: ``python examples/gallery/plot_reduce.py`` (needs a C compiler).
"""

from __future__ import annotations

import math

import numpy as np

import noyau

# %%
# Any axes
# --------
# Python's own `max` becomes NumPy's over arrays: a NaN stays a NaN. The fold begins with its identity.
largest = noyau.reduce(max, -math.inf, name="largest")


# %%
# The same loop by hand
# ---------------------
@noyau.op("f32[rows, n] -> f32[rows]")
def largest_of_rows(x):
    return largest(x, axis=1)


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
largest_of_rows.kernel(REDUCE.replace("START", "-INFINITY"), language="c", name="from_the_least")


def below(rng, rows=5, n=3):
    """Numbers none of which is above 0: a fold that begins with 0 cannot be right on them."""
    return -np.abs(rng.normal(size=(rows, n))).astype(np.float32)


def twin() -> noyau.Op:
    """The same op with a kernel that begins with 0, as a sum does."""
    broken = noyau.op("f32[rows, n] -> f32[rows]", name="largest_of_rows", inputs=below)(largest_of_rows.reference)
    broken.kernel(REDUCE.replace("START", "0.0f"), language="c", name="from_zero")
    return broken


def main() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(largest(x).shape, largest(x, axis=(0, 2)).shape, largest(x, axis=1, keepdims=True).shape)
    print(largest.explain(x))

    # %%
    # Right, and how right
    # --------------------
    found = noyau.check(largest_of_rows, budget_s=1, generated=False)
    print(found)
    found.raise_if_bad()
    # An op of any rank is checked by instances of fixed rank; this is one of them.
    print(noyau.check(largest.forms[-1], budget_s=1))

    # %%
    # The broken twin
    # ---------------
    # Of normal numbers a row nearly always has one above 0. `inputs=` makes rows without such a number. A row without
    # cells is one of them, and the smallest that shows the fault.
    print(noyau.check(twin(), budget_s=1, generated=False))


if __name__ == "__main__":
    main()
