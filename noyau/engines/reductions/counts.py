"""Counts of numbers by bins: a histogram, and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.engines.reduction import numbers, reduction
from noyau.ops.op import op


@op("f64[n], f64[m], f64, i64[cells] -> i64[cells]")
def count_bins(x, edges, per_unit, state):  # type: ignore[no-untyped-def]
    last, is_nan = edges.shape[0] - 2, np.isnan(x)
    near = np.where(is_nan, 0, np.clip(np.floor((x - edges[0]) * per_unit), 0, last)).astype(np.int64)
    place = near - (x < edges[near]) + (x >= edges[near + 1]) - (x == edges[-1])  # the product is rounded, edges decide
    out = state.copy()
    np.add.at(out, np.where(is_nan, last + 3, place + 1), 1)
    return out


@reduction
class Histogram:
    """The numbers in `bins` of equal width from `low` to `high`, exact, as np.histogram has them: the last bin has both
    of its edges. What lies below, above and NaN are counted by themselves."""

    def __init__(self, low: float = 0.0, high: float = 1.0, bins: int = 10) -> None:
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
    """Quantiles of numbers, each within 2**-8 of its value (0.4 %), in 512 kB: numbers are counted by their first 16
    bits as float32, which are their sign, their exponent and 7 bits. NaN is none; beyond float32's range are infinities
    and zero. As of sketches of relative error: Masson, Rim and Lee, "DDSketch", 2019, with bins of a float's own."""

    def __init__(self, at: Sequence[float] = (0.25, 0.5, 0.75)) -> None:
        self.at = tuple(at)

    merge = staticmethod(np.add)

    def zero(self) -> np.ndarray:
        return np.zeros(1 << 16, np.int64)

    def step(self, state: np.ndarray, x: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            bits = np.ascontiguousarray(numbers(x, "Quantiles"), np.float32).view(np.uint32)
        return np.asarray(count_prefixes(bits, state))

    def finish(self, state: np.ndarray) -> np.ndarray:
        """Each quantile by np.quantile's method "inverted_cdf", in the middle of its bin; NaN of no numbers."""
        prefixes = np.flatnonzero(state).astype(np.uint32)
        whole = np.isin(prefixes & 0x7FFF, (0, 0x7F80))  # zero and infinities are no middle
        middle = np.where(whole, 0, 1 << 15).astype(np.uint32)
        values = ((prefixes << np.uint32(16)) | middle).view(np.float32).astype(np.float64)
        order = np.argsort(values)[: np.count_nonzero(~np.isnan(values))]
        ranks = np.cumsum(state[prefixes[order]])
        if not len(order):
            return np.full(len(self.at), np.nan)
        places = np.searchsorted(ranks, np.ceil(np.array(self.at) * ranks[-1]).clip(1))
        return np.asarray(values[order][places])
