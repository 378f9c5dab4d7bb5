"""Small modules, compiled by noyau beside torch's own run of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from noyau.jobs.optimize.torch.backend import compile_captured
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.options import CompileOptions

F = torch.nn.functional
ALL = CompileOptions(keep="all")


class Block(torch.nn.Module):
    """A norm, two products with gelu between them, a residual, a norm without a mean, a softmax."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.scale = torch.nn.LayerNorm(width), torch.nn.Parameter(torch.rand(width) + 0.5)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.down(F.gelu(self.up(self.norm(x)))) + x
        v = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        return v, F.softmax(x, -1).transpose(1, 2) * 2


def compiled(
    function: Callable[..., Any], wishes: CompileOptions = ALL, **options: Any
) -> tuple[Callable[..., Any], GraphRecord]:
    """A function compiled with all kernels that are right, and the record of what was compiled."""
    torch._dynamo.reset()
    record = GraphRecord()

    def backend(module: Any, inputs: Any) -> Any:
        return compile_captured(module, inputs, wishes, record)

    return torch.compile(function, backend=backend, **options), record


def same(got: Any, want: Any, tolerance: float = 1e-5) -> bool:
    """Whether results are alike: values, dtypes, and how they lie in memory."""
    if isinstance(want, tuple | list):
        return len(got) == len(want) and all(map(same, got, want))
    lies = got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
    return bool(lies and torch.allclose(got, want, tolerance, tolerance))
