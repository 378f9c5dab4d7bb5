"""A model that calls every op of the catalogue, between products of torch."""

from __future__ import annotations

import torch

from noyau import nn


class Everything(torch.nn.Module):
    """x: float[rows, n, 16], labels: i64[rows, n] -> a loss."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.gate = (torch.nn.Linear(16, 16, dtype=dtype) for _ in range(2))
        self.scale, self.shift = (torch.nn.Parameter(torch.rand(16, dtype=dtype)) for _ in range(2))
        self.negative, self.positive = (torch.nn.Parameter(torch.tensor(each, dtype=dtype)) for each in (0.1, 1.5))

    @staticmethod
    def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        labels = torch.randint(0, 16, (3, 5))
        labels[0, 2] = -100
        return torch.randn(3, 5, 16, dtype=dtype, requires_grad=True), labels

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[1]), torch.tensor([1.0, 0.1, 0.01, 0.001]).repeat(4)).to(x.dtype)
        y = nn.rope(nn.rms_norm(x, self.scale), angles.cos(), angles.sin())
        y = nn.swiglu(self.gate(y), self.up(x)) + nn.geglu(self.gate(x), self.up(y)) + nn.silu(nn.gelu(y))
        y, total = nn.add_rms_norm(y, x, self.scale)
        z, total = nn.add_layer_norm(self.up(y), total, self.scale, self.shift)
        z = nn.layer_norm(nn.piecewise_linear(z, self.negative, self.positive), self.scale, self.shift)
        heads = nn.softmax(z @ z.mT) @ nn.log_softmax(total)
        likely = nn.log_sigmoid_mul_sum(heads, z).mean()
        losses = nn.cross_entropy_mean(heads, labels) + nn.cross_entropy_sum(z, labels)
        return losses + nn.cross_entropy_each(total, labels).square().mean() + likely
