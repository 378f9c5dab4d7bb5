"""A LLaMA in plain torch: the modules and functions of transformers' LlamaForCausalLM, for where that is not installed.

The attention has no mask of its own: torch's scaled_dot_product_attention is causal, as in transformers where nothing
is padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

THETA, EPS = 10000.0, 1e-6


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
        return self.weight * x.to(dtype)


def rotated_half(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:-1], self.heads, -1)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (each * cos + rotated_half(each) * sin for each in (q, k))
        made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        return self.o_proj(made.transpose(1, 2).reshape(*x.shape[:-1], -1).contiguous())


class Feed(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(width, heads), Feed(width, inner)
        self.input_layernorm, self.post_attention_layernorm = Norm(width), Norm(width)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
        self.embed_tokens, self.norm = nn.Embedding(sizes["vocab_size"], width), Norm(width)
        layers = sizes["num_hidden_layers"]
        self.layers = nn.ModuleList(Layer(width, sizes["intermediate_size"], heads) for _ in range(layers))
        self.lm_head = nn.Linear(width, sizes["vocab_size"], bias=False)
        inner = width // heads
        self.register_buffer("inv_freq", 1.0 / THETA ** (torch.arange(0, inner, 2) / inner), persistent=False)
        for each in self.parameters():
            if each.dim() > 1:
                nn.init.normal_(each, std=0.02)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> Output:
        x = self.embed_tokens(ids)
        at = torch.arange(ids.shape[1], device=ids.device)[None, :]
        angles = (self.inv_freq[None, :, None].float() @ at[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = (each.to(x.dtype)[:, None] for each in (angles.cos(), angles.sin()))
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x))
        if labels is None:
            return Output(logits)
        shifted = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        loss = nn.functional.cross_entropy(
            logits.float().view(-1, logits.shape[-1]), shifted.view(-1), ignore_index=-100
        )
        return Output(logits, loss)
