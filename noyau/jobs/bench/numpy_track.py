"""The race on NumPy's arrays, hot and cold, with and without `out=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noyau.errors import NoyauError
from noyau.jobs.bench.inputs import Arrays
from noyau.jobs.bench.record import COLD, FILLING, HOT, RETURNING, BenchPoint, CandidateTimes, Workload
from noyau.jobs.bench.tasks import BenchTask, Entry
from noyau.jobs.bench.track import Entrant, Entrants, ResultJudge, Sides, shorten
from noyau.timing.comparison import compare_all
from noyau.timing.conditions import last_level_bytes
from noyau.timing.rounds import Series
from noyau.timing.sides import HOT_BYTES, RotatingSide, Rotation, call_once, cold_sets, first_run, hot_sets, packed_sets
from noyau.workers.tamper_detection import poison, seconds


@dataclass(slots=True)
class NumpyTrack:
    """A `Track`: a task on this machine's cores. `cold`: as a user asked for it, or None."""

    task: BenchTask
    cold: bool | None
    seed: int
    cores: int
    machine: str = "machine"

    def first(self, entry: Entry, judge: ResultJudge) -> Entrant | CandidateTimes:
        assert entry.returning is not None
        try:
            first = first_run(entry.returning, judge.inputs)
        except NoyauError as error:
            if entry.other is not None and isinstance(error.__cause__, TypeError | AttributeError):
                return self.first(replace(entry.other, is_peer=entry.is_peer, is_judge=entry.is_judge), judge)
            why = shorten(str(error), entry.name)
            return CandidateTimes(entry.name, entry.language, *(("", why) if entry.is_peer else (why,)))
        fault = judge.fault(first.outputs, entry.is_judge)
        if fault and not entry.is_peer:
            return CandidateTimes(entry.name, entry.language, fault, first_s=first.first_s)
        return _filling(entry, Entrant(entry, first.outputs, first.first_s, first.peak_bytes, fault), judge)

    def temperatures(self) -> tuple[str, ...]:
        """Both where they may differ, unless a user says otherwise: what stays in a core's cache is timed hot alone,
        and what is in no cache has one time."""
        differ = HOT_BYTES < self.task.drawn.draw_bytes < 2 * last_level_bytes()
        return (HOT, COLD) if (differ if self.cold is None else self.cold) else (HOT,)

    def sides(self, runners: Entrants, temperature: str, judge: ResultJudge, *, last: bool) -> Sides[RotatingSide]:
        """Every candidate in every way, on one rotation of inputs and one of outputs."""
        rng, sets_of = np.random.default_rng(self.seed), hot_sets if temperature == HOT else cold_sets
        rotation = Rotation(self.task.drawn.draws, sets_of(self.task.drawn.draw_bytes), rng)
        memory, sides = dict[tuple[str, ...], list[Arrays]](), {}
        for runner in runners:
            for way, candidate in ((RETURNING, runner.entry.returning), (FILLING, runner.entry.filling)):
                if candidate is not None:
                    into = _memory(memory, runner.like, len(rotation.sets)) if candidate.into else []
                    sides[runner.entry.name, way] = RotatingSide(candidate, rotation, runner.like, rng, seconds, into)
        self._choose(sides, runners, judge.affordable if last else judge.affordable // 2)
        return sides

    def _choose(self, sides: Sides[RotatingSide], runners: Entrants, verified: int) -> None:
        """Set how many runs of each side are verified; where it is one, one of each candidate, in a random way."""
        rng = np.random.default_rng([self.seed, len(sides)])
        for runner in runners:
            own = [side for (name, _), side in sides.items() if name == runner.entry.name]
            for side in own:
                side.verified = 0 if verified == 1 else verified
            own[int(rng.integers(len(own)))].verified = verified

    def compare(self, sides: Sequence[RotatingSide], budget_s: float) -> Series:
        """All sides timed in rounds, in samples of several calls."""
        return compare_all(sides, budget_s=budget_s, seed=self.seed, clock=seconds)

    def look(self, side: RotatingSide, runner: Entrant) -> None:
        """Do nothing: runs tell their seconds alone."""

    def check(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
        return self.task.check(inputs, outputs)

    def outputs(self, runner: Entrant) -> Sequence[np.ndarray]:
        return runner.like

    def floor_s(self, work: Workload, *, cold: bool) -> float | None:
        return work.floor_s(self.cores, cold=cold)

    def mistake(self, row: CandidateTimes, at: BenchPoint, sides: Mapping[str, Sides[RotatingSide]]) -> str:
        """Why the faster of its ways cannot be that fast, or nothing; it is timed again before that is said."""
        least_s = at.least_s(row.name, HOT)
        if least_s is None:
            return ""
        pairs = zip(sides[HOT].items(), at.races[HOT].series.calls, strict=True)
        own = [(side, calls) for ((name, _), side), calls in pairs if name == row.name]
        return at.work.mistake(least_s, self.cores, lambda: min(side.lasts(calls) / calls for side, calls in own))


def _filling(entry: Entry, runner: Entrant, judge: ResultJudge) -> Entrant:
    """Without its way with `out=` where that is not taken."""
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
    """Outputs for each set of inputs, of these shapes and dtypes: made once."""
    key = tuple(f"{array.dtype}{array.shape}" for array in like)
    if key not in memory:
        memory[key] = packed_sets(sets, like)
        for arrays in memory[key]:
            poison(arrays)
    return memory[key]
