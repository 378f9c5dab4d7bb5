from __future__ import annotations

import numpy as np
import pytest

from noyau import nn
from noyau.errors import SignatureError


def test_large_numbers_do_not_overflow():
    np.testing.assert_array_equal(nn.softmax(np.float32([1e30, 1e30])), np.float32([0.5, 0.5]))
    np.testing.assert_array_equal(nn.softmax(np.float16([6e4, 0])), np.float16([1, 0]))


def test_the_logarithm_is_finite_where_the_softmax_underflows():
    np.testing.assert_array_equal(nn.log_softmax(np.float32([0, -1e4])), np.float32([0, -1e4]))


def test_what_is_masked_has_no_part():
    x = np.float32([[0, -np.inf, 0], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(nn.softmax(x), np.float32([[0.5, 0, 0.5], [np.nan] * 3]))


@pytest.mark.parametrize("op", [nn.softmax, nn.log_softmax], ids=lambda op: op.name)
def test_along_any_axis(op):
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    for axis in (0, -2):
        want = np.moveaxis(op(np.ascontiguousarray(np.moveaxis(x, axis, -1))), -1, axis)
        np.testing.assert_allclose(op(x, axis=axis), want, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::noyau.ReferenceWarning")
def test_an_axis_that_there_is_not_is_refused():
    with pytest.raises(IndexError, match="axis 2 is out of bounds"):
        nn.softmax(np.zeros((2, 3), np.float32), axis=2)


def test_a_scalar_is_refused():
    with pytest.raises(SignatureError, match=r"softmax: x: f32 does not fit float\[\*batch, n\]"):
        nn.softmax(np.float32(1))
