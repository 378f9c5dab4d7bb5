"""The memory of tensors as Numba is told of it."""

from __future__ import annotations

import pytest
import torch

from noyau.dtypes import DType
from noyau.hosts.torch.cuda.numba_cuda_kernel import _Memory


@pytest.mark.parametrize(
    ("tensor", "dtype", "shape", "strides", "typestr"),
    [
        (torch.zeros(3, 4), DType.F32, (3, 4), None, "<f4"),
        (torch.zeros(3, 4).T, DType.F32, (4, 3), (4, 16), "<f4"),
        (torch.zeros(5, dtype=torch.bfloat16, requires_grad=True), DType.BF16, (5,), None, "<u2"),
        (torch.zeros((), dtype=torch.float16), DType.F16, (1,), None, "<f2"),
        (torch.zeros(2, dtype=torch.bool), DType.BOOL, (2,), None, "|b1"),
    ],
    ids=["packed", "strided", "bf16", "no axes", "bool"],
)
def test_memory_is_described_with_its_own_layout(tensor, dtype, shape, strides, typestr):
    memory = _Memory(tensor, axes=1).__cuda_array_interface__
    assert (memory["shape"], memory["strides"], memory["typestr"]) == (shape, strides, typestr)
    assert memory["data"] == (tensor.data_ptr(), False)
