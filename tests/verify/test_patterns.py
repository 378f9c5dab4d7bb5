from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.verify import patterns
from noyau.verify.floats import FORMATS

FLOATS = list(FORMATS)
FILLS = (
    patterns.normal,
    patterns.zeros,
    patterns.equal,
    patterns.offset,
    patterns.alternating,
    patterns.denormals,
    patterns.huge,
    patterns.magnitudes,
    patterns.outlier,
    patterns.turning,
    patterns.infinities,
    patterns.nans,
    patterns.mask_rows,
)


def filled(pattern, dtype=DType.F32, shape=(6, 40), *, positive=False, seed=0):
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(shape)
    drawn = np.abs(drawn) if positive else drawn
    return patterns.as_floats(pattern(np.asarray(drawn), dtype, rng), dtype).astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("pattern", FILLS, ids=lambda pattern: pattern.__name__)
def test_every_shape_is_filled(pattern, dtype):
    for shape in [(), (0,), (1,), (7,), (3, 0), (0, 3), (2, 3, 5), (1, 1)]:
        assert filled(pattern, dtype, shape).shape == shape
        assert filled(pattern, dtype, shape).tobytes() == filled(pattern, dtype, shape).tobytes(), shape


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_numbers_are_what_their_pattern_says(dtype):
    tiny, most = np.ldexp(1.0, FORMATS[dtype].least), FORMATS[dtype].largest
    denormal, huge = (np.abs(filled(pattern, dtype)) for pattern in (patterns.denormals, patterns.huge))
    assert denormal.max() <= tiny
    assert (denormal > 0).mean() > 0.9
    assert np.isfinite(huge).all()
    assert (huge > np.sqrt(most)).all()
    assert len(set(filled(patterns.equal, dtype).flat)) == 1
    assert (filled(patterns.offset, dtype) > 25).all()
    assert np.ptp(filled(patterns.offset, dtype)) < 10
    assert np.isfinite(filled(patterns.magnitudes, dtype)).all()
    assert not filled(patterns.zeros, dtype).any()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
def test_pairs_of_neighbours_have_opposite_signs_and_no_lane_has_one_sign(dtype):
    signs = np.sign(filled(patterns.alternating, dtype, (64, 257)))
    assert (signs[:, 1:256:2] == -signs[:, 0:256:2]).all()
    assert (signs[1::2] == -signs[0::2]).all()
    for lanes in (2, 4, 8):
        assert not signs[0, :256].reshape(-1, lanes).sum(0).any()


def test_huge_numbers_do_not_overflow_when_they_are_summed():
    assert np.isfinite(np.cumsum(np.abs(filled(patterns.huge, shape=(64, 256))), dtype=np.float32)).all()


def test_sums_of_equal_numbers_and_of_their_squares_are_exact():
    for seed in range(20):
        x = filled(patterns.equal, shape=(200,), seed=seed).astype(np.float32)
        for values in (x, x * x):
            assert np.cumsum(values, dtype=np.float32)[-1] == 200 * float(values[0])


def test_a_large_number_leaves_denormal_exponentials():
    for dtype in (DType.F16, DType.F32, DType.F64):
        x = filled(patterns.outlier, dtype, (200, 9))
        tails = np.exp(x - x.max(-1, keepdims=True))
        tiny = np.ldexp(1.0, FORMATS[dtype].least)
        assert ((tails > 0) & (tails < tiny)).mean() > 0.5


def test_rows_are_spoilt_once_and_some_stay_clean():
    for pattern, spoilt in ((patterns.nans, np.isnan), (patterns.infinities, np.isinf)):
        counts = spoilt(filled(pattern, shape=(40, 12))).sum(-1)
        assert set(counts) == {0, 1}
        for seed in range(10):
            assert spoilt(filled(pattern, shape=(2, 12), seed=seed)).any()
        assert not spoilt(filled(pattern, shape=(1,))).any()


def test_masks_hide_a_tail_and_one_row_wholly():
    hidden = np.isneginf(filled(patterns.mask_rows, shape=(8, 30)))
    assert (hidden[:, 1:] >= hidden[:, :-1]).all()
    assert {0, 30} <= set(hidden.sum(-1))
    assert len(set(hidden.sum(-1))) > 3


@pytest.mark.parametrize("pattern", [p for p in FILLS if p is not patterns.alternating], ids=lambda p: p.__name__)
def test_what_must_be_positive_stays_so(pattern):
    x = filled(pattern, positive=True)
    assert not (x[np.isfinite(x)] < 0).any()


def test_functions_are_tried_where_they_turn():
    x = set(filled(patterns.turning, shape=(4000,)))
    assert {0.0, 0.5, -1.0, 2.5} <= x
    assert max(x) > 2**22
    assert any(88 < number < 89 for number in x)


def test_long_products_of_multipliable_numbers_stay_finite():
    for seed in range(5):
        x = patterns.multipliable(filled(patterns.magnitudes, shape=(4099,), seed=seed)).astype(np.float32)
        partial = np.abs(np.cumprod(x))
        assert np.isfinite(partial).all()
        assert partial.min() > 0
    special = np.array([0.0, -np.inf, np.nan, -1.0])
    np.testing.assert_array_equal(patterns.multipliable(special), special)
