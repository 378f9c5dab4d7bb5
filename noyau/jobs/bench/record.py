"""The work of a call, and the record of a race of candidates, with hot and cold times, which prints itself; the winner
among an op's kernels, recorded for later calls; and the tile sizes to try on a GPU.

The heuristics of tile sizes are CUDA's (Best Practices Guide, "Execution configuration"): blocks of whole warps, 128 to
512 threads, at least two to four blocks for each multiprocessor; and loads of 16 bytes, a few of them in flight for
each thread."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.compiler.partition.traffic import traffic
from noyau.errors import BuildError, CheckError, OutputError
from noyau.ir.graph import Contract, Graph, Map, Node, Reduce, Scan, Scatter
from noyau.ir.loops import Tile, TilePolicy
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Sizes, cells_at
from noyau.jobs.report.text import PagedRecord
from noyau.kernels.programs.generate import CPU, GeneratedProgram, Specialization, generate, in_order, lazy_graph
from noyau.kernels.trust import ineligible
from noyau.ops.dispatch.choice import REFERENCE, Winner, record, text_digest, usual_text
from noyau.ops.op import Op
from noyau.text import as_json, fields_json
from noyau.timing.conditions import Conditions, last_level_bytes, unsteady
from noyau.timing.machine import Machine
from noyau.timing.rates import copy_rate, floor_s, mistake
from noyau.timing.rounds import Series
from noyau.timing.verdict import Comparison, Latency, Verdict, latency_of
from noyau.toolchain.cache import today

_BEYOND = 4  # bytes of so many last-level caches are in no cache
_PLAIN = 4  # cost in float32 additions up to which a function counts as one flop: a division, but no exponential


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one call. `exact`: any implementation must move these bytes; else they are those of whole inputs and
    outputs. `flops`: additions, multiplications and the like, or None if unknown."""

    read_bytes: int
    written_bytes: int
    flops: float | None = None
    exact: bool = False

    @property
    def bytes_moved(self) -> int:
        return self.read_bytes + self.written_bytes

    def floor_s(self, threads: int, *, cold: bool = False) -> float | None:
        """The least seconds in which this machine moves the bytes, hot, or `cold` from no cache; None for no bytes."""
        if not self.bytes_moved:
            return None
        times = max(1, math.ceil(_BEYOND * last_level_bytes() / self.bytes_moved)) if cold else 1
        read, write_bytes = times * self.read_bytes, times * self.written_bytes
        copied_s = (read + write_bytes) / copy_rate(read + write_bytes, threads)  # an upper bound for reads only
        return min(floor_s(read, write_bytes, threads), copied_s) / times

    def mistake(self, time_s: float, threads: int, again: Callable[[], float] | None = None) -> str:
        """Why a time is impossible, or an empty text; `again` is as in `rates.mistake`."""
        with suppress(BuildError):
            if self.bytes_moved:
                return mistake(time_s, self.read_bytes, self.written_bytes, threads, again)
        return ""


def work_of_arrays(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], flops: float | None = None) -> Workload:
    """The work of reading all inputs once, broadcast cells counted once, and writing all outputs once."""
    own = (math.prod(n for n, stride in zip(a.shape, a.strides, strict=True) if stride) * a.itemsize for a in inputs)
    return Workload(sum(own), sum(each.nbytes for each in outputs), flops)


def work_of_graph(graph: Graph, sizes: Sizes) -> Workload:
    """The bytes that a traced graph must read and write, and its flops if all of it is plain arithmetic."""
    moved = traffic(graph, sizes, repeated=True)
    return Workload(moved.read_bytes, moved.written_bytes, flops_of(graph, sizes), exact=True)


def flops_of(graph: Graph, sizes: Sizes) -> float | None:
    """The number of additions, multiplications, comparisons and the like; None if a function is dearer, since its flops
    depend on the implementation."""
    known = [flops for node in graph.nodes if (flops := _flops(graph, node, sizes)) is not None]
    return (sum(known) or None) if len(known) == len(graph.nodes) else None


def _flops(graph: Graph, node: Node, sizes: Sizes) -> float | None:
    match node.kind:
        case Map("identity" | "cast"):
            return 0.0
        case Map(function):
            return float(cells_at(sizes, node.shape)) if OPERATORS[function].flops <= _PLAIN else None
        case Reduce(monoid) | Scan(monoid):
            return float(cells_at(sizes, graph[node.inputs[0]].shape)) if MONOIDS[monoid].is_arithmetic else None
        case Scatter(_, str(monoid)):
            return float(cells_at(sizes, graph[node.inputs[1]].shape)) if MONOIDS[monoid].is_arithmetic else None
        case Contract(equation):
            terms = zip(equation.partition("->")[0].split(","), node.inputs, strict=True)
            pairs = (zip(term.strip(), graph[name].shape, strict=False) for term, name in terms)
            extents = {letter: int(dim.evaluate(sizes)) for pair in pairs for letter, dim in pair}
            return 2.0 * math.prod(extents.values())  # a multiplication and an addition each
        case _:
            return 0.0


RETURNING, FILLING = "returns", "out="  # the ways of calling a candidate
HOT, COLD = "hot", "cold"
RotatingSide = tuple[str, str]  # a candidate's name, and a way of calling it


@dataclass(frozen=True, slots=True)
class CandidateTimes:
    """The row of a candidate. `language`: of a kernel, else empty; `fault`: why it is wrong, and `skipped`: why it
    cannot run here, either of which excludes it from the ranking. `notes`: reasons to doubt its times; `first_s`:
    seconds of its first call, which compiles; `peak_bytes`: allocated by a call through Python and NumPy, or on a GPU;
    `verified`: the number of timed runs that were checked; `host_s`: on a GPU, Python's time to launch a call."""

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
        """Why it is not ranked, or an empty text."""
        return self.fault or self.skipped

    @property
    def title(self) -> str:
        return self.name if not self.language or self.name.endswith(self.language) else f"{self.name} [{self.language}]"


@dataclass(frozen=True, slots=True)
class Race:
    """The series of a race, round by round, of each candidate in each way of calling it."""

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
    """The results at one set of sizes. `races`: hot, on inputs that stay in a core's cache if they fit, and, if timed,
    cold, on inputs evicted by twice the last-level cache; empty if no candidate is right. `against`: the baseline, the
    first candidate that is right. `floor_s`: at the usual temperature, None if it cannot be measured. `notes`: on the
    inputs. `request`, `cells`: of an op, the specialization of its kernels and the cells of the largest array."""

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
        """The fastest candidate, as users call it; empty if none is right."""
        return self.ranked[0].name if self.ranked else ""

    @property
    def doubts(self) -> str:
        """Changes of the machine during the race that make times doubtful, or an empty text."""
        return unsteady(*self.conditions, self.cores)

    @property
    def usual(self) -> str:
        """The temperature of reported times: cold if that was timed, since users cannot rely on caches."""
        return COLD if COLD in self.races else HOT

    def time_s(self, name: str, way: str = RETURNING, temperature: str = "") -> float | None:
        """The median seconds of a call; None if it was not timed in this way and temperature."""
        race = self.races.get(temperature or self.usual)
        return None if race is None else race.median_s((name, way))

    def latency(self, name: str) -> Latency | None:
        """The latency of a candidate as users call it; None if it was not timed."""
        race = self.races.get(self.usual)
        return None if race is None else race.latency((name, RETURNING))

    def least_s(self, name: str, temperature: str = "") -> float | None:
        """The median seconds of a call in the faster way."""
        times = [self.time_s(name, way, temperature) for way in (RETURNING, FILLING)]
        return min((each for each in times if each is not None), default=None)

    def comparison(self, name: str, against: str = "", *, way: str = RETURNING, temperature: str = "") -> Comparison:
        """The comparison of two candidates, called in one way; KeyError or ValueError if one was not timed so."""
        return self.races[temperature or self.usual].comparison((against or self.against, way), (name, way))

    def deciding(self, name: str) -> tuple[str, Comparison]:
        """The temperature that decides a verdict, cold unless only hot is clear, and the comparison at it."""
        comparisons = {each: self.comparison(name, temperature=each) for each in (COLD, HOT) if each in self.races}
        clear = [each for each, comparison in comparisons.items() if comparison.verdict is not Verdict.AMBIGUOUS]
        temperature = (clear or list(comparisons))[0]
        return temperature, comparisons[temperature]

    def verdict(self, name: str) -> Verdict:
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
    """Candidates timed side by side, at each set of sizes; prints itself. `threads`: of each loaded thread pool; `gpu`:
    the GPU that they ran on, with its clocks before and after, None for the CPU."""

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
        """The record as plain data in a fixed order, with every sample; unknown and non-finite numbers are None."""
        names = ("schema_version", "name", "ok", "machine", "threads", *(() if self.gpu is None else ("gpu",)), "at")
        return {name: as_json(getattr(self, name)) for name in names}


WARP = 32
SIZED = (TilePolicy.FIXED, TilePolicy.LIMITED)
WARPS = (4, 8, 16)  # 128 to 512 threads
CELLS_A_THREAD = (4, 64)
LEAST_BLOCKS = 2  # for each multiprocessor
MOST = 12
_FACTORS = (0.25, 0.5, 1, 2, 4)


def record_winner(op: object, at: BenchPoint) -> None:
    """Record the winner for similar calls of the op, unless the cache cannot be written."""
    if isinstance(op, Op) and at.request and any(is_able(row.name, op, at.request) for row in at.ranked):
        with suppress(OutputError):
            record(op.description, at.request, [winner_of(op, at, at.request, at.cells)])
        op.calls.forget()


def is_able(name: str, op: Op[..., Any], request: Specialization) -> bool:
    """Whether calls may run a candidate; on a GPU also a generated one with other tile sizes."""
    own = name.partition(" (")[0] if request.device != CPU and name.startswith("generated ") else name
    return own in [REFERENCE, *by_default(op, request)]


def winner_of(op: Op[..., Any], at: BenchPoint, request: Specialization, cells: int) -> Winner:
    """The fastest eligible kernel, if it is certainly FASTER than the default one; else the default one."""
    names = [row.name for row in at.ranked if is_able(row.name, op, request)]
    usual = next((name for name in (*by_default(op, request), REFERENCE) if name in names), names[-1])
    best = names[0] if at.comparison(names[0], usual).verdict is Verdict.FASTER else usual
    median_s, kernel = at.time_s(best) or 0.0, op.kernels.get(best)
    if kernel is not None:
        name, parted, _ = best.partition(" (")
        constants = tuple(sorted(kernel.usage.constants.items())) if parted else ()
        return Winner(cells, name, text_digest(kernel.text), median_s, today(), constants)
    if best == REFERENCE:
        return Winner(cells, REFERENCE, usual_text(op.description, request), median_s, today())
    language, tiles = best.partition(" (")[0].removeprefix("generated "), read_tiles(best)
    text = text_digest(generate(op.description, request, language).text)
    return Winner(cells, language, text, median_s, today(), tuple(sorted(tiles.items())))


def by_default(op: Op[..., Any], request: Specialization) -> Iterator[str]:
    """The eligible kernels, in the order of preference of a call without a recorded winner."""
    key = (op.description.reference, request.instance, request.constants, request.device)
    able = [each for each in op.kernels.values() if not ineligible(each, *key)]
    yield from (kernel.name for kernel in able if kernel.usage.trust)
    yield from (f"generated {each}" for each in in_order(request.languages, lazy_graph(key[0], request)))
    yield from (kernel.name for kernel in able if not kernel.usage.trust)


def tilings(generated: GeneratedProgram, cells: int, sm_count: int) -> list[tuple[dict[str, int], str]]:
    """Tile sizes and numbers of warps to try for a program, by name, each with its reason; `cells`: of the largest
    array. Those that leave multiprocessors idle are used only if all do; empty if nothing can be chosen."""
    candidates = sorted(_candidates(chosen_tiles(generated), cells, sm_count), key=lambda each: each[0])
    busy = [each for each in candidates if each[2] >= LEAST_BLOCKS] or candidates
    return [(sizes, name) for _, name, _, sizes in busy[:MOST]]


def chosen_tiles(generated: GeneratedProgram) -> list[Tile]:
    """The tiles whose sizes may be chosen at the launch."""
    tiles = (tile for kernel in generated.program.kernels for launch in kernel.launches for tile in launch.tiles)
    return list({tile.name: tile for tile in tiles if tile.policy in (*SIZED, TilePolicy.SHARING)}.values())


def _candidates(tiles: list[Tile], cells: int, sm_count: int) -> Iterator[tuple[float, str, float, dict[str, int]]]:
    """All choices: the distance from the default, the reason, the blocks for each multiprocessor, and the sizes."""
    sized = [tile for tile in tiles if tile.policy in SIZED]
    for factors in itertools.product(_FACTORS, repeat=len(sized)) if sized else ():
        sizes = {tile.name: int(tile.number * factor) for tile, factor in zip(sized, factors, strict=True)}
        program = math.prod(sizes.values())
        blocks = cells / max(program, 1) / sm_count
        for warps in WARPS:
            threads = warps * WARP
            if CELLS_A_THREAD[0] <= program / threads <= CELLS_A_THREAD[1] and min(sizes.values()) >= 1:
                each = f"of {program / threads:g} cells each; {blocks:.3g} blocks a multiprocessor"
                name = f"{threads} threads, a multiple of {WARP} from 128 to 512, {each}"
                far = sum(abs(math.log2(factor)) for factor in factors) + abs(math.log2(warps / 8))
                yield far, name, blocks, {**sizes, "num_warps": warps}


def read_tiles(named: str) -> Mapping[str, int]:
    """The tile sizes in a candidate's name: `generated triton (TILE=1024, num_warps=4)`."""
    pairs = (each.partition("=") for each in named.partition(" (")[2].removesuffix(")").split(", ") if each)
    return {name: int(value) for name, _, value in pairs if value.isdecimal()}
