from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import agrees, traced_only, x


def test_creation_functions_take_sizes():
    agrees(lambda a: a + np.arange(a.shape[1]), x(2, 5))
    agrees(lambda a: np.arange(1, a.shape[1] + 1, dtype=np.float32) * a, x(2, 5))
    agrees(lambda a: np.arange(0, a.shape[1], 2), x(2, 5))
    agrees(lambda a: np.concatenate([np.zeros((a.shape[0], 3), np.float32), a], 1), x(2, 5))
    agrees(lambda a: np.ones(a.shape) + np.full(a.shape, 2.5, np.float32), x(2, 5))
    agrees(lambda a: np.full(a.shape[0], 7), x(2, 5))


def test_a_mask_of_what_comes_later():
    def masked(a):
        n = a.shape[-1]
        return np.where(np.arange(n)[:, None] >= np.arange(n), a, np.float32(-np.inf))

    agrees(masked, x(2, 5, 5))


def test_known_sizes_are_numpy_s_own():
    agrees(lambda a: a + np.arange(5) + np.zeros(5, np.float32) + np.eye(2, 5), x(2, 5))


def test_a_step_that_is_not_known():
    with pytest.raises(UnsupportedError, match="whole ends and a whole step"):
        traced_only(lambda a: np.arange(0, a.shape[0], 0.5), x(2, 3))
