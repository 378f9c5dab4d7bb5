from __future__ import annotations

import operator

import torch

from noyau.hosts.torch.modules.rewrite import KernelSwap, rewrite
from tests.frontends.torch.exports import graph_of


def given(graph):
    return next(node.name for node in graph.nodes if node.op == "placeholder")


def named(graph, target):
    return next(node.name for node in graph.nodes if str(node.target) == target)


def test_a_kernel_stands_before_what_needs_it_and_after_what_it_reads():
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    graph = graph_of(lambda x, y: ((x.exp() + 1) @ y, x.exp() * 2), (x, y))
    names = [node.name for node in graph.nodes if node.op == "call_function"]
    swap = KernelSwap(
        lambda x: (x.exp() + 1, x.exp() * 2), (names[0], names[1], *names[3:]), (given(graph),), (names[1], names[4])
    )
    made = rewrite(graph, [swap])
    assert [str(node.target) for node in made.nodes if node.op == "call_function"][3:] == ["aten.mm.default"]
    got = torch.fx.GraphModule({}, made).forward(x, y)
    assert torch.allclose(got[0], (x.exp() + 1) @ y)
    assert torch.allclose(got[1], x.exp() * 2)


def test_values_lie_in_memory_as_they_did():
    x = torch.randn(2, 3, 4)
    graph = graph_of(lambda x: x.permute(2, 0, 1) * 2, (x,))
    permute, mul = named(graph, "aten.permute.default"), named(graph, "aten.mul.Tensor")
    swap = KernelSwap(lambda x: x * 2, (permute, mul), (given(graph),), (mul,))  # it writes in the order of memory
    (got,) = torch.fx.GraphModule({}, rewrite(graph, [swap])).forward(x)
    want = x.permute(2, 0, 1) * 2
    assert torch.equal(got, want)
    assert got.stride() == want.stride()


def test_a_shape_is_asked_of_a_stand_in():
    x = torch.randn(5, 4)
    graph = torch.fx.Graph()
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    given = graph.placeholder("x")
    inner = graph.call_function(torch.ops.aten.exp.default, (given,))
    outer = graph.call_function(torch.ops.aten.neg.default, (inner,))
    size = graph.call_function(torch.ops.aten.sym_size.int, (inner, 0))
    ones = graph.call_function(torch.ops.aten.ones.default, ([size],))
    graph.output((outer, ones))
    for node in (given, inner, outer):
        node.meta["val"] = fake
    size.meta["val"], ones.meta["val"] = 5, fake
    swap = KernelSwap(lambda x: -x.exp(), (inner.name, outer.name), ("x",), (outer.name,), {inner.name: outer.name})
    got = torch.fx.GraphModule({}, rewrite(graph, [swap])).forward(x)
    assert torch.equal(got[0], -x.exp())
    assert got[1].shape == (5,)


def test_a_size_that_only_a_kernel_asks_for_is_gone():
    x, graph = torch.randn(5, 4), torch.fx.Graph()
    given = graph.placeholder("x")
    inner = graph.call_function(torch.ops.aten.exp.default, (given,))
    size = graph.call_function(torch.ops.aten.sym_size.int, (inner, 1))
    double = graph.call_function(operator.mul, (size, 2))
    row = graph.call_function(torch.ops.aten.full.default, ([double], 2.0))
    outer = graph.call_function(torch.ops.aten.mul.Tensor, (inner, row))
    graph.output((outer,))
    for node, value in ((given, x), (inner, x), (size, 4), (double, 8), (row, x[0]), (outer, x)):
        node.meta["val"] = value
    made = rewrite(graph, [KernelSwap(lambda x: x + 1, (inner.name, row.name, outer.name), ("x",), (outer.name,))])
    assert [node.op for node in made.nodes] == ["placeholder", "call_function", "output"]
    assert torch.equal(torch.fx.GraphModule({}, made).forward(x)[0], x + 1)
