"""A kernel on an op, and one call of it that is to be watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.handwritten.kernels import HandKernel
from noyau.references import empty_outputs
from noyau.signatures.types import Instance

Array = np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel and what it is to be run on; `size` is what a report says of that."""

    kernel: HandKernel
    instance: Instance
    arrays: Sequence[Array]
    constants: Mapping[str, Any]
    size: str = ""

    def zeroed_outputs(self) -> list[Array]:
        """Memory for its outputs, of zeros, so that a watched run gives the same numbers each time."""
        return [np.zeros_like(each) for each in empty_outputs(self.instance, self.arrays)]
