"""Texts of flat functions, without a GPU."""

from __future__ import annotations

import operator

import torch

from noyau.hosts.torch.modules.cuda_graph import as_view
from noyau.hosts.torch.modules.flat_codegen import FlatText, ViewForm


def test_what_begins_where_an_argument_does_is_asked_there():
    graph, x = torch.fx.Graph(), torch.zeros(64)
    text = FlatText(["x"], [x])
    node = graph.placeholder("x")
    updated = graph.call_function(torch.ops.aten.add_.Tensor, (node, 1))
    parts = graph.call_function(torch.ops.aten.split.Tensor, (node, 32))
    late = graph.call_function(operator.getitem, (parts, 1))
    fresh = graph.call_function(torch.ops.aten.neg.default, (node,))
    text.called(updated, x)
    text.called(parts, x.split(32))
    text.picked(late, x[32:])
    text.called(fresh, -x)
    assert text.begins_well(text.values[fresh.name]) and not text.placed
    assert not text.begins_well(text.values[late.name])
    assert text.begins_well(text.values[updated.name]) and text.placed == {"a0"}


def test_how_arguments_are_spelt():
    text, reads = FlatText([], []), []
    assert eval(text.word({"a": [1, slice(None, 2)]}, reads), dict(text.names)) == {"a": [1, slice(None, 2, None)]}


def test_strides_are_asked_of_what_a_backward_is_given():
    given = [torch.zeros(2, 3), torch.zeros(2, 3).T]
    assert FlatText(["saved", "other"], given).conditions() == []
    assert FlatText(["tangents_1", "other"], given).conditions() == [
        "if a0.stride() != (3, 1) or a1.stride() != (1, 3):",
        "    return slowly(arguments)",
    ]


def test_a_view_begins_later_than_what_it_shows():
    x = torch.arange(10)
    assert as_view(x[2:], (2, 2), (3, 1), 1).tolist() == [[3, 4], [6, 7]]
    assert ViewForm("a0").lies is None
