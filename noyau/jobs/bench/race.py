"""The timing itself: every candidate right before it starts, all of them in rounds, and runs that were timed judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from noyau.errors import CheckError, NoyauError
from noyau.jobs.bench.candidates import Entry
from noyau.jobs.bench.inputs import Arrays
from noyau.jobs.bench.record import COLD, FILLING, HOT, RETURNING, At, Race, Row
from noyau.jobs.bench.tasks import Task
from noyau.jobs.bench.work import Work, work_of_arrays
from noyau.timing.comparison import compare_all
from noyau.timing.conditions import conditions, last_level_bytes
from noyau.timing.input_rotation import HOT_BYTES, Rotation, cold_sets, hot_sets, packed_sets
from noyau.timing.output_checks import Check
from noyau.timing.pairwise import VERIFIED, Candidate, First, Side, called, first_calls
from noyau.workers.tamper_detection import Watch, poison, seconds

Say = Callable[[str], None]

_DEAR_S = 0.1  # a check that takes longer is made of one timed run a side alone


@dataclass(slots=True)
class Judge:
    """The judge of first calls, on one draw: outputs that have the bits of those that were right before are right."""

    check: Check
    inputs: Arrays
    right: list[list[bytes]] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def affordable(self) -> int:
        """How many timed runs of a side are to be verified; 1: of a candidate."""
        return 1 if self.took_s > _DEAR_S else VERIFIED

    def fault(self, outputs: Sequence[np.ndarray], is_judge: bool = False) -> str:
        bits = [f"{array.dtype}{array.shape}".encode() + array.tobytes() for array in outputs]
        if bits in self.right:
            return ""
        begin_s = seconds()
        fault = self.check(self.inputs, outputs)
        fault = "" if is_judge else fault
        self.took_s = max(self.took_s, seconds() - begin_s)
        if not fault:
            self.right.append(bits)
        return fault


@dataclass(slots=True)
class Runner:
    """A candidate that is right so far, and what its first calls told."""

    entry: Entry
    first: First
    notes: list[str] = field(default_factory=list)
    fault: str = ""
    verified: int = 0

    @property
    def row(self) -> Row:
        peak = self.first.peak_bytes
        known = (self.entry.name, self.entry.language, self.fault)
        return Row(*known, "", tuple(self.notes), self.first.first_s, peak, self.verified)


def race(task: Task, *, budget_s: float, cold: bool | None, seed: int, cores: int, say: Say) -> At:
    """Each candidate verified on a first call, all of them timed together, and some of the timed runs verified."""
    watch, start, judge = Watch(), conditions(), Judge(task.check, task.drawn.draws[-1])
    found: list[Runner | Row] = []
    for entry in task.entries:
        say(f"first call of {entry.name}")
        found.append(_first(entry, judge))
    runners = [each for each in found if isinstance(each, Runner)]
    races: dict[str, Race] = {}
    timed: dict[str, Mapping[tuple[str, str], Side]] = {}
    temperatures = _temperatures(task, cold) if runners else ()
    for temperature in temperatures:
        say(f"timing {len(runners)} candidates, {temperature}")
        sides = _sides(runners, task, temperature, seed)
        _choose(sides, runners, judge.affordable if temperature == temperatures[-1] else judge.affordable // 2, seed)
        share_s = budget_s / len(temperatures)
        series = compare_all(list(sides.values()), budget_s=share_s, seed=seed, clock=seconds)
        races[temperature], timed[temperature] = Race(tuple(sides), series), sides
        say("verifying runs that were timed")
        _verify(sides, runners, watch, task.check)
    rows = tuple(each.row if isinstance(each, Runner) else each for each in found)
    work = _work(task, runners)
    floor_s = work.floor_s(cores, cold=COLD in races)
    given = tuple(_spelt(each) for each in task.drawn.first)
    moments = (start, conditions())
    at = At(task.sizes, given, rows, races, work, floor_s, moments, cores, task.drawn.notes)
    return replace(at, rows=tuple(_possible(row, at, timed.get(HOT, {})) for row in rows))


def pools() -> dict[str, int]:
    """The threads of each pool that candidates may use, as far as it is loaded."""
    found = {}
    for name, ask in (("torch", "get_num_threads"), ("numba", "get_num_threads"), ("numexpr", "get_num_threads")):
        counted = getattr(sys.modules.get(name), ask, None)
        if callable(counted):
            found[name] = int(counted())
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return found | ({"OMP_NUM_THREADS": int(wished)} if wished.isdecimal() else {})


def _first(entry: Entry, judge: Judge) -> Runner | Row:
    """A candidate that was called and is right, or why it is not timed."""
    if entry.returning is None:
        return Row(entry.name, entry.language, entry.fault, entry.skipped)
    try:
        first = first_calls(entry.returning, judge.inputs, (), judge.check, seconds)
    except NoyauError as error:
        if entry.other is not None and isinstance(error.__cause__, TypeError | AttributeError):
            return _first(replace(entry.other, is_peer=entry.is_peer, is_judge=entry.is_judge), judge)
        return Row(entry.name, entry.language, shortened(str(error), entry.name))
    fault = judge.fault(first.outputs, entry.is_judge)
    if fault and not entry.is_peer:
        return Row(entry.name, entry.language, fault, first_s=first.first_s)
    return _filling(Runner(entry, first, fault=fault), judge)


def _filling(runner: Runner, judge: Judge) -> Runner:
    """Without its way with `out=` where that is not taken."""
    entry = runner.entry
    if entry.filling is None:
        return runner
    outputs = tuple(np.empty_like(each) for each in runner.first.outputs)
    poison(outputs)
    try:
        fault = judge.fault(called(entry.filling, judge.inputs, judge.check, outputs), entry.is_judge)
    except NoyauError as error:
        fault = shortened(str(error), entry.name)
    if fault and not runner.fault:
        runner.entry = replace(entry, filling=None)
        runner.notes.append(f"not timed with out=: {fault}")
    return runner


def _temperatures(task: Task, cold: bool | None) -> tuple[str, ...]:
    """Both where they may differ, unless a user says otherwise: what stays in a core's cache is timed hot alone, and
    what is in no cache has one time."""
    set_bytes = sum(array.nbytes for array in task.drawn.draws[0])
    differ = HOT_BYTES < set_bytes < 2 * last_level_bytes()
    return (HOT, COLD) if (differ if cold is None else cold) else (HOT,)


def _choose(sides: Mapping[tuple[str, str], Side], runners: Sequence[Runner], verified: int, seed: int) -> None:
    """How many runs of each side are looked at; where it is one, one of each candidate, in a way that is drawn."""
    rng = np.random.default_rng([seed, len(sides)])
    for runner in runners:
        own = [side for (name, _), side in sides.items() if name == runner.entry.name]
        drawn = int(rng.integers(len(own)))
        for at, side in enumerate(own):
            side.verified = verified if verified != 1 or at == drawn else 0


def _sides(runners: Sequence[Runner], task: Task, temperature: str, seed: int) -> dict[tuple[str, str], Side]:
    """Every candidate in every way, on one rotation of inputs and one of outputs."""
    rng, draws = np.random.default_rng(seed), task.drawn.draws
    set_bytes = sum(array.nbytes for array in draws[0])
    rotation = Rotation(draws, hot_sets(set_bytes) if temperature == HOT else cold_sets(set_bytes), rng)
    memory: dict[tuple[str, ...], list[Arrays]] = {}
    sides = {}
    for runner in runners:
        for way, candidate in _ways(runner.entry):
            into = _memory(memory, runner.first.outputs, len(rotation.sets)) if candidate.into else []
            side = Side(candidate, rotation, runner.first.outputs, rng, seconds, into)
            sides[runner.entry.name, way] = side
    return sides


def _ways(entry: Entry) -> Iterator[tuple[str, Candidate]]:
    if entry.returning is not None:
        yield RETURNING, entry.returning
    if entry.filling is not None:
        yield FILLING, entry.filling


def _memory(memory: dict[tuple[str, ...], list[Arrays]], like: Sequence[np.ndarray], sets: int) -> list[Arrays]:
    """Outputs for each set of inputs, of these shapes and dtypes: made once."""
    key = tuple(f"{array.dtype}{array.shape}" for array in like)
    if key not in memory:
        memory[key] = packed_sets(sets, like)
        for arrays in memory[key]:
            poison(arrays)
    return memory[key]


def _verify(sides: Mapping[tuple[str, str], Side], runners: Sequence[Runner], watch: Watch, check: Check) -> None:
    """Judge the runs that were kept; what is wrong is the runner's fault."""
    by_name = {runner.entry.name: runner for runner in runners}
    for (name, _), side in sides.items():
        runner = by_name[name]
        try:
            watch.refuse(name)
            side.refuse(_no_fault if runner.entry.is_judge else check)
        except CheckError as error:
            runner.fault = runner.fault or shortened(str(error), name)
        runner.verified += len(side.kept)


def _no_fault(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
    """Of the judge: on arrays in another order of memory it may itself lose more than where it judges."""
    return ""


def _work(task: Task, runners: Sequence[Runner]) -> Work:
    outputs = runners[0].first.outputs if runners else ()
    given = [each for each in task.drawn.first if isinstance(each, np.ndarray)]
    return task.work or work_of_arrays(given, outputs, task.flops)


def _possible(row: Row, at: At, sides: Mapping[tuple[str, str], Side]) -> Row:
    """The row; with a fault where it took less time than can be, or a doubt where it may not touch all bytes."""
    least_s = None if row.out else at.least_s(row.name, HOT)
    if least_s is None:
        return row
    series = at.races[HOT].series
    own = [
        (side, calls) for ((name, _), side), calls in zip(sides.items(), series.calls, strict=True) if name == row.name
    ]
    told = at.work.mistake(least_s, at.cores, lambda: min(side.lasts(calls) / calls for side, calls in own))
    if not told:
        return row
    if at.work.exact:
        return replace(row, fault=told)
    doubt = "faster than this machine moves its inputs and outputs: it may not touch all of them"
    return replace(row, notes=(*row.notes, doubt))


def _spelt(given: object) -> str:
    return f"{given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else repr(given)


def shortened(message: str, name: str) -> str:
    """What is wrong, without the name that the row has already."""
    for prefix in (f"{name} is wrong: ", f"{name} was wrong ", f"{name} is ", f"{name} "):
        message = message.removeprefix(prefix)
    return message
