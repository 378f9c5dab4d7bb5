"""The times of candidates: the row of each, and the series of a race, hot or cold."""

from __future__ import annotations

from dataclasses import dataclass

from noyau.timing.rounds import Series
from noyau.timing.verdict import Comparison

RETURNING, FILLING = "returns", "out="  # the ways in which a candidate is called
HOT, COLD = "hot", "cold"
RotatingSide = tuple[str, str]  # a candidate's name, and a way of calling it


@dataclass(frozen=True, slots=True)
class CandidateTimes:
    """The row of a candidate. `language`: of a kernel, else nothing; `fault`: what is wrong with it; `skipped`: why it
    cannot run here; either keeps it out of the ranking. `notes`: what makes its times doubtful; `first_s`: of its first
    call, which is what compiles; `peak_bytes`: what a call allocates through Python and NumPy, or on a GPU; `verified`:
    how many of the runs that were timed were checked; `host_s`: on a GPU, what Python takes to launch a call."""

    name: str
    language: str = ""
    fault: str = ""
    skipped: str = ""
    notes: tuple[str, ...] = ()
    first_s: float | None = None
    peak_bytes: int | None = None
    verified: int = 0
    host_s: float | None = None

    @property
    def out(self) -> str:
        """Why it is not ranked, or nothing."""
        return self.fault or self.skipped

    @property
    def title(self) -> str:
        return self.name if not self.language or self.name.endswith(self.language) else f"{self.name} [{self.language}]"


@dataclass(frozen=True, slots=True)
class Race:
    """The series of a race, round by round: each candidate in each of the ways in which it can be called."""

    sides: tuple[RotatingSide, ...]
    series: Series

    def median_s(self, side: RotatingSide) -> float | None:
        return self.series.median_s(self.sides.index(side)) if side in self.sides else None

    def comparison(self, before: RotatingSide, after: RotatingSide) -> Comparison:
        return self.series.comparison(self.sides.index(before), self.sides.index(after))
