"""The integers that adversarial inputs are made of."""

from __future__ import annotations

import numpy as np

from noyau.dtypes import DType
from noyau.verify.patterns import Array


def whole(style: str, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, *, mask: bool) -> Array:
    """Integers of a dtype that index no table: "small", "zeros", "equal", "lowest", "highest" or "extremes"."""
    limits = np.iinfo(dtype.numpy)
    low, high = max(int(limits.min), -100), 100
    match style:
        case "zeros":
            return np.zeros(shape, dtype.numpy)
        case "equal":
            return np.full(shape, rng.integers(1, 10), dtype.numpy)
        case "extremes":
            ends = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype.numpy)
            return np.asarray(rng.choice(ends, shape))
        case "lowest" | "highest" if not mask:
            near = rng.integers(0, 100, shape, dtype.numpy, endpoint=True)
            return np.asarray(limits.min + near if style == "lowest" else limits.max - near)
        case _:
            values = rng.integers(low, high, shape, endpoint=True)
            few = np.where(rng.random(shape) < 0.7, rng.integers(0, 2, shape), rng.integers(0, 40, shape))
            return np.asarray(few if mask else values).astype(dtype.numpy)


def defined(array: Array, *, divides: bool, shifts: bool) -> Array:
    """Integers with which a division or a shift is defined: no zero and no least number; at most 7."""
    if shifts:
        return np.asarray(np.abs(array % 8)).astype(array.dtype)
    if not divides:
        return array
    least = np.iinfo(array.dtype).min
    return np.where(array == 0, 1, np.where((array == least) & (least < 0), least + 1, array)).astype(array.dtype)
