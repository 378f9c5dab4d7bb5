"""The race of candidates: each is right before it starts, timed in rounds on a track, and judged by its runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from noyau.errors import CheckError
from noyau.jobs.bench.inputs import Arrays
from noyau.jobs.bench.record import COLD, BenchPoint, CandidateTimes, Race, Workload, work_of_arrays
from noyau.jobs.bench.tasks import BenchTarget, BenchTask, Entry
from noyau.ops.op import Op
from noyau.timing.conditions import conditions
from noyau.timing.output_checks import Check
from noyau.timing.rounds import Series
from noyau.timing.sides import VERIFIED, SelfTimedSide
from noyau.workers.tamper_detection import Watch, seconds

_LONG_S = 0.1  # a check that takes longer is made of one timed run a side alone
Say = Callable[[str], None]


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
        return 1 if self.took_s > _LONG_S else VERIFIED

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
        titles = (self.entry.name, self.entry.language, self.fault, "", tuple(self.notes))
        return CandidateTimes(*titles, self.first_s, self.peak_bytes, self.verified, self.host_s)


Entrants = Sequence[Entrant]


class TimedSide(SelfTimedSide, Protocol):
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

    def sides(self, runners: Entrants, temperature: str, judge: ResultJudge, *, last: bool) -> Sides[SideT]:
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


def shorten(message: str, name: str) -> str:
    """The first line of a fault, without the name that the row has already."""
    for prefix in (f"{name} is wrong: ", f"{name} was wrong ", f"{name} is ", f"{name} "):
        message = message.removeprefix(prefix)
    return message.partition("\n")[0]


def race(track: Track[SideT], entries: Sequence[Entry], *, budget_s: float, cores: int, say: Say) -> BenchPoint:
    """Verify each candidate on a first call, time all of them together, and verify some of the timed runs."""
    task = track.task
    watch, start, judge = Watch(), conditions(), ResultJudge(task.check, task.drawn.draws[-1])
    first_runs = list[Entrant | CandidateTimes]()
    for entry in entries:
        if entry.skipped or entry.fault:
            first_runs.append(CandidateTimes(entry.name, entry.language, entry.fault, entry.skipped))
        else:
            say(f"first call of {entry.name}")
            first_runs.append(track.first(entry, judge))
    runners = [each for each in first_runs if isinstance(each, Entrant)]
    races, timed_sides = dict[str, Race](), dict[str, Sides[SideT]]()
    temperatures = track.temperatures() if runners else ()
    for temperature in temperatures:
        say(f"timing {len(runners)} candidates, {temperature}")
        sides = track.sides(runners, temperature, judge, last=temperature == temperatures[-1])
        series = track.compare(list(sides.values()), budget_s / len(temperatures))
        races[temperature], timed_sides[temperature] = Race(tuple(sides), series), sides
        say("verifying runs that were timed")
        _verify(track, sides, runners, watch)
    rows = tuple(each.row if isinstance(each, Entrant) else each for each in first_runs)
    arrays = [each for each in task.drawn.first if isinstance(each, np.ndarray)]
    work = task.work or work_of_arrays(arrays, track.outputs(runners[0]) if runners else (), task.flops)
    inputs = tuple(f"{e.dtype}{list(e.shape)}" if isinstance(e, np.ndarray) else repr(e) for e in task.drawn.first)
    timed = (races, work, track.floor_s(work, cold=COLD in races), (start, conditions()), cores)
    at = BenchPoint(task.sizes, inputs, rows, *timed, task.drawn.notes, task.request, task.cells)
    return replace(at, rows=tuple(_possible(row, at, track, timed_sides) for row in rows))


def _verify(track: Track[SideT], sides: Sides[SideT], runners: Entrants, watch: Watch) -> None:
    """Judge the runs that were kept; what is wrong is the runner's fault."""
    by_name = {runner.entry.name: runner for runner in runners}
    for (name, _), side in sides.items():
        runner = by_name[name]
        try:
            watch.refuse(name)
            track.look(side, runner)
            # The judge, in another order of memory, may lose more than where it judges: that is no fault.
            side.refuse((lambda *_: "") if runner.entry.is_judge else track.check)
        except CheckError as error:
            runner.fault = runner.fault or shorten(str(error), name)
        runner.verified += len(side.snapshots)


def _possible(
    row: CandidateTimes, at: BenchPoint, track: Track[SideT], timed_sides: Mapping[str, Sides[SideT]]
) -> CandidateTimes:
    """The row; with a fault where it took less time than can be, or a doubt where it may not touch all bytes."""
    mistake = "" if row.out else track.mistake(row, at, timed_sides)
    doubt = f"faster than this {track.machine} moves its inputs and outputs: it may not touch all of them"
    if mistake and not at.work.exact:
        return replace(row, notes=(*row.notes, doubt))
    return replace(row, fault=mistake) if mistake else row


def name_of(what: BenchTarget) -> str:
    """The name of a record: that of the op, or those of the functions."""
    return what.name if isinstance(what, Op) else ", ".join(what)


def pools() -> dict[str, int]:
    """The threads of each pool that candidates may use, as far as it is loaded."""
    counts = {name: getattr(sys.modules.get(name), "get_num_threads", None) for name in ("torch", "numba", "numexpr")}
    sizes = {name: int(count()) for name, count in counts.items() if callable(count)}
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return sizes | ({"OMP_NUM_THREADS": int(wished)} if wished.isdecimal() else {})
