"""The names of numba.cuda: what an object is called there, and what stands for it in a kernel that is watched."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import cuda

from noyau.errors import UnsupportedError
from noyau.sanitizer.compiled_numbers import MATH
from noyau.sanitizer.numba_cuda.arrays import fitted
from noyau.sanitizer.numba_cuda.device import SimulatedDevice
from noyau.sanitizer.numba_cuda.requests import WAITING

_STANDING = (
    *("threadIdx", "blockIdx", "blockDim", "gridDim", "grid", "gridsize", "atomic", "shared", "local", "const"),
    *("threadfence", "threadfence_block", "threadfence_system", "nanosleep", "lanemask_lt"),
    *("popc", "brev", "clz", "ffs", "fma", "cbrt", "selp", "fp16", "libdevice"),
)


@cache
def _words() -> dict[int, str]:
    """Objects that wait, by identity: the objects live as long as their module."""
    return {id(getattr(cuda, name)): name for name in WAITING if hasattr(cuda, name)}


def word_of(value: Any) -> str | None:
    """The name of a word of numba.cuda that waits; None for all else."""
    return _words().get(id(value))


def stand_ins(device: SimulatedDevice) -> dict[int, Any]:
    """Stand-ins of objects in a kernel's globals, by their identity."""
    by_identity: dict[int, Any] = {id(cuda): device, id(numba): _Numba(device), id(math): MATH}
    by_identity |= {id(getattr(cuda, name)): getattr(device, name) for name in _STANDING if hasattr(cuda, name)}
    atomics = (name for name in vars(type(device.atomic)) if not name.startswith("_"))
    by_identity |= {id(getattr(cuda.atomic, name)): getattr(device.atomic, name) for name in atomics}
    by_identity |= {id(function): getattr(MATH, name) for name, function in vars(math).items() if callable(function)}
    return by_identity


def conversion_of(meant: Any) -> Callable[..., Any] | None:
    """The stand-in of an integer type of NumPy or Numba that is called. On a device an integer wraps around, a float
    that is too large becomes the largest one of 32 bits or more, and NaN 0."""
    if isinstance(meant, type) and issubclass(meant, np.integer):
        dtype = np.dtype(meant)
    elif isinstance(meant, numba.types.Integer):
        dtype = numba.np.numpy_support.as_dtype(meant)
    else:
        return None

    limits = np.iinfo(dtype if dtype.itemsize >= np.dtype(np.int32).itemsize else np.int32)

    def converted(value: Any = 0) -> Any:
        whole = value
        if isinstance(value, float | np.floating):
            whole = 0 if math.isnan(value) else int(min(max(float(value), limits.min), limits.max))
        return dtype.type(fitted(int(whole), dtype))

    return converted


class _Numba:
    """The package, with a device in place of numba.cuda."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.cuda = device

    def __getattr__(self, name: str) -> Any:
        return getattr(numba, name)


class Libdevice:
    """Functions of libdevice by their names: those of math, in single and double precision."""

    def __getattr__(self, name: str) -> Any:
        plain = name.removeprefix("fast_")
        for candidate in (plain, plain.removesuffix("f")):
            if candidate in _LIBDEVICE:
                return _LIBDEVICE[candidate]
            if hasattr(MATH, candidate):
                return getattr(MATH, candidate)
        raise UnsupportedError(f"numba.cuda.libdevice.{name} cannot be watched without a GPU; use a function of math")


_LIBDEVICE: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda value: 1 / np.sqrt(value),
    "rcbrt": lambda value: 1 / np.cbrt(value),
    "fma": lambda a, b, c: a * b + c,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "saturate": lambda value: np.clip(value, 0, 1),
}
