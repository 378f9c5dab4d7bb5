from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import noyau
from noyau.kernels.user_kernel import CPU, buffer_of


def test_a_buffer_tells_of_an_array():
    made = buffer_of("x", np.zeros((4, 6), np.float32)[:, ::2])
    assert (made.shape, made.strides, made.size, made.numel(), made.ndim) == ((4, 3), (6, 2), 12, 12, 2)
    assert made.stride(0) == 6
    assert made.dtype == np.float32
    assert str(made.device) == "cpu"
    assert made.device.sm_count >= 1
    assert isinstance(made, noyau.Buffer)


def test_strides_of_an_expanded_array_are_0():
    assert buffer_of("x", np.broadcast_to(np.float64(1), (2, 3))).strides == (0, 0)


def test_a_buffer_can_be_made_without_an_array_and_does_not_change():
    made = noyau.Buffer("x", (), (), np.dtype(np.int8), CPU)
    assert made.size == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.shape = (3,)
