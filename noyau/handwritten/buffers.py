"""What `launch=`, `args=` and `init=` see of a kernel's arrays, whichever runtime calls, also without a GPU."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Device:
    """Where a kernel runs: `cpu`, or `cuda:0`; `sm_count` multiprocessors, which are the cores of a CPU."""

    name: str
    sm_count: int

    def __str__(self) -> str:
        return self.name


CPU = Device("cpu", os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Buffer:
    """An input or an output as `launch=`, `args=` and `init=` get it: what is known of the array, not its cells.

    `strides` are in elements. In `args=` a Buffer stands for the array itself."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    device: Device = CPU

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements, as torch calls it."""
        return self.size

    def stride(self, axis: int) -> int:
        """Elements between neighbours along an axis."""
        return self.strides[axis]


def buffer_of(name: str, array: np.ndarray) -> Buffer:
    """The Buffer of an array of NumPy."""
    strides = tuple(stride // max(1, array.itemsize) for stride in array.strides)
    return Buffer(name, array.shape, strides, array.dtype)
