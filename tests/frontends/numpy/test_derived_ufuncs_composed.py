from __future__ import annotations

import itertools

import numpy as np
import pytest

from noyau.frontends.numpy.derived_ufuncs import COMPOSED
from noyau.frontends.numpy.ufuncs import SAME
from tests.frontends.numpy.test_ufuncs import DTYPES
from tests.frontends.numpy.traces import agrees, found, newer, x

NAMES = sorted(name for name in COMPOSED if hasattr(np, name))
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -3e30, 0.5, 2.5, -2.0]
HUGE = [1e300, -1e300, 1e-300, 5e-324, 1e160, -1e-160]
NUMBERS = (2, 2.5, np.float64(2.5), np.float32(2.5), np.int8(3))


def loop(ufunc: np.ufunc, *kinds):
    """The dtypes that NumPy chooses, or None where it has none that noyau has."""
    try:
        chosen = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
    except TypeError:
        return None
    return chosen if all(dtype.kind in "biuf" for dtype in chosen) else None


def positive(dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers above 0, of which integers are below 8."""
    drawn = x(2, 3, seed=seed) if np.dtype(dtype).kind == "f" else x(2, 3, dtype=np.int64, seed=seed) % 7
    return np.asarray(np.abs(drawn) + 1).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_each_gives_the_dtypes_and_the_values_of_numpy(name):
    ufunc = getattr(np, name)
    for dtypes in itertools.product(DTYPES, repeat=ufunc.nin):
        if loop(ufunc, *map(np.dtype, dtypes)):
            with np.errstate(all="ignore"):
                agrees(ufunc, *(positive(d, k) for k, d in enumerate(dtypes)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("bitwise_count", "right_shift")])
def test_special_values(name, dtype):
    ufunc = getattr(np, name)
    numbers = np.array([*SPECIAL, *(HUGE if dtype == "float64" else [])], dtype)
    grid = np.meshgrid(*[numbers] * ufunc.nin)
    if name in ("signbit", "copysign"):
        grid = [
            np.nan_to_num(each, nan=3.0, posinf=np.inf, neginf=-np.inf) for each in grid
        ]  # a NaN's sign is not seen
    found(ufunc, *grid)
    made = found(ufunc, *grid).graph
    assert made.outputs


@pytest.mark.parametrize("name", ["copysign", "modf", "arctan2", "cbrt", "hypot"])
def test_the_signs_of_zeros(name):
    ufunc = getattr(np, name)
    zeros = np.array([0.0, -0.0, 3.0, -3.0])
    grid = np.meshgrid(*[zeros] * ufunc.nin)

    def signs(*arrays):
        made = ufunc(*arrays)
        return np.signbit(made[0] if isinstance(made, tuple) else made)

    found(signs, *grid)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_counts_of_shifts_below_0_and_beyond_the_width(dtype):
    numbers, counts = np.array([-100, -1, 0, 100]).astype(dtype)[:, None], np.array([-70, -1, 0, 3, 7, 8, 63, 64, 70])
    agrees(np.right_shift, numbers, counts.astype(dtype))
    agrees(lambda value: value >> 3, numbers)


@newer("2.0.0")
def test_the_least_integer_has_bits_too():
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint64):
        info = np.iinfo(dtype)
        numbers = np.array([info.min, info.max, 0, 1, 77], dtype)
        found(np.bitwise_count, numbers)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("name", sorted({*COMPOSED, *SAME} - {"left_shift", "right_shift", "power"}))
def test_numbers_beside_arrays_of_any_rank(name, number):
    """Python's numbers are weak, NumPy's are not; arrays of no axes are as arrays."""
    ufunc = getattr(np, name, None)
    if ufunc is None or ufunc.nin != 2:
        return
    kind = type(number) if type(number) in (int, float) else np.asarray(number).dtype
    for dtype in ("bool", "int8", "uint8", "int64", "float16", "float32", "float64"):
        if loop(ufunc, np.dtype(dtype), kind):
            array = positive(dtype)
            with np.errstate(all="ignore"):
                agrees(lambda a, z: (ufunc(a, number), ufunc(z, number), ufunc(number, z)), array, array[0, 0][()])
