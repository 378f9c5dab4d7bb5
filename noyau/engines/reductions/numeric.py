"""Statistics of numbers: a histogram and quantiles by counts of bins; QR of tall matrices, and least squares."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.engines.reading import matrix_of, numbers, require_count
from noyau.engines.reduction import reduction
from noyau.ops.op import op


@op("f64[n], f64[m], f64, i64[cells] -> i64[cells]")
def count_bins(x, edges, per_unit, state):  # type: ignore[no-untyped-def]
    last, is_nan = edges.shape[0] - 2, np.isnan(x)
    near = np.where(is_nan, 0, np.clip(np.floor((x - edges[0]) * per_unit), 0, last)).astype(np.int64)
    place = near - (x < edges[near]) + (x >= edges[near + 1]) - (x == edges[-1])  # compare with edges: near is rounded
    out = state.copy()
    np.add.at(out, np.where(is_nan, last + 3, place + 1), 1)
    return out


@reduction
class Histogram:
    """The exact counts of numbers in `bins` of equal width from `low` to `high`, as of np.histogram: the last bin
    includes both edges. Numbers below, numbers above and NaN have counts of their own."""

    def __init__(self, low: float = 0.0, high: float = 1.0, bins: int = 10) -> None:
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"the bins of Histogram go from {low} to {high}; give a finite low below a finite high")
        bins = require_count(bins, 1, "bins of Histogram")
        self.edges, self.per_unit = np.linspace(low, high, bins + 1), bins / (high - low)

    merge = staticmethod(np.add)

    def zero(self) -> np.ndarray:
        return np.zeros(len(self.edges) + 2, np.int64)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        return np.asarray(count_bins(np.asarray(numbers(x, "Histogram"), np.float64), self.edges, self.per_unit, state))

    def finish(self, state: np.ndarray) -> dict[str, Any]:
        below, above, nan = state[[0, -2, -1]].tolist()
        return {"counts": state[1:-2], "edges": self.edges, "below": below, "above": above, "nan": nan}


@op("u32[n], i64[cells] -> i64[cells]")
def count_prefixes(bits, state):  # type: ignore[no-untyped-def]
    out = state.copy()
    np.add.at(out, (bits >> np.uint32(16)).astype(np.int64), 1)
    return out


@reduction
class Quantiles:
    """Quantiles of numbers with a relative error of at most 2**-8 (0.4 %), in 512 kB. Numbers are counted by the first
    16 bits of their float32: sign, exponent and 7 bits; NaN is ignored, and numbers beyond float32's range become
    infinities or zero. The idea is that of Masson, Rim and Lee, "DDSketch", 2019, with a float's own bins."""

    def __init__(self, at: float | Sequence[float] = (0.25, 0.5, 0.75)) -> None:
        self.at = tuple(np.ravel(np.asarray(at, np.float64)).tolist())
        if not all(0 <= each <= 1 for each in self.at):
            raise ValueError(f"Quantiles are at {self.at}; give numbers from 0 to 1")

    merge = staticmethod(np.add)

    def zero(self) -> np.ndarray:
        return np.zeros(1 << 16, np.int64)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            bits = np.ascontiguousarray(numbers(x, "Quantiles"), np.float32).view(np.uint32)
        return np.asarray(count_prefixes(bits, state))

    def finish(self, state: np.ndarray) -> np.ndarray:
        """Each quantile by np.quantile's method "inverted_cdf", as the middle of its bin; NaN without numbers."""
        prefixes = np.flatnonzero(state).astype(np.uint32)
        whole = np.isin(prefixes & 0x7FFF, (0, 0x7F80))  # bins of zero and infinities are exact
        middle = np.where(whole, 0, 1 << 15).astype(np.uint32)
        values = ((prefixes << np.uint32(16)) | middle).view(np.float32).astype(np.float64)
        order = np.argsort(values)[: np.count_nonzero(~np.isnan(values))]
        ranks = np.cumsum(state[prefixes[order]])
        if not len(order):
            return np.full(len(self.at), np.nan)
        places = np.searchsorted(ranks, np.ceil(np.array(self.at) * ranks[-1]).clip(1))
        return np.asarray(values[order][places])


@reduction
class TallQR:
    """The triangular factor R, with a nonnegative diagonal, of x = Q R over all rows of x; Q is not stored. The R of a
    chunk replaces the chunk: two stacked R have the R of both chunks. Backward stable: R is exact for an x changed by
    about k**1.5 * 2**-53 * log2(chunks) of its norm. Demmel, Grigori, Hoemmen and Langou, "Communication-optimal
    parallel and sequential QR and LU factorizations", 2012."""

    def zero(self) -> np.ndarray:
        return np.empty((0, 0))

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        return self.merge(state, _triangle(matrix_of(x)))

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _triangle(np.vstack([a, b])) if a.size and b.size else a if a.size else b

    def finish(self, state: np.ndarray) -> np.ndarray:
        return state

    def inputs(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"x": rng.normal(size=(n, 3))}


def _triangle(rows: np.ndarray) -> np.ndarray:
    r = np.linalg.qr(rows, mode="r")
    return np.asarray(r * np.where(np.diagonal(r) < 0, -1.0, 1.0)[:, None])


_QR, _ROUNDED = TallQR(), 2.0**-44  # relative to y, the residual of an exact solution by rounding


@reduction
class LeastSquares:
    """The coefficients b that minimise |x b - y| over all rows, preceded by a constant term if `constant`, and the norm
    of the residual, 0 if it is only rounding. They are computed from R of [x y], merged as in `TallQR`: the error is
    about cond(x) * 2**-53, where that of the normal equations grows with its square."""

    def __init__(self, constant: bool = True) -> None:
        self.constant = bool(constant)

    zero, merge = _QR.zero, _QR.merge

    def step(self, state: np.ndarray, x: Any, y: Any) -> np.ndarray:
        ones = np.ones((len(y), int(self.constant)))
        return _QR.step(state, np.hstack([ones, matrix_of(x), matrix_of(y)]))

    def finish(self, state: np.ndarray) -> dict[str, Any]:
        if not state.size:
            return {"coefficients": np.empty(0), "residual_norm": 0.0}
        x, y = state[:, :-1], state[:, -1]
        coefficients = np.linalg.lstsq(x, y)[0]
        left = float(np.linalg.norm(y - x @ coefficients))
        return {"coefficients": coefficients, "residual_norm": left if left > _ROUNDED * np.linalg.norm(y) else 0.0}
