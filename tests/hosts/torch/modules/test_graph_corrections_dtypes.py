"""Training under autocast: torch's kernels give statistics of norms in float32, which it does not foretell."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from noyau.jobs.optimize.torch.options import CompileOptions
from tests.jobs.optimize.torch.modules import compiled


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.layer, self.group, self.batch = nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        x = self.layer(nn.functional.gelu(self.first(x)))
        return self.last(self.batch(self.group(x).sigmoid() * x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.long)], ids=str)
def test_training_under_autocast(dtype):
    torch.manual_seed(0)
    module = Norms()
    other = copy.deepcopy(module)
    function, record = compiled(module, CompileOptions(keep="all", budget_s=0))
    x, target = torch.randn(5, 6), torch.randn(5, 3)
    for call in (function, other):
        with torch.autocast("cpu", dtype=dtype):
            loss = nn.functional.mse_loss(call(x).float(), target)
        loss.backward()
    assert [graph.kind for graph in record.graphs if graph.kept] == ["forward", "backward"]
    wide = 4 * torch.finfo(dtype).eps
    for (name, ours), theirs in zip(module.named_parameters(), other.parameters(), strict=True):
        assert ours.grad.dtype is theirs.grad.dtype
        assert torch.allclose(ours.grad, theirs.grad, rtol=wide, atol=wide), name
    assert torch.equal(module.batch.running_mean, other.batch.running_mean) or torch.allclose(
        module.batch.running_mean, other.batch.running_mean, atol=wide
    )


def test_statistics_that_a_user_reads():
    def mean(x, weight):
        return torch.native_layer_norm(x * 2, (4,), weight, weight, 1e-5)[1]

    function, _ = compiled(mean, CompileOptions(keep="all", budget_s=0))
    x, weight = torch.randn(3, 4).bfloat16(), torch.ones(4)
    assert function(x, weight).dtype is mean(x, weight).dtype is torch.float32
    assert torch.allclose(function(x, weight), mean(x, weight), rtol=1e-2, atol=1e-2)
