"""Plain modules of torch as models use them, each with its inputs; random weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor


class Of(nn.Module):
    """A module of parts whose forward pass is a function of them."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


def _unet(self: Any, x: Tensor) -> Tensor:
    fine = self.down(x)
    coarse = self.middle(functional.max_pool2d(fine, 2))
    wide = functional.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
    return self.last(torch.cat([self.up(torch.cat([self.turned(coarse), fine], 1)), wide], 1))  # type: ignore[no-any-return]


def _graph(self: Any, x: Tensor, edges: Tensor) -> Tensor:
    for layer in self.layers:
        messages = functional.silu(layer(torch.cat([x[edges[0]], x[edges[1]]], -1)))
        counts = torch.zeros(len(x)).to(x).index_add(0, edges[1], torch.ones(edges.shape[1]).to(x)).clamp(min=1)
        x = x + torch.zeros_like(x).index_add(0, edges[1], messages) / counts[:, None]
    return x


def _experts(self: Any, x: Tensor) -> Tensor:
    weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
    spread = torch.zeros(len(x), len(self.experts)).to(x).scatter(1, chosen, weights)
    return sum(spread[:, at, None] * expert(x) for at, expert in enumerate(self.experts))  # type: ignore[return-value]


def _autocast(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype != torch.float64):
        return self.body(x).float() if x.dtype != torch.float64 else self.body(x)  # type: ignore[no-any-return]


def _attention(self: Any, x: Tensor, mask: Tensor) -> Tensor:
    q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
    return self.out(functional.scaled_dot_product_attention(q, k, v, mask[:, None, None]).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _variational(self: Any, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    mean, spread = self.encoder(x).chunk(2, -1)
    loss = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(-1).mean()
    return self.decoder(mean + noise * (0.5 * spread).exp()), loss


def _mlp(*sizes: int) -> nn.Sequential:
    layers = ((nn.Linear(*pair), nn.LayerNorm(pair[1]), nn.GELU()) for pair in pairwise(sizes))
    return nn.Sequential(*(part for layer in layers for part in layer))


MODULES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "batch_norm": lambda: (
        nn.Sequential(_block(3, 8), _block(8, 8), nn.Flatten(), nn.Linear(512, 4)),
        torch.randn(4, 3, 8, 8),
    ),
    "lstm": lambda: (
        Of(lambda self, x: self.body(x), body=nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)),
        torch.randn(2, 5, 6),
    ),
    "gru": lambda: (Of(lambda self, x: self.body(x)[0], body=nn.GRU(6, 8)), torch.randn(5, 2, 6)),
    "unet": lambda: (
        Of(
            _unet,
            down=_block(3, 8),
            middle=_block(8, 16),
            turned=nn.ConvTranspose2d(16, 8, 2, 2),
            up=_block(16, 8),
            last=nn.Conv2d(24, 2, 1),
        ),
        torch.randn(2, 3, 16, 16),
    ),
    "graph_network": lambda: (
        Of(_graph, layers=nn.ModuleList(nn.Linear(16, 8) for _ in range(2))),
        torch.randn(10, 8),
        torch.randint(0, 10, (2, 40)),
    ),
    "checkpointing": lambda: (
        Of(lambda self, x: checkpoint(self.body, x, use_reentrant=False), body=_mlp(8, 32, 8)),
        torch.randn(6, 8),
    ),
    "autocast": lambda: (Of(_autocast, body=nn.Sequential(_mlp(8, 32, 8), nn.Softmax(-1))), torch.randn(6, 8)),
    "experts": lambda: (
        Of(_experts, gate=nn.Linear(8, 4), experts=nn.ModuleList(_mlp(8, 16, 8) for _ in range(4))),
        torch.randn(6, 8),
    ),
    "attention": lambda: (
        Of(_attention, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16)),
        torch.randn(2, 7, 16),
        torch.arange(7) < torch.tensor([[7], [4]]),
    ),
    "transformer": lambda: (
        nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True),
        torch.randn(2, 6, 16),
        torch.randn(2, 4, 16),
    ),
    "variational": lambda: (
        Of(_variational, encoder=_mlp(8, 16, 8), decoder=_mlp(4, 16, 8)),
        torch.randn(6, 8),
        torch.randn(6, 4),
    ),
    "embedding_bag": lambda: (
        Of(lambda self, x: self.mlp(self.bag(x)), bag=nn.EmbeddingBag(20, 8), mlp=_mlp(8, 8)),
        torch.randint(0, 20, (4, 3)),
    ),
    "group_norm": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.PixelShuffle(2), nn.AdaptiveAvgPool2d(3)),
        torch.randn(2, 3, 8, 8),
    ),
}
