"""The interval of a median by resampling, without resampling."""

from __future__ import annotations

import math

import numpy as np

_RESAMPLES = 2000
_CONFIDENCE = 0.95


def interval_of_median(values: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median of f64[n]; NaN where a value is."""
    if np.isnan(values).any():
        return math.nan, math.nan
    medians = _resampled_medians(np.sort(values), np.random.default_rng(seed))
    low, high = np.quantile(medians, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


def _resampled_medians(ordered: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Medians of resamples of sorted values, f64[_RESAMPLES].

    Nothing is resampled: the middle of n draws of a place is the middle of n uniform numbers, which has a Beta law, and
    the next above it the least of those that lie above."""
    count = len(ordered)
    middle = (count + 1) // 2
    lower = rng.beta(middle, count - middle + 1, _RESAMPLES)
    upper = lower if count % 2 else 1 - (1 - lower) * rng.random(_RESAMPLES) ** (1 / (count - middle))
    places = np.minimum(np.stack([lower, upper]) * count, count - 1).astype(np.int64)
    return np.asarray(ordered[places].mean(axis=0))
