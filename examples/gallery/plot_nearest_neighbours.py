"""Session 9: nearest neighbours, and distances that cancel
=========================================================

The page finds, for each query, the nearest of n points: a map (squared differences), a sum along a row, and the minimum
over all rows with its position. In plain NumPy the differences are an array of queries x points x columns; fused, that
array never exists in memory. Textbooks write |q - p|^2 as |q|^2 - 2 q.p + |p|^2, which is a matrix product, and fast.
Far from the origin its terms are large and their sum is small: the broken twin loses the digits that distinguish two
neighbours.

Run it: ``python examples/gallery/plot_nearest_neighbours.py`` (needs a C compiler).
"""

from __future__ import annotations

import numpy as np

import noyau


def drawn(rng, queries=8, n=40, d=3):
    """Points around 100, each query near one of them, so that no two points are equally near."""
    points = 100 + rng.standard_normal((n, d), np.float32)
    chosen = rng.integers(0, max(n, 1), queries) if n else np.zeros(0, np.int64)
    return points[chosen] + np.float32(1e-3), points


@noyau.op(
    "f32[queries, d], f32[n, d] -> at: i64[queries], squared: f32[queries]",
    inputs=drawn,
)
def nearest(query, points):
    squared = ((query[:, None] - points) ** 2).sum(-1)
    return squared.argmin(1), squared.min(1)


# %%
# By hand
# -------
# From a loop over the queries, in NumPy, to a loop that holds the best point so far in two registers. A kernel with the
# parameters `begin` and `end` is called for pieces of the queries by all threads.
@nearest.kernel(returns=True)
def query_by_query(query, points):
    at, squared = np.empty(len(query), np.int64), np.empty(len(query), np.float32)
    for k, one in enumerate(query):
        away = ((one - points) ** 2).sum(1)
        at[k] = away.argmin()
        squared[k] = away[at[k]]
    return at, squared


BEST = """
#include <stdint.h>

void best(const float *query, const float *points, int64_t *at, float *squared, int64_t n, int64_t d,
          int64_t begin, int64_t end)
{
    for (int64_t q = begin; q < end; q++) {
        float least = 0;
        int64_t found = 0;
        for (int64_t p = 0; p < n; p++) {
            float sum = 0;
            for (int64_t k = 0; k < d; k++) {
                const float step = query[q * d + k] - points[p * d + k];
                sum += step * step;
            }
            if (p == 0 || sum < least) least = sum, found = p;
        }
        at[q] = found, squared[q] = least;
    }
}
"""
nearest.kernel(BEST, language="c", name="best")


def by_product(query, points):
    """|q|^2 - 2 q.p + |p|^2: right for points around the origin."""
    squared = (query**2).sum(1)[:, None] - 2 * (query @ points.T) + (points**2).sum(1)
    return squared.argmin(1), squared.min(1)


def twin() -> noyau.Op:
    """The same op, with the kernel that cancels."""
    broken = noyau.op(str(nearest.signature), inputs=drawn, name="nearest")(nearest.reference)
    broken.kernel(by_product, name="by_product", returns=True)
    return broken


def far_and_near() -> None:
    """The number of neighbours that the product finds, around the origin and far from it."""
    rng = np.random.default_rng(0)
    for away in (0, 100, 1000):
        points = np.float32(away) + rng.standard_normal((2000, 8), np.float32)
        query = points[:500] + np.float32(0.01)
        at, squared = nearest(query, points)
        found, lost = by_product(query, points)
        told = f"{np.mean(found == at):.0%} of the neighbours, the least squared distance is {lost.min():.2g}"
        print(f"around {away}: the product finds {told}; by differences it is {squared.min():.2g}")


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    found = noyau.check(nearest, budget_s=1)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))
    far_and_near()

    # %%
    # The clock
    # ---------
    # The product is BLAS, and around the origin, or in float64, it is right; but it writes an array of queries x points
    # and reads it again. With 8 columns that takes at least three times as long; with hundreds of columns the product
    # wins.
    print(noyau.bench(nearest, drawn(np.random.default_rng(0), 200, 2000, 8), budget_s=0.5))
    print(nearest.explain(*drawn(np.random.default_rng(0), 200, 2000, 8)))


if __name__ == "__main__":
    main()
