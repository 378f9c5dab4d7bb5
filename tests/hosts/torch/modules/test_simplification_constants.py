"""Constants of the host in a graph of a GPU, for which another device stands here."""

import pytest
import torch
from torch import fx

from noyau.hosts.torch.modules.simplification import place_constants

aten = torch.ops.aten


@pytest.mark.parametrize("is_lifted", [True, False])
def test_a_constant_of_the_host_is_copied_once(is_lifted):
    module, graph = torch.nn.Module(), fx.Graph()
    module.numbers = torch.tensor([0.5, 0.25])
    node = graph.get_attr("numbers")
    node = graph.call_function(aten.lift_fresh_copy.default, (node,)) if is_lifted else node
    node = graph.call_function(aten._to_copy.default, (node,), {"dtype": torch.float16, "device": torch.device("meta")})
    node.meta["val"] = module.numbers.to("meta", torch.float16)
    graph.output((node,))
    module = fx.GraphModule(module, graph)
    place_constants(module)
    module.recompile()
    source, copy, _ = module.graph.nodes
    assert copy.target is aten.lift_fresh_copy.default and not copy.kwargs
    held, (result,) = getattr(module, source.target), module()
    assert held.device == result.device == torch.device("meta") and held.dtype == result.dtype == torch.float16


def test_constants_of_the_same_device_stay():
    module, graph = torch.nn.Module(), fx.Graph()
    module.numbers = torch.tensor([0.5, 0.25])
    node = graph.call_function(aten._to_copy.default, (graph.get_attr("numbers"),), {"dtype": torch.float16})
    node.meta["val"] = module.numbers.half()
    graph.output((node,))
    module = fx.GraphModule(module, graph)
    place_constants(module)
    assert next(iter(module.graph.nodes)).target == "numbers"
