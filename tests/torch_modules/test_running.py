from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from noyau.torch_modules.running import eager, shorten  # noqa: E402
from tests.frontends.torch.exports import graph_of  # noqa: E402


def operators(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_products_with_a_transposed_matrix_are_one_call():
    x, w, b = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
    graph = graph_of(lambda x, w, b: (x @ w.t(), torch.addmm(b, x, w.t())), (x, w, b))
    for node in graph.nodes:  # as AOTAutograd writes it
        if str(node.target) == "aten.permute.default":
            node.target, node.args = torch.ops.aten.t.default, node.args[:1]
    shorten(graph)
    graph.lint()
    assert operators(graph) == ["aten.linear.default"] * 2
    got = torch.fx.GraphModule({}, graph).forward(x, w, b)
    assert torch.equal(got[0], x @ w.t())
    assert torch.equal(got[1], torch.addmm(b, x, w.t()))


def test_equal_views_are_one():
    x = torch.randn(3, 4)
    graph = graph_of(lambda x: (x.view(12) + 1, x.view(12) * 2, x.view(2, 6) * 3), (x,))
    shorten(graph)
    assert operators(graph).count("aten.view.default") == 2


def test_views_around_a_change_stay():
    x = torch.randn(3, 4)
    graph = graph_of(lambda x: (x.view(12) + 1, x.view(12) * 2), (x,))
    given, _, last = (node for node in graph.nodes if node.op == "placeholder" or "view" in str(node.target))
    with graph.inserting_before(last):
        graph.call_function(torch.ops.aten.copy_.default, (given, given))
    shorten(graph)
    assert operators(graph).count("aten.view.default") == 2


def test_what_is_given_is_let_go_of_after_its_last_use():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.add, (x, 1))
    seen = []

    def watch(value):
        gc.collect()
        seen.append(alive() is None)
        return value

    second = graph.call_function(watch, (first,))
    graph.output((second,))
    run = eager(torch.fx.GraphModule({}, graph), [])
    given = [torch.zeros(2)]
    alive = weakref.ref(given[0])
    assert torch.equal(run(given)[0], torch.ones(2))
    assert given == []
    assert not any(node.meta for node in run.__closure__[0].cell_contents.__self__.graph.nodes)
    assert seen == [True]
