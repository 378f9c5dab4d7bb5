"""Sums of integers that wrap around, and are told."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.errors import InputError


def added(a: Any, b: Any, name: str) -> np.ndarray:
    """The sum of two arrays. InputError where one of integers wraps around."""
    x, y = np.asarray(a), np.asarray(b)
    total = np.asarray(x + y)
    wraps = total < x if total.dtype.kind == "u" else ((x ^ total) & (y ^ total)) < 0 if x.dtype.kind == "i" else False
    if np.any(wraps):
        raise InputError(f"{name}: a sum of {total.dtype} overflows: make float64 of its column, or sum in a wider one")
    return total


def fits(low: Any, high: Any, count: int, dtype: np.dtype) -> bool:
    """Whether no sum of so many integers from low to high can wrap around."""
    return count * max(abs(int(low)), abs(int(high))) <= np.iinfo(dtype).max
