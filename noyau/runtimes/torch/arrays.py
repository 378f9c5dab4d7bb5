"""Tensors of the CPU as NumPy arrays of the same memory, and back."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided

from noyau.dtypes import DType
from noyau.frontends.torch.dtypes import TO_TORCH

_OF_TENSORS = {theirs: ours for ours, theirs in TO_TORCH.items()}
_BITS = {1: torch.uint8, 2: torch.int16}  # in which the cells of a dtype that NumPy lacks are handed over


def from_torch(dtype: torch.dtype) -> DType | None:
    """The DType of a dtype of torch, or None where noyau has none (complex, quantised)."""
    return _OF_TENSORS.get(dtype)


@cache
def _numpy(dtype: torch.dtype) -> np.dtype | None:
    """What NumPy calls a dtype that it has by ml_dtypes alone."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else None


@cache
def _torch(dtype: np.dtype) -> torch.dtype | None:
    """The same from the other side."""
    return getattr(torch, dtype.name, None) if hasattr(ml_dtypes, dtype.name) else None


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The cells of a tensor on the CPU where they lie, without its gradient. TypeError for a dtype that NumPy cannot
    hold."""
    plain = tensor.detach()
    own = _numpy(plain.dtype)
    found: np.ndarray = plain.numpy() if own is None else plain.view(_BITS[plain.itemsize]).numpy().view(own)
    return found


def shown(tensor: torch.Tensor) -> np.ndarray:
    """An array of the dtype, the shape and the strides of a tensor, wherever that lies; its cells are all one zero."""
    dtype = from_torch(tensor.dtype)
    assert dtype is not None
    strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
    return as_strided(np.zeros((), dtype.numpy), tuple(tensor.shape), strides)


def shown_or_number(each: Any) -> Any:
    """`shown` of a tensor; a number stays."""
    return shown(each) if isinstance(each, torch.Tensor) else each


def seen(tensor: torch.Tensor) -> np.ndarray:
    """`array_of` on the CPU, `shown` elsewhere: what tells how a tensor lies."""
    return array_of(tensor) if tensor.device.type == "cpu" else shown(tensor)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor of the same memory, which lives as long as either is used. What may not be written, or has
    negative strides, is copied."""
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = np.array(array)
    own = _torch(array.dtype)
    return torch.from_numpy(array) if own is None else torch.from_numpy(array.view(f"i{array.itemsize}")).view(own)
