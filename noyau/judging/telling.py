"""What a report tells of a kernel that was judged, whatever it was judged for."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from noyau.checking.certificate import Certificate
from noyau.judging.deciding import Timing, deciding, overall
from noyau.planning import Planned
from noyau.reports.records import BindingRecord, KernelRecord


class Evidence(Protocol):
    """A kernel with what was found: its certificate, its timings where it came to that, and whether it is kept."""

    @property
    def planned(self) -> Planned: ...
    @property
    def certificate(self) -> Certificate | None: ...
    @property
    def timings(self) -> tuple[Timing, ...]: ...
    @property
    def kept(self) -> bool: ...
    @property
    def reason(self) -> str: ...


def record(judged: Evidence, language: str = "c") -> KernelRecord:
    """One kernel's line; the numbers are of the binding that its verdict rests on."""
    exact, decider = judged.certificate, deciding(judged.timings)
    made = KernelRecord(
        judged.planned.operator,
        len(judged.planned.groups),
        judged.planned.replaces,
        language,
        error=None if exact is None else exact.kernel.worst_relative,
        error_unfused=None if exact is None else exact.unfused.worst_relative,
        kept=judged.kept,
        reason=judged.reason,
        bindings=tuple(binding(timing) for timing in judged.timings),
    )
    if decider is None:
        return made
    found = decider.comparison
    return replace(
        made,
        bytes=None if decider.traffic is None else decider.traffic.bytes,
        verdict=overall(timing.verdict for timing in judged.timings),
        speedup=found.speedup,
        speedup_low=found.low,
        speedup_high=found.high,
        floor_ratio=decider.floor_ratio,
        after_s=decider.hot.after_median_s,
    )


def binding(timing: Timing) -> BindingRecord:
    """What came of one binding."""
    hot, cold = timing.hot, timing.cold
    return BindingRecord(
        timing.sizes,
        timing.verdict,
        hot.speedup,
        hot.low,
        hot.high,
        timing.floor_ratio,
        hot.before_median_s,
        hot.after_median_s,
        None if cold is None else (cold.speedup, cold.low, cold.high),
        timed_on=timing.timed_on,
        recalled=timing.recalled,
    )
