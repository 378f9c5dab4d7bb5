"""Kernels of language numba_cuda on a GPU: each golden one is right, of any layout, on the current stream, and one of
those that noyau times."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.codegen.numba_cuda import printer
from noyau.compiler.passes.normal_form import normalise
from noyau.errors import BuildError
from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
from noyau.hosts.torch.cuda.numba_cuda_kernel import NumbaCudaKernel
from noyau.kernels.programs.generate import build
from tests.codegen.kernels import TABLES
from tests.codegen.numba_cuda.test_printer_golden import EVERY, kernel_of
from tests.compiler.schedules.groups import inputs_of
from tests.judged import Judge

pytestmark = pytest.mark.gpu


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@noyau.op("bf16[n, m] -> bf16[m]")
def column_sums(x):
    return x.sum(axis=0)


def on_device(kernel, text=None):
    text = text or printer.together([kernel])
    return DeviceKernel(text, kernel, "cuda", function=NumbaCudaKernel(text, kernel))


@pytest.mark.parametrize("extent", [1, 37, 1025])
@pytest.mark.parametrize("name", EVERY)
def test_each_golden_kernel_is_right(name, extent):
    graph, kernel = EVERY[name][0], kernel_of(name)
    least = 3 if name in TABLES else 1  # of their inputs, the indices are below 3
    most = 65 if len(kernel.binding) > 2 else extent
    sizes = {binding.size: max(least, min(extent, most)) for binding in kernel.binding}
    inputs = inputs_of(graph, sizes, seed=extent)
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    normal, judge = normalise(graph), Judge(graph, inputs)
    results = on_device(kernel).call_guarded(*({**constants, **inputs}[node.output] for node in normal.inputs))
    for output, got in zip(normal.outputs, results, strict=True):
        assert judge.wrong(output, got) is None


@pytest.fixture(scope="module")
def kernel():
    return build(softmax.generate("numba_cuda")).kernels[0]


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


def test_tensors_with_a_gradient_and_without_axes():
    @noyau.op("bf16[n], f32 -> bf16[n]")
    def scaled(x, by):
        return (x * by).astype(x.dtype)

    function = build(scaled.generate("numba_cuda")).kernels[0].function
    x = torch.ones(5, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.testing.assert_close(function(x, torch.tensor(3.0, device="cuda")), torch.full_like(x, 3).detach())


def test_what_numba_does_not_compile_is_said():
    kernel = kernel_of("softmax_inner")
    text = printer.together([kernel]).replace("math.exp", "math.nothing")
    with pytest.raises(BuildError, match="Numba-CUDA does not compile softmax_inner: "):
        on_device(kernel, text)(np.ones((2, 3), "f4"))


def test_the_text_runs_alone_on_arrays_of_numba():
    from numba import cuda

    names: dict = {}
    exec(compile(softmax.source("numba_cuda"), "alone.py", "exec"), names)
    x = np.random.default_rng(2).standard_normal((7, 300), dtype=np.float32)
    given, out = cuda.to_device(x), cuda.device_array((7, 300), np.float32)
    names["softmax"](given, out)
    np.testing.assert_allclose(out.copy_to_host(), softmax.reference(x.astype("f8")), rtol=2e-6)


def test_a_check_and_a_bench_try_it():
    report = noyau.check(column_sums, seed=1)
    assert report.ok
    assert any("numba_cuda" in str(each) for each in report.kernels)
    x = torch.randn(64, 4096, device="cuda")
    assert "generated numba_cuda" in str(noyau.bench(softmax, (x,)))
