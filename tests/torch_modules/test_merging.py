from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from noyau.torch_modules.merging import merge_equal  # noqa: E402


def counted(function, *args) -> int:
    """The operators of a function after equal ones were merged; it gives the same as before."""
    graph = make_fx(function, tracing_mode="fake")(*args)
    merge_equal(graph.graph)
    graph.recompile()
    for got, want in zip(graph(*args), function(*args), strict=True):
        assert torch.equal(got, want)
    return sum(node.op == "call_function" for node in graph.graph.nodes)


X = torch.arange(6.0).reshape(2, 3)


def test_equal_values_are_one():
    assert counted(lambda x: (x.exp() + x.exp().t().exp().t(),), X) == 5
    assert counted(lambda x: (x.sum(0) * x.sum(1).sum(0),), X) == 4
    assert counted(lambda x: (x.max(1)[0] + x.max(1)[0],), X) == 4


def test_results_stay_apart():
    assert counted(lambda x: (x.exp(), x.exp()), X) == 2
    assert counted(lambda x: (x.exp().t(), x.exp() + 1), X) == 4


def test_nothing_is_merged_where_a_value_is_changed():
    def changed(x):
        one, other = x.clone(), x.clone()
        one.add_(1)
        return (one * other,)

    assert counted(changed, X) == 4


def test_what_draws_is_drawn_twice():
    graph = make_fx(lambda x: (torch.rand_like(x) - torch.rand_like(x),))(X)
    merge_equal(graph.graph)
    assert sum(node.op == "call_function" for node in graph.graph.nodes) == 3
