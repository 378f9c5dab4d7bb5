"""Kernels of language cuda on a GPU: certified, of any layout, and on the current stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau import nn
from noyau.codegen.cuda import printer as cuda_printer
from noyau.codegen.language import GENERATIONS
from noyau.compiler.schedules.gpu.block_rows import MANY, sums_rows
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.hosts.torch.cuda.numba_cuda_kernel import NumbaCudaKernel
from noyau.ir.loops import Role
from noyau.kernels.programs.generate import build, generate_usual
from noyau.kernels.programs.program import program
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import GRAPHS as NORMS
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import arrays_of
from tests.judged import Judge
from tests.trying import attempt

pytestmark = pytest.mark.gpu
FUNCTIONS = {"cuda": CudaKernel, "numba_cuda": NumbaCudaKernel}  # of tensors; Triton's come with its text


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@noyau.op("bf16[n, m] -> bf16[m]")
def column_sums(x):
    return x.sum(axis=0)


@pytest.fixture(scope="module")
def kernel():
    return build(softmax.generate("cuda")).kernels[0]


@pytest.mark.parametrize("shape", [(1, 1), (3, 1024), (5, 1025), (0, 8), (70000, 3)])
def test_its_numbers_are_right(kernel, shape):
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    (got,) = kernel.call_guarded(x)
    np.testing.assert_allclose(got, softmax.reference(x.astype("f8")), rtol=2e-6)


def test_a_launch_waits_for_what_its_stream_does(kernel):
    x = torch.zeros(64, 4096, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        x[:, 0] = 1
        got = kernel.function(x)
        wanted = torch.softmax(x, -1)
    torch.cuda.synchronize()
    torch.testing.assert_close(got, wanted)


def test_a_check_tries_it():
    report = noyau.check(column_sums, seed=1)
    assert report.ok
    assert any("cuda" in str(each) for each in report.kernels)


ROWS = [
    ((5, 700), "bf16"),  # a warp each
    ((3, 8192), "bf16"),  # a block each
    ((5, 8193), "bf16"),  # two blocks, and rows that begin at no multiple of 16 bytes
    ((3, 50257), "bf16"),  # four
    ((2, 131072), "bf16"),  # eight
    ((2, 140001), "bf16"),  # none has room for
    ((3, 20001), "f32"),
]


@pytest.mark.parametrize(("shape", "dtype"), ROWS)
@pytest.mark.parametrize("shift", [0, 1])
def test_rows_of_every_length_are_right_wherever_they_begin(shape, dtype, shift):
    kinds = {"bf16": torch.bfloat16, "f32": torch.float32}
    made = nn_softmax(DType.BF16 if dtype == "bf16" else DType.F32)
    flat = torch.randn(shape[0] * shape[1] + shift, device="cuda", dtype=kinds[dtype])
    x = flat[shift:].view(shape)
    got = CudaKernel(made.text, *made.program.kernels)(x)
    wanted = torch.softmax(x.double(), -1)
    error = 2**-8 if dtype == "bf16" else 2e-6
    torch.testing.assert_close(got.double(), wanted, rtol=error, atol=1e-12)


def test_blocks_of_a_cluster_meet_as_often_as_there_are_rows():
    """Many rows for each cluster: states that one is given late are not those of the row after."""
    made = nn_softmax(DType.BF16)
    x = torch.randn(3000, 9001, device="cuda", dtype=torch.bfloat16)
    kernel = CudaKernel(made.text, *made.program.kernels)
    first = kernel(x)
    torch.testing.assert_close(first.double(), torch.softmax(x.double(), -1), rtol=2**-8, atol=1e-12)
    assert all(torch.equal(kernel(x), first) for _ in range(20))


@pytest.mark.parametrize(("name", "rows", "n"), [("rms_norm", 200, 9216), ("layer_norm", 100, 16384)])
def test_gradients_of_long_rows_and_of_their_weights_are_right(name, rows, n):
    """More rows than clusters have begun with, and sums of the same bits each time."""
    graph = NORMS[name]
    kernel = program(graph, "back", None, in_blocks, joining=join_rows_and_columns).single
    text = cuda_printer.together([kernel])
    inputs = arrays_of(graph, rows, n)
    assert sums_rows(kernel, {"batch_0": MANY, "n": n})
    arrays = [inputs[buffer.source] for buffer in kernel.of(Role.INPUT)]
    function = DeviceKernel(text, kernel, "cuda", function=CudaKernel(text, kernel))
    first, judge = function.call_guarded(*arrays), Judge(graph, inputs)
    for buffer, got in zip(kernel.of(Role.OUTPUT), first, strict=True):
        assert judge.wrong(buffer.source, got) is None
    for _ in range(5):
        assert all(np.array_equal(a, b) for a, b in zip(function(*arrays), first, strict=True))


def nn_softmax(dtype):
    return generate_usual(nn.softmax.description, nn.softmax.usual([dtype], [2]), "cuda")


@pytest.mark.parametrize("language", ["cuda", "triton", "numba_cuda"])
@pytest.mark.parametrize("first", [*range(3000, 3350, 25), *range(7000, 7200, 25)])
def test_random_graphs_are_right_in_every_language(first, language):
    tried = 0
    for seed in range(first, first + 25):
        if (each := attempt(seed)) is None:
            continue
        generation = GENERATIONS[language]
        try:
            kernel = generation.schedule(each.lowered)
            text = generation.printer([kernel])
        except UnsupportedError:
            continue
        function = FUNCTIONS[language](text, kernel) if language in FUNCTIONS else None
        arrays = each.arrays(kernel)
        if not all(array.size for array in arrays):
            continue  # kernels of nothing have tests of their own
        tried += 1
        assert each.wrong(kernel, DeviceKernel(text, kernel, "cuda", function=function).call_guarded(*arrays)) is None
    assert tried > 5
