"""Session 1: a filter, by a branch and by a select
=================================================

A number above a maximum becomes the maximum. With a branch the processor has to guess: it is quick if the guesses are
right, for example on sorted numbers, and slow if they are wrong half of the time. A select computes both sides and
takes one: it always takes the same time, and vectorises. A NaN compares with nothing: it is not above the maximum, so
it stays. The broken twin, with the C library's fminf, turns it into the maximum.

Run it: ``python examples/gallery/plot_filter.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau


@noyau.op("f32[n], f32 -> f32[n]")
def clipped(x, maximum):
    return np.where(x > maximum, maximum, x)


# %%
# The kernels
# -----------
# A compiler turns a plain `if` into a select if it can. The empty `asm` prevents that: it stands for a branch with a
# side effect.
clipped.kernel(
    """
void branch(const float *x, float maximum, float *out, long n)
{
    for (long i = 0; i < n; i++) {
        float value = x[i];
        if (value > maximum) {
            __asm__ volatile("");
            value = maximum;
        }
        out[i] = value;
    }
}
""",
    language="c",
    name="branch",
)
SELECT = """
#include <math.h>

void select(const float *x, float maximum, float *out, long begin, long end)
{
    for (long i = begin; i < end; i++) out[i] = VALUE;
}
"""
clipped.kernel(SELECT.replace("VALUE", "x[i] > maximum ? maximum : x[i]"), language="c", name="select")


def twin() -> noyau.Op:
    """The same op with the C library's minimum, which does not keep NaN."""
    broken = noyau.op("f32[n], f32 -> f32[n]", name="clipped")(clipped.reference)
    broken.kernel(SELECT.replace("VALUE", "fminf(x[i], maximum)"), language="c", name="minimum")
    return broken


def main() -> None:
    # %%
    # Right, for every number
    # -----------------------
    # The inputs that `check` generates include NaN, infinities, zeros of both signs, huge and tiny numbers.
    found = noyau.check(clipped, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twin
    # ---------------
    print(noyau.check(twin(), budget_s=4))

    # %%
    # The clock
    # ---------
    # The same numbers, in random order and sorted: only the branch depends on the order.
    rng, maximum = np.random.default_rng(0), np.float32(0)
    x = rng.standard_normal(1 << 18, np.float32)
    times = {}
    for order, values in (("in any order", x), ("sorted", np.sort(x))):
        timed = noyau.bench(clipped, (values, maximum), budget_s=0.5)
        print(f"\n{order}: {timed}")
        times[order] = {row.name: timed.at[0].time_s(row.name, temperature="hot") for row in timed.at[0].ranked}
    for name in ("branch", "select"):
        ratio = times["in any order"][name] / times["sorted"][name]
        print(f"{name}: {ratio:.1f} times as long in any order as on sorted numbers")


if __name__ == "__main__":
    main()
