"""Session 1: vector sums, by rows and by columns
=================================================

One op, the sums of the rows of a matrix, has kernels that differ in one thing alone: the inner loop. By rows, the inner
loop goes from a cell to its neighbour. By columns, it jumps a whole row, so that it uses 4 bytes of each line of 64
that memory delivers, and discards 60. Both are right, for rows of any length; the clock distinguishes them. The broken
twin adds sixteen cells at a time and forgets the rest of the row.

Run it: ``python examples/gallery/plot_vector_sum.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau
from noyau.dtypes import DType
from noyau.kernels.call import call_kernel

ROWS, N = 2048, 2048


@noyau.op("f32[rows, n] -> f32[rows]")
def sums(x):
    return x.sum(axis=1)


# %%
# The kernels
# -----------
# The kernels are plain C with inputs, outputs and sizes as parameters, by name. A kernel with the parameters `begin`
# and `end` is called for pieces of the rows by all threads. SIMD needs the sixteen partial sums: a sum in one variable
# is a chain, in which each addition waits for the one before, and a compiler may not change its order. They are double:
# `check` refused the same lanes in float, which lose too many digits where long rows nearly cancel.
sums.kernel(
    """
void by_rows(const float *x, float *out, long rows, long n)
{
    for (long i = 0; i < rows; i++) {
        double sum = 0;
        for (long j = 0; j < n; j++) sum += x[i * n + j];
        out[i] = sum;
    }
}
""",
    language="c",
    name="by_rows",
)

sums.kernel(
    """
#include <stdlib.h>

void by_columns(const float *x, float *out, long rows, long n)
{
    double *sum = calloc(rows + 1, sizeof(double));
    for (long j = 0; j < n; j++)
        for (long i = 0; i < rows; i++) sum[i] += x[i * n + j];  /* the next cell is n cells away */
    for (long i = 0; i < rows; i++) out[i] = sum[i];
    free(sum);
}
""",
    language="c",
    name="by_columns",
)

SIMD = """
void simd(const float *x, float *out, long n, long begin, long end)
{
    for (long i = begin; i < end; i++) {
        const float *row = x + i * n;
        double lanes[16] = {0}, sum = 0;
        long j = 0;
        for (; j + 16 <= n; j += 16)
            for (int lane = 0; lane < 16; lane++) lanes[lane] += row[j + lane];
        REST
        for (int step = 8; step > 0; step /= 2)
            for (int lane = 0; lane < step; lane++) lanes[lane] += lanes[lane + step];
        out[i] = sum + lanes[0];
    }
}
"""
sums.kernel(SIMD.replace("REST", "for (; j < n; j++) sum += row[j];"), language="c", name="simd")


def twin() -> noyau.Op:
    """The same op with the kernel that forgets the rest of a row."""
    broken = noyau.op("f32[rows, n] -> f32[rows]", name="sums")(sums.reference)
    broken.kernel(SIMD.replace("REST", ""), language="c", name="simd_without_rest")
    return broken


def main() -> None:
    # %%
    # Right, for every length of a row
    # --------------------------------
    # `check` tries lengths of 0, 1, primes, blocks and their neighbours; here every length from 1 to 64 as well.
    found = noyau.check(sums, budget_s=1)
    print(found)
    assert not [finding for finding in found.findings if finding.kernel in sums.kernels]
    instance = sums.instance([DType.F32], [2])
    for n in range(1, 65):
        x = np.random.default_rng(n).standard_normal((7, n), np.float32)
        for kernel in sums.kernels.values():
            (out,) = call_kernel(kernel, instance, [x], {})
            np.testing.assert_allclose(out, x.sum(1, dtype=np.float64), rtol=1e-6, atol=1e-6)
    print("right for every row of 1 to 64 cells")

    # %%
    # The broken twin
    # ---------------
    # It is right for rows of 16, 32, 48... cells, so a test at 1024 alone never finds it. The report is shrunk to the
    # smallest sizes that show the bug.
    print(noyau.check(twin(), budget_s=1))

    # %%
    # The clock
    # ---------
    # All candidates run in one race, against the bytes that must move. The stride causes the difference.
    timed = noyau.bench(sums, sizes={"rows": ROWS, "n": N})
    print(timed)
    (at,) = timed.at
    x = np.empty((ROWS, N), np.float32)
    slower = at.comparison("by_rows", "by_columns").speedup
    print(
        f"by_columns takes {slower:.1f} times as long as by_rows: its inner loop steps {x.strides[0]} bytes, by_rows' "
        f"{x.strides[1]}; of each line of 64 bytes it uses {x.itemsize} before it needs the next one"
    )


if __name__ == "__main__":
    main()
