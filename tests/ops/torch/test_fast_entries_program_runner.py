"""Programs on tensors: kernels by their fast calls, torch between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import noyau
from noyau.compiler.lowering.input_layouts import INNER, STRIDED, Layout, Order
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.hosts.torch.tensors import array_of
from noyau.ir.graph import Constant
from noyau.kernels.programs.generate import Specialization, build, generate
from noyau.ops.torch import fast_entries
from noyau.ops.torch.fast_entries import TensorProgram, contract
from tests.nodes import F32, graph, value, view

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 0.01}


@noyau.op("float[b, m, k], float[k, n], float[n] -> float[b, n, m]")
def mlp(x, w, bias):
    return np.swapaxes(np.tanh(np.exp(x * 0.1) @ w + bias), -1, -2)


@noyau.op("float[*b, n] -> float[*b, n], m: float[*b]")
def centred(x):
    mean = x.mean(-1)
    return x - mean[..., None], mean


@noyau.op("float[m, k], float[n, k] -> float[n, m]")
def products(x, y):
    return np.einsum("mk,nk->nm", x, y)


@noyau.op("i64[n, m], i64[m, n] -> i64[n, n]")
def whole(x, y):
    return x @ y


@noyau.op("float[n] -> float[n]")
def summed(x):
    return np.cumsum(x)


def hosted(op, *tensors, layouts=(), constants=None):
    dtypes = [next(d for d in DType if d.value != "other" and d.numpy == array_of(t).dtype) for t in tensors]
    wanted = Specialization(op.instance(dtypes, [t.ndim for t in tensors]), constants or {}, layouts=layouts)
    return TensorProgram(build(generate(op.description, wanted)))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_kernels_and_products_in_turn(dtype):
    torch.manual_seed(0)
    x, w, bias = torch.randn(3, 5, 7), torch.randn(7, 4), torch.randn(4)
    given = [t.to(dtype) for t in (x, w, bias)]
    (made,) = hosted(mlp, *given)(*given)
    truth = (torch.exp(given[0].double() * 0.1) @ given[1].double() + given[2].double()).tanh().swapaxes(-1, -2)
    assert made.dtype is dtype
    assert (made.double() - truth).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [(3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1)], ids=str)
def test_products_of_any_sizes(sizes, turned):
    m, k, n = sizes
    x, y = torch.randn(m, k), torch.randn(n, k)
    given = (x.T.contiguous().T, y) if turned else (x, y)
    (made,) = hosted(products, *given)(*given)
    assert torch.allclose(made, y @ x.T, atol=1e-5)


def test_integers_and_what_only_the_interpreter_does():
    x = torch.arange(6).reshape(2, 3)
    assert torch.equal(hosted(whole, x, x.T)(x, x.T)[0], x @ x.T)
    y = torch.arange(5.0)
    assert torch.equal(hosted(summed, y)(y)[0], y.cumsum(0))


@pytest.mark.parametrize(
    ("layout", "x"),
    [
        (Layout(Order.PERMUTED, (1, 0)), torch.arange(6.0).reshape(2, 3).T),
        (INNER, torch.arange(20.0).reshape(4, 5)[:, 1:4]),
        (STRIDED, torch.arange(20.0).reshape(4, 5)[:, ::2]),
    ],
    ids=["permuted", "inner", "strided"],
)
def test_programs_for_layouts_take_any(layout, x):
    run = hosted(centred, x, layouts=(layout,))
    for given in (x, x.contiguous(), torch.zeros(0, 3), x.T.contiguous().T):
        made, mean = run(given)
        assert torch.allclose(mean, given.mean(-1), equal_nan=True)
        assert torch.allclose(made, given - given.mean(-1, keepdim=True))


def test_results_are_nobody_elses_memory():
    x = torch.randn(3, 4)
    made, _ = hosted(centred, x)(x)
    assert made.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_shapes_that_do_not_fit():
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    with pytest.raises(InputError, match="does not fit"):
        hosted(products, x, y)(x, torch.randn(5, 6))


def test_products_of_half_types_add_in_float32():
    x = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    assert contract("mk,nk->mn", [x, x], DType.BF16).item() == 4096
    assert contract("mk,nk->mn", [x, x], DType.F32).dtype is torch.float32


def test_what_follows_from_sizes_alone_is_computed_at_each_call(monkeypatch):
    """A tensor that was kept would be read on other streams, and by graphs that were captured, when it is gone."""

    @noyau.op("float[n, m], float[n, k] -> float[m, k]")
    def means(x, w):
        return x.T @ w / len(w)

    calls, of_sizes = [], fast_entries._library
    monkeypatch.setattr(fast_entries, "_library", lambda *given: calls.append(given) or of_sizes(*given))
    x, w = torch.randn(3, 4), torch.randn(3, 2)
    run = hosted(means, x, w)
    for _ in range(2):
        torch.testing.assert_close(run(x, w)[0], x.T @ w / 3)
    assert [not graph.inputs for _, graph, *_ in calls].count(True) == 2


class Calls(TorchDispatchMode):
    """Records the names of the operators that torch runs."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("rows", "copied"), [(2, ["full", "clone"]), (0, [])])
def test_a_number_is_no_copy_from_the_host(rows, copied):
    zero = value("zero", Constant(np.float32(0)), "", F32)
    zeros = graph("zeros", zero, value("zeros", view(), "zero", F32, "n", 3))
    with Calls() as calls:
        (result,) = fast_entries._library(torch.device("cpu"), zeros, [], {"n": rows})
    assert result.shape == (rows, 3)
    assert not result.any()
    assert [name for name in calls.names if name in ("full", "clone", "_to_copy", "copy_")] == copied
