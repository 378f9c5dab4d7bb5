"""The spread of two runs: in how many cells they differ, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.verify.floats import Array, ulp, widen


@dataclass(frozen=True, slots=True)
class Spread:
    """In how many of so many cells two runs differ, the first output and cell that does, and by how many ulp at most:
    units for integers, infinity where one is not finite."""

    differing: int
    cells: int
    output: int
    cell: tuple[int, ...]
    worst: float
    is_float: bool

    def __str__(self) -> str:
        where = f"in {self.differing} of {self.cells} cells"
        if not np.isfinite(self.worst):
            return f"{where}, one of them NaN or infinite"
        return f"{where}, by at most {self.worst:g} {'ulp' if self.is_float else 'units'}"


def bits(results: Sequence[Array]) -> list[bytes]:
    """The bits in which two runs must agree."""
    return [result.tobytes() for result in results]


def spread(one: Sequence[Array], other: Sequence[Array]) -> Spread | None:
    """The distance between two runs, or None where every bit is alike."""
    spreads = [_apart(number, *pair) for number, pair in enumerate(zip(one, other, strict=True))]
    unlike = [each for each in spreads if each.differing]
    if not unlike:
        return None
    first, cells = unlike[0], sum(each.cells for each in spreads)
    worst = max(unlike, key=lambda each: each.worst)
    total = sum(each.differing for each in unlike)
    return Spread(total, cells, first.output, first.cell, worst.worst, worst.is_float)


def _apart(number: int, one: Array, other: Array) -> Spread:
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    size = one.dtype.itemsize
    flat = one.reshape(-1).view(np.uint8).reshape(-1, size) != other.reshape(-1).view(np.uint8).reshape(-1, size)
    unlike = flat.any(1).reshape(one.shape)
    dtype = from_numpy(one.dtype) or DType.OTHER
    if not unlike.any():
        return Spread(0, one.size, number, (), 0.0, dtype.is_float)
    cell = tuple(int(index) for index in np.argwhere(unlike)[0])
    return Spread(int(unlike.sum()), one.size, number, cell, _worst(one[unlike], other[unlike], dtype), dtype.is_float)


def _worst(one: Array, other: Array, dtype: DType) -> float:
    left, right = widen(one), widen(other)
    if not dtype.is_float:
        return float(np.abs(left - right).max())
    if not (np.isfinite(left) & np.isfinite(right)).all():
        return float("inf")
    return float((np.abs(left - right) / ulp(dtype, np.fmax(np.abs(left), np.abs(right)))).max())
