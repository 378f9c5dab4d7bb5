from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau import nn
from noyau.errors import SignatureError

ONES, ZEROS = np.ones(64, np.float32), np.zeros(64, np.float32)


def test_a_large_mean_does_not_cancel_the_variance():
    """E[x^2] - E[x]^2 is 0 or negative here in float32."""
    x = (np.random.default_rng(0).standard_normal((5, 64)) + 10000).astype(np.float32)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    np.testing.assert_allclose(nn.layer_norm(x, ONES, ZEROS), want, atol=0.01)


@pytest.mark.parametrize("eps", [1e-6, 1.0])
def test_eps_is_under_the_root(eps):
    x = np.full((2, 64), 1e-3, np.float32)
    np.testing.assert_allclose(nn.rms_norm(x, ONES, eps=eps), x / np.sqrt(1e-6 + eps), rtol=1e-6)
    x[:, ::2] *= -1
    np.testing.assert_allclose(nn.layer_norm(x, ONES, ZEROS, eps=eps), x / np.sqrt(1e-6 + eps), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_of_halves_the_norm_is_of_the_sum_before_it_is_rounded(dtype):
    x, residual = (np.random.default_rng(k).standard_normal((3, 64)).astype(dtype) for k in (0, 1))
    normed, total = nn.add_rms_norm(x, residual, ONES.astype(dtype))
    np.testing.assert_array_equal(total, x + residual)
    exact = nn.rms_norm(x.astype(np.float32) + residual.astype(np.float32), ONES)
    np.testing.assert_array_equal(normed, exact.astype(dtype))


def test_the_squares_of_halves_do_not_overflow():
    x = np.full((1, 64), 6e4, np.float16)
    np.testing.assert_array_equal(nn.rms_norm(x, ONES.astype(np.float16)), np.ones((1, 64), np.float16))


def test_a_weight_that_does_not_fit_is_refused():
    with pytest.raises(SignatureError, match=r"rms_norm: .* weight: f32\[64\] does not fit float\[n\]"):
        nn.rms_norm(np.ones((2, 63), np.float32), ONES)
    with pytest.raises(SignatureError, match=r"add_layer_norm: .* residual: f32\[3, 64\] does not fit"):
        nn.add_layer_norm(np.ones((2, 64), np.float32), np.ones((3, 64), np.float32), ONES, ZEROS)
