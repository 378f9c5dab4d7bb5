from __future__ import annotations

import numpy as np
import pytest

from noyau import nn
from noyau.errors import SignatureError

X = np.float32([-2, -0.0, 0.0, 3, np.inf, np.nan])


def test_each_side_has_its_slope():
    np.testing.assert_array_equal(nn.piecewise_linear(X, 0.5, 2.0), np.float32([-1, 0, 0, 6, np.inf, np.nan]))
    np.testing.assert_array_equal(nn.piecewise_linear(X[:4], np.float32(-1), 0), np.float32([2, 0, 0, 0]))


def test_a_slope_is_one_number():
    with pytest.raises(SignatureError, match=r"piecewise_linear: .* negative: f32\[6\] does not fit float"):
        nn.piecewise_linear(X, X, 1.0)


def test_the_logarithm_of_the_sigmoid_does_not_underflow():
    x, y = np.float32([[-1e4, 0, 200]]), np.float32([[1, 2, 3]])
    np.testing.assert_allclose(nn.log_sigmoid_mul_sum(x, y), [-1e4 - 2 * np.log(2)], rtol=1e-6)


def test_no_cells_sum_to_nothing():
    np.testing.assert_array_equal(nn.log_sigmoid_mul_sum(np.zeros((2, 0)), np.zeros((2, 0))), [0, 0])
