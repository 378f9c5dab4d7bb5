from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from noyau.dtypes import DType
from noyau.frontends.torch.tensors import as_array, as_tensor


@pytest.mark.parametrize(
    "dtype", [DType.F32, DType.F64, DType.F16, DType.I64, DType.I8, DType.BOOL, DType.BF16], ids=str
)
def test_arrays_and_tensors(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    tensor = as_tensor(array, dtype)
    back = as_array(tensor)
    assert back.dtype == array.dtype
    assert np.array_equal(back.astype(float), array.astype(float))


def test_bfloat16_by_its_bits():
    bits = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert as_tensor(bits, DType.BF16).dtype is torch.bfloat16
    assert as_array(torch.tensor([1.5, -2.0], dtype=torch.bfloat16)).tobytes() == bits.tobytes()


def test_wider_floats_are_narrowed():
    assert as_tensor(np.array([0.1]), DType.F32).dtype is torch.float32


def test_complex_numbers_are_as_they_come():
    array = np.array([1 + 2j, 3j], np.complex64)
    assert as_tensor(array, DType.OTHER).dtype is torch.complex64
    assert np.array_equal(as_array(as_tensor(array, DType.OTHER)), array)
