"""Session 3: what may be folded in parts
======================================

A sum may be cut into parts, because the order in which cells are joined does not matter: it is a monoid, and noyau
folds it by lanes, blocks and threads. A fold in which each step halves the result so far is no monoid as it stands,
since the order matters: it is folded from left to right, one row beside the other. Yet it may be cut as well, if each
part carries the factor by which it weakens the earlier cells. The broken twin cuts without that factor, as if the fold
were a sum.

Run it: ``python examples/gallery/plot_folds.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau

# %%
# Two folds
# ---------
# noyau recognises a fold from its graph: the first is a sum of squares, the second no monoid.
energy = noyau.reduce(lambda state, x: state + x * x, 0.0, name="energy")
decayed = noyau.reduce(lambda state, x: 0.5 * state + x, 0.0, name="decayed")


# %%
# The second one by hand
# ----------------------
# From left to right, and in two halves: each cell of the second half has weakened the first half by 0.5.
@noyau.op("f32[rows, n] -> f32[rows]")
def decayed_rows(x):
    return decayed(x, axis=1)


FOLD = """
#include <math.h>

static float folded(const float *x, long n)
{
    float state = 0.0f;
    for (long j = 0; j < n; j++) state = 0.5f * state + x[j];
    return state;
}

void from_left_to_right(const float *x, float *out, long begin, long end, long n)
{
    for (long i = begin; i < end; i++) out[i] = folded(x + i * n, n);
}

void in_halves(const float *x, float *out, long begin, long end, long n)
{
    const long half = n / 2;
    for (long i = begin; i < end; i++) {
        const float *row = x + i * n;
        const float first = folded(row, half), second = folded(row + half, n - half);
        out[i] = WEAKENED + second;
    }
}
"""
RIGHT = FOLD.replace("WEAKENED", "ldexpf(first, -(int)(n - half))")
decayed_rows.kernel(RIGHT, language="c", entry="from_left_to_right")
decayed_rows.kernel(RIGHT, language="c", entry="in_halves")


def twin() -> noyau.Op:
    """The same op with a kernel that adds the two halves up."""
    broken = noyau.op("f32[rows, n] -> f32[rows]", name="decayed_rows")(decayed_rows.reference)
    broken.kernel(FOLD.replace("WEAKENED", "first"), language="c", entry="in_halves", name="as_a_sum")
    return broken


def main() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    print(energy(x, axis=(0, 2)).shape, decayed(x, axis=1).shape)
    step = next(line for line in decayed.source("c").splitlines() if "0.5f" in line)
    print(f"the fold from left to right, in C: {step.strip()}")

    # %%
    # Right, and how right
    # --------------------
    found = noyau.check(decayed_rows, budget_s=1, generated=False)
    print(found)
    found.raise_if_bad()
    # An op of any rank is checked by instances of fixed rank; this is one of them.
    print(noyau.check(energy.forms[-1], budget_s=1))

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(twin(), budget_s=1, generated=False))


if __name__ == "__main__":
    main()
