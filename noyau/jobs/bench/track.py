"""The place where candidates run, as a race sees it: its first calls, their judge, its timed sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from noyau.jobs.bench.candidates import Entry
from noyau.jobs.bench.inputs import Arrays
from noyau.jobs.bench.record import BenchPoint
from noyau.jobs.bench.tasks import BenchTask
from noyau.jobs.bench.times import CandidateTimes
from noyau.jobs.bench.workload import Workload
from noyau.timing.output_checks import Check
from noyau.timing.rotating_side import VERIFIED
from noyau.timing.rounds import Series
from noyau.timing.sides import SelfTimed
from noyau.workers.tamper_detection import seconds

_DEAR_S = 0.1  # a check that takes longer is made of one timed run a side alone


@dataclass(slots=True)
class ResultJudge:
    """The judge of first calls, on one draw: outputs that have the bits of those that were right before are right."""

    check: Check
    inputs: Arrays
    right: list[list[bytes]] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def affordable(self) -> int:
        """The number of timed runs of a side that are verified; 1: of a candidate."""
        return 1 if self.took_s > _DEAR_S else VERIFIED

    def fault(self, outputs: Sequence[np.ndarray], is_judge: bool = False) -> str:
        bits = [f"{array.dtype}{array.shape}".encode() + array.tobytes() for array in outputs]
        if bits in self.right:
            return ""
        begin_s = seconds()
        fault = self.check(self.inputs, outputs)
        self.took_s = max(self.took_s, seconds() - begin_s)
        if fault and not is_judge:
            return fault
        self.right.append(bits)
        return ""


@dataclass(slots=True)
class Entrant:
    """A candidate that is right so far, and what its first call told: its outputs (`like`), seconds and memory."""

    entry: Entry
    like: Sequence[Any]
    first_s: float
    peak_bytes: int
    fault: str = ""
    notes: list[str] = field(default_factory=list)
    verified: int = 0
    host_s: float | None = None

    @property
    def row(self) -> CandidateTimes:
        """The row of the record."""
        titles = (self.entry.name, self.entry.language, self.fault, "", tuple(self.notes))
        return CandidateTimes(*titles, self.first_s, self.peak_bytes, self.verified, self.host_s)


class TimedSide(SelfTimed, Protocol):
    """A candidate on a rotation of inputs, which keeps some of its timed runs."""

    snapshots: list[Any]

    def refuse(self, check: Check) -> None:
        """CheckError where one of the kept runs was wrong."""


SideT = TypeVar("SideT", bound=TimedSide)
Sides = Mapping[tuple[str, str], SideT]


class Track(Protocol[SideT]):
    """The place where candidates run: NumPy's arrays, or the tensors of a GPU."""

    task: BenchTask
    machine: str  # as messages call it

    def first(self, entry: Entry, judge: ResultJudge) -> Entrant | CandidateTimes:
        """A candidate that was called and is right, or why it is not timed."""

    def temperatures(self) -> tuple[str, ...]:
        """Hot, and cold where that may differ; none where nothing can be timed."""

    def sides(self, runners: Sequence[Entrant], temperature: str, judge: ResultJudge, *, last: bool) -> Sides[SideT]:
        """Every candidate, in each way that it is called, on one rotation of inputs."""

    def compare(self, sides: Sequence[SideT], budget_s: float) -> Series:
        """All sides timed in rounds."""

    def look(self, side: SideT, runner: Entrant) -> None:
        """Note what the runs of a side tell beside their seconds. CheckError where they were tampered with."""

    def check(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
        """The fault of a timed run, or nothing."""

    def outputs(self, runner: Entrant) -> Sequence[np.ndarray]:
        """The outputs of a first call as arrays."""

    def floor_s(self, work: Workload, *, cold: bool) -> float | None:
        """The least seconds in which the machine moves what a call moves; None where that is nothing."""

    def mistake(self, row: CandidateTimes, at: BenchPoint, sides: Mapping[str, Sides[SideT]]) -> str:
        """Why the time of a candidate cannot be, or nothing."""


def shortened(message: str, name: str) -> str:
    """The fault without the name that the row has already."""
    for prefix in (f"{name} is wrong: ", f"{name} was wrong ", f"{name} is ", f"{name} "):
        message = message.removeprefix(prefix)
    return message
