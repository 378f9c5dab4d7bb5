"""Scans on a GPU in languages cuda and numba_cuda: right for rows short, long, many and few, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.codegen.cuda.printer import together
from noyau.codegen.numba_cuda.printer import together as together_in_python
from noyau.compiler.schedules.gpu.blocks import in_blocks, in_threads
from noyau.dtypes import DType
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.hosts.torch.cuda.numba_cuda_kernel import NumbaCudaKernel

pytestmark = pytest.mark.gpu
NOISE = torch.Generator("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = {torch.float32: DType.F32, torch.float64: DType.F64, torch.int64: DType.I64, torch.bfloat16: DType.BF16}
SHAPES = [(1, 1), (3, 3840), (2, 3841), (1, 1 << 20), (700, 5000), (4096, 100), (1, 0)]


@noyau.op("any[m, n] -> any[m, n]")
def sums(x):
    return np.cumsum(x, axis=1, dtype=x.dtype)


@noyau.op("any[m, n] -> any[m, n]")
def maxima_from_the_end(x):
    return np.maximum.accumulate(x[:, ::-1], axis=1)[:, ::-1]


@noyau.op("any[n, m] -> any[n, m]")
def sums_of_columns(x):
    return np.cumsum(x, axis=0, dtype=x.dtype)


def kernels(op, dtype):
    """The kernels of an op of one dtype."""
    lowered = [step.lowered for step in op.generate("cuda", dtypes=[DTYPES[dtype]], ranks=[2]).program.steps]
    (one,) = lowered
    blocks, threads = in_blocks(one), in_threads(one)
    return CudaKernel(together([blocks]), blocks), NumbaCudaKernel(together_in_python([threads]), threads)


def drawn(shape, dtype):
    x = torch.randn(shape, generator=NOISE, device="cuda", dtype=torch.float64)
    return (x * 1000).to(dtype) if not dtype.is_floating_point else x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16], ids=str)
def test_running_sums(dtype):
    for kernel in kernels(sums, dtype):
        for shape in SHAPES:
            x = drawn(shape, dtype)
            got = kernel(x)
            wide = x.double() if dtype.is_floating_point else x
            away = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 1e-2}.get(dtype, 0)
            size = wide.abs().cumsum(1)
            assert bool(((got.to(wide.dtype) - wide.cumsum(1)).abs() <= away * size).all()), shape
            assert torch.equal(got, kernel(x))


def test_running_maxima_from_the_end():
    for kernel in kernels(maxima_from_the_end, torch.float32):
        for shape in SHAPES[:-1]:
            x = drawn(shape, torch.float32)
            assert torch.equal(kernel(x), x.flip(1).cummax(1).values.flip(1)), shape


@pytest.mark.parametrize("shape", [(1000, 4096), (100_000, 3), (1, 5)])
def test_columns(shape):
    x = drawn(shape, torch.int64)
    for kernel in kernels(sums_of_columns, torch.int64):
        assert torch.equal(kernel(x), x.cumsum(0))


def test_an_op_takes_a_long_vector():
    @noyau.op("f32[n] -> f32[n]")
    def integral(x):
        return np.cumsum(np.exp(-x * x)) / len(x)

    x = torch.rand(3_000_001, device="cuda")
    torch.testing.assert_close(
        integral(x).double(), (-(x.double() ** 2)).exp().cumsum(0) / len(x), rtol=1e-5, atol=1e-6
    )
