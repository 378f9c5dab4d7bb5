"""The race of candidates: each is verified by a first call, timed in rounds on a track, and verified by timed runs."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from noyau.errors import CheckError, NoyauError
from noyau.jobs.bench import record
from noyau.jobs.bench.inputs import Arrays
from noyau.jobs.bench.tasks import BenchTarget, BenchTask, Entry
from noyau.ops.op import Op
from noyau.timing.comparison import compare_all
from noyau.timing.conditions import conditions, last_level_bytes
from noyau.timing.rounds import SAMPLE_S, Series
from noyau.timing.sides import (
    HOT_BYTES,
    VERIFIED,
    Check,
    RotatingSide,
    Rotation,
    SelfTimedSide,
    call_once,
    cold_sets,
    first_run,
    hot_sets,
    packed_sets,
)
from noyau.workers.tamper_detection import Watch, poison, seconds

_LONG_S = 0.1  # if a check takes longer, only one timed run of a candidate is verified
Say = Callable[[str], None]


@dataclass(slots=True)
class ResultJudge:
    """The judge of first calls on one draw; outputs with the same bits as earlier right ones are right."""

    check: Check
    inputs: Arrays
    right: list[list[bytes]] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def affordable(self) -> int:
        """The number of timed runs of each side to verify; 1 means one for each candidate."""
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
    """A candidate that takes part in the race, with the outputs (`like`), seconds and memory of its first call."""

    entry: Entry
    like: Sequence[Any]
    first_s: float
    peak_bytes: int
    fault: str = ""
    notes: list[str] = field(default_factory=list)
    verified: int = 0
    host_s: float | None = None

    @property
    def row(self) -> record.CandidateTimes:
        titles = (self.entry.name, self.entry.language, self.fault, "", tuple(self.notes))
        return record.CandidateTimes(*titles, self.first_s, self.peak_bytes, self.verified, self.host_s)


Entrants = Sequence[Entrant]


class TimedSide(SelfTimedSide, Protocol):
    """Protocol of a candidate on a rotation of inputs that keeps snapshots of some timed runs."""

    snapshots: list[Any]

    def refuse(self, check: Check) -> None:
        """CheckError where a kept run was wrong."""


SideT = TypeVar("SideT", bound=TimedSide)
Sides = Mapping[tuple[str, str], SideT]


class Track(Protocol[SideT]):
    """Protocol of the place where candidates run: on NumPy arrays, or on tensors of a GPU."""

    task: BenchTask
    seed: int
    machine: str  # its name in messages
    sample_s: ClassVar[float] = SAMPLE_S  # seconds of a sample of several calls; 0 for one call

    def first(self, entry: Entry, judge: ResultJudge) -> Entrant | record.CandidateTimes:
        """Call a candidate once: an Entrant if it may be timed, else its row with the reason."""

    def temperatures(self) -> tuple[str, ...]:
        """The temperatures to time at: hot, and cold if that may differ; none if nothing can be timed."""

    def sides(self, runners: Entrants, temperature: str, judge: ResultJudge, *, last: bool) -> Sides[SideT]:
        """Every candidate, in each way of calling it, on one rotation of inputs."""

    def compare(self, sides: Sequence[SideT], budget_s: float) -> Series:
        """Time all sides in rounds."""
        return compare_all(sides, budget_s=budget_s, seed=self.seed, sample_s=self.sample_s, clock=seconds)

    def look(self, side: SideT, runner: Entrant) -> None:
        """Note facts of a side's runs beside their seconds. CheckError where they were tampered with."""
        return

    def check(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
        """The fault of a timed run, or an empty text."""
        return self.task.check(inputs, outputs)

    def outputs(self, runner: Entrant) -> Sequence[np.ndarray]:
        """The outputs of a first call as arrays."""
        return runner.like

    def floor_s(self, work: record.Workload, *, cold: bool) -> float | None:
        """The least seconds in which the machine moves the bytes of a call; None if there are none."""

    def mistake(self, row: record.CandidateTimes, at: record.BenchPoint, sides: Mapping[str, Sides[SideT]]) -> str:
        """Why the time of a candidate is impossible, or an empty text."""


def shorten(message: str, name: str) -> str:
    """The first line of a fault, without the name, which the row contains already."""
    for prefix in (f"{name} is wrong: ", f"{name} was wrong ", f"{name} is ", f"{name} "):
        message = message.removeprefix(prefix)
    return message.partition("\n")[0]


def race(track: Track[SideT], entries: Sequence[Entry], *, budget_s: float, cores: int, say: Say) -> record.BenchPoint:
    """Verify each candidate on a first call, time all of them together, and verify some of the timed runs."""
    task = track.task
    watch, start, judge = Watch(), conditions(), ResultJudge(task.check, task.drawn.draws[-1])
    first_runs = list[Entrant | record.CandidateTimes]()
    for entry in entries:
        if entry.skipped or entry.fault:
            first_runs.append(record.CandidateTimes(entry.name, entry.language, entry.fault, entry.skipped))
        else:
            say(f"first call of {entry.name}")
            first_runs.append(track.first(entry, judge))
    runners = [each for each in first_runs if isinstance(each, Entrant)]
    races, timed_sides = dict[str, record.Race](), dict[str, Sides[SideT]]()
    temperatures = track.temperatures() if runners else ()
    for temperature in temperatures:
        say(f"timing {len(runners)} candidates, {temperature}")
        sides = track.sides(runners, temperature, judge, last=temperature == temperatures[-1])
        series = track.compare(list(sides.values()), budget_s / len(temperatures))
        races[temperature], timed_sides[temperature] = record.Race(tuple(sides), series), sides
        say("verifying runs that were timed")
        _verify(track, sides, runners, watch)
    rows = tuple(each.row if isinstance(each, Entrant) else each for each in first_runs)
    arrays = [each for each in task.drawn.first if isinstance(each, np.ndarray)]
    work = task.work or record.work_of_arrays(arrays, track.outputs(runners[0]) if runners else (), task.flops)
    inputs = tuple(f"{e.dtype}{list(e.shape)}" if isinstance(e, np.ndarray) else repr(e) for e in task.drawn.first)
    timed = (races, work, track.floor_s(work, cold=record.COLD in races), (start, conditions()), cores)
    at = record.BenchPoint(task.sizes, inputs, rows, *timed, task.drawn.notes, task.request, task.cells)
    return replace(at, rows=tuple(_possible(row, at, track, timed_sides) for row in rows))


def _verify(track: Track[SideT], sides: Sides[SideT], runners: Entrants, watch: Watch) -> None:
    """Verify the snapshots of timed runs, and record faults in the runners."""
    by_name = {runner.entry.name: runner for runner in runners}
    for (name, _), side in sides.items():
        runner = by_name[name]
        try:
            watch.refuse(name)
            track.look(side, runner)
            # In another memory layout the judge itself may lose more precision, which is no fault.
            side.refuse((lambda *_: "") if runner.entry.is_judge else track.check)
        except CheckError as error:
            runner.fault = runner.fault or shorten(str(error), name)
        runner.verified += len(side.snapshots)


def _possible(
    row: record.CandidateTimes, at: record.BenchPoint, track: Track[SideT], timed_sides: Mapping[str, Sides[SideT]]
) -> record.CandidateTimes:
    """The row, with a fault if its time is impossible, or only a doubt if it may not touch all bytes."""
    mistake = "" if row.out else track.mistake(row, at, timed_sides)
    doubt = f"faster than this {track.machine} moves its inputs and outputs: it may not touch all of them"
    if mistake and not at.work.exact:
        return replace(row, notes=(*row.notes, doubt))
    return replace(row, fault=mistake) if mistake else row


def name_of(what: BenchTarget) -> str:
    """The name of a record: the op's, or those of the functions."""
    return what.name if isinstance(what, Op) else ", ".join(what)


def pools() -> dict[str, int]:
    """The threads of each loaded pool that candidates may use."""
    counts = {name: getattr(sys.modules.get(name), "get_num_threads", None) for name in ("torch", "numba", "numexpr")}
    sizes = {name: int(count()) for name, count in counts.items() if callable(count)}
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return sizes | ({"OMP_NUM_THREADS": int(wished)} if wished.isdecimal() else {})


@dataclass(slots=True)
class NumpyTrack(Track[RotatingSide]):
    """The `Track` of a task on this machine's cores. `cold`: the user's choice, or None."""

    task: BenchTask
    cold: bool | None
    seed: int
    cores: int
    machine: str = "machine"

    def first(self, entry: Entry, judge: ResultJudge) -> Entrant | record.CandidateTimes:
        assert entry.returning is not None
        try:
            outputs, first_s, peak_bytes = first_run(entry.returning, judge.inputs)
        except NoyauError as error:
            if entry.other is not None and isinstance(error.__cause__, TypeError | AttributeError):
                return self.first(replace(entry.other, is_peer=entry.is_peer, is_judge=entry.is_judge), judge)
            why = shorten(str(error), entry.name)
            return record.CandidateTimes(entry.name, entry.language, *(("", why) if entry.is_peer else (why,)))
        fault = judge.fault(outputs, entry.is_judge)
        if fault and not entry.is_peer:
            return record.CandidateTimes(entry.name, entry.language, fault, first_s=first_s)
        return _filling(entry, Entrant(entry, outputs, first_s, peak_bytes, fault), judge)

    def temperatures(self) -> tuple[str, ...]:
        """Both if they may differ, unless the user chose: inputs that fit a core's cache are timed hot only, and inputs
        beyond all caches have only one time."""
        differ = HOT_BYTES < self.task.drawn.draw_bytes < 2 * last_level_bytes()
        return (record.HOT, record.COLD) if (differ if self.cold is None else self.cold) else (record.HOT,)

    def sides(self, runners: Entrants, temperature: str, judge: ResultJudge, *, last: bool) -> Sides[RotatingSide]:
        """Every candidate in every way of calling it, on one rotation of inputs and one of outputs."""
        rng, sets_of = np.random.default_rng(self.seed), hot_sets if temperature == record.HOT else cold_sets
        rotation = Rotation(self.task.drawn.draws, sets_of(self.task.drawn.draw_bytes), rng)
        memory, sides = dict[tuple[str, ...], list[Arrays]](), {}
        for runner in runners:
            for way, candidate in ((record.RETURNING, runner.entry.returning), (record.FILLING, runner.entry.filling)):
                if candidate is not None:
                    into = _memory(memory, runner.like, len(rotation.sets)) if candidate.into else []
                    sides[runner.entry.name, way] = RotatingSide(candidate, rotation, runner.like, rng, seconds, into)
        self._choose(sides, runners, judge.affordable if last else judge.affordable // 2)
        return sides

    def _choose(self, sides: Sides[RotatingSide], runners: Entrants, verified: int) -> None:
        """Set the number of verified runs of each side; if it is one, only one random side of each candidate has it."""
        rng = np.random.default_rng([self.seed, len(sides)])
        for runner in runners:
            own = [side for (name, _), side in sides.items() if name == runner.entry.name]
            for side in own:
                side.verified = 0 if verified == 1 else verified
            own[int(rng.integers(len(own)))].verified = verified

    def floor_s(self, work: record.Workload, *, cold: bool) -> float | None:
        return work.floor_s(self.cores, cold=cold)

    def mistake(
        self, row: record.CandidateTimes, at: record.BenchPoint, sides: Mapping[str, Sides[RotatingSide]]
    ) -> str:
        """Why the time of its faster way is impossible, or an empty text; it is timed again before that verdict."""
        least_s = at.least_s(row.name, record.HOT)
        if least_s is None:
            return ""
        pairs = zip(sides[record.HOT].items(), at.races[record.HOT].series.calls, strict=True)
        own = [(side, calls) for ((name, _), side), calls in pairs if name == row.name]
        return at.work.mistake(least_s, self.cores, lambda: min(side.lasts(calls) / calls for side, calls in own))


def _filling(entry: Entry, runner: Entrant, judge: ResultJudge) -> Entrant:
    """The runner, without the way `out=` if that is wrong or fails."""
    if entry.filling is None:
        return runner
    outputs = tuple(np.empty_like(each) for each in runner.like)
    poison(outputs)
    try:
        fault = judge.fault(call_once(entry.filling, judge.inputs, outputs), entry.is_judge)
    except NoyauError as error:
        fault = shorten(str(error), entry.name)
    if fault and not runner.fault:
        runner.entry = replace(entry, filling=None)
        runner.notes.append(f"not timed with out=: {fault}")
    return runner


def _memory(memory: dict[tuple[str, ...], list[Arrays]], like: Sequence[np.ndarray], sets: int) -> list[Arrays]:
    """Poisoned outputs for each set of inputs, memoised by shapes and dtypes."""
    key = tuple(f"{array.dtype}{array.shape}" for array in like)
    if key not in memory:
        memory[key] = packed_sets(sets, like)
        for arrays in memory[key]:
            poison(arrays)
    return memory[key]
