"""Floats as numbers and as bits: ulps, moves by one ulp, limits of overflow, errors of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from noyau.dtypes import DType

PATTERN = 1 << 16  # random moves that are drawn, and then repeated for larger arrays
Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Format:
    """A binary float: the stored bits of its significand, the exponents of its least and greatest normal numbers."""

    stored: int
    least: int
    greatest: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(np.ldexp(2.0 - 2.0**-self.stored, self.greatest))

    @property
    def overflow(self) -> float:
        """The least number that rounds to infinity."""
        with np.errstate(over="ignore"):
            return float(np.ldexp(2.0 - 2.0 ** -(self.stored + 1), self.greatest))


_FACTS = {dtype: ml_dtypes.finfo(dtype.numpy) for dtype in DType if dtype.is_float}
FORMATS = {dtype: Format(int(fact.nmant), int(fact.minexp), int(fact.maxexp) - 1) for dtype, fact in _FACTS.items()}


def ulp(dtype: DType, magnitude: np.ndarray) -> np.ndarray:
    """The distance between neighbours of `dtype` at finite float64 numbers >= 0; at 0 the least distance."""
    form = FORMATS[dtype]
    exponent = np.frexp(magnitude)[1].astype(np.int64) - 1
    exponent = np.where(magnitude == 0, form.least, np.clip(exponent, form.least, form.greatest))
    return np.asarray(np.ldexp(1.0, exponent - form.stored))


def widen(array: np.ndarray) -> np.ndarray:
    """The numbers in float64."""
    return array.astype(np.float64, copy=False)


def equal_cells(got: Array, expected: Array) -> Array:
    """A mask of the cells in which two arrays of one dtype have the same number, or both have NaN."""
    return np.asarray((got == expected) | (np.not_equal(got, got) & np.not_equal(expected, expected)))


def kind(values: Array) -> Array:
    """1 for finite, 2 for NaN, 4 for inf, 8 for -inf, as u8."""
    codes, odd = np.ones(values.shape, np.uint8), ~np.isfinite(values)
    if odd.any():
        codes[odd] = np.where(np.isnan(values[odd]), 2, np.where(values[odd] > 0, 4, 8))
    return codes


def distance(left: Array, right: Array) -> Array:
    """|left - right|; NaN or inf where either is not finite."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(left - right))


def repeat_block(block: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a shape that repeats a block; an empty block needs an empty shape."""
    return block.reshape(shape) if block.size == math.prod(shape) else np.resize(block, shape)


def move_ulps(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A float array with each cell moved by -1, 0 or +1 ulp.

    Zeros, infinities and NaN stay, and no move results in one: they are intended, not rounded."""
    return shift_ulps(array, repeat_block(rng.integers(-1, 2, min(array.size, PATTERN), np.int8), array.shape))


def shift_ulps(array: np.ndarray, steps: np.ndarray | np.int8) -> np.ndarray:
    """A float array with each cell moved by `steps` ulp away from 0, at most 2; exceptions are those of `move_ulps`."""
    bits = array.view(np.dtype(f"i{array.dtype.itemsize}"))
    top, most = np.iinfo(bits.dtype).max, np.abs(steps).max(initial=1)
    magnitude = bits & top
    steady = (magnitude <= most) | (magnitude >= np.array(np.inf, array.dtype).view(bits.dtype) - most)
    result = bits + np.where(steady, np.int8(0), steps).astype(bits.dtype)
    return np.asarray(result).view(array.dtype).reshape(array.shape)


def shift_run(run: Array, own: Array, truth: Array) -> Array:
    """The run moved by the difference of `truth` from its own truth; where the two differ in kind, `truth` itself."""
    if run.dtype.kind in "biu":
        return np.where(own == truth, run, truth)
    run, own, truth = widen(run), widen(own), widen(truth)
    return np.where(kind(own) == kind(truth), np.where(np.isfinite(truth), run - own + truth, run), truth)


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors over the finite cells: in ulp of the output's dtype at the truth (integers: in units), and relative to
    the largest |truth| of the output, which is the better measure where cells are near 0."""

    PLAIN: ClassVar[str] = "worst_ulp mean_ulp worst_relative mean_relative"
    worst_ulp: float = 0.0
    total_ulp: float = 0.0
    worst_relative: float = 0.0
    total_relative: float = 0.0
    cells: int = 0

    @classmethod
    def of(cls, ulps: Array, away: Array, truth: Array) -> Errors:
        """The errors of cells with these distances from the truth, in ulp (`ulps`) and absolute (`away`)."""
        relative = away / (float(np.abs(truth).max(initial=0.0)) or 1.0)
        worst_ulp, worst_relative = float(ulps.max(initial=0.0)), float(relative.max(initial=0.0))
        return cls(worst_ulp, float(ulps.sum()), worst_relative, float(relative.sum()), ulps.size)

    def __add__(self, other: Errors) -> Errors:
        worst_ulp, worst_relative = max(self.worst_ulp, other.worst_ulp), max(self.worst_relative, other.worst_relative)
        total_ulp, total_relative = self.total_ulp + other.total_ulp, self.total_relative + other.total_relative
        return Errors(worst_ulp, total_ulp, worst_relative, total_relative, self.cells + other.cells)

    @property
    def mean_ulp(self) -> float:
        return self.total_ulp / max(1, self.cells)

    @property
    def mean_relative(self) -> float:
        return self.total_relative / max(1, self.cells)
