"""Tensors that no kernel takes: one clear error each."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import noyau
from noyau.errors import SignatureError, UnsupportedError
from noyau.hosts.torch.tensors import device_of, require_taken
from tests.hosts.torch.kinds import rmsnorm, scaled, softmax

X = torch.ones(3, 4)
E8M0 = getattr(torch, "float8_e8m0fnu", None)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("x", "told"),
    [
        (
            X.to(torch.complex64),
            r"softmax: x is complex64, and noyau computes on real numbers; give torch.view",
        ),
        (X.to_sparse(), r"softmax: x is laid out as torch.sparse_coo, not as cells at strides; give x.to_dense\(\)"),
        pytest.param(
            torch.zeros(3, 4, dtype=torch.uint8).view(E8M0 or torch.uint8),
            r"softmax: x is float8_e8m0fnu, which noyau does not compute on; give x.float\(\)",
            marks=pytest.mark.skipif(E8M0 is None, reason="torch before 2.7 has no float8_e8m0fnu"),
        ),
    ],
    ids=["complex", "sparse", "float8"],
)
def test_what_no_kernel_takes(x, told, recorded):
    with pytest.raises(UnsupportedError, match=told):
        softmax(x.requires_grad_() if recorded else x)


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantised_and_nested():
    with pytest.raises(UnsupportedError, match=r"softmax: x is quantised \(torch.qint8\); give x.dequantize\(\)"):
        softmax(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8))
    with pytest.raises(UnsupportedError, match="x is a nested tensor"):
        require_taken("f", ["x"], [torch.nested.nested_tensor([X, X])])


def test_mixed_arguments():
    with pytest.raises(SignatureError, match=r"weight is of NumPy, and x a tensor; give torch.as_tensor\(weight\)"):
        rmsnorm(X, np.ones(4, np.float32))
    with pytest.raises(SignatureError, match="rmsnorm: weight: what is no tensor does not fit float"):
        torch.func.vmap(lambda x: rmsnorm(x, 2.0))(X)


def test_devices():
    with pytest.raises(UnsupportedError, match="x on meta and weight on cpu; tensors of one call lie on one device"):
        rmsnorm(X.to("meta"), torch.ones(4))
    near, far, farther, other = (_on(device) for device in ("cpu", "cuda:0", "cuda:1", "xpu:0"))
    require_taken("f", ["x", "y"], [far, far])
    for one, two in ((far, near), (far, farther)):
        with pytest.raises(UnsupportedError, match=f"f: x on {one.device} and y on {two.device}; tensors of one call"):
            require_taken("f", ["x", "y"], [one, two])
    with pytest.raises(SignatureError, match=r'y is of NumPy, and x a tensor on cuda:0; .*\(y, device="cuda:0"\)'):
        require_taken("f", ["x", "y"], [far, np.ones(3)])
    with pytest.raises(UnsupportedError, match=r"x lies on xpu:0, and noyau has kernels for tensors on the CPU and on"):
        require_taken("f", ["x"], [other])


def test_where_a_call_runs():
    scalar = torch.tensor(2.0)
    assert device_of([1.0, scalar]) == "cpu"
    assert device_of([scalar, _on("cuda:1")]) == "cuda:1"


def _on(device):
    """A tensor of three cells that lies there as far as torch tells, with nothing behind it."""
    away = type("Away", (torch.Tensor,), {"__torch_dispatch__": lambda *_: None})
    return torch.Tensor._make_wrapper_subclass(away, (3,), device=device)


def leaf(*shape, device="cpu"):
    return torch.randn(shape, device=device, requires_grad=True)


def test_recorded_calls_look_at_devices_too():
    rmsnorm(leaf(3, 4), leaf(4))  # what is remembered of this one is not of those
    with pytest.raises(UnsupportedError, match="x on meta and weight on cpu; tensors of one call lie on one device"):
        rmsnorm(leaf(3, 4, device="meta"), leaf(4))
    x, weight = leaf(3, 4, device="meta"), leaf(4, device="meta")
    made = rmsnorm(x, weight)
    assert (made.device.type, made.shape) == ("meta", (3, 4))
    assert [each.shape for each in torch.autograd.grad(made.sum(), (x, weight))] == [(3, 4), (4,)]


def test_nested_tensors_of_either_layout():
    for layout in (torch.strided, torch.jagged):
        x = torch.nested.nested_tensor([X, X[:2]], layout=layout)
        with pytest.raises(UnsupportedError, match=r"softmax: x is a nested tensor; give its parts, or x.to_padded"):
            softmax(x)


@pytest.mark.parametrize("x", [X, X.clone().requires_grad_()], ids=["plain", "recorded"])
def test_what_is_no_tensor(x):
    for other, told in (([1.0] * 4, "a list"), (None, "a NoneType"), ("a", "a str"), (2.0, "2.0")):
        with pytest.raises(SignatureError, match=f"weight: {told} does not fit float"):
            rmsnorm(x, other)
    with pytest.raises(SignatureError, match=r"weight is of NumPy, and x a tensor; give torch\.as_tensor"):
        rmsnorm(x, np.ones(4, np.float32))
    with pytest.raises(SignatureError, match="scaled: a: a complex does not fit float"):
        scaled(1j, x[0])


@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_mkldnn"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_layouts(layout):
    with pytest.raises(UnsupportedError, match=r"softmax: x is laid out as .*; give x.to_dense\(\)"):
        softmax(getattr(X, layout)())


def test_an_input_that_autograd_needs_may_not_change_in_place():
    x = leaf(3, 4)
    needed, weight = x * 1, leaf(4)
    made = rmsnorm(needed, weight)
    needed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()
    made = rmsnorm(x, weight)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


def test_one_that_it_does_not_need_may():
    x = leaf(3, 4)
    free = x * 1
    made = softmax(free)  # whose gradient needs the result alone
    free.add_(1)
    made.sum().backward()
    assert torch.allclose(x.grad, torch.zeros(3, 4), atol=1e-6)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_tensors_of_float8_in_and_out(name):
    """All 256 codes are the numbers that torch says; casts to float8 mean what they mean of arrays."""
    spelt, dtype = name.replace("float8_", "f8"), getattr(ml_dtypes, name)
    wide = noyau.op(f"{spelt}[n] -> f32[n]", name="wide")(lambda x: x.astype(np.float32))
    narrow = noyau.op(f"f32[n] -> {spelt}[n]", name="narrow")(lambda x: x.astype(dtype))
    codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    numbers = wide(codes)
    assert torch.equal(numbers.nan_to_num(-1.5e-3), codes.float().nan_to_num(-1.5e-3))
    given = torch.cat([numbers, torch.tensor([1e9, -1e9, 449.0, 57345.0, 1e-9, -0.0])])
    made = narrow(given)
    assert made.dtype is getattr(torch, name)
    with np.errstate(all="ignore"):
        wanted = given.numpy().astype(dtype)
    assert np.array_equal(made.float().numpy(), wanted.astype(np.float32), equal_nan=True)
    with pytest.raises(SignatureError, match=f"softmax: x: {spelt}.3, 4. does not fit"):
        softmax(X.to(getattr(torch, name)))


@pytest.mark.parametrize("recorded", [False, True])
def test_zeros_that_have_no_memory_and_views_that_negate_are_read_as_what_they_are(recorded):
    for _ in range(2):  # the second call is by a fast_call
        for x in (torch._efficientzerotensor((3, 4)), torch.randn(3, 4, dtype=torch.complex64).conj().imag):
            made = softmax(x.requires_grad_() if recorded else x)
            assert torch.allclose(made, torch.softmax(x.clone(), -1))
