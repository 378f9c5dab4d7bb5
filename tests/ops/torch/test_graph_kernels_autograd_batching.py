"""Ops under the transforms of torch.func."""

from __future__ import annotations

import pytest
import torch

import noyau
from tests.hosts.torch.kinds import embedding, peak, rmsnorm, softmax

vmap, grad, jacrev = torch.func.vmap, torch.func.grad, torch.func.jacrev


def test_batches_of_rows():
    x, weight = torch.randn(5, 3, 4), torch.randn(4)
    assert torch.equal(vmap(softmax)(x), softmax(x))
    assert torch.equal(vmap(rmsnorm, in_dims=(1, None))(x, weight), rmsnorm(x.movedim(1, 0), weight))


def test_batches_of_any_arguments():
    x, weights, at = torch.randn(3, 4), torch.randn(5, 4), torch.tensor([[0, 1], [2, 0]])
    assert torch.allclose(vmap(rmsnorm, in_dims=(None, 0))(x, weights)[2], rmsnorm(x, weights[2]))
    assert torch.equal(vmap(embedding, in_dims=(None, 0))(x, at), x[at])
    most, place = vmap(peak)(x)
    assert torch.equal(most, x.amax(-1))
    assert torch.equal(place, x.argmax(-1))
    with pytest.raises(RuntimeError, match="vmap over no cells at all"):
        vmap(peak)(torch.zeros(0, 4))


def test_gradients_of_gradients_and_by_rows():
    def noyaus(x):
        return softmax(x).square().sum()

    def torchs(x):
        return x.softmax(-1).square().sum()

    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.allclose(grad(noyaus)(x), grad(torchs)(x))
    assert torch.allclose(vmap(grad(noyaus))(x), grad(torchs)(x))
    assert torch.allclose(jacrev(jacrev(noyaus))(x[0]), jacrev(jacrev(torchs))(x[0]))


def test_axes_that_are_counted_from_the_front():
    @noyau.op("float[*batch, n] -> float[*batch, n]")
    def along(x, *, axis=-1):
        return x / x.sum(axis, keepdims=True)

    x = torch.rand(3, 4, 5) + 1
    for axis in (0, 1, -1, -2, None):
        wanted = torch.stack([along(each, axis=axis) for each in x])
        torch.testing.assert_close(vmap(lambda row, axis=axis: along(row, axis=axis))(x), wanted)
