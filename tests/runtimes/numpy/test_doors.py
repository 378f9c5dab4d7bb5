from __future__ import annotations

import numpy as np
import pytest

from noyau.runtimes.numpy.doors import Door
from tests.runtimes.numpy.kernels import door_of


def axpy(x, y, a):
    return a * x + y


@pytest.fixture(scope="module")
def door() -> Door:
    return door_of(axpy, "f32[n], f32[n], f32 -> f32[n]", numbers=(int, float))


def arguments(cells: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(cells)
    return rng.random(cells, np.float32), rng.random(cells, np.float32)


def test_a_call_goes_through_c(door):
    assert door.in_c


@pytest.mark.parametrize("a", [2.0, 2, np.float32(2), np.array(2, np.float32)])
def test_a_call_computes(door, a):
    x, y = arguments()
    made = door((x, y, a))
    assert type(made) is np.ndarray and made.dtype == np.float32
    np.testing.assert_array_equal(made, 2 * x + y)
