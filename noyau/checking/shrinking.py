"""The smallest sizes at which a kernel is wrong, and what all wrong sizes have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noyau.checking.certificate import Failure
from noyau.checking.findings import kind_of

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


def shrunk(first: Smallest, failure_at: FailureAt, seconds: float = SHRINK_S) -> Smallest:
    """The failure at the smallest sizes that were found to show one of its kind, each size made smaller in turn."""
    found, end_s, trials = first, time.monotonic() + seconds, 0
    kind = _kind(first.failure)
    for name in list(first.sizes) * 2:
        low, high = -1, found.sizes[name]  # it is right at `low`, and wrong at `high`
        while high - low > 1 and trials < SHRINK_TRIALS and time.monotonic() < end_s:
            size = next((small for small in _SMALL if low < small < high), (low + high) // 2)
            tried = {**found.sizes, name: size}
            failure = failure_at(tried)
            trials += 1
            if failure is None or _kind(failure) != kind:
                low = size
            else:
                high, found = size, Smallest(failure, tried)
    return found


def _kind(failure: Failure) -> str:
    """Its kind; a value that is near becomes one that is not, and the other way round."""
    return "" if failure.cell is not None else kind_of(failure)


def tail_of(smallest: Smallest, failure_at: FailureAt) -> str:
    """`only where n is no multiple of 8`, where that is so of the sizes that are tried for it; else nothing."""
    end_s = time.monotonic() + TAIL_S
    for name, size in smallest.sizes.items():
        for block in BLOCKS:
            if not size % block or size > 2 * block:
                continue
            plan = ((2, 0, False), (2, 1, True), (3, 0, False), (3, (block + 1) // 2, True))
            tried = (
                (failure_at({**smallest.sizes, name: times * block + rest}) is not None) is wrong
                for times, rest, wrong in plan
            )
            if all(time.monotonic() < end_s and each for each in tried):
                return f"only where {name} is no multiple of {block}"
    return ""
