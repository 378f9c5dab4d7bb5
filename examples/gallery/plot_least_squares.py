"""Session 10: least squares of a stream
=====================================

The page computes the coefficients of a regression over rows that come in chunks. Normal equations add up ``x.T @ x``,
which is a monoid, but they square the condition: for columns that nearly agree no digits are left. The triangle R of
``[x y] = Q R`` is as small, and it keeps the digits. Two triangles have one merge: stack them and take R again. That is
the method of Gram and Schmidt, a chunk at a time. The twins: normal equations, and a mean of the coefficients of each
chunk.

Run it: ``python examples/gallery/plot_least_squares.py`` (needs a C compiler).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import noyau

ROWS, TRUTH = 50_000, np.array([2.0, 3.0, -1.0])


def columns(rows: int = ROWS, apart: float = 1e-9) -> dict[str, np.ndarray]:
    """Two columns that differ by 1e-9, and a y without noise."""
    noise = np.random.default_rng(0).normal(size=(rows, 2))
    x = np.stack([noise[:, 0], noise[:, 0] + apart * noise[:, 1]], axis=1)
    return {"x": x, "y": TRUTH[0] + x @ TRUTH[1:]}


# %%
# The first twin: sums of products
# --------------------------------
# noyau derives the reduction from this op, and the result is that of the op: in float64, with a condition of 1e18.
@noyau.op("f64[n, k], f64[n] -> gram: f64[k, k], right: f64[k]")
def products(x, y):
    return x.T @ x, x.T @ y


# %%
# The second twin: coefficients of chunks
# ---------------------------------------
# Their mean is no fit: a chunk with few rows, or with columns that hardly differ, has the same weight as any other.
@noyau.reduction
class MeanOfFits:
    def zero(self) -> Any:
        return 0, np.zeros(3)

    def step(self, state: Any, x: Any, y: Any) -> Any:
        return self.merge(state, (1, np.linalg.lstsq(np.c_[np.ones(len(y)), x], y)[0]))

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]

    def finish(self, state: Any) -> Any:
        return state[1] / max(state[0], 1)

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"x": rng.normal(size=(n, 2)), "y": rng.normal(size=n)}


def main() -> None:
    # %%
    # R keeps what products lose
    # --------------------------
    data = columns()
    fit = noyau.stream(noyau.reductions.LeastSquares, data, memory="4M").value
    print("by R:", np.round(fit["coefficients"], 3), "right:", np.allclose(fit["coefficients"], TRUTH, atol=1e-4))
    ones = {"x": np.c_[np.ones(ROWS), data["x"]], "y": data["y"]}
    gram, right = noyau.stream(products, ones, memory="4M").value
    normal = np.linalg.lstsq(gram, right)[0]
    print("by products, right:", np.allclose(normal, TRUTH, atol=1e-4), "off by", f"{abs(normal - TRUTH).max():.1g}")

    # %%
    # The triangle itself
    # -------------------
    r = noyau.stream(noyau.reductions.TallQR, data["x"], memory="4M").value
    whole = np.linalg.qr(data["x"], mode="r")
    print("R of chunks is R of all:", np.allclose(r, whole * np.sign(np.diagonal(whole))[:, None], atol=1e-9))

    # %%
    # The laws
    # --------
    for kind in (noyau.reductions.LeastSquares, noyau.reductions.TallQR, MeanOfFits):
        print(noyau.check(kind))


if __name__ == "__main__":
    main()
