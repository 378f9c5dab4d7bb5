"""Kernels of Triton launched on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noyau.errors import MissingExtraError
from noyau.kernels.triton.calls import TritonKernel
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel
from noyau.signatures.types import Instance

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch is not installed; run: pip install 'noyau-kernels[triton]'") from error


def launch(kernel: UserKernel, instance: Instance, arrays: Sequence[np.ndarray], constants: Mapping[str, Any]) -> None:
    """One launch, each tensor in memory of its own; of a tuner's configurations the first."""
    launcher = TritonKernel(kernel, instance, constants, 0 if configs_of(kernel.function) else None)
    arguments = [
        np.asarray(array).item() if value.scalar else torch.from_numpy(np.ascontiguousarray(array)).cuda()
        for value, array in zip(instance.inputs, arrays, strict=True)
    ]
    launcher(*arguments)
    torch.cuda.synchronize()
