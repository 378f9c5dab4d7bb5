"""Arrays as tensors of torch, for peers that take those: the same memory, so that both see what is new in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.errors import MissingExtraError
from noyau.runtimes.numpy.dlpack import given_back


def as_tensors(values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays as tensors; all else as it is. MissingExtraError without torch."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("a peer that takes tensors needs torch: pip install 'noyau[torch]'") from None
    like = torch.empty(0)
    return tuple(given_back(value, like) if isinstance(value, np.ndarray) else value for value in values)
