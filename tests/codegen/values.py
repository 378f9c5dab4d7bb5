"""Values of every dtype that break things, and how far floats are apart. Support for tests, not a test."""

from __future__ import annotations

import numpy as np

from noyau.dtypes import DType
from noyau.verify.floats import FORMATS, ulp

FLOATS = [0.0, 1.0, 0.5, 0.1, 2.0, 2.5, 3.0, 7.0, 17.25, 88.8, 1e-3, 1e4, 16777217.0, np.inf, np.nan]
FLOAT8 = [dtype for dtype in DType if dtype.is_float8]
NUMBERS = [dtype for dtype in DType if dtype is not DType.OTHER and not dtype.is_float8]


def values(dtype: DType, count: int = 24) -> np.ndarray:
    """The edges of a dtype, and so many values at random."""
    noise = np.random.default_rng(len(dtype.value))
    if dtype is DType.BOOL:
        return np.array([False, True])
    if not dtype.is_float:
        info = np.iinfo(dtype.numpy)
        edges = [0, 1, 2, 3, 5, 7, 8, 31, 100, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
        edges += [-1, -2, -3, -7, -8] if info.min else []
        return np.concatenate([np.array(edges, dtype.numpy), noise.integers(info.min, info.max, count, dtype.numpy)])
    form = FORMATS[dtype]
    edges = [*FLOATS, form.largest, 2.0**form.least, 2.0 ** (form.least - form.stored), 3 * 2.0 ** (form.least - 3)]
    drawn = noise.standard_normal(count) * np.exp2(noise.uniform(-12, 8, count))
    with np.errstate(over="ignore"):
        return np.array([*edges, *(-edge for edge in edges), *drawn]).astype(dtype.numpy)


def grid(*axes: np.ndarray) -> list[np.ndarray]:
    """Every combination, as flat arrays."""
    return [np.ascontiguousarray(axis.ravel()) for axis in np.meshgrid(*axes, indexing="ij")]


def ulps(got: np.ndarray, truth: np.ndarray, dtype: DType) -> np.ndarray:
    """|got - truth| in units in the last place of the dtype; infinite where only one is NaN, or the signs differ."""
    form = FORMATS[dtype]
    with np.errstate(all="ignore"):
        wide, top = got.astype(np.float64), form.largest
        rounded = np.where(np.abs(truth) >= form.overflow, np.copysign(np.inf, truth), truth)
        near = np.abs(np.clip(wide, -top, top) - np.clip(truth, -top, top)) / ulp(dtype, np.clip(np.abs(truth), 0, top))
        near = np.where(np.isinf(wide) != np.isinf(rounded), np.maximum(near, 1), near)
        other = (np.isnan(wide) != np.isnan(truth)) | (~np.isnan(truth) & (np.signbit(wide) != np.signbit(truth)))
        return np.where(other, np.inf, np.where(np.isnan(truth), 0, near))
