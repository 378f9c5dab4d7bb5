"""Session 4: polynomial features, and when not to make them
===========================================================

A linear model of the products of every two columns is a quadratic model. d columns have d (d + 1) / 2 products. A
kernel for them does one multiplication for each number that it writes, so memory alone limits its speed. The next step
can be fused with the features: their weighted sum is x A x', which never stores them. The broken twin puts the products
at the positions of a whole square, and writes beyond its result.

Run it: ``python examples/gallery/plot_polynomial_features.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau


def drawn(rng, rows=6, d=5):
    """Numbers, and all pairs of columns, with the first column not after the second."""
    left, right = np.triu_indices(d)
    return rng.standard_normal((rows, d), np.float32), left, right


@noyau.op("f32[rows, d], i64[k], i64[k] -> f32[rows, k]", inputs=drawn)
def products(x, left, right):
    return x[:, left] * x[:, right]


# %%
# By hand
# -------
# From a loop over the columns in NumPy, through a loop over the pairs in C, to a loop that knows the place of each
# product.
@products.kernel(returns=True)
def column_by_column(x, left, right):
    made = np.empty((len(x), len(left)), np.float32)
    for k, (one, other) in enumerate(zip(left, right, strict=True)):
        made[:, k] = x[:, one] * x[:, other]
    return made


BY_PAIRS = """
#include <stdint.h>

void by_pairs(const float *x, const int64_t *left, const int64_t *right, float *out, int64_t d, int64_t k,
              int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < k; at++) out[row * k + at] = x[row * d + left[at]] * x[row * d + right[at]];
}
"""
products.kernel(BY_PAIRS, language="c", name="by_pairs")


# %%
# All pairs
# ---------
# If all pairs are needed, and in order, no index need be loaded: each column is multiplied by all columns from itself
# on.
@noyau.op("f32[rows, d] -> f32[rows, d * (d + 1) // 2]", inputs=lambda rng, rows=6, d=5: drawn(rng, rows, d)[:1])
def squares(x):
    at, other = np.triu_indices(x.shape[1])
    made = np.empty((len(x), len(at)), x.dtype)
    for k in range(len(at)):
        made[:, k] = x[:, at[k]] * x[:, other[k]]
    return made


BY_COLUMNS = """
#include <stdint.h>

void by_columns(const float *x, float *out, int64_t d, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *own = x + row * d;
        for (int64_t i = 0; i < d; i++) {
            float *first = out + row * (d * (d + 1) / 2) + START;
            for (int64_t j = i; j < d; j++) first[j - i] = own[i] * own[j];
        }
    }
}
"""
squares.kernel(BY_COLUMNS.replace("START", "i * d - i * (i - 1) / 2"), language="c", name="by_columns")


def twin() -> noyau.Op:
    """The same with the products of column i at the offset of i whole rows of a square: right for one column alone."""
    broken = noyau.op(str(squares.signature), inputs=squares.description.inputs, name="squares")(squares.reference)
    broken.kernel(BY_COLUMNS.replace("START", "i * d"), language="c", name="as_a_square", entry="by_columns")
    return broken


# %%
# Never stored
# ------------
@noyau.op("f32[rows, d], f32[d, d] -> f32[rows]")
def quadratic(x, weights):
    return ((x @ weights) * x).sum(-1)


def fused(rows: int = 4096, d: int = 48) -> None:
    """The same predictions, with the features and without them."""
    x, left, right = drawn(np.random.default_rng(0), rows, d)
    weights = np.random.default_rng(1).standard_normal(len(left), np.float32) / np.float32(d)
    square = np.zeros((d, d), np.float32)
    square[left, right] = weights
    wanted = (x.astype(float)[:, left] * x[:, right]) @ weights
    for found in (products(x, left, right) @ weights, quadratic(x, square)):
        assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    print(f"{rows * len(left)} products written and read, or {rows * d} numbers of x @ A:")
    ways = {
        "features": lambda x: products(x, left, right) @ weights,
        "no features": lambda x: quadratic(x, square),
    }
    print(noyau.bench(ways, (x,), budget_s=0.5))


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    for op in (products, squares):
        found = noyau.check(op, budget_s=1)
        print(found)
        found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    print(noyau.bench(products, drawn(np.random.default_rng(0), 4096, 24), budget_s=0.5))

    # %%
    # Fused with their reader
    # -----------------------
    fused()


if __name__ == "__main__":
    main()
