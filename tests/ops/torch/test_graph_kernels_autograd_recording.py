"""Gradients of ops on tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import noyau
from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import CheckError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.tensors import array_of, tensor_of
from noyau.ir.dims import shape_of
from noyau.ir.graph import Constant, Graph, Input, Map, Node
from noyau.kernels.programs.generate import Specialization, trace_reference
from noyau.ops.torch.graph_kernels import (
    GraphKernels,
    GraphOperator,
    draw_graph,
)
from noyau.ops.torch_entry import tensor_calls
from noyau.verify.failures import Case
from noyau.verify.trial import certify
from tests.hosts.torch.kinds import (
    chosen,
    embedding,
    energy,
    layer,
    peak,
    rmsnorm,
    scaled,
    softmax,
    spread,
    summed,
    unsigned,
)

gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck


def real(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


AT, MASK = torch.tensor([0, 2, 2]), torch.tensor([True, False, True])
CALLS = {
    "softmax": (softmax, (real(3, 4),)),
    "rmsnorm": (rmsnorm, (real(2, 3, 4), real(4))),
    "scaled": (scaled, (real(), real(3))),
    "a number": (lambda x: scaled(0.5, x), (real(3),)),
    "embedding": (lambda table: embedding(table, AT), (real(4, 2),)),
    "peak": (lambda x: peak(x)[0], (real(5),)),
    "layer": (layer, (real(3, 4), real(4, 2))),
    "energy": (energy, (real(3, 2),)),
    "two results": (summed, (real(3),)),
    "spread": (lambda x: spread(x, 3), (real(2),)),
    "chosen": (lambda x, y: chosen(x.abs() + 0.1, MASK, y), (real(3), real(3))),
    "unsigned": (unsigned, (real(3), real(3))),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_right(name):
    assert gradcheck(*CALLS[name])


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "embedding", "two results"])
def test_gradients_have_gradients(name):
    assert gradgradcheck(*CALLS[name])


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[:, :1].expand(4, 3),
        lambda x: x[:0],
        lambda x: x.reshape(1, 2, 2, -1).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "no rows", "channels last"],
)
def test_however_the_cells_lie(lay):
    assert gradcheck(lambda x: softmax(lay(x)), (real(4, 4),))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (softmax, DType.F32),
        (softmax, DType.BF16),
        (rmsnorm, DType.F16),
        (rmsnorm, DType.BF16),
        pytest.param(softmax, DType.F16, marks=pytest.mark.long),
        pytest.param(rmsnorm, DType.F32, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_forward_and_backward_are_as_near_to_float64_as_the_certificate_asks(op, dtype):
    ranks = (2, 1)[: len(op.signature.inputs)]
    wanted = Specialization(op.instance([dtype] * len(ranks), ranks), op.description.reference.constants)
    graph = trace_reference(op.description.reference, wanted)
    names = [node.output for node in graph.inputs]
    drawn = [[arrays[name] for name in names] for arrays in draw_graph(graph, {})]
    cases = [Case(f"drawn {number}", tuple(arrays)) for number, arrays in enumerate(drawn)]

    def forward(arrays):
        return [array_of(op(*map(tensor_of, arrays)))]

    def both(arrays):
        *inputs, gradient = (tensor_of(array).clone() for array in arrays)
        inputs = [each.requires_grad_() for each in inputs]
        return [array_of(each) for each in torch.autograd.grad(op(*inputs), inputs, gradient)]

    assert certify(graph, forward, cases, name="forward").ok
    back = derive(graph, names).gradient
    rng = np.random.default_rng(0)
    cases = [
        Case(case.label, (*case.inputs, rng.standard_normal(case.inputs[0].shape).astype(dtype.numpy)))
        for case in cases
    ]
    found = certify(back, both, cases, name="backward")
    assert found.ok, found.summary()


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "embedding"])
def test_many_gradients_at_once(name):
    """As torch.autograd.functional.jacobian(vectorize=True) asks for them too."""
    op, inputs = CALLS[name]
    made = op(*inputs)
    many = torch.randn(5, *made.shape, dtype=made.dtype)
    together = torch.autograd.grad(made, inputs, many, is_grads_batched=True, retain_graph=True)
    for at, one in enumerate(many):
        alone = torch.autograd.grad(made, inputs, one, retain_graph=True)
        assert all(torch.allclose(every[at], each) for every, each in zip(together, alone, strict=True))


@pytest.mark.parametrize("first", [True, False], ids=["first", "known"])
@pytest.mark.parametrize(
    "gradient",
    [lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag, lambda: torch._efficientzerotensor((3, 4))],
    ids=["negated", "zeros without memory"],
)
def test_gradients_that_are_not_in_memory_as_they_are(gradient, first):
    op = noyau.op("float[rows, n] -> float[rows, n]")(lambda x: np.tanh(x))
    x, given = torch.randn(3, 4, requires_grad=True), gradient()
    made = op(x)
    if not first:
        torch.autograd.grad(made, x, torch.ones(3, 4), retain_graph=True)
    (found,) = torch.autograd.grad(made, x, given)
    assert torch.allclose(found, given.clone() * (1 - x.detach().tanh() ** 2), atol=1e-6)


def test_only_what_is_asked_for_is_computed():
    x, weight = torch.randn(2, 3), torch.randn(3, requires_grad=True)
    rmsnorm(x, weight).sum().backward()
    assert x.grad is None
    assert torch.allclose(weight.grad, (x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()).sum(0), atol=1e-5)
    with torch.no_grad():
        assert not rmsnorm(x, weight).requires_grad


def test_what_is_saved_may_not_change():
    made = softmax(real(3, 4))  # whose gradient needs its result alone
    made.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


def test_results_that_are_no_floats_have_no_gradient():
    _, at = peak(real(4))
    assert not at.requires_grad


def test_sizes_that_a_reference_asks_for():
    @noyau.op("float[n] -> float[n]")
    def by_size(x):
        return x * x if len(x) > 3 else x

    for n, wanted in ((5, 2.0), (2, 1.0), (6, 2.0)):
        x = torch.ones(n, requires_grad=True)
        by_size(x).sum().backward()
        assert x.grad.tolist() == [wanted] * n


def test_a_gradient_of_ones_own():
    @noyau.op("float[n] -> float[n]")
    def squared(x):
        return x * x

    def backward():
        x = torch.ones(3, requires_grad=True)
        squared(x).sum().backward()
        return x.grad.tolist()

    assert backward() == [2, 2, 2]

    @squared.gradient
    def squared_back(x, grad):
        return 7 * x * grad

    assert backward() == [7, 7, 7]


def test_what_cannot_be_traced_is_refused_unless_its_gradient_is_given():
    @noyau.op("f64[n] -> f64[n]")
    def gammas(x):
        return np.array([math.lgamma(each) for each in x.tolist()])

    x = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    with pytest.raises(UnsupportedError, match=r"gammas has no gradient, for .*; give one by @gammas.gradient, or"):
        gammas(x)

    @gammas.gradient
    def gammas_back(x, grad):
        return grad * (np.log(x) - 1 / (2 * x))

    with pytest.warns(noyau.ReferenceWarning):
        made = gammas(x)
    made.sum().backward()
    assert torch.allclose(x.grad, x.detach().log() - 1 / (2 * x.detach()))


def test_what_has_no_derivative_is_refused_by_name():
    @noyau.op("float[n, n] -> float[n]")
    def sorted_sums(x):
        return np.argmax(x, -1).astype(x.dtype) * x[0]

    x = torch.eye(3, requires_grad=True)
    sorted_sums(x).sum().backward()  # an index is flat: nothing flows through it
    assert x.grad.tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0]]


def test_a_backward_that_fails_its_certificate_is_not_run(monkeypatch):
    x = torch.randn(5, 3, requires_grad=True)
    wanted = Specialization(energy.instance([DType.F32], [2]))
    graph = trace_reference(energy.description.reference, wanted)
    wrong = GraphKernels(graph, "wrong", lambda asked: iter([{"x": np.full((2, 2), np.nan, np.float32)}]))
    monkeypatch.setattr("noyau.ops.torch.graph_kernels.certify_native", lambda *_, **__: _Failed())
    monkeypatch.setattr("noyau.ops.torch.graph_kernels.cache.recall", lambda key: None)
    with pytest.raises(CheckError, match=r"wrong\[c\]: its smoke certificate failed: it is wrong"):
        wrong(x.detach())


class _Failed:
    ok = False

    @staticmethod
    def summary():
        return "it is wrong"


def test_plans_are_made_once_for_what_requires_a_gradient():
    x, weight = real(2, 3), real(3)
    rmsnorm(x, weight)
    calls = tensor_calls(rmsnorm.calls)
    first = calls.plan((x, weight), {}, (True, True))
    assert calls.plan((real(7, 3), weight), {}, (True, True)) is first
    assert calls.plan((x.detach(), weight), {}, (False, True)) is not first
    assert TO_TORCH[first.inputs[0].dtype] is torch.float64


def test_operators_of_gradients_are_there_before_they_are_called():
    @noyau.op("float[n] -> float[n]")
    def never_called(x):
        return np.exp(x) / (1 + x * x)

    tensor_calls(never_called.calls).plan((real(3),), {}, (True,))
    known = {name.removeprefix("noyau::")[:-9] for name in torch._C._dispatch_get_all_op_names()}
    assert {"never_called_backward", "never_called_gradient"} <= known


def test_what_holds_for_no_usual_sizes_is_tried_on_those_of_the_call():
    op = noyau.op(lambda a: (np.roll(a, 2, axis=0) * a).sum(0) if a.shape[0] == 64 else a)
    a = real(64, 2)
    op(a).sum().backward()
    assert torch.allclose(a.grad, torch.roll(a.detach(), 2, 0) + torch.roll(a.detach(), -2, 0))


def test_equal_graphs_are_one_operator_and_others_are_not():
    names = []
    for last in (0, 0, 1):
        table = np.zeros(2000)
        table[1000] = last  # repr leaves it out
        node = Node("t", Constant(table), (), DType.F64, shape_of([2000]))
        inputs = Node("x", Input(), (), DType.F64, shape_of([2000]))
        total = Node("y", Map("add"), ("x", "t"), DType.F64, shape_of([2000]))
        names.append(GraphOperator(Graph((inputs, node, total), ("y",)), "plus_table", lambda sizes: iter(())).overload)
    assert names[0] is names[1]
    assert names[0].name() != names[2].name()
