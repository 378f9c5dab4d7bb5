"""Offsets of a kernel at sizes that nobody declares: from which size on they overflow int32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from noyau.kernels.user_kernel import UserKernel
from noyau.sanitizer.lint.arithmetic import Situation, diagnose_arithmetic, situation_or_none
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.launches import EXTENTS_MOST
from noyau.sanitizer.lint.values import INT32_END
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance

COMMON = 1024  # cells along an axis, where another one grows


def offsets_beyond(
    kernel: UserKernel, instance: Instance, sizes: Mapping[str, int], arrays: Sequence[np.ndarray]
) -> list[Diagnostic]:
    """Offsets that overflow int32 once an array has more cells than it counts, though no extent has: each size in turn
    grows, the others are common ones; then all grow. What the launch does not take is no such size."""

    def again(other: Mapping[str, int]) -> Situation | None:
        return situation_or_none(kernel, instance, other, arrays)

    for grows in (*({name} for name in sizes), set(sizes)):
        own = dict.fromkeys(sizes, COMMON)
        while max(own.values()) < INT32_END // 4:
            own |= {name: 2 * own[name] for name in grows}
            if _most_cells(instance, own) > INT32_END:
                break
        situation = again(own) if _most_cells(instance, own) > INT32_END else None
        takes = situation is not None and all(a <= b for a, b in zip(situation.grid, EXTENTS_MOST["grid"], strict=True))
        if situation is not None and takes and (overflows := diagnose_arithmetic(situation, again, sums=False)):
            return list({each.message: each for each in reversed(overflows)}.values())
    return []


def _most_cells(instance: Instance, sizes: Mapping[str, int]) -> int:
    """The cells of the largest array."""
    return max(math.prod(shape) for shape in shapes_of((*instance.inputs, *instance.outputs), sizes))
