from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.hosts.torch.modules.simplification import drop_detached, merge_equal


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


def test_what_is_read_without_its_gradient_is_the_value_itself():
    graph = make_fx(lambda x: (x.exp().detach().t().detach() + 1, x.sin().detach()), tracing_mode="fake")(X)
    drop_detached(graph.graph)
    graph.graph.lint()
    graph.recompile()
    assert graph.code.count("aten.detach.default") == 1  # what is given stays another tensor
    assert all(map(torch.equal, graph(X), (X.exp().t() + 1, X.sin())))


def test_results_stay_apart():
    assert counted(lambda x: (x.exp(), x.exp()), X) == 2
    assert counted(lambda x: (x.exp().t(), x.exp() + 1), X) == 4


def test_what_is_changed_stays_apart_and_equal_values_are_one_between_two_changes():
    def changed(x):
        one, other = x.clone(), x.clone()
        one.view(-1).add_(1)
        return (one * other,)

    def before_and_after(x):
        one = x.clone()
        first = one.exp() * one.exp()
        one.mul_(2)
        return (first + one.exp() * one.exp(),)

    assert counted(changed, X) == 5
    assert counted(before_and_after, X) == 7


def test_zeros_of_either_sign_and_numbers_of_other_types_are_others():
    graph, full = torch.fx.Graph(), torch.ops.aten.full.default
    parts = [graph.call_function(full, ([2], number)) for number in (0.0, -0.0, 0, False, 0.0)]
    graph.output(graph.call_function(torch.ops.aten.cat.default, (parts,)))
    merge_equal(graph)
    assert sum(node.target is full for node in graph.nodes) == 4


def test_a_training_graph_that_keeps_a_copy_has_its_equal_values_merged():
    graph = torch.fx.Graph()
    x, state = graph.placeholder("x"), graph.placeholder("state")
    aten = torch.ops.aten
    total = graph.call_function(aten.add.Tensor, tuple(graph.call_function(aten.exp.default, (x,)) for _ in range(2)))
    graph.call_function(aten.copy_.default, (state, total))
    graph.output(graph.call_function(aten.neg.default, (total,)))
    merge_equal(graph)
    assert sum(node.target is aten.exp.default for node in graph.nodes) == 1


@torch.library.custom_op("noyau_tests::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(x)


noise.register_fake(torch.empty_like)


@pytest.mark.parametrize(
    "drawn",
    [
        torch.rand_like,
        noise,
        lambda x: x.new_empty_strided((2, 3), (3, 1)),
        lambda x: torch.empty_permuted((2, 3), (0, 1)),
    ],
)
def test_what_draws_is_drawn_twice(drawn):
    graph = make_fx(lambda x: (drawn(x) - drawn(x),))(X)
    merge_equal(graph.graph)
    assert sum(node.op == "call_function" for node in graph.graph.nodes) == 3
