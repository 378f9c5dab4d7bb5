"""Sides of a comparison, each of which times itself: a callable here, a contender on arrays, a state of a worker; and
inputs that differ in each call, from a rotation of sets in memory. And checks of a timed call's results: against a
graph, by the certificate, or against a NumPy function."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from noyau.dtypes import from_numpy
from noyau.errors import CheckError, InputError, NoyauError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.timing.conditions import last_level_bytes, others_rest
from noyau.verify.failures import Case, Failure
from noyau.verify.floats import move_ulps
from noyau.verify.judges import Judge, judge_of
from noyau.verify.trial import LazyGraph, certify
from noyau.workers.resources import peak_bytes
from noyau.workers.tamper_detection import Snapshot, poison, seconds
from noyau.workers.worker import Worker

ArraySequence = Sequence[np.ndarray]
Check = Callable[[ArraySequence, ArraySequence], str]
Reference = Callable[..., object]

_MOVED_RUNS = 8
VERIFIED = 4  # verified runs of each side and temperature


def by_graph(graph: Graph, spelling: LazyGraph | None = None) -> Check:
    """A check of outputs for inputs, in the graph's order: by the certificate, against float64."""

    def check(inputs: ArraySequence, outputs: ArraySequence) -> str:
        case = Case("a timed run", tuple(map(np.array, inputs)))
        certificate = certify(graph, lambda _: outputs, [case], name="the timed run", traced=spelling)
        return "" if certificate.ok else certificate.summary()

    return check


def by_reference(reference: Reference, truth_of: Reference | None = None) -> Check:
    """As `by_graph`, against a NumPy function of the same inputs: run with every float widened to float64 for the
    truth, and nine times in its own dtypes, in eight with the float inputs moved by an ulp, for the tolerance.
    `truth_of` computes the truth instead, from the same widened inputs."""

    def check(inputs: ArraySequence, outputs: ArraySequence) -> str:
        with np.errstate(all="ignore"):
            wide = [array.astype(np.float64) if is_float(array.dtype) else array.copy() for array in inputs]
            truth = arrays_of((truth_of or reference)(*wide))
            runs = [arrays_of(reference(*moved)) for moved in _nudge(inputs)]
            forms, right = ([f"{each.dtype}{list(each.shape)}" for each in arrays] for arrays in (outputs, runs[0]))
            misfit = "" if forms == right else f"gave {', '.join(forms)}, not {', '.join(right)}"
            return misfit or _first_failure(outputs, truth, runs)

    return check


def arrays_of(result: object) -> list[np.ndarray]:
    """The results of a NumPy function as arrays; InputError for a result that is no array."""
    parts = result if isinstance(result, tuple | list) else [result]
    if any(part is None or from_numpy(np.asarray(part).dtype) is None for part in parts):
        raise InputError(f"the reference returned {type(result).__name__}, not an array or a tuple of arrays")
    return [np.asarray(part) for part in parts]


def _first_failure(outputs: ArraySequence, truth: ArraySequence, runs: Sequence[ArraySequence]) -> str:
    """The first wrong cell, as text, or an empty text."""
    for number, got in enumerate(outputs):
        judge = _judge(number, got, truth[number])
        for run in runs:
            judge.see(run[number])
        outcome = judge.outcome(Case("a timed run", ()), "the inputs of the run")
        if outcome.broken or outcome.beyond > outcome.cells // 100_000:
            return _message(outcome.failures[0])
    return ""


def _message(failure: Failure) -> str:
    where = f"{failure.output}[{', '.join(map(str, failure.cell or ()))}]"
    got, want = (f"{value:.9g}" for value in (failure.got, failure.want))
    if got == want:
        got, want = repr(failure.got), repr(failure.want)
    bound = f"got {got}, want {want} (float64), allowed {failure.allowed:.2g}"
    return f"wrong at {where}: {bound}; {failure.note}"


def _judge(number: int, got: np.ndarray, truth: np.ndarray) -> Judge:
    dtype = from_numpy(got.dtype)
    if dtype is None:
        raise InputError(f"output {number} is {got.dtype}, which noyau cannot judge; cast it")
    node = Node(f"output {number}", Input(), (), dtype, shape_of(got.shape))
    return judge_of(node, got, truth, np.zeros(got.shape, bool), False, None)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether noyau has this dtype as a float."""
    return (known := from_numpy(dtype)) is not None and known.is_float


def _nudge(inputs: ArraySequence) -> Iterator[ArraySequence]:
    """The unchanged inputs, then inputs with each float moved by -1, 0 or +1 ulp."""
    yield [array.copy() for array in inputs]
    rng = np.random.default_rng(_MOVED_RUNS)
    for _ in range(_MOVED_RUNS):
        packed = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
        yield [move_ulps(array, rng) if is_float(array.dtype) else array.copy() for array in packed]


Function = Callable[[], object]
Clock = Callable[[], float]


class SelfTimedSide(Protocol):
    """A side that times itself: in another process, or on memory that is renewed between calls."""

    def lasts(self, calls: int) -> float:
        """The total seconds of so many calls."""


@dataclass(frozen=True, slots=True)
class _TimedCallable:
    """A callable of this process, called in a plain loop."""

    function: Function
    clock: Clock

    def lasts(self, calls: int) -> float:
        function, clock, rounds = self.function, self.clock, range(calls)
        start_s = clock()
        for _ in rounds:
            function()
        return clock() - start_s


Side = Function | SelfTimedSide


def self_timed(side: Side, clock: Clock) -> SelfTimedSide:
    return _TimedCallable(side, clock) if callable(side) else side


class WorkerState(SelfTimedSide, Protocol):
    """The state of a worker that is timed."""

    def tell(self) -> Mapping[str, Any]:
        """Facts about the state; NoyauError if a timed run was wrong."""


@dataclass(slots=True)
class WorkerSide:
    """The state of a worker as a side of `compare`. CheckError where it crashes or hangs."""

    worker: Worker

    def lasts(self, calls: int) -> float:
        start_s = seconds()
        took_s = self.worker.call(lasts, calls)
        if took_s > seconds() - start_s:
            raise CheckError(f"{self.worker.name} says that it ran for {took_s:.3g} s, longer than it was waited for")
        return took_s

    def tell(self) -> dict[str, Any]:
        """The `peak_bytes` of the process, and the facts of its state."""
        return self.worker.call(tell)


def lasts(state: WorkerState, calls: int) -> float:
    """Run in the worker: the total seconds of so many calls."""
    return float(state.lasts(calls))


def tell(state: WorkerState) -> dict[str, Any]:
    """Run in the worker: its facts."""
    return {"peak_bytes": peak_bytes(), **state.tell()}


@dataclass(frozen=True, slots=True)
class Contender:
    """A named callable of arrays. `into`: it writes to preallocated arrays passed as `out=(...)`; else it returns an
    array or a tuple of them, as users call it, and its allocations are timed as well.

    `takes`: its arguments for a set of arrays, computed once a set; `takes_out`: its `out=` for a set of outputs;
    `gives`: its result as arrays, computed after the clock has stopped."""

    name: str
    run: Callable[..., object]
    into: bool = False
    takes: Callable[[Arrays], tuple[Any, ...]] = tuple
    takes_out: Callable[[Arrays], Any] = tuple
    gives: Callable[[object], object] = lambda result: result


def first_run(candidate: Contender, inputs: Sequence[np.ndarray]) -> tuple[Arrays, float, int]:
    """The outputs and the seconds of a first call, which compiles, and the allocations of Python and NumPy in a second
    one, in bytes."""
    start_s = seconds()
    outputs = call_once(candidate, inputs)
    first_s = seconds() - start_s
    tracemalloc.start()
    try:
        call_once(candidate, inputs, outputs)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return outputs, first_s, peak_bytes


def call_once(candidate: Contender, inputs: Sequence[np.ndarray], out: Sequence[np.ndarray] = ()) -> Arrays:
    """Call a candidate once on copies. If it writes to `out` and none is passed, it is called without `out`."""
    copies = tuple(array.copy() for array in inputs)
    try:
        into = {"out": candidate.takes_out(tuple(out))} if candidate.into and len(out) else {}
        result = candidate.gives(candidate.run(*candidate.takes(copies), **into))
    except NoyauError:
        raise
    except Exception as error:
        forms = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raise CheckError(f"{candidate.name} does not run on {forms}: {type(error).__name__}: {error}") from error
    snapshot = Snapshot(tuple(inputs), copies)
    snapshot.keep(result, tuple(out) if candidate.into else ())
    snapshot.settle()
    if snapshot.fault:
        raise CheckError(f"{candidate.name} is wrong: {snapshot.fault}")
    return tuple(snapshot.outputs)


@dataclass(slots=True)
class RotatingSide(SelfTimedSide):
    """A candidate on a rotation of inputs; every sample is split around a call that is chosen before it runs.

    `into`: memory for the outputs of each set, allocated here by default; sides may share it, and the rotation, for
    both change before each verified call. `verified`: the number of verified calls."""

    candidate: Contender
    rotation: Rotation
    like: Sequence[np.ndarray]
    rng: np.random.Generator
    clock: Clock
    into: list[Arrays] = field(default_factory=list)
    verified: int = VERIFIED
    samples: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    taken: list[tuple[Any, ...]] = field(default_factory=list)
    taken_out: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.candidate.into and not self.into:
            self.into = packed_sets(len(self.rotation.sets), self.like)
            for arrays in self.into:
                poison(arrays)
        self.taken = [self.candidate.takes(arrays) for arrays in self.rotation.sets]
        self.taken_out = [self.candidate.takes_out(arrays) for arrays in self.into] if self.candidate.into else []

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls, once other threads rest, on inputs that are renewed while no clock runs."""
        others_rest()
        chosen, calls_before, took_s = int(self.rng.integers(calls)), 0, 0.0
        self.samples += 1  # reservoir sampling: of n samples each is equally likely to be kept
        place = self.samples - 1 if self.samples <= self.verified else int(self.rng.integers(self.samples))
        slot = place if place < self.verified else None
        while calls_before < calls:
            first = self.rotation.next
            count = len(self.rotation.take(calls - calls_before))
            within = first + chosen - calls_before if calls_before <= chosen < calls_before + count else None
            took_s += self._turn(range(first, first + count), within, slot)
            calls_before += count
        return took_s

    def _turn(self, sets: range, chosen: int | None, slot: int | None) -> float:
        """Seconds of a call on each set, in two parts: up to the chosen call, whose result is copied, and after it."""
        if chosen is None:
            return self._time(sets)[0]
        snapshot, into = None, self.into[chosen] if self.taken_out else ()
        if slot is not None:
            live = self.rotation.sets[chosen]
            snapshot = Snapshot([array.copy() for array in live], live)
            poison(into)
        took_s, result = self._time(range(sets.start, chosen + 1))
        if snapshot is not None:
            snapshot.keep(None if into else self.candidate.gives(result), into)
        rest_s = self._time(range(chosen + 1, sets.stop))[0] if chosen + 1 < sets.stop else 0.0
        if snapshot is not None and slot is not None:
            snapshot.settle()
            self.snapshots[slot : slot + 1] = [snapshot]
        return took_s + rest_s

    def _time(self, sets: range) -> tuple[float, object]:
        """Seconds of a call on each set, and the result of the last one."""
        run, clock, arguments = self.candidate.run, self.clock, self.taken[sets.start : sets.stop]
        result: object = None
        if self.taken_out:
            pairs = list(zip(arguments, self.taken_out[sets.start : sets.stop], strict=True))
            start_s = clock()
            for arrays, out in pairs:
                run(*arrays, out=out)
            return clock() - start_s, None
        start_s = clock()
        for arrays in arguments:
            result = run(*arrays)
        return clock() - start_s, result

    def refuse(self, check: Check) -> None:
        """CheckError if one of the kept runs was wrong."""
        for snapshot in self.snapshots:
            fault = snapshot.fault or check(snapshot.inputs, snapshot.outputs)
            if fault:
                raise CheckError(f"{self.candidate.name} was wrong in a run that was timed: {fault}")


Arrays = tuple[np.ndarray, ...]
HOT_BYTES = 256 << 10  # of all sets together, if they fit: within a core's own cache
MOST_SETS = 1 << 14
_LINE_BYTES = 64
_STRETCH = 8  # a coarse change replaces 1 / _STRETCH of the cells
_COARSE = 0.25  # share of coarse changes
_CELLS = 3


def hot_sets(set_bytes: int) -> int:
    """The number of sets that stay in a core's cache; at least two, so that no call repeats the previous inputs."""
    return min(max(2, HOT_BYTES // max(set_bytes, 1)), MOST_SETS)


def cold_sets(set_bytes: int) -> int:
    """The number of sets that fill twice the last-level cache: when a set is used again, none of it is cached. Sets
    below some kilobytes do not fill it, and stay warmer than the name suggests."""
    return min(max(3, math.ceil(2 * last_level_bytes() / max(set_bytes, 1))), MOST_SETS)


class Rotation:
    """Sets of inputs, used in turn: same objects, same addresses, but different values at each use.

    `draws` are sets of arrays, two or more, of the same shapes; a set always consists of cells of draws at their own
    places, so that indices, masks and the like stay valid. Each change replaces either a few cells or a stretch of
    them: a callable that caches results by identity, by address or by a sample of the cells returns wrong results."""

    def __init__(self, draws: Sequence[Sequence[np.ndarray]], sets: int, rng: np.random.Generator) -> None:
        refuse_unlike(draws)
        self.rng, self.next = rng, 0
        self.sources = [np.stack([array.reshape(-1) for array in arrays]) for arrays in zip(*draws, strict=True)]
        self.blocks = [_block(sets, array) for array in draws[0]]
        for block, source in zip(self.blocks, self.sources, strict=True):
            picked = rng.integers(0, len(source), block.shape, np.uint8)
            for number, cells in enumerate(source):
                np.copyto(block, cells, where=picked == number)
        pairs = list(zip(self.blocks, draws[0], strict=True))
        self.sets: list[Arrays] = [tuple(block[k].reshape(a.shape) for block, a in pairs) for k in range(sets)]

    def take(self, count: int) -> list[Arrays]:
        """The next sets, at most `count` and at most to the end of the turn, changed since their last use."""
        first = self.next
        last = min(first + count, len(self.sets))
        self.next = last % len(self.sets)
        self._change(first, last)
        return self.sets[first:last]

    def _change(self, first: int, last: int) -> None:
        rows = np.arange(first, last)
        for block, source in zip(self.blocks, self.sources, strict=True):
            cells = block.shape[1]
            if not cells:
                continue
            for _ in range(_CELLS):
                places = self.rng.integers(0, cells, len(rows))
                offered, old = source[:, places], block[rows, places]
                # A draw with another value there, if any; else the cell stays.
                liked = np.where(offered != old, self.rng.random(offered.shape), 0.0).argmax(0)
                block[rows, places] = offered[liked, np.arange(len(rows))]
            for row in rows[self.rng.random(len(rows)) < _COARSE]:
                start, number = int(self.rng.integers(cells)), int(self.rng.integers(len(source)))
                stretch = slice(start, start + max(cells // _STRETCH, 1))
                block[row, stretch] = source[number, stretch]


def refuse_unlike(draws: Sequence[Sequence[Any]], kind: Callable[[Any], object] = attrgetter("shape", "dtype")) -> None:
    """InputError for fewer than two draws, or for draws that differ in the kinds of their arrays."""
    if len(draws) < 2:
        raise InputError("one draw of inputs would be the same input every time: give two or more")
    first, *others = ([*map(kind, draw)] for draw in draws)
    if (unlike := next((each for each in others if each != first), None)) is not None:
        raise InputError(f"the draws of inputs differ: {first} and {unlike}; draw them alike")


def packed_sets(sets: int, like: Sequence[np.ndarray]) -> list[Arrays]:
    """So many sets of arrays of these shapes and dtypes, each at the start of a cache line, uninitialised."""
    blocks = [_block(sets, array) for array in like]
    return [tuple(block[k].reshape(a.shape) for block, a in zip(blocks, like, strict=True)) for k in range(sets)]


def _block(sets: int, like: np.ndarray) -> np.ndarray:
    """Memory for so many arrays, [sets, cells], each at the start of a cache line."""
    stride_bytes = -(-max(like.nbytes, 1) // _LINE_BYTES) * _LINE_BYTES
    room = np.empty(sets * stride_bytes + _LINE_BYTES, np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    rows = room[start : start + sets * stride_bytes].reshape(sets, stride_bytes)
    return rows[:, : like.nbytes].view(like.dtype) if like.nbytes else np.empty((sets, 0), like.dtype)
