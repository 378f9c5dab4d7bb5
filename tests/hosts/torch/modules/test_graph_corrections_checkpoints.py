"""Dropout and attention under a checkpoint: backward draws the numbers of forward again."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from noyau.frontends.torch.importer import import_graph
from noyau.hosts.torch.modules.graph_corrections import complete_drawn
from noyau.jobs.optimize.torch.options import CompileOptions
from tests.jobs.optimize.torch.modules import compiled


class Checkpointed(torch.nn.Module):
    """Attention and dropout, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(8))

    def inner(self, x: torch.Tensor, chance: float) -> torch.Tensor:
        mixed = scaled_dot_product_attention(x * self.scale, x, x, dropout_p=chance)
        return x + dropout(gelu(mixed), chance)

    def forward(self, x: torch.Tensor, chance: float) -> torch.Tensor:
        return checkpoint(self.inner, x, chance, use_reentrant=False).tanh() * 2


@pytest.mark.parametrize("chance", [0.4, pytest.param(0.0, marks=pytest.mark.long)])
def test_training_under_a_checkpoint(chance):
    torch.manual_seed(0)
    module, x = Checkpointed().double(), torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    other = copy.deepcopy(module)
    function, record = compiled(module, CompileOptions(keep="all", budget_s=0))
    drawn = []
    for seed in range(2):
        slopes = []
        for call, parameters in ((function, module.parameters()), (other, other.parameters())):
            torch.manual_seed(seed)
            result = call(x, chance)
            drawn.append(torch.rand(()))
            slopes.append((result, *torch.autograd.grad(result.square().sum(), [x, *parameters])))
        for got, want in zip(*slopes, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    assert drawn[0] == drawn[1] and drawn[2] == drawn[3] != drawn[0]
    assert [graph.kind for graph in record.graphs if graph.kept] == ["forward", "backward"]


def test_a_graph_that_is_given_generators():
    """torch gives them to a graph for a GPU; tensors of this one have no cells."""
    graph, random = torch.fx.Graph(), torch._prims.rng_prims
    x, state = graph.placeholder("x"), graph.placeholder("bwd_rng_state_0")
    dropped = torch.ops.aten.native_dropout.default
    both = graph.call_function(random.graphsafe_run_with_rng_state, (dropped, x, 0.5, True), {"rng_state": state})
    graph.output((graph.call_function(operator.getitem, (both, 0)),))
    with FakeTensorMode():
        x.meta["val"] = torch.empty(4, 6, device="cuda")
    state.meta["val"] = torch.Generator()
    complete_drawn(graph)
    results = both.meta["val"]
    next(iter(both.users)).meta["val"] = results[0]
    assert [(each.dtype, each.device.type) for each in results] == [(torch.float32, "cuda"), (torch.bool, "cuda")]
    imported = import_graph(graph)
    assert set(imported.opaque) == {both.name} and len(imported.results[both.name]) == 2
