"""Session 3: the gradient of a matrix product, without a transposed copy
======================================================================

For c = a b the gradients are g b' and a' g: products with one matrix transposed. Neither needs a copy in memory. A
transposed matrix is the same cells with its strides exchanged, which BLAS accepts; by hand it is a matter of the order
of loops. Derived gradients are the same einsum with its letters in another order. The broken twin reads a as if it had
as many rows as columns.

Run it: ``python examples/gallery/plot_product_gradient.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau


@noyau.op("f32[m, k], f32[k, n] -> f32[m, n]")
def product(a, b):
    return a @ b


# %%
# The gradient of b
# -----------------
@noyau.op("f32[m, k], f32[m, n] -> f32[k, n]")
def slope_of_b(a, g):
    return a.T @ g


@slope_of_b.kernel(returns=True)
def copied(a, g):
    """The transposed matrix is copied first: as many cells again, written and read."""
    return np.ascontiguousarray(a.T) @ g


@slope_of_b.kernel(returns=True)
def as_it_lies(a, g):
    """a.T is a view; BLAS reads it as transposed."""
    return np.matmul(a.T, g)


LOOPS = """
#include <stdint.h>

void column_by_column(const float *a, const float *g, float *out, int64_t m, int64_t k, int64_t n)
{
    for (int64_t row = 0; row < k; row++)
        for (int64_t column = 0; column < n; column++) {
            double sum = 0;
            for (int64_t at = 0; at < m; at++) sum += (double)a[at * k + row] * g[at * n + column];
            out[row * n + column] = (float)sum;
        }
}

void row_by_row(const float *a, const float *g, float *out, int64_t m, int64_t k, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t column = 0; column < n; column++) out[row * n + column] = 0;
    for (int64_t at = 0; at < m; at++)
        for (int64_t row = begin; row < end; row++)
            for (int64_t column = 0; column < n; column++)
                out[row * n + column] += a[PLACE] * g[at * n + column];
}
"""
# Down the columns of both; then along the rows of both, where each thread has its own rows of the result.
slope_of_b.kernel(LOOPS.replace("PLACE", "at * k + row"), language="c", entry="column_by_column")
slope_of_b.kernel(LOOPS.replace("PLACE", "at * k + row"), language="c", entry="row_by_row")


def twin() -> noyau.Op:
    """The same op with a kernel that reads the rows of a as columns: right for one row and one column alone."""
    broken = noyau.op(str(slope_of_b.signature), name="slope_of_b")(slope_of_b.reference)
    broken.kernel(LOOPS.replace("PLACE", "row * k + at"), language="c", name="not_turned", entry="row_by_row")
    return broken


def gradient(m: int = 256, k: int = 192, n: int = 128) -> None:
    """Both gradients of the product, and whether torch had to copy anything."""
    import torch

    a, b = torch.randn(m, k, requires_grad=True), torch.randn(k, n, requires_grad=True)
    above = torch.randn(m, n)
    product(a, b).backward(above)  # the first call builds the kernels
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        found = torch.autograd.grad(product(a, b), (a, b), above)
    exact = above.double() @ b.detach().double().T, a.detach().double().T @ above.double()
    error = max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(found, exact, strict=True))
    print(f"the gradients are within {error:.0e} of float64's: {'right' if error < 1e-5 else 'wrong'}")
    called = [event.key for event in seen.key_averages()]
    copies = [name for name in called if name in ("aten::copy_", "aten::clone", "aten::contiguous")]
    print(f"torch did {sorted({'aten::mm', 'aten::matmul'} & {*called})}, and these copies: {copies}")


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    found = noyau.check(slope_of_b, budget_s=0.5)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, np.float32) for shape in ((512, 192), (512, 128))]
    print(noyau.bench(slope_of_b, tuple(given), budget_s=0.3, cold=False))

    # %%
    # Derived
    # -------
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
