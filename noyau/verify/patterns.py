"""The numbers of adversarial inputs: each pattern fills an array of a float dtype.

A pattern gets the standard normal numbers of the input, which are positive under a root or a logarithm."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType
from noyau.verify.floats import FORMATS

Array: TypeAlias = np.ndarray
Floats: TypeAlias = Callable[[Array, DType, np.random.Generator], Array]  # f64 normal numbers, their dtype -> f64

TURNS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, 3.0, -3.0, 20.0, -20.0, math.pi / 2, -math.pi, 3e-4, -3e-4)
BITS = 8  # of the significand of equal numbers: long sums and squares of them stay exact


def normal(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    return numbers


def zeros(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    return np.zeros_like(numbers)


def equal(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """One number for the whole array, of so few bits that its sums do not depend on their order."""
    number = float(np.abs(numbers).flat[0]) + 0.1 if numbers.size else 1.0
    unit = 2.0 ** (math.frexp(number)[1] - BITS)
    return np.full_like(numbers, round(number / unit) * unit)


def offset(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Numbers far from zero and near each other: a variance as a difference of squares cancels completely."""
    return np.asarray(numbers + 2.0 ** (FORMATS[dtype].stored // 3 + 3))


def alternating(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Neighbours of opposite sign, so that sums nearly vanish. The signs are the Thue-Morse sequence: with strictly
    alternating signs, partial sums of every second cell, as lanes of right kernels make, would lose most precision."""
    values = np.abs(numbers) * 0.01 + 10
    for axis, extent in enumerate(numbers.shape):
        signs = np.ones(1)
        while len(signs) < extent:
            signs = np.concatenate([signs, -signs])
        values = values * signs[:extent].reshape(-1, *[1] * (numbers.ndim - axis - 1))
    return np.asarray(values)


def denormals(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    return np.asarray(np.copysign(rng.random(numbers.shape) * np.ldexp(1.0, FORMATS[dtype].least), numbers))


def huge(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Numbers so large that their squares overflow, but no sum of them, whose overflow would depend on the order."""
    greatest = FORMATS[dtype].greatest
    top = max(greatest - math.log2(max(numbers.size, 1)) - 2, greatest / 2 + 1)
    return np.asarray(np.copysign(np.exp2(rng.uniform(greatest / 2 + 0.5, top, numbers.shape)), numbers))


def magnitudes(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Magnitudes uniform in the exponent, in a range where squares neither overflow nor vanish."""
    reach = min(FORMATS[dtype].greatest / 2 - 4, 40.0)
    return np.asarray(np.copysign(np.exp2(rng.uniform(-reach, reach, numbers.shape)), numbers))


def outlier(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Normal numbers with one per row so large that exp(other - it) is denormal."""
    form, result = FORMATS[dtype], numbers.copy()
    _one_a_row(result, rng, rng.uniform(-form.least, form.stored - form.least, numbers.shape[:-1]) * math.log(2))
    return result


def turning(values: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Numbers at which functions have corners or poles, or leave their range in this dtype."""
    form = FORMATS[dtype]
    ends = [form.greatest * math.log(2), (form.least - form.stored) * math.log(2), float(2**form.stored), -0.25]
    chosen = rng.choice(np.array([*TURNS, *ends, *(-end for end in ends)]), values.shape)
    return np.abs(chosen) if np.all(values > 0) else np.asarray(chosen)


def infinities(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """One infinity in about every second row, at least in one, of either sign; a lone number stays."""
    return _spoilt(numbers, rng, (np.inf, -np.inf))


def nans(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """One NaN in about every second row, at least in one; a lone number stays."""
    return _spoilt(numbers, rng, (np.nan,))


def mask_rows(numbers: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """-inf from a random place of each row on, as in a mask; one row has none, and one has nothing else."""
    if numbers.size < 2:
        return numbers
    rows, extent = math.prod(numbers.shape[:-1]), numbers.shape[-1]
    left = rng.integers(1, extent + 1, rows)
    if rows > 1:
        left[:2] = extent, 0
    return np.where((np.arange(extent) >= left[rng.permutation(rows), None]).reshape(numbers.shape), -np.inf, numbers)


def _spoilt(values: Array, rng: np.random.Generator, numbers: tuple[float, ...]) -> Array:
    result = values.copy()
    if values.size > 1:
        chance = rng.random(values.shape[:-1])
        spoil = np.where(chance <= max(0.5, chance.min()), rng.choice(numbers, chance.shape), 0.0)
        _one_a_row(result, rng, spoil)
    return result


def _one_a_row(cells: Array, rng: np.random.Generator, added: Array | float) -> None:
    """Add to one cell of each row, in place."""
    if cells.size > 1:
        at = rng.integers(0, cells.shape[-1], (*cells.shape[:-1], 1))
        np.put_along_axis(cells, at, np.take_along_axis(cells, at, -1) + np.expand_dims(added, -1), -1)


def multipliable(values: Array) -> Array:
    """Numbers near 1, whose long products stay finite; otherwise an overflow would depend on the order."""
    return np.asarray(np.copysign(np.abs(values) ** (1 / 64), values))


def as_floats(values: Array, dtype: DType) -> Array:
    """f64 values rounded to a dtype."""
    with np.errstate(over="ignore"):
        return values.astype(dtype.numpy)
