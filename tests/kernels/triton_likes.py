"""What triton's decorators make, as far as noyau looks at it, for where triton is not installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Jitted:
    fn: Any

    def __call__(self, *given, **named):
        raise RuntimeError("a kernel is called by its grid")


@dataclass
class Config:
    kwargs: dict[str, Any]
    num_warps: int = 4

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "maxnreg": None}


@dataclass
class Autotuner:
    """As triton's: called by its grid alone."""

    fn: Any
    configs: list[Config]


@dataclass
class Heuristics:
    fn: Any
    values: dict[str, Any] = field(default_factory=dict)


for _each in (Jitted, Autotuner, Heuristics):
    _each.__module__ = "triton.runtime.alike"
