"""A kernel of Triton with every access watched: where Triton interprets, and else in a process in which it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noyau.handwritten.kernels import HandKernel
from noyau.handwritten.triton_calls import is_interpreted
from noyau.shadow.mapping import Map
from noyau.shadow.records import Watched
from noyau.shadow.triton.apart import watch_apart
from noyau.shadow.triton.running import watch_here
from noyau.signatures.types import Instance


def watch(
    kernel: HandKernel,
    instance: Instance,
    arrays: Sequence[np.ndarray],
    constants: Mapping[str, Any],
    size: str,
    maps: list[Map] | None = None,
) -> Watched:
    """The kernel on these arrays, watched, on tensors of the CPU, whether there is a GPU or not; where Triton
    interprets, a map of it is put into `maps`.

    UnsupportedError where it cannot be; CheckError where it raises, crashes or does not end."""
    if is_interpreted(kernel.function):
        return watch_here(kernel, instance, arrays, constants, size, maps)
    return watch_apart(kernel, arrays, constants, size)
