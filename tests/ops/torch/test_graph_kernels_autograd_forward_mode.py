"""Derivatives of ops forward, of gradients again, and ops in graphs that torch.fx traces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import noyau
from tests.hosts.torch.kinds import softmax

func = torch.func


@noyau.op
def bent(x):
    return np.tanh(x) * x


@noyau.op("float[n], float[n] -> product: float[n], least: float[], place: i64[]")
def several(x, y):
    return x * y, np.min(x + y), np.argmin(x + y)


THEIRS = {
    softmax: lambda x: x.softmax(-1),
    bent: lambda x: x.tanh() * x,
}


def same(one, other):
    return torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("op", THEIRS, ids=lambda op: op.name)
def test_derivatives_forward(op):
    x, towards = draw(5), draw(5) + 1
    for transform in (func.jacfwd, lambda f: lambda x: func.jvp(f, (x,), (towards,))[1]):
        assert same(transform(op)(x), transform(THEIRS[op])(x))


@pytest.mark.parametrize("op", THEIRS, ids=lambda op: op.name)
def test_second_and_third_derivatives(op):
    x = draw(4)

    def ours(x):
        return op(x)[1] ** 2

    def theirs(x):
        return THEIRS[op](x)[1] ** 2

    wanted = func.jacrev(func.jacrev(theirs))(x)
    for outer, inner in ((func.jacfwd, func.jacrev), (func.jacrev, func.jacfwd), (func.jacfwd, func.jacfwd)):
        assert same(outer(inner(ours))(x), wanted)
    assert same(func.jacfwd(func.hessian(ours))(x), func.jacfwd(func.hessian(theirs))(x))


@pytest.mark.parametrize("op", THEIRS, ids=lambda op: op.name)
def test_a_third_derivative_in_reverse_mode_alone(op):
    def third(function):
        x = draw(4).requires_grad_()
        (first,) = torch.autograd.grad((function(x) ** 2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), x, create_graph=True)
        return torch.autograd.grad((second**2).sum(), x)[0]

    assert same(third(op), third(THEIRS[op]))


def test_tangents_of_some_inputs_and_results():
    x, y, towards = draw(3), draw(3) + 1, draw(3) - 1
    with forward_ad.dual_level():
        product, least, place = several(x, forward_ad.make_dual(y, towards))
        assert same(forward_ad.unpack_dual(product).tangent, x * towards)
        assert same(forward_ad.unpack_dual(least).tangent, towards[(x + y).argmin()])
        assert forward_ad.unpack_dual(place).tangent is None


def test_tangents_and_gradients_at_once():
    x, y, towards = draw(3).requires_grad_(), draw(3), draw(3) - 1
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(several(x, forward_ad.make_dual(y, towards))[0]).tangent
        assert same(torch.autograd.grad(tangent.sum(), x)[0], towards)


class Module(torch.nn.Module):
    def forward(self, x, y):
        return softmax(x) + several(x, y)[0] + bent(x=y)


def test_an_op_is_a_node_of_a_graph_that_fx_traces():
    traced = torch.fx.symbolic_trace(Module())
    x, y = draw(3), draw(3)
    assert torch.equal(traced(x, y), Module()(x, y))
    assert [node.target for node in traced.graph.nodes if node.target in (softmax, several, bent)] == [
        softmax,
        several,
        bent,
    ]
