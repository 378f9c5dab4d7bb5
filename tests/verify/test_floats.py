from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.verify.floats import FORMATS, PATTERN, move_ulps, shift_ulps, ulp

FLOATS = list(FORMATS)
NUMBERS = (0.0, 1.0, 1.5, 0.1, 2.0, 100.0, 3e4, 6e-5, 1e-6)


def every(dtype: DType) -> np.ndarray:
    """Every number of a dtype of 16 bits, in order of bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_the_formats_are_those_of_ml_dtypes(dtype):
    form, info = FORMATS[dtype], ml_dtypes.finfo(dtype.numpy)
    assert form.largest == float(info.max)
    assert form.stored == info.nmant
    assert np.ldexp(1.0, form.least) == float(info.smallest_normal)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32], ids=lambda dtype: dtype.value)
def test_what_reaches_the_overflow_rounds_to_infinity(dtype):
    border = FORMATS[dtype].overflow
    with np.errstate(over="ignore"):
        assert np.isinf(np.array(border).astype(dtype.numpy).astype(float))
        assert np.isfinite(np.array(border * (1 - 2**-23)).astype(dtype.numpy).astype(float))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=lambda dtype: dtype.value)
def test_an_ulp_is_the_spacing(dtype):
    info = np.finfo(dtype.numpy)
    numbers = np.array([*NUMBERS, info.tiny, info.tiny / 3, info.smallest_subnormal, info.max / 3], dtype.numpy)
    np.testing.assert_array_equal(ulp(dtype, numbers.astype(float)), np.spacing(numbers).astype(float))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_an_ulp_of_a_short_float_is_the_distance_to_the_next(dtype):
    numbers = every(dtype).astype(float)
    last = int(np.flatnonzero(np.isinf(numbers))[0])
    np.testing.assert_array_equal(ulp(dtype, numbers[: last - 1]), np.diff(numbers[:last]))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_every_number_moves_by_an_ulp_at_most_and_none_becomes_special(dtype):
    numbers = every(dtype)
    before, after = numbers.astype(float), move_ulps(numbers, np.random.default_rng(0)).astype(float)
    kept = (before == 0) | ~np.isfinite(before)
    np.testing.assert_array_equal(after[kept], before[kept])
    assert np.isfinite(after[~kept]).all()
    assert (after[~kept] != 0).all()
    assert (np.sign(after[~kept]) == np.sign(before[~kept])).all()
    steps = (after[~kept] - before[~kept]) / ulp(dtype, np.minimum(np.abs(before), np.abs(after))[~kept])
    assert set(np.abs(steps)) == {0.0, 1.0}
    shares = [np.mean(steps * np.sign(before[~kept]) == step) for step in (-1, 0, 1)]
    assert min(shares) > 0.3


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (3, PATTERN // 2 + 1)])
def test_moves_keep_shape_and_dtype_and_follow_the_seed(dtype, shape):
    array = np.random.default_rng(1).standard_normal(shape).astype(dtype.numpy)
    once, again = (move_ulps(array, np.random.default_rng(7)) for _ in range(2))
    assert (once.dtype, once.shape) == (array.dtype, shape)
    assert once.tobytes() == again.tobytes()
    assert array.size < 5 or once.tobytes() != array.tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_a_shift_goes_so_many_ulp_away_from_0_or_towards_it(dtype):
    array = np.array([1.5, -1.5, 7.0], dtype.numpy)
    for steps in (-2, -1, 0, 1, 2):
        wanted = np.abs(array.astype(float)) + steps * ulp(dtype, np.abs(array.astype(float)))
        assert np.array_equal(shift_ulps(array, np.int8(steps)).astype(float), np.copysign(wanted, array.astype(float)))
    meant = np.array([0.0, -0.0, np.inf, np.nan, FORMATS[dtype].largest], dtype.numpy)
    assert shift_ulps(meant, np.int8(2)).tobytes() == shift_ulps(meant, np.int8(-1)).tobytes() == meant.tobytes()


def test_an_array_that_is_not_packed_moves_too():
    array = np.random.default_rng(2).standard_normal((6, 8)).astype(np.float32)
    assert np.abs(move_ulps(array.T[::2], np.random.default_rng(0)) - array.T[::2]).max() < 1e-6
