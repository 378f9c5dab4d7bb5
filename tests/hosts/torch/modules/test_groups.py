from __future__ import annotations

import torch

from noyau.hosts.torch.modules.groups import cut
from noyau.hosts.torch.modules.sites import trace_graph
from tests.frontends.torch.exports import graph_of
from tests.jobs.optimize.torch.modules import F


def seen(function, *args, dynamic=False):
    found = trace_graph(graph_of(function, args, dynamic=dynamic))
    made = cut(found)
    return found, [[found.operators[position] for position in group.positions] for group in made.groups], made


def test_views_at_the_ends_of_a_group_stay_torchs():
    x, w = torch.randn(2, 3, 4), torch.randn(4, 5)
    found, groups, made = seen(lambda x, w: (x.exp() + 1).view(6, 4) @ w, x, w)
    assert groups == [["exp.default", "add.Tensor"]]
    reasons = {found.operators[cut.producer]: cut.reason for cut in made.cuts if cut.consumer is None}
    assert "BLAS" in reasons["mm.default"] or reasons["mm.default"]


def test_a_view_that_a_group_and_others_read_is_outside():
    x, w = torch.randn(2, 3, 4), torch.randn(4, 4)

    def function(x, w):
        flat = x.view(6, 4)
        return (flat @ w) * flat + 1

    _, groups, _ = seen(function, x, w)
    assert groups == [["mul.Tensor", "add.Tensor"]]


def test_nothing_but_views_is_no_group():
    _, groups, _ = seen(lambda x: x.t().unsqueeze(0).expand(3, 4, 2)[1:], torch.randn(2, 4))
    assert groups == []


def test_a_composite_is_a_group_by_itself():
    _, groups, _ = seen(lambda x: F.gelu(x).view(-1), torch.randn(2, 4))
    assert groups == [["gelu.default"]]


def test_every_place_is_wired():
    found, _, _ = seen(lambda x: (x * 2).max(1).values + x.shape[0], torch.randn(5, 4), dynamic=True)
    assert len(found.model.places) == len(found.nodes)
    assert found.operators[-1] == "the result"
    made = {value for place in found.model.places for value in place.outputs}
    assert all(value in made or value in found.imported.graph.by_name for p in found.model.places for value in p.inputs)


def test_a_size_that_the_graph_returns_is_asked_of_a_stand_in():
    graph, value = torch.fx.Graph(), torch.randn(3, 5)
    x = graph.placeholder("x")
    raised = graph.call_function(torch.ops.aten.exp.default, (x,))
    part = graph.call_function(torch.ops.aten.slice.Tensor, (raised, 1, 1))
    size = graph.call_function(torch.ops.aten.sym_size.int, (part, 1))
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (part, 2))
    graph.output((doubled, size))
    for node, made in ((x, value), (raised, value), (part, value[:, 1:]), (size, 4), (doubled, value[:, 1:] * 2)):
        node.meta["val"] = made
    (group,) = cut(trace_graph(graph)).groups
    assert group.stand_ins == {part.name: doubled.name}
