"""Amdahl's law: what the whole gains at most when some of its parts take no more than the machine's floor."""

from __future__ import annotations

from collections.abc import Iterable


def gain_s(time_s: float, floor_s: float) -> float:
    """The seconds that a part can gain at most: what it takes now, less its floor."""
    return max(time_s - floor_s, 0.0)


def ceiling(total_s: float, gains_s: Iterable[float]) -> float | None:
    """How many times as fast the whole is at most, when its parts gain so many seconds; None above 20 times.

    Amdahl, Validity of the single processor approach to achieving large scale computing capabilities (1967)."""
    left_s = total_s - sum(gains_s)
    return total_s / left_s if total_s > 0 and left_s > _LEAST_LEFT * total_s else None


_LEAST_LEFT = 0.05  # of the whole: where less would be left, the ceiling is beyond what a clock can tell
