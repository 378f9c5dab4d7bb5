from __future__ import annotations

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.hosts.torch.modules import parallel_products
from noyau.hosts.torch.modules.parallel_products import join_products, side_by_side
from noyau.hosts.torch.modules.simplification import merge_equal

X, WEIGHTS = torch.randn(3, 8), [torch.randn(4 + at, 8) for at in range(5)]


def queries_keys_values(x, a, b, c, d, bias):
    early = d.t() * 2  # is no view: what is computed of a weight later is not moved
    q, k = torch.relu(x @ a.t()), torch.addmm(bias, x, b.t())
    return q, k @ b, x @ c.t(), x @ early, x @ (c.t() * 2)


def changed_between(x, a, b, c, d, bias):
    first = x @ a.t()
    x.add_(1)
    return first, x @ b.t(), x @ c.t()


def graph_of(function):
    given = X.clone(), *WEIGHTS[:4], torch.randn(5)
    module = make_fx(function, tracing_mode="fake")(*given)
    merge_equal(module.graph)
    join_products(module.graph)
    module.graph.lint()
    module.recompile()
    joint = [len(node.args) for node in module.graph.nodes if getattr(node.target, "__name__", "") == "products"]
    return module, given, joint


@pytest.mark.parametrize(("function", "joint"), [(queries_keys_values, [3]), (changed_between, [2])])
def test_products_of_one_input_are_one_call(function, joint):
    module, given, found = graph_of(function)
    assert found == joint
    want = function(*(each.clone() for each in given))
    for got, each in zip(module(*(each.clone() for each in given)), want, strict=True):
        torch.testing.assert_close(got, each)


def test_products_of_many_rows_stay(monkeypatch):
    monkeypatch.setattr(parallel_products, "MOST_ROWS", 2)
    module, _, joint = graph_of(queries_keys_values)
    assert not joint and not module.graph.find_nodes(op="call_function", target=operator.getitem)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_branches_of_a_recording_compute_what_calls_do():
    x, *weights = (each.cuda() for each in (X, *WEIGHTS[:4]))
    call = side_by_side((torch.mm,) * 4)

    def run():
        y = x
        for _ in range(3):  # memory of a branch is used again
            y = sum(each.sum() for each in call(*((y, w.t()) for w in weights))) + y
        return y

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run()
    for _ in range(2):
        weights[1].mul_(0.5)
        graph.replay()
        torch.testing.assert_close(got, run())
