"""Views of a kernel's arrays for `launch=`, `args=` and `init=`, the same for every runtime, also without a GPU.

Functions of a user that say by the names of their parameters what they want to know.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.errors import SignatureError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def requested_names(function: Callable[..., Any], offered: Iterable[str], label: str) -> tuple[str, ...]:
    """The names that a function asks for. SignatureError for one that is not offered and has no default."""
    known, found = list(offered), []
    for name, parameter in parameters_of(function, label).items():
        if parameter.kind not in _NAMED:
            raise SignatureError(f"{label} takes {parameter}; it gets what it asks for by the name of each parameter")
        if name in known:
            found.append(name)
        elif parameter.default is inspect.Parameter.empty:
            raise SignatureError(f"{label} asks for {name}; there are {', '.join(known)}")
    return tuple(found)


def ask(function: Callable[..., Any], offered: Mapping[str, Any], label: str) -> Any:
    """Call a function with what it asks for by name."""
    return function(**{name: offered[name] for name in requested_names(function, offered, label)})


def parameters_of(function: Callable[..., Any], label: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. SignatureError where Python cannot tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise SignatureError(
            f"{label} is {function!r}, of which the parameters cannot be told; wrap it in a def"
        ) from None


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The device that a kernel runs on: `cpu`, or `cuda:0`; `sm_count` multiprocessors, which are the cores of a CPU.
    Of a GPU also its `model`, and the bytes of its L2, of the memory that the threads of a block may share, and of its
    own memory."""

    name: str
    sm_count: int
    model: str = ""
    l2_bytes: int = 0
    shared_bytes: int = 0
    memory_bytes: int = 0
    capability: tuple[int, int] = (0, 0)
    warp_size: int = 32
    max_threads: int = 1024

    def __str__(self) -> str:
        return self.name


CPU = DeviceProperties("cpu", os.cpu_count() or 1)

# What `device` is to a kernel for a GPU where there is none: by NVIDIA's data sheet of the H100 (SXM5).
GPU = DeviceProperties(
    "cuda:0", 132, "NVIDIA H100 (assumed: there is no GPU here)", 50 << 20, 227 << 10, 80 << 30, (9, 0)
)


@dataclass(frozen=True, slots=True)
class Buffer:
    """An input or an output as `launch=`, `args=` and `init=` get it: what is known of the array, not its cells.

    `strides` are in elements. In `args=` a Buffer stands for the array itself."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    device: DeviceProperties = CPU

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
