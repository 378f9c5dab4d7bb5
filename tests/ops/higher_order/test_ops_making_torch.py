from __future__ import annotations

import math
import operator
import warnings

import numpy as np
import pytest
import torch

import noyau

X = np.random.default_rng(0).normal(size=(3, 4))


@pytest.fixture(autouse=True)
def _nothing_runs_as_its_reference():
    with warnings.catch_warnings():
        warnings.simplefilter("error", noyau.ReferenceWarning)
        yield


def test_they_are_operators_of_torch_with_gradients():
    relu, mul = noyau.map(lambda x: max(x, 0.0)), noyau.zip(operator.mul)
    total = noyau.reduce(operator.add, 0.0)
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(X[0], requires_grad=True)
    out = total(mul(relu(x.T.T), w), axis=1)
    assert torch.autograd.grad(out.sum(), (x, w), retain_graph=True) is not None
    assert torch.allclose(out, (torch.relu(x) * w).sum(1))
    got, want = (torch.autograd.grad(each.sum(), (x, w)) for each in (out, (torch.relu(x) * w).sum(1)))
    assert all(torch.allclose(*pair) for pair in zip(got, want, strict=True))


def test_a_number_beside_tensors():
    mul = noyau.zip(operator.mul)
    assert mul(torch.tensor(X), 2.0).dtype == torch.float64
    assert mul(2, torch.ones(2, dtype=torch.float32)).dtype == torch.float32
    assert torch.equal(mul(torch.arange(3), 0.5), torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))


def test_the_gradient_of_a_fold_from_left_to_right():
    horner = noyau.reduce(lambda state, x: math.tanh(state) + x * x, 0.0)
    assert torch.autograd.gradcheck(lambda x: horner(x.T, axis=0), (torch.tensor(X, requires_grad=True),))
