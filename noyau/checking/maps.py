"""Who writes which cell in the kernels of an op that are written by hand, on a small call."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.checking.attempts import attempts
from noyau.errors import InputError, NoyauError
from noyau.ops import Op
from noyau.shadow.mapping import Map
from noyau.shadow.watching import watch
from noyau.signatures.types import Instance

_SMALLEST = 30  # cells of the largest array of such a call, at least


def maps_of(op: Op[..., Any]) -> list[Map]:
    """A map of a call of each kernel; of one that cannot be watched, why."""
    maps: list[Map] = []
    for kernel in op.kernels.values():
        made: list[Map] = []
        try:
            instance, arrays, size = usual_case(op)
            watch(kernel, instance, arrays, {}, size, made)
        except NoyauError as error:
            made = [Map(kernel.called, "", "", {}, (), (str(error),))]
        maps += made
    return maps


def usual_case(op: Op[..., Any]) -> tuple[Instance, list[np.ndarray], str]:
    """Inputs of the first sizes that are no edge, and these in words. InputError where there are none."""
    for attempt in attempts(op, {}, 0, lambda instance: True):
        arrays = attempt.make(attempt.sizes)
        if arrays is not None and max((array.size for array in arrays), default=_SMALLEST) >= _SMALLEST:
            size = ", ".join(f"{name} = {value}" for name, value in attempt.sizes.items())
            return attempt.instance, list(arrays), size
    raise InputError(f"{op.name} has no inputs to launch it on")
