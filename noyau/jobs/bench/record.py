"""The work of a call, and the record of a race of candidates and their times, hot or cold, which prints itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.compiler.partition.traffic import cells, traffic
from noyau.errors import BuildError, CheckError
from noyau.ir.graph import Contract, Graph, Map, Node, Reduce
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Sizes
from noyau.jobs.report.text import PagedRecord
from noyau.kernels.programs.generate import Specialization
from noyau.text import as_json, fields_json
from noyau.timing.conditions import Conditions, last_level_bytes, unsteady
from noyau.timing.machine import Machine
from noyau.timing.rates import copy_rate, floor_s, mistake
from noyau.timing.rounds import Series
from noyau.timing.verdict import Comparison, Latency, Verdict, latency_of

_BEYOND = 4  # times the last-level cache: what is no more in it
_PLAIN = 4  # in float32 additions: a division counts as one flop, an exponential does not


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one call. `exact`: the bytes are known to be those that any implementation moves; else they are of
    whole inputs and outputs. `flops`: additions, multiplications and the like, or None where they are not known."""

    read_bytes: int
    written_bytes: int
    flops: float | None = None
    exact: bool = False

    @property
    def bytes_moved(self) -> int:
        return self.read_bytes + self.written_bytes

    def floor_s(self, threads: int, *, cold: bool = False) -> float | None:
        """The least seconds in which this machine moves the bytes, again and again, or from no cache; None for none."""
        if not self.bytes_moved:
            return None
        times = max(1, math.ceil(_BEYOND * last_level_bytes() / self.bytes_moved)) if cold else 1
        read, write_bytes = times * self.read_bytes, times * self.written_bytes
        copied_s = (read + write_bytes) / copy_rate(read + write_bytes, threads)  # reads alone take no longer
        return min(floor_s(read, write_bytes, threads), copied_s) / times

    def mistake(self, time_s: float, threads: int, again: Callable[[], float] | None = None) -> str:
        """Why a time cannot be, or nothing; `again` is as in `rates.mistake`."""
        with suppress(BuildError):
            if self.bytes_moved:
                return mistake(time_s, self.read_bytes, self.written_bytes, threads, again)
        return ""


def work_of_arrays(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], flops: float | None = None) -> Workload:
    """All inputs read once, what is only repeated counted once, and all outputs written once."""
    own = (math.prod(n for n, stride in zip(a.shape, a.strides, strict=True) if stride) * a.itemsize for a in inputs)
    return Workload(sum(own), sum(each.nbytes for each in outputs), flops)


def work_of_graph(graph: Graph, sizes: Sizes) -> Workload:
    """The bytes that a traced graph must read and write, and its flops where all of them are plain arithmetic."""
    moved = traffic(graph, sizes, repeated=True)
    return Workload(moved.read_bytes, moved.written_bytes, flops_of(graph, sizes), exact=True)


def flops_of(graph: Graph, sizes: Sizes) -> float | None:
    """Additions, multiplications, comparisons...: one each; None where a function is dearer than that, for then how
    many it takes is a matter of how it is computed."""
    known = [flops for node in graph.nodes if (flops := _flops(graph, node, sizes)) is not None]
    return (sum(known) or None) if len(known) == len(graph.nodes) else None


def _flops(graph: Graph, node: Node, sizes: Sizes) -> float | None:
    match node.kind:
        case Map("identity" | "cast"):
            return 0.0
        case Map(function):
            return float(cells(node, sizes)) if OPERATORS[function].flops <= _PLAIN else None
        case Reduce(monoid):
            return float(cells(graph[node.inputs[0]], sizes)) if MONOIDS[monoid].is_arithmetic else None
        case Contract(equation):
            terms = zip(equation.partition("->")[0].split(","), node.inputs, strict=True)
            pairs = (zip(term.strip(), graph[name].shape, strict=False) for term, name in terms)
            extents = {letter: int(dim.evaluate(sizes)) for pair in pairs for letter, dim in pair}
            return 2.0 * math.prod(extents.values())  # of each product the sum, too
        case _:
            return 0.0


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

    def latency(self, side: RotatingSide) -> Latency | None:
        at = self.sides.index(side) if side in self.sides else None
        return None if at is None else latency_of(self.series.seconds[at], self.series.calls[at])

    def median_s(self, side: RotatingSide) -> float | None:
        return self.series.median_s(self.sides.index(side)) if side in self.sides else None

    def comparison(self, before: RotatingSide, after: RotatingSide) -> Comparison:
        return self.series.comparison(self.sides.index(before), self.sides.index(after))


@dataclass(frozen=True)
class BenchPoint:
    """The results at one set of sizes. `races`: hot, on inputs that stay in a core's cache where they fit, and cold, on
    inputs that went through twice the last-level cache, where that was timed too; none where no candidate is right.
    `against`: the candidate that all are compared with, the first that is right. `floor_s`: of the usual
    temperature, None where it cannot be measured. `notes`: on the inputs. `request`, `cells`: of an op, what its
    kernels were made for, and how many cells the largest array has."""

    sizes: Mapping[str, int]
    inputs: tuple[str, ...]
    rows: tuple[CandidateTimes, ...]
    races: Mapping[str, Race]
    work: Workload
    floor_s: float | None
    conditions: tuple[Conditions, Conditions]
    cores: int
    notes: tuple[str, ...] = ()
    request: Specialization | None = None
    cells: int = 0

    @property
    def against(self) -> str:
        return next((row.name for row in self.rows if not row.out), "")

    @property
    def ranked(self) -> tuple[CandidateTimes, ...]:
        """The candidates that are right, the fastest first."""
        return tuple(sorted([row for row in self.rows if not row.out], key=lambda row: self.time_s(row.name) or 0.0))

    @property
    def best(self) -> str:
        """The fastest candidate, as users call it; nothing where none is right."""
        return self.ranked[0].name if self.ranked else ""

    @property
    def doubts(self) -> str:
        """The changes of the machine meanwhile that make times doubtful, or nothing."""
        return unsteady(*self.conditions, self.cores)

    @property
    def usual(self) -> str:
        """The temperature that times are told at: cold where that was timed, for no cache is promised to a user."""
        return COLD if COLD in self.races else HOT

    def time_s(self, name: str, way: str = RETURNING, temperature: str = "") -> float | None:
        """The median seconds of a call, or None where it was not timed so."""
        race = self.races.get(temperature or self.usual)
        return None if race is None else race.median_s((name, way))

    def latency(self, name: str) -> Latency | None:
        """The latency of a candidate as users call it, or None where it was not timed."""
        race = self.races.get(self.usual)
        return None if race is None else race.latency((name, RETURNING))

    def least_s(self, name: str, temperature: str = "") -> float | None:
        """The median seconds of the faster of the ways in which it was called."""
        times = [self.time_s(name, way, temperature) for way in (RETURNING, FILLING)]
        return min((each for each in times if each is not None), default=None)

    def comparison(self, name: str, against: str = "", *, way: str = RETURNING, temperature: str = "") -> Comparison:
        """The comparison of two candidates, called alike; KeyError or ValueError where one was not timed so."""
        return self.races[temperature or self.usual].comparison((against or self.against, way), (name, way))

    def deciding(self, name: str) -> tuple[str, Comparison]:
        """The temperature that a verdict rests on, the usual one, or hot where it is AMBIGUOUS; and the comparison."""
        comparisons = {each: self.comparison(name, temperature=each) for each in (COLD, HOT) if each in self.races}
        clear = [each for each, comparison in comparisons.items() if comparison.verdict is not Verdict.AMBIGUOUS]
        temperature = (clear or list(comparisons))[0]
        return temperature, comparisons[temperature]

    def verdict(self, name: str) -> Verdict:
        """The verdict on a candidate against the one that all are compared with."""
        return self.deciding(name)[1].verdict

    def to_json(self) -> dict[str, Any]:
        rows = [self._row_json(row) for row in self.rows]
        names = ("sizes", "inputs", "work", "floor_s", "against", "best", "candidates", "conditions", "notes", "doubts")
        return {name: as_json(rows if name == "candidates" else getattr(self, name)) for name in names}

    def _row_json(self, row: CandidateTimes) -> dict[str, Any]:
        sides = ((*side, temperature) for temperature, race in self.races.items() for side in race.sides)
        times = [self._times_json(*side) for side in sides if side[0] == row.name]
        return {**fields_json(row, without=("notes",)), "notes": list(row.notes), "timed": times}

    def _times_json(self, name: str, way: str, temperature: str) -> dict[str, Any]:
        race = self.races[temperature]
        at = race.sides.index((name, way))
        record: dict[str, Any] = {"way": way, "temperature": temperature, "median_s": race.series.median_s(at)}
        record["latency"] = as_json(race.latency((name, way)))
        if (self.against, way) in race.sides:
            comparison = self.comparison(name, way=way, temperature=temperature)
            record |= {name: getattr(comparison, name) for name in ("verdict", "speedup", "low", "high")}
        return {**record, "calls": race.series.calls[at], "samples_s": list(race.series.seconds[at])}


@dataclass(frozen=True, repr=False)
class BenchRecord(PagedRecord):
    """Candidates timed side by side, at each of some sizes; prints itself. `threads`: of each pool that is loaded;
    `gpu`: the one that they ran on, with its clocks before and after, None where that was the processor."""

    name: str
    machine: Machine
    threads: Mapping[str, int]
    at: tuple[BenchPoint, ...]
    gpu: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether every candidate that ran is right."""
        return not any(row.fault for at in self.at for row in at.rows)

    @property
    def best(self) -> str:
        """The fastest candidate at the first sizes."""
        return self.at[0].best

    def raise_if_bad(self) -> None:
        """CheckError with the first candidate that is wrong, unless `ok`."""
        for row in (row for at in self.at for row in at.rows if row.fault):
            raise CheckError(f"{self.name}: {row.title} is not ranked: {row.fault}")

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order, with every sample; a number that is not known, or not finite, is None."""
        names = ("schema_version", "name", "ok", "machine", "threads", *(() if self.gpu is None else ("gpu",)), "at")
        return {name: as_json(getattr(self, name)) for name in names}
