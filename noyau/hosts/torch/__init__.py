"""Kernels on tensors of PyTorch, and ops as operators of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.errors import MissingExtraError
from noyau.hosts.numpy.dlpack import return_like


def as_tensors(values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays as tensors; other values unchanged. MissingExtraError without torch."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("a peer that takes tensors needs torch: pip install 'noyau-kernels[torch]'") from None
    like = torch.empty(0)
    return tuple(return_like(value, like) if isinstance(value, np.ndarray) else value for value in values)


def require_torch(called: str) -> Any:
    """The module of torch tensors, for arrays on a GPU. MissingExtraError where torch is not installed."""
    try:
        from noyau.hosts.torch import tensors
    except ImportError as error:
        message = "kernels on a GPU are launched by torch and triton; run: pip install 'noyau-kernels[triton]'"
        raise MissingExtraError(f"{called}: {message}") from error
    return tensors
