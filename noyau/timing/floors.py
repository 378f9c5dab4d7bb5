"""The floor of a memory-bound kernel: the least seconds in which this machine moves as many bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from noyau.timing import rates

MISTAKE_BELOW = 0.9  # of the floor
_ROUNDS = 4  # in which a floor is measured anew before anybody is accused


def floor_s(read_bytes: int, written_bytes: int, threads: int) -> float:
    """The least seconds for so many bytes here: as much of both at the rate of copies, the rest at that of reads."""
    moved, alone = read_bytes + written_bytes, abs(read_bytes - written_bytes)
    rate = rates.read_rate if read_bytes > written_bytes else rates.copy_rate
    return (moved - alone) / rates.copy_rate(moved, threads) + (alone / rate(moved, threads) if alone else 0.0)


def mistake(
    time_s: float, read_bytes: int, written_bytes: int, threads: int, again: Callable[[], float] | None = None
) -> str:
    """Why a time cannot be, or nothing: it is less than 0.9 of the floor, and still is where the floor is that of the
    next smaller size, and at the best of some rounds in which it is measured anew: what was kept may be of a busier
    hour, and what lies between two sizes of the curve may be in a faster cache than the larger one.

    `again`: the seconds of one run more. They are measured in turn with the floor, for others use the memory now more,
    now less, and only times of the same moments tell the kernel from the moment."""
    if time_s >= MISTAKE_BELOW * floor_s(read_bytes, written_bytes, threads):
        return ""
    best_s, least_s = time_s if again is None else math.inf, math.inf
    for _ in range(_ROUNDS):
        best_s = best_s if again is None else min(best_s, again())
        least_s = min(least_s, _least_s(read_bytes, written_bytes, max(threads, 1)))
    return "" if best_s >= MISTAKE_BELOW * least_s else too_short(best_s, least_s, "machine")


def too_short(time_s: float, least_s: float, what: str) -> str:
    """The message that a time cannot be, on a machine or a GPU."""
    cause = "the count of bytes, the clock or the kernel is wrong"
    return f"it took {time_s:.3g} s, and what it must move takes this {what} {least_s:.3g} s: {cause}"


def _least_s(read_bytes: int, written_bytes: int, threads: int) -> float:
    """As `floor_s`, at the best rate of what is kept and of what is measured now."""
    moved, alone = read_bytes + written_bytes, abs(read_bytes - written_bytes)
    near = (moved, moved // 2)
    copies = reads = max(*(rates.copy_rate(each, threads) for each in near), rates.best_copy(moved, threads))
    if read_bytes > written_bytes:
        reads = max(copies, *(rates.read_rate(each, threads) for each in near), rates.measure_read(moved, threads))
    return (moved - alone) / copies + alone / reads


def gain_s(time_s: float, floor_s: float) -> float:
    """The seconds that a part can gain at most: what it takes now, less its floor."""
    return max(time_s - floor_s, 0.0)


def gain_text(total_s: float, gains_s: float) -> str:
    """The most that the whole gains when a part of it takes no time, in words."""
    most = ceiling(total_s, [gains_s])
    return f"that makes the whole {'more than 20x' if most is None else f'at most {most:.2f}x'} as fast"


def ceiling(total_s: float, gains_s: Iterable[float]) -> float | None:
    """The greatest speed-up of the whole, when its parts gain so many seconds; None above 20 times.

    Amdahl, Validity of the single processor approach to achieving large scale computing capabilities (1967)."""
    left_s = total_s - sum(gains_s)  # where less than a twentieth would be, the ceiling is beyond what a clock can tell
    return total_s / left_s if total_s > 0 and left_s > 0.05 * total_s else None
