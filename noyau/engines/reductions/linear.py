"""QR of tall matrices, and least squares, of rows that come in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.engines.reduction import reduction


@reduction
class TallQR:
    """The triangle R of x = Q R, its diagonal not negative, of all rows of x: that of Gram and Schmidt, without storing
    Q. A chunk's R stands for the chunk: those of two, one above the other, have the R of both. Backward stable: R is
    that of x changed by some k**1.5 * 2**-53 * log2(chunks) of its norm. Demmel, Grigori, Hoemmen and Langou,
    "Communication-optimal parallel and sequential QR and LU factorizations", 2012."""

    def zero(self) -> np.ndarray:
        return np.empty((0, 0))

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        return self.merge(state, _triangle(np.asarray(x, np.float64).reshape(len(x), -1)))

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _triangle(np.vstack([a, b])) if a.size and b.size else a if a.size else b

    def finish(self, state: np.ndarray) -> np.ndarray:
        return state

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"x": rng.normal(size=(n, 3))}


def _triangle(rows: np.ndarray) -> np.ndarray:
    r = np.linalg.qr(rows, mode="r")
    return np.asarray(r * np.where(np.diagonal(r) < 0, -1.0, 1.0)[:, None])


_QR, _ROUNDED = TallQR(), 2.0**-44  # of y: what is left of an exact solution


@reduction
class LeastSquares:
    """The coefficients b for which x b is nearest to y over all rows, with a constant before them where `constant`,
    and the norm of what is left, 0 where that is rounding. From R of [x y], which is merged as in `TallQR`: off by some
    cond(x) * 2**-53, where normal equations, x.T @ x, have its square."""

    def __init__(self, constant: bool = True) -> None:
        self.constant = bool(constant)

    zero, merge = _QR.zero, _QR.merge

    def step(self, state: np.ndarray, x: Any, y: Any) -> np.ndarray:
        ones = np.ones((len(y), int(self.constant)))
        return _QR.step(state, np.hstack([ones, np.reshape(x, (len(y), -1)), np.reshape(y, (len(y), 1))]))

    def finish(self, state: np.ndarray) -> dict[str, Any]:
        if not state.size:
            return {"coefficients": np.empty(0), "residual_norm": 0.0}
        x, y = state[:, :-1], state[:, -1]
        coefficients = np.linalg.lstsq(x, y)[0]
        left = float(np.linalg.norm(y - x @ coefficients))
        return {"coefficients": coefficients, "residual_norm": left if left > _ROUNDED * np.linalg.norm(y) else 0.0}
