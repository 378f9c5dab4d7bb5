"""The timing of a kernel at one binding of the sizes, and the verdict over several: no binding may lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from noyau.compiler.partition.traffic import Traffic
from noyau.hosts.onnxruntime.size_bindings import spell
from noyau.timing.verdict import Comparison, Verdict

BORDERLINE_FROM = 0.95  # up to where SLOWER begins: what costs so little is timed twice before it is out


@dataclass(frozen=True, slots=True)
class BindingTiming:
    """Timing of a kernel at one binding: `sizes` by the model's own names. `cold`: on inputs that went through twice
    the last-level cache, where that may matter. `traffic`: the bytes that one call must move. `floor_s`: the least that
    this machine needs for them; `idle_s`: of every time, what a run takes that does nothing. `timed_on`: a date, of an
    earlier run where it is `recalled`. `mistake`: why the time of the kernel cannot be."""

    sizes: Mapping[str, int]
    hot: Comparison
    cold: Comparison | None = None
    traffic: Traffic | None = None
    floor_s: float | None = None
    idle_s: float = 0.0
    timed_on: str = ""
    recalled: bool = False
    mistake: str = ""

    @property
    def verdict(self) -> Verdict:
        """That of both temperatures: SLOWER where one is."""
        return overall(each.verdict for each in (self.hot, self.cold) if each is not None)

    @property
    def comparison(self) -> Comparison:
        """The one that its verdict is of; the hot one where both are."""
        return self.hot if self.cold is None or self.hot.verdict is self.verdict else self.cold

    @property
    def is_borderline(self) -> bool:
        """SLOWER, and by so little that chance may have a part in it."""
        slower = [one.speedup for one in (self.hot, self.cold) if one is not None and one.verdict is Verdict.SLOWER]
        return bool(slower) and min(slower) >= BORDERLINE_FROM

    @property
    def floor_ratio(self) -> float | None:
        """The floor over the time of the kernel: 1 is as fast as can be."""
        return None if self.floor_s is None else self.floor_s / self.hot.after_median_s

    @property
    def where(self) -> str:
        """`batch=1, sequence=128`, and that it was cold if that decides."""
        cold = "" if self.comparison is self.hot else "with cold caches"
        return ", ".join(filter(None, [spell(self.sizes), cold]))

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.verdict.value}{at}: {self.comparison.speedup:.2f}x"


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """SLOWER where one is, else FASTER where one is, else SAME where all are, else AMBIGUOUS."""
    distinct = set(verdicts)
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        if verdict in distinct:
            return verdict
    return Verdict.SAME if distinct == {Verdict.SAME} else Verdict.AMBIGUOUS


def decisive(timings: Sequence[BindingTiming]) -> BindingTiming | None:
    """The timing that the verdict of all of them rests on: the worst of those that are SLOWER; else, of those with the
    verdict, the one with the most to do."""
    verdict = overall(timing.verdict for timing in timings)
    those = [timing for timing in timings if timing.verdict is verdict] or list(timings)
    if verdict is Verdict.SLOWER:
        return min(those, key=lambda timing: timing.comparison.speedup)
    return max(those, key=lambda timing: timing.hot.before_median_s, default=None)
