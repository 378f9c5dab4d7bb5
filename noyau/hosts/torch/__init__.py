"""Kernels on tensors of PyTorch, and ops as operators of it."""

from __future__ import annotations

from typing import Any

from noyau.errors import MissingExtraError


def require_torch(called: str) -> Any:
    """Import torch, which takes arrays on a GPU. MissingExtraError where torch is not installed."""
    try:
        from noyau.hosts.torch import tensors
    except ImportError as error:
        message = "kernels on a GPU are launched by torch and triton; run: pip install 'noyau[triton]'"
        raise MissingExtraError(f"{called}: {message}") from error
    return tensors
