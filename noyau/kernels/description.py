"""The description of an op: its reference, its signature, its kernels. Attaching one makes a new description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noyau.kernels.reference import Reference
from noyau.kernels.user_kernel import Target, UserKernel, require_name
from noyau.signatures.types import Signature


@dataclass(frozen=True, slots=True)
class Description:
    """An op. `sizes`: dims that no input binds; `inputs`: makes inputs, `(rng, n=500) -> arrays`; `file`, `line`: of
    its reference."""

    name: str
    reference: Reference
    signature: Signature | None
    sizes: Mapping[str, int]
    inputs: Callable[..., Any] | None
    file: Path | None
    line: int
    kernels: tuple[UserKernel, ...] = field(default=())
    gradient: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """SignatureError for a name that is none."""
        require_name(self.name, f"the op of {self.reference.name}")

    @property
    def target(self) -> Target:
        """The target that kernels are attached to."""
        return Target(self.name, self.signature, self.reference.constants)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else f"line {self.line}"
