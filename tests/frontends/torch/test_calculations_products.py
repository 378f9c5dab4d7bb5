from __future__ import annotations

import pytest
import torch

from noyau.ir.graph import Contract
from tests.frontends.torch.exports import compare, imported, together
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


@pytest.mark.parametrize("dynamic", [False, True])
def test_products(dynamic):
    cases = [
        (lambda x, y: (x @ y, torch.mm(x, y)), [numbers(3, 4), numbers(4, 5)]),
        (lambda x, y: x @ y, [numbers(2, 3, 4), numbers(2, 4, 5)]),
        (lambda x, y: x @ y, [numbers(2, 6, 3, 4), numbers(4, 5)]),
        (lambda x, y: torch.einsum("bij,kj->bik", x, y), [numbers(2, 3, 4), numbers(5, 4)]),
        (lambda x, w, b: F.linear(x, w, b), [numbers(2, 3, 4), numbers(5, 4), numbers(5)]),
    ]
    every = together([(function, len(args)) for function, args in cases])
    compare(every, *(arg for _, args in cases for arg in args), dynamic=dynamic)


def test_products_with_something_added():
    x, y, bias = numbers(3, 4), numbers(4, 5), numbers(5)
    compare(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), bias, x, y)
    compare(lambda b, x, y: torch.addmm(b, x, y, beta=0), bias, x, y)
    compare(lambda x, y: (torch.mv(x, y), torch.dot(y, y), torch.outer(y, y)), x, y[:, 0].clone())


def test_attention_is_products_and_a_softmax():
    q, k, v = (numbers(2, 3, 5, 8) for _ in range(3))
    compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    made = imported(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [q, k, v])
    assert sum(isinstance(node.kind, Contract) for node in made.graph.nodes) == 2
