"""The record of a comparison with a baseline: the overall verdict first, then one line for each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.report.text import Record, TableRow, hanging, show_of, table
from noyau.text import as_json, fields_json, several, sizes_text
from noyau.timing.machine import Machine
from noyau.timing.verdict import Comparison, spell_s

_LEGEND = (
    "before, now: seconds of a call of the saved text and of the present one, timed in turns in this run; "
    "change: their ratio, with its 95 % interval."
)
_HEADINGS = ("before", "now", "change", "interval", "")


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate of the baseline (before) and of now, timed alternately in one run, at one set of sizes and one
    temperature. `limit`: the allowed relative slowdown; `races`: the slowdown in each race whose pairs are joined."""

    sizes: Mapping[str, int]
    candidate: str
    temperature: str
    comparison: Comparison
    limit: float
    note: str = ""
    races: tuple[float, ...] = ()

    @property
    def slowdown(self) -> float:
        """The median over pairs of the time now divided by the time before; 1.1 is a tenth slower."""
        return 1 / self.comparison.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the slowdown."""
        return 1 / self.comparison.high, 1 / self.comparison.low

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by more than the limit: the median exceeds it, and the whole interval and three of four
        races exceed 1, since the placement of memory occasionally makes a single race slower by a sixth."""
        agree = not self.races or float(np.quantile(self.races, 0.25)) > 1
        return self.slowdown > 1 + self.limit and self.interval[0] > 1 and agree

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval is on one side of the limit."""
        return self.interval[1] <= 1 + self.limit or self.interval[0] > 1 + self.limit

    @property
    def verdict(self) -> str:
        if self.is_slower:
            return "SLOWER"
        return "FASTER" if self.interval[1] < 1 - self.limit else "ok" if self.is_sure else "in doubt"

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of its row in a table with `_HEADINGS`."""
        before_s, now_s = self.comparison.medians_s
        interval = "[{:+.1f}, {:+.1f}] %".format(*(100 * (end - 1) for end in self.interval))
        return spell_s(before_s), spell_s(now_s), f"{self.slowdown - 1:+.1%}", interval, self.verdict

    def join(self, other: Change) -> Change:
        """The change with the pairs of another race, on other memory, added."""
        mine, more = self.comparison, other.comparison
        pairs = (mine.before_s + more.before_s, mine.after_s + more.after_s)
        races = (*(self.races or (self.slowdown,)), other.slowdown)
        return replace(self, comparison=Comparison(*pairs, mine.calls, mine.seed), races=races)

    def to_json(self) -> dict[str, Any]:
        judged = {name: as_json(getattr(self, name)) for name in ("slowdown", "interval", "verdict")}
        samples = {name: list(getattr(self.comparison, name)) for name in ("before_s", "after_s")}
        return {**fields_json(self, without=("comparison",)), **judged, **samples}


@dataclass(frozen=True, repr=False)
class ChangeRecord(Record):
    """The comparison of present candidates with those of a baseline; prints itself. `faults`: of present candidates, by
    name; `notes`: on candidates that were not compared, and on other differences."""

    PLAIN: ClassVar[str] = "ok name baseline date machine changes faults notes limit"
    name: str
    baseline: str
    date: str
    machine: Machine
    changes: tuple[Change, ...]
    faults: Mapping[str, str]
    notes: tuple[str, ...]
    limit: float

    @property
    def ok(self) -> bool:
        """Whether no candidate is wrong or slower by more than the limit."""
        return not self.faults and not any(each.is_slower for each in self.changes)

    @property
    def summary(self) -> str:
        against = f"against the baseline {self.baseline} of {self.date}"
        if self.faults:
            return f"{self.name}: WRONG {against}: {several(len(self.faults), 'candidate')} of now"
        count, limit = several(len(self.changes), "timing"), f"by more than {self.limit:.0%}"
        if slower := [each for each in self.changes if each.is_slower]:
            worst = max(slower, key=lambda each: each.slowdown)
            at = ", ".join(filter(None, (worst.candidate, sizes_text(worst.sizes), worst.temperature)))
            slow = f"{len(slower)} of {count} {limit}: {at} takes {worst.slowdown - 1:+.1%}"
            return f"{self.name}: SLOWER {against}: {slow}"
        doubts = sum(not each.is_sure for each in self.changes)
        unsure = f"; {doubts} in doubt: give it more time (--budget)" if doubts else ""
        return f"{self.name}: of {count} none is slower {limit} {against}{unsure}"

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        show = show_of(ascii_only=ascii_only)
        yield from hanging(Text(show(self.summary), "bold green" if self.ok else "bold red"), width, rest="  ")
        for sizes, changes in groupby(self.changes, lambda each: sizes_text(each.sizes)):
            rows = [TableRow(show(f"{e.candidate}, {e.temperature}"), e.cells, show(e.note)) for e in changes]
            yield from table(sizes or "candidate", _HEADINGS, rows, width)
        for name, fault in self.faults.items():
            yield from hanging(show(f"{name} is wrong: {fault}"), width, rest="    ", style="red")
        for note in self.notes:
            yield from hanging(show(f"{note[:1].upper()}{note[1:]}."), width, rest="  ", style="yellow")
        yield from hanging(_LEGEND, width, style="dim")
