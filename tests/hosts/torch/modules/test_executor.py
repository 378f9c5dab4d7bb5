from __future__ import annotations

import gc
import weakref
from itertools import accumulate

import torch

from noyau.hosts.torch.modules.executor import eager, shorten
from tests.frontends.torch.exports import graph_of


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


def test_what_torch_has_bound_to_python_is_called_there():
    aten, graph = torch.ops.aten, torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    made = [
        graph.call_function(target, (x, *args))
        for target, args in (
            (aten.view.default, ([6, 4],)),
            (aten._unsafe_view.default, ([6, 4],)),
            (aten.reshape.default, ([4, 6],)),
            (aten.permute.default, ([2, 0, 1],)),
            (aten.transpose.int, (0, 1)),
            (aten.unsqueeze.default, (1,)),
            (aten.select.int, (1, 2)),
            (aten.detach.default, ()),
            (aten.bmm.default, (graph.call_function(aten.expand.default, (w, [2, 4, 5])),)),
        )
    ]
    made.append(graph.call_function(aten.squeeze.dim, (made[5], 1)))
    made.append(graph.call_function(aten.mm.default, (made[0], w)))
    made.append(graph.call_function(aten.linear.default, (x, graph.call_function(aten.t.default, (w,)))))
    made.append(graph.call_function(aten.sum.dim_IntList, (x, [1]), {"keepdim": True}))
    graph.output(tuple(made))
    given = [torch.randn(2, 3, 4), torch.randn(4, 5)]
    want = torch.fx.GraphModule({}, graph).forward(*given)
    run = eager(torch.fx.GraphModule({}, graph), [])
    code = run.__closure__[0].cell_contents.__self__.code
    assert [line.partition("aten.")[2].partition("(")[0] for line in code.splitlines() if "aten." in line] == [
        "sum.dim_IntList"
    ]
    got = run(list(given))
    assert all(torch.equal(one, other) and one.stride() == other.stride() for one, other in zip(got, want, strict=True))
    assert torch.equal(got[11], given[0] @ given[1])


def held(run, given):
    """What a call gives, and the bytes that it makes and holds: at the most, and at its end. The profiler counts
    this thread alone, and what is freed where it saw it made: neither other threads nor garbage of other tests."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        made = run(given)
    found = [each for each in seen.profiler.kineto_results.events() if each.name() == "[memory]"]
    bytes_at = [0, *accumulate(each.nbytes() for each in sorted(found, key=lambda each: each.start_ns()))]
    return made, max(bytes_at), bytes_at[-1]


def test_a_graph_holds_what_is_read_later_and_no_more():
    aten, graph, cells = torch.ops.aten, torch.fx.Graph(), 1 << 12
    x, y = graph.placeholder("x"), graph.placeholder("y")
    turned = graph.call_function(aten.t.default, (graph.call_function(aten.exp.default, (x,)),))
    product = graph.call_function(aten.mm.default, (turned, y))  # turned is a view: exp(x) is held up to here
    last = graph.call_function(aten.neg.default, (graph.call_function(aten.sin.default, (product,)),))
    graph.output((last, product))
    run, one = eager(torch.fx.GraphModule({}, graph), []), 4 * cells
    made, most, end = held(run, [torch.ones(64, 64), torch.ones(64, 64)])
    assert [each.shape for each in made] == [(64, 64)] * 2
    # exp(x); the product beside it, then exp(x) goes; sin; neg beside both, then sin goes
    assert (most, end) == (3 * one, 2 * one)
