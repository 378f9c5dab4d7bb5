"""Scatters in language cuda on a GPU: right in each way, the same bits where that is asked for, nothing outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.codegen.cuda.printer import together
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel

pytestmark = pytest.mark.gpu
NOISE = torch.Generator("cuda" if torch.cuda.is_available() else "cpu")


@noyau.op("f32[n] -> i32[64]")
def histogram(x):
    out = np.zeros(64, np.int32)
    np.add.at(out, np.clip(np.floor((x + 4) * 8), 0, 63).astype(np.int32), 1)
    return out


@noyau.op("float[k, c], i64[n], float[n, c] -> float[k, c]")
def row_sums(a, at, x):
    out = a.copy()
    np.add.at(out, at, x)
    return out


@noyau.op("float[k], i64[n], float[n] -> float[k]")
def cell_sums(a, at, x):
    out = a.copy()
    np.add.at(out, at, x)
    return out


@noyau.op("i64[k], i64[n], i64[n] -> i64[k]")
def maxima(a, at, x):
    out = a.copy()
    np.maximum.at(out, at, x)
    return out


@noyau.op("f32[k, c], i64[n], f32[n, c] -> f32[k, c]")
def last_rows(a, at, x):
    out = a.copy()
    out[at] = x
    return out


def kernel_of(op, way):
    (step,) = op.generate("cuda").program.steps
    kernel = in_blocks(step.lowered, way)
    return CudaKernel(together([kernel]), kernel)


def drawn(*shape, below=0):
    if below:
        return torch.randint(0, below, shape, generator=NOISE, device="cuda")
    return torch.randn(shape, generator=NOISE, device="cuda")


@pytest.mark.parametrize("n", [0, 1, 1000, 5_000_001])
def test_a_histogram_is_exact(n):
    x = drawn(n + 1)[1:] if n else drawn(0)  # its cells begin at no multiple of 16 bytes
    places = ((x + 4) * 8).floor().clip(0, 63).long()
    wanted = torch.bincount(places, minlength=64).int()
    for way in (None, Way.ATOMIC):
        assert torch.equal(kernel_of(histogram, way)(x), wanted)


@pytest.mark.parametrize("shape", [(7, 33, 1000), (4096, 1024, 3000), (9000, 200, 20000), (5, 300, 0)])
def test_sums_of_rows(shape):
    k, c, n = shape
    a, at, x = drawn(k, c), drawn(n, below=k), drawn(n, c)
    wanted = a.double().index_add(0, at, x.double())
    for way in (Way.OWNER, Way.ATOMIC):
        kernel = kernel_of(row_sums, way)
        got = kernel(a, at, x)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-3)
        if way is Way.OWNER:
            assert all(torch.equal(got, kernel(a, at, x)) for _ in range(20))


@pytest.mark.parametrize(("k", "n"), [(1000, 50_000), (100_000, 30_000), (3, 10)])
def test_sums_and_maxima_of_cells(k, n):
    a, at, x = drawn(k), drawn(n, below=k), drawn(n)
    wanted = a.double().index_add(0, at, x.double())
    for way in (Way.OWNER, Way.ATOMIC, Way.PRIVATE) if k <= 1000 else (Way.OWNER, Way.ATOMIC):
        torch.testing.assert_close(kernel_of(cell_sums, way)(a, at, x).double(), wanted, rtol=1e-4, atol=1e-3)
    b, y = (a * 1000).long(), (x * 1000).long()
    assert torch.equal(kernel_of(maxima, None)(b, at, y), b.scatter_reduce(0, at, y, "amax"))


def test_the_last_row_stays():
    a, at, x = drawn(50, 40), drawn(3000, below=50), drawn(3000, 40)
    wanted = a.cpu().numpy().copy()
    wanted[at.cpu().numpy()] = x.cpu().numpy()
    assert np.array_equal(kernel_of(last_rows, None)(a, at, x).cpu().numpy(), wanted)


def test_an_update_outside_goes_nowhere():
    a, at, x = torch.zeros(5, 8, device="cuda"), torch.tensor([0, 5, -6, 4], device="cuda"), torch.ones(4, 8).cuda()
    wanted = torch.tensor([1.0, 0, 0, 0, 1], device="cuda")[:, None].expand(5, 8)
    for way in (Way.OWNER, Way.ATOMIC):
        assert torch.equal(kernel_of(row_sums, way)(a, at, x), wanted)


def test_an_op_obeys_the_switch_of_torch():
    a, at, x = drawn(100_000), drawn(1 << 20, below=100_000), drawn(1 << 20)
    free = cell_sums(a, at, x)
    try:
        torch.use_deterministic_algorithms(True)
        ordered = [cell_sums(a, at, x) for _ in range(20)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(ordered[0], each) for each in ordered)
    torch.testing.assert_close(free, ordered[0], rtol=1e-4, atol=1e-4)
    assert "each update is merged at once" in str(cell_sums.explain(a, at, x))


def test_a_gradient_of_an_embedding():
    @noyau.op("f32[k, c], i64[n] -> f32[n, c]")
    def embedded(table, at):
        return table[at]

    table = drawn(500, 300).requires_grad_()
    at, wanted = drawn(4000, below=500), drawn(4000, 300)
    embedded(table, at).backward(wanted)
    torch.testing.assert_close(table.grad, torch.zeros_like(table).index_add(0, at, wanted), rtol=1e-4, atol=1e-4)
