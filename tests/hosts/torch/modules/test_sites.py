"""Places of a graph of torch's, for a GPU too; its tensors have no cells, so no GPU is needed."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from noyau.hosts.torch.modules.sites import ASSERTS, trace_graph


@pytest.mark.parametrize(("device", "is_apart"), [("cpu", False), ("cuda", True)])
def test_what_asserts_on_a_gpu_is_in_no_kernel(device, is_apart):
    """torch's kernel would run on made-up inputs for a certificate, and end the context of the process."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    inside = graph.call_function(torch.ops.aten.sigmoid.default, (x,))
    loss = graph.call_function(torch.ops.aten.binary_cross_entropy.default, (inside, y))
    graph.output((loss,))
    with FakeTensorMode():
        for node in (x, y, inside):
            node.meta["val"] = torch.empty(4, device=device)
        loss.meta["val"] = torch.empty((), device=device)
    source = trace_graph(graph)
    reasons = {source.nodes[at].name: reason for at, reason in source.model.opaque.items()}
    assert (reasons.get(loss.name) == ASSERTS) is is_apart
    assert inside.name not in reasons
