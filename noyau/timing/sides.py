"""Sides of a comparison, each of which times itself: a callable here, a contender on arrays, a state of a worker; and
the inputs that each call has anew, from a rotation of sets in memory. Is what a timed call returned right? Against a
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


def by_graph(graph: Graph, spelling: LazyGraph | None = None) -> Check:
    """A check of outputs for inputs, in the graph's order: by the certificate, against float64."""

    def check(inputs: ArraySequence, outputs: ArraySequence) -> str:
        case = Case("a timed run", tuple(map(np.array, inputs)))
        certificate = certify(graph, lambda _: outputs, [case], name="the timed run", traced=spelling)
        return "" if certificate.ok else certificate.summary()

    return check


def by_reference(reference: Reference, truth_of: Reference | None = None) -> Check:
    """As `by_graph`, against a NumPy function of the same inputs: evaluated with every float widened to float64 for the
    truth, and nine times as it is, eight of them with the float inputs moved by an ulp, for what is allowed.

    `truth_of` gives the truth in its place, of the same widened inputs."""

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
    """The results of a NumPy function as arrays; InputError where one is none."""
    parts = result if isinstance(result, tuple | list) else [result]
    if any(part is None or from_numpy(np.asarray(part).dtype) is None for part in parts):
        raise InputError(f"the reference returned {type(result).__name__}, not an array or a tuple of arrays")
    return [np.asarray(part) for part in parts]


def _first_failure(outputs: ArraySequence, truth: ArraySequence, runs: Sequence[ArraySequence]) -> str:
    """The first wrong cell, in words, or nothing."""
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
    """Whether it is a dtype of floats that noyau has."""
    return (known := from_numpy(dtype)) is not None and known.is_float


def _nudge(inputs: ArraySequence) -> Iterator[ArraySequence]:
    """The inputs as they are, then with each float moved by -1, 0 or +1 ulp."""
    yield [array.copy() for array in inputs]
    rng = np.random.default_rng(_MOVED_RUNS)
    for _ in range(_MOVED_RUNS):
        packed = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
        yield [move_ulps(array, rng) if is_float(array.dtype) else array.copy() for array in packed]


Function = Callable[[], object]
Clock = Callable[[], float]


class SelfTimedSide(Protocol):
    """A side that times itself: in another process, or on memory that is made fresh between calls."""

    def lasts(self, calls: int) -> float:
        """The seconds that so many calls take together."""


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
        """Facts about it; NoyauError where a run that was timed was wrong."""


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
        """The `peak_bytes` of the process, and the facts that its state tells."""
        return self.worker.call(tell)


def lasts(state: WorkerState, calls: int) -> float:
    """In the worker: the seconds that so many calls take together."""
    return float(state.lasts(calls))


def tell(state: WorkerState) -> dict[str, Any]:
    """In the worker: its facts."""
    return {"peak_bytes": peak_bytes(), **state.tell()}


@dataclass(frozen=True, slots=True)
class Contender:
    """A callable of arrays with a name. `into`: it writes to arrays given as `out=(...)`, made beforehand; else it
    returns an array or a tuple of them, as users call it, and its allocations are timed as well.

    `takes`: what it is called with for a set of arrays, made once a set; `takes_out`: what it is given as `out=` for a
    set of outputs; `gives`: what it returned as arrays, once the clock has stopped."""

    name: str
    run: Callable[..., object]
    into: bool = False
    takes: Callable[[Arrays], tuple[Any, ...]] = tuple
    takes_out: Callable[[Arrays], Any] = tuple
    gives: Callable[[object], object] = lambda result: result


def first_run(candidate: Contender, inputs: Sequence[np.ndarray]) -> tuple[Arrays, float, int]:
    """The outputs and the seconds of a first call, which is what compiles, and the bytes that Python and NumPy allocate
    in the next one."""
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
    """Call a candidate once on copies. One that wants outputs and is given none is asked what it returns without."""
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


VERIFIED = 4  # timed runs of each side and temperature


@dataclass(slots=True)
class RotatingSide(SelfTimedSide):
    """A candidate on a rotation of inputs; every sample is split around a call that is chosen before it runs.

    `into`: memory for the outputs of each set, made here where none is given; sides may share it, and the rotation, for
    both change before each call that is looked at. `verified`: how many calls are."""

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
        """Seconds of so many calls, once other threads rest, on inputs that are made new while no clock runs."""
        others_rest()
        chosen, calls_before, took_s = int(self.rng.integers(calls)), 0, 0.0
        self.samples += 1  # of n samples, each is kept as likely as any other
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
        """Seconds of a call on each set, in two parts: up to the chosen one, whose result is copied, and from there."""
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
        """Seconds of a call on each set, and what the last one returned."""
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
        """CheckError where one of the kept runs was wrong."""
        for snapshot in self.snapshots:
            fault = snapshot.fault or check(snapshot.inputs, snapshot.outputs)
            if fault:
                raise CheckError(f"{self.candidate.name} was wrong in a run that was timed: {fault}")


Arrays = tuple[np.ndarray, ...]
HOT_BYTES = 256 << 10  # of all sets together, where they fit: within a core's own cache
MOST_SETS = 1 << 14
_LINE_BYTES = 64
_STRETCH = 8  # the share of the cells that a coarse change takes in
_COARSE = 0.25  # of the changes
_CELLS = 3


def hot_sets(set_bytes: int) -> int:
    """The number of sets that stay in a core's cache; at least two, so that no call has the inputs of the last one."""
    return min(max(2, HOT_BYTES // max(set_bytes, 1)), MOST_SETS)


def cold_sets(set_bytes: int) -> int:
    """The number of sets that fill twice the last-level cache: when one has its turn again, none of it is in a cache.
    Sets below some kilobytes do not fill it, and stay warmer than the name says."""
    return min(max(3, math.ceil(2 * last_level_bytes() / max(set_bytes, 1))), MOST_SETS)


class Rotation:
    """Sets of inputs, used in turn: same objects, same addresses, but other values than the last time.

    `draws` are sets of arrays, two or more, of the same shapes; what a set holds is always cells of draws in their own
    places, so that indices, masks and the like stay valid. Each change is either a few cells or a stretch of them: a
    callable that keeps results by identity, by address or by a sample of the cells gives what it should not."""

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
        """The next sets, at most `count` and at most to the end of the turn, changed since they were last used."""
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
                # Whichever draw has another value there; where none has, it stays.
                liked = np.where(offered != old, self.rng.random(offered.shape), 0.0).argmax(0)
                block[rows, places] = offered[liked, np.arange(len(rows))]
            for row in rows[self.rng.random(len(rows)) < _COARSE]:
                start, number = int(self.rng.integers(cells)), int(self.rng.integers(len(source)))
                stretch = slice(start, start + max(cells // _STRETCH, 1))
                block[row, stretch] = source[number, stretch]


def refuse_unlike(draws: Sequence[Sequence[Any]], kind: Callable[[Any], object] = attrgetter("shape", "dtype")) -> None:
    """InputError where there is but one draw, or where draws differ in the kinds of their arrays."""
    if len(draws) < 2:
        raise InputError("one draw of inputs would be the same input every time: give two or more")
    first, *others = ([*map(kind, draw)] for draw in draws)
    if (unlike := next((each for each in others if each != first), None)) is not None:
        raise InputError(f"the draws of inputs differ: {first} and {unlike}; draw them alike")


def packed_sets(sets: int, like: Sequence[np.ndarray]) -> list[Arrays]:
    """So many sets of arrays of these shapes and dtypes, each at the start of a line of the cache, not written to."""
    blocks = [_block(sets, array) for array in like]
    return [tuple(block[k].reshape(a.shape) for block, a in zip(blocks, like, strict=True)) for k in range(sets)]


def _block(sets: int, like: np.ndarray) -> np.ndarray:
    """Memory for so many arrays, [sets, cells], each at the start of a line."""
    stride_bytes = -(-max(like.nbytes, 1) // _LINE_BYTES) * _LINE_BYTES
    room = np.empty(sets * stride_bytes + _LINE_BYTES, np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    rows = room[start : start + sets * stride_bytes].reshape(sets, stride_bytes)
    return rows[:, : like.nbytes].view(like.dtype) if like.nbytes else np.empty((sets, 0), like.dtype)
