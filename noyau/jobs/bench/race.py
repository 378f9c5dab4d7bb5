"""The race: every candidate right before it starts, all of them timed in rounds, and runs that were timed judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.errors import CheckError
from noyau.jobs.bench.candidates import Entry
from noyau.jobs.bench.record import BenchPoint
from noyau.jobs.bench.times import COLD, CandidateTimes, Race
from noyau.jobs.bench.track import Entrant, ResultJudge, Sides, SideT, Track, shortened
from noyau.jobs.bench.workload import work_of_arrays
from noyau.ops.op import Op
from noyau.timing.conditions import conditions
from noyau.workers.tamper_detection import Watch

Say = Callable[[str], None]


def race(track: Track[SideT], entries: Sequence[Entry], *, budget_s: float, cores: int, say: Say) -> BenchPoint:
    """Verify each candidate on a first call, time all of them together, and verify some of the timed runs."""
    task = track.task
    watch, start, judge = Watch(), conditions(), ResultJudge(task.check, task.drawn.draws[-1])
    first_runs = [_first(track, entry, judge, say) for entry in entries]
    runners = [each for each in first_runs if isinstance(each, Entrant)]
    races: dict[str, Race] = {}
    timed_sides: dict[str, Sides[SideT]] = {}
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
    floor_s = track.floor_s(work, cold=COLD in races)
    inputs = tuple(
        f"{each.dtype}{list(each.shape)}" if isinstance(each, np.ndarray) else repr(each) for each in task.drawn.first
    )
    meanwhile = (start, conditions())
    at = BenchPoint(
        task.sizes, inputs, rows, races, work, floor_s, meanwhile, cores, task.drawn.notes, task.request, task.cells
    )
    return replace(at, rows=tuple(_possible(row, at, track, timed_sides) for row in rows))


def _first(track: Track[SideT], entry: Entry, judge: ResultJudge, say: Say) -> Entrant | CandidateTimes:
    if entry.skipped or entry.fault:
        return CandidateTimes(entry.name, entry.language, entry.fault, entry.skipped)
    say(f"first call of {entry.name}")
    return track.first(entry, judge)


def _verify(track: Track[SideT], sides: Sides[SideT], runners: Sequence[Entrant], watch: Watch) -> None:
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
            runner.fault = runner.fault or shortened(str(error), name)
        runner.verified += len(side.snapshots)


def _possible(
    row: CandidateTimes, at: BenchPoint, track: Track[SideT], timed_sides: Mapping[str, Sides[SideT]]
) -> CandidateTimes:
    """The row; with a fault where it took less time than can be, or a doubt where it may not touch all bytes."""
    mistake = "" if row.out else track.mistake(row, at, timed_sides)
    if not mistake:
        return row
    if at.work.exact:
        return replace(row, fault=mistake)
    doubt = f"faster than this {track.machine} moves its inputs and outputs: it may not touch all of them"
    return replace(row, notes=(*row.notes, doubt))


def name_of(what: Op[..., Any] | Mapping[str, Callable[..., object]]) -> str:
    """The name of a record: that of the op, or those of the functions."""
    return what.name if isinstance(what, Op) else ", ".join(what)


def pools() -> dict[str, int]:
    """The threads of each pool that candidates may use, as far as it is loaded."""
    counts = {name: getattr(sys.modules.get(name), "get_num_threads", None) for name in ("torch", "numba", "numexpr")}
    sizes = {name: int(count()) for name, count in counts.items() if callable(count)}
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return sizes | ({"OMP_NUM_THREADS": int(wished)} if wished.isdecimal() else {})
