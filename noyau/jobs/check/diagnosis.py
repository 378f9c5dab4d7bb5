"""The diagnosis of a failure: its kind, and what all that fails has in common.

The smallest sizes at which a kernel is wrong, and what all wrong sizes have in common.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noyau.dtypes import DType
from noyau.errors import FindingKind
from noyau.jobs.check.runs import Unlike
from noyau.signatures.types import Instance
from noyau.verify.certificate import Failure
from noyau.verify.floats import FORMATS

Sizes = Mapping[str, int]
FailureAt = Callable[[Sizes], Failure | None]

SHRINK_S, SHRINK_TRIALS, TAIL_S = 3.0, 60, 1.5
BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
_SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


@dataclass(frozen=True, slots=True)
class Smallest:
    """A failure, and the sizes at which it shows."""

    failure: Failure
    sizes: Sizes


def shrink(first: Smallest, failure_at: FailureAt, seconds: float = SHRINK_S) -> Smallest:
    """The failure at the smallest sizes that were found to show one of its kind, each size made smaller in turn."""
    smallest, end_s, trials = first, time.monotonic() + seconds, 0
    kind = _kind(first.failure)
    for name in list(first.sizes) * 2:
        low, high = -1, smallest.sizes[name]  # it is right at `low`, and wrong at `high`
        while high - low > 1 and trials < SHRINK_TRIALS and time.monotonic() < end_s:
            size = next((small for small in _SMALL if low < small < high), (low + high) // 2)
            sizes = {**smallest.sizes, name: size}
            failure = failure_at(sizes)
            trials += 1
            if failure is None or _kind(failure) != kind:
                low = size
            else:
                high, smallest = size, Smallest(failure, sizes)
    return smallest


def _kind(failure: Failure) -> FindingKind | None:
    """Its kind; a value that is near becomes one that is not, and the other way round."""
    return None if failure.cell is not None else failure.kind


def tail_of(smallest: Smallest, failure_at: FailureAt) -> str:
    """`only where n is no multiple of 8`, where that is so of the sizes that are tried for it; else nothing."""
    end_s = time.monotonic() + TAIL_S
    for name, size in smallest.sizes.items():
        for block in BLOCKS:
            if not size % block or size > 2 * block:
                continue
            plan = ((2, 0, False), (2, 1, True), (3, 0, False), (3, (block + 1) // 2, True))
            as_planned = (
                (failure_at({**smallest.sizes, name: times * block + rest}) is not None) is wrong
                for times, rest, wrong in plan
            )
            if all(time.monotonic() < end_s and each for each in as_planned):
                return f"only where {name} is no multiple of {block}"
    return ""


_GROWN = (4, 16)  # times smaller sizes, at which lost precision is looked at too


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The kind of a finding, and what its message says beside the failure."""

    kind: FindingKind
    told: tuple[str, ...] = ()

    def message(self, failure: Failure) -> str:
        return "; ".join([str(failure), *self.told])


def diagnose(
    smallest: Smallest,
    instance: Instance,
    layout: str,
    unlike: Unlike | None,
    failure_at: Callable[[Sizes], Failure | None],
) -> Diagnosis:
    """Diagnose the smallest failure. `unlike`: how two runs on its inputs differ; `failure_at`: at other sizes."""
    failure, kind = smallest.failure, smallest.failure.kind
    if unlike is not None and unlike.kind is FindingKind.ORDER_DEPENDENT and kind is not FindingKind.PRECISION:
        return Diagnosis(FindingKind.RACE, (str(unlike),))
    if layout != "contiguous":
        blind = f"stride-blind: it is right on packed arrays, and not on {layout} ones"
        return Diagnosis(kind, (f"{blind}; use their strides, or copy them first",))
    if kind is FindingKind.CRASH:
        return Diagnosis(kind)
    if kind is FindingKind.PRECISION:
        return Diagnosis(kind, (*_growth(smallest, failure_at), *_saturated(failure, instance)))
    tail = tail_of(smallest, failure_at)
    notes = (f"wrong tail: {tail}",) if tail else ()
    if unlike is not None and unlike.kind is not FindingKind.ORDER_DEPENDENT:
        return Diagnosis(unlike.kind, (str(unlike), *notes))
    stuck = _saturated(failure, instance)
    return Diagnosis(FindingKind.PRECISION, stuck) if stuck else Diagnosis(kind, notes)


def is_slight(failure: Failure, instance: Instance) -> bool:
    """Whether a cell still has more than half of the digits that its dtype holds."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not math.isfinite(failure.got):
        return False
    return abs(failure.got - failure.want) < math.ldexp(abs(failure.want), -FORMATS[dtype].stored // 2)


def _growth(smallest: Smallest, failure_at: Callable[[Sizes], Failure | None]) -> tuple[str, ...]:
    """That an error grows with a size, where it is right at much smaller ones."""
    for name, size in smallest.sizes.items():
        smaller = [size // times for times in _GROWN]
        if size > max(_GROWN) and all(failure_at({**smallest.sizes, name: each}) is None for each in smaller):
            return (f"the error grows with {name}: at {smaller[0]} it is within what is allowed",)
    return ()


def _saturated(failure: Failure, instance: Instance) -> tuple[str, ...]:
    """That a sum stays where one more changes nothing, as 2^24 in float32."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not abs(failure.got) < abs(failure.want) < math.inf:
        return ()
    bits = FORMATS[dtype].stored + 1
    stays = abs(failure.got) == 2.0**bits
    return (f"it stays at 2^{bits}, where {dtype.numpy.name} has no number for one more",) if stays else ()


def _dtype_of(failure: Failure, instance: Instance) -> DType:
    """The dtype of the output that a failure is in."""
    return next((value.dtype for value in instance.outputs if value.name == failure.output), DType.OTHER)
