"""Modules drawn at random, compiled with all kernels that are right, beside torch's own run of them in float64."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tests.jobs.optimize.torch.modules import F, compiled

# Each keeps the shape [batch, tokens, 6]; `w` is a parameter of 6 cells, `m` one of 6 by 6.
STEPS = (
    lambda x, w, m: torch.tanh(x) * w,
    lambda x, w, m: F.gelu(x) + x,
    lambda x, w, m: x / (1 + (x * w).abs()),
    lambda x, w, m: F.layer_norm(x, (6,), w, w),
    lambda x, w, m: F.rms_norm(x, (6,), w, 1e-5),
    lambda x, w, m: torch.softmax(x, -1) + torch.log_softmax(x, 1),
    lambda x, w, m: F.linear(x, m, w),
    lambda x, w, m: torch.cat([x[..., 3:], -x[..., :3]], -1),
    lambda x, w, m: x.flip(1).cumsum(-1),
    lambda x, w, m: torch.where(x > w, x, 0.5 * w),
    lambda x, w, m: x - x.amax(1, keepdim=True) + x.mean(-1, keepdim=True),
    lambda x, w, m: F.scaled_dot_product_attention(x, x @ m, x, is_causal=True),
    lambda x, w, m: x.clone().mul_(w).add_(1),
    lambda x, w, m: x.transpose(1, 2).contiguous().exp().clamp(max=3).transpose(1, 2),
    lambda x, w, m: F.pad(x[:, 1:], (0, 0, 1, 0), value=0.5) * x,
    lambda x, w, m: x.detach() * w + torch.sqrt(x.square() + 0.1),
)


class Drawn(torch.nn.Module):
    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.steps = [draw.choice(STEPS) for _ in range(6)]
        self.w = torch.nn.Parameter(torch.rand(6, dtype=torch.float64) + 0.5)
        self.m = torch.nn.Parameter(torch.randn(6, 6, dtype=torch.float64) / 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = x
        for step in self.steps:
            middle, x = x, step(x, self.w, self.m)
        return x, middle.sum(1)


def slopes(run, module, x):
    """The results, and the gradient of the sum of their squares by the input and each parameter."""
    made = run(x)
    wanted = [x, *module.parameters()]
    return *made, *torch.autograd.grad(sum(each.square().sum() for each in made), wanted, allow_unused=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_modules_drawn_at_random_give_what_torch_gives(seed):
    torch.manual_seed(seed)
    module, x = Drawn(Random(seed)), torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    function, record = compiled(module, dynamic=seed == 3)
    for got, want in zip(slopes(function, module, x), slopes(module, module, x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    assert any(graph.kept for graph in record.graphs)
