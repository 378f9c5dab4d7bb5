"""Session 3: zip, over any function of two numbers
================================================

The second loop of a tensor library joins the cells of two arrays, beside the loop that changes cells (``plot_map.py``)
and the loop that folds an axis (``plot_reduce.py``). Shapes need not be equal: an axis with a single cell, or a missing
axis, is broadcast along the other array. The broken twin forgets that, and reads cells that do not exist.

Run it: ``python examples/gallery/plot_zip.py`` (needs a C compiler).
"""

from __future__ import annotations

import operator

import numpy as np

import noyau

# %%
# A function of two numbers
# -------------------------
# Functions of `math`, of `operator` and Python's own `max` become NumPy's over arrays.
scale = noyau.zip(operator.mul, name="scale")


# %%
# The same loop by hand
# ---------------------
@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def scale_rows(x, factors):
    return scale(x, factors)


ZIP = """
void zip(const float *x, const float *factors, float *out, long rows, long n)
{
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < n; j++) out[i * n + j] = x[i * n + j] * factors[AT];
}
"""
scale_rows.kernel(ZIP.replace("AT", "j"), language="c", name="by_index")


def twin() -> noyau.Op:
    """The same op with a kernel that reads a factor for each cell."""
    broken = noyau.op("f32[rows, n], f32[n] -> f32[rows, n]", name="scale_rows")(scale_rows.reference)
    broken.kernel(ZIP.replace("AT", "i * n + j"), language="c", name="forgets_to_broadcast")
    return broken


def main() -> None:
    # %%
    # Any ranks that broadcast
    # ------------------------
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(scale(x[:, :, :1], x[0, 0]).shape, scale(x[0], x[:, :1]).shape)
    print(scale.explain(x, x[0, 0]))

    # %%
    # Right, and how right
    # --------------------
    found = noyau.check(scale_rows, budget_s=1, generated=False)
    print(found)
    found.raise_if_bad()
    # An op of any rank is checked by instances of fixed rank; this is one of them.
    print(noyau.check(scale.forms[-1], budget_s=1))

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(twin(), budget_s=1, generated=False))


if __name__ == "__main__":
    main()
