"""Ops on tensors of a CUDA device: run by hand where there is one, pytest -m gpu."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau import nn
from noyau.errors import SignatureError, UnsupportedError
from noyau.ops.torch_entry import tensor_calls
from tests.hosts.torch import kinds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
HALVES = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def rows(*shape, dtype=torch.float32):
    noise = torch.Generator("cuda").manual_seed(7)
    return torch.randn(shape, generator=noise, device="cuda", dtype=torch.float64).to(dtype)


def near(got, want, dtype=None):
    assert got.is_cuda
    assert got.shape == want.shape
    tolerance = HALVES[dtype or got.dtype]
    assert torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", HALVES)
def test_each_float(dtype):
    x = rows(33, 500, dtype=dtype)
    near(kinds.softmax(x), torch.softmax(x.double(), -1).to(dtype))


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 50257), (7, 31), (3, 2, 129), (64,)])
def test_each_shape_again_and_again(shape):
    for _ in range(3):
        x = rows(*shape)
        near(kinds.softmax(x), torch.softmax(x, -1))


@pytest.mark.parametrize("n", [33, 20_000, 70_000])
def test_products_are_rounded_before_their_own_maximum_is_taken_off(n):
    x, w = rows(50, n) * 1e30, rows(n)
    assert torch.equal(kinds.weighted_softmax(x, w).sum(-1), torch.ones(50, device="cuda"))


def test_no_cells():
    assert kinds.doubled(rows(5, 0)).shape == (5, 0)


def test_strided_transposed_expanded_and_misaligned_views():
    base = rows(40, 66)
    for x in (base[:, ::2], base.T, base[3:, 1:], base[:1].expand(9, 66), base.flatten()[1:1601].view(40, 40)):
        for _ in range(2):
            near(kinds.softmax(x), torch.softmax(x, -1))


def test_numbers_and_tensors_without_axes():
    x = rows(1000)
    near(kinds.scaled(2.5, x), 2.5 * x)
    near(kinds.scaled(2.5, x), 2.5 * x)
    near(kinds.scaled(-0.0, x), -0.0 * x)
    near(kinds.scaled(torch.tensor(2.5), x), 2.5 * x)
    near(kinds.scaled(torch.tensor(3.5), x), 3.5 * x)
    near(kinds.scaled(torch.tensor(2.5, device="cuda"), x), 2.5 * x)


def test_products_between_kernels_and_several_results():
    x, w = rows(65, 129), rows(129, 33)
    near(kinds.layer(x, w), torch.tanh(x @ w), torch.bfloat16)
    most, at = kinds.peak(rows(1001))
    assert float(most) == float(rows(1001).max())
    assert int(at) == int(rows(1001).argmax())


def test_a_lookup():
    table, at = rows(100, 16), torch.randint(0, 100, (37,), device="cuda")
    near(kinds.embedding(table, at), table[at])


def test_a_lookup_s_gradient_may_have_other_bits_in_another_run():
    table, at = rows(100, 16).requires_grad_(), torch.randint(0, 100, (370,), device="cuda")
    want = table.detach().clone().requires_grad_()
    weight = rows(370, 16)
    (kinds.embedding(table, at) * weight).sum().backward()
    (want[at] * weight).sum().backward()
    assert torch.allclose(table.grad, want.grad, atol=1e-5)


def test_out():
    x, out = rows(8, 9), torch.empty(8, 9, device="cuda")
    assert kinds.softmax(x, out=out) is out
    near(out, torch.softmax(x, -1))


def test_the_current_stream():
    stream, x = torch.cuda.Stream(), rows(4000, 4000)
    kinds.softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        y = x * 2
        made = kinds.softmax(y)
    stream.synchronize()
    near(made, torch.softmax(2 * x, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_and_gradients_of_gradients(dtype):
    x, w = rows(9, 65, dtype=dtype).requires_grad_(), rows(65, dtype=dtype).requires_grad_()
    made = kinds.rmsnorm(x, w)
    wide, weight = (each.detach().double().requires_grad_() for each in (x, w))
    want = torch.nn.functional.rms_norm(wide, (65,), weight, 1e-5)
    near(made.detach(), want.detach().to(dtype))
    g = rows(9, 65, dtype=dtype)
    for got, truth in zip(
        torch.autograd.grad(made, (x, w), g, create_graph=dtype is torch.float32),
        torch.autograd.grad(want, (wide, weight), g.double(), create_graph=True),
        strict=True,
    ):
        assert torch.allclose(got.double(), truth, rtol=4e-2 if dtype is torch.bfloat16 else 1e-4, atol=2e-2)
        if dtype is torch.float32:
            (again,) = torch.autograd.grad(got.sum(), x, retain_graph=True)
            (told,) = torch.autograd.grad(truth.sum(), wide, retain_graph=True)
            assert torch.allclose(again.double(), told, rtol=1e-3, atol=1e-4)


def test_gradcheck():
    x = rows(3, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(kinds.softmax, (x,))


def test_the_gradient_of_a_loss():
    x, y = rows(37, 1000).requires_grad_(), torch.randint(0, 1000, (37,), device="cuda")
    wide = x.detach().clone().requires_grad_()
    nn.cross_entropy(x, y).backward()
    torch.nn.functional.cross_entropy(wide, y).backward()
    assert torch.allclose(x.grad, wide.grad, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 50257), (200, 20011), (2, 1 << 20)])
def test_gradients_of_long_rows_have_certificates_of_their_launches(shape):
    @noyau.op("float[rows, n] -> float[rows, n]")
    def soft(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    for each in ((5, 7), shape):
        x, weight = rows(*each).requires_grad_(), rows(*each)
        (found,) = torch.autograd.grad(soft(x), x, weight)
        (want,) = torch.autograd.grad(torch.softmax(x.double(), -1), x, weight.double())
        assert float((found - want).norm() / want.norm()) < 1e-5
    kernels = tensor_calls(soft.calls).plan((x,), {}, (True,)).backward.kernels
    (made,) = kernels.programs.values()
    sizes = {"rows": shape[0], "n": shape[1]}
    assert [each.generated.is_certified_at(sizes) for each in made] == [False, True]


def test_autocast():
    x, w = rows(8, 64, dtype=torch.bfloat16), rows(64)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert kinds.rmsnorm(x, w).dtype is torch.float32


def test_vmap():
    x = rows(4, 8, 9)
    near(torch.vmap(kinds.softmax)(x), torch.softmax(x, -1))


def test_compiled_models_hold_ops():
    def model(x, w):
        return kinds.rmsnorm(x * 2, w) + 1

    x, w = rows(16, 64), rows(64)
    near(torch.compile(model, fullgraph=True)(x, w), model(x, w))


def test_a_cuda_graph_of_a_warm_key():
    x = rows(64, 128)
    kinds.softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = kinds.softmax(x)
    x.copy_(rows(64, 128) + torch.arange(128, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    near(made, torch.softmax(x, -1))


def test_a_cuda_graph_of_a_cold_key_is_refused():
    x, graph = rows(63, 127), torch.cuda.CUDAGraph()
    with (
        pytest.raises(UnsupportedError, match="a CUDA graph is being captured"),
        torch.cuda.graph(graph, capture_error_mode="relaxed"),
    ):
        kinds.softmax(x)
    torch.cuda.synchronize()
    near(kinds.softmax(x), torch.softmax(x, -1))


def test_devices_are_not_mixed():
    x, w = rows(3, 4), torch.ones(4)
    with pytest.raises(UnsupportedError, match="x on cuda:0 and weight on cpu"):
        kinds.rmsnorm(x, w)
    with pytest.raises(SignatureError, match='device="cuda:0"'):
        kinds.rmsnorm(x, np.ones(4, np.float32))


def test_out_of_memory_names_the_op_and_its_bytes():
    x = torch.zeros(1, 1, device="cuda").expand(1 << 20, 1 << 20)
    with pytest.raises(torch.OutOfMemoryError, match=r"doubled.*4398046511104 bytes.* on cuda:0"):
        kinds.doubled(x)


def test_explain():
    told = str(kinds.softmax.explain(rows(3, 4)))
    assert "runs triton, in triton" in told
