"""Arguments of other packages, told by what they have: no package is imported to find out."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

_ON_A_GPU = frozenset({2, 10, 13})  # kDLCUDA, kDLROCM, kDLCUDAManaged


def are_tensors(given: Iterable[object]) -> bool:
    """Whether a tensor of torch, or what stands for one, is among these."""
    return any(hasattr(type(each), "__torch_function__") for each in given)


def lies_on_gpu(thing: object) -> bool:
    """Whether it is an array of another package that lies on a GPU."""
    if hasattr(type(thing), "__torch_function__") or isinstance(thing, np.ndarray | np.generic | int | float | str):
        return False
    if hasattr(type(thing), "__cuda_array_interface__"):
        return True
    tell = getattr(thing, "__dlpack_device__", None)
    return tell is not None and int(tell()[0]) in _ON_A_GPU


def is_traced() -> bool:
    """Whether torch.compile traces this very line."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()
