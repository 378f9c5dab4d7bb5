from __future__ import annotations

import json

import pytest
import torch

from noyau.errors import DeviceError, ModelError, UnsupportedError
from noyau.hosts.torch.modules.graph_json import device_here, graph_from_json, graph_to_json
from tests.frontends.torch.exports import graph_of


def there_and_back(graph, kernels=None):
    kernels = kernels or {}
    told = json.loads(json.dumps(graph_to_json(graph, {function: name for name, function in kernels.items()})))
    return torch.fx.GraphModule({}, graph_from_json(told, kernels))


def test_a_graph_there_and_back():
    def function(x, y):
        masked = x.masked_fill(y > 0.5, float("-inf")).softmax(-1).to(torch.float64)
        parts = torch.split(masked, 2, 1)
        whole = torch.cat([parts[1], parts[0]], 1).clone(memory_format=torch.contiguous_format)
        return whole.sum(dtype=torch.float64), torch.full((2, 3), float("nan")), x.t()[1:, None]

    x, y = torch.randn(3, 4), torch.rand(3, 4)
    made = there_and_back(graph_of(function, (x, y)))
    for got, want in zip(made.forward(x, y), function(x, y), strict=True):
        assert torch.equal(got.nan_to_num(), want.nan_to_num())
        assert got.dtype == want.dtype


def test_kernels_go_by_their_names():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.neg, (x,)),))
    assert torch.equal(there_and_back(graph, {"7": torch.neg}).forward(torch.ones(2))[0], -torch.ones(2))


def test_what_cannot_be_saved_is_named():
    graph = torch.fx.Graph()
    graph.output((graph.call_function(print, ("x",)),))
    with pytest.raises(UnsupportedError, match="print> cannot be saved: operators of ATen and kernels"):
        graph_to_json(graph, {})
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.ops.aten.neg.default, (object(),)),))
    with pytest.raises(UnsupportedError, match="of an operator cannot be saved"):
        graph_to_json(graph, {})
    graph = torch.fx.Graph()
    graph.output((graph.get_attr("weight"),))
    with pytest.raises(UnsupportedError, match="has no get_attr in its graph"):
        graph_to_json(graph, {})


OUTPUT = {"name": "o", "op": "output", "target": "output", "args": [[]], "kwargs": {}}


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"op": "call_function", "target": "builtins.eval"}, r"calls builtins\.eval, which is no operator"),
        ({"op": "call_function", "target": "aten.__class__.x"}, "which is no operator"),
        ({"op": "call_function", "target": "kernel.7"}, "which is no operator"),
        ({"op": "call_function", "target": "python.exec"}, "which is no operator"),
        ({"op": "call_module", "target": "x"}, "call_module is no kind of node"),
        ({"op": "call_function", "target": "aten.neg.default", "args": [{"node": "later"}]}, "cannot be read"),
        ({"op": "call_function", "target": "aten.neg.default", "args": [{"eval": "1"}]}, "cannot be read"),
        ({"op": "call_function", "target": "aten.neg.default", "args": [{"dtype": "torch.nothing"}]}, "cannot be read"),
    ],
)
def test_hostile_graphs_are_refused(node, told):
    with pytest.raises(ModelError, match=told):
        graph_from_json([{"name": "x", "args": [], "kwargs": {}, **node}, OUTPUT], {})


def test_a_graph_without_an_end():
    with pytest.raises(ModelError, match="ends with its output"):
        graph_from_json([{"name": "x", "op": "placeholder", "target": "placeholder", "args": [], "kwargs": {}}], {})


def test_a_gpu_of_a_higher_number_than_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_here("cuda:1").index == 1
    with pytest.raises(DeviceError, match="saved for cuda:3, and there are 2 GPUs here"):
        device_here("cuda:3")
