"""Two Python callables on arrays against each other: verified on runs that are timed, hot and cold.

A side times itself: it makes inputs new between calls, outside the time that is measured (sets of arrays in memory of
our own, whose values change before they come again), and keeps what some of the timed calls returned, chosen at random
beforehand. What they returned is verified when all timing is done.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noyau.errors import CheckError, InputError, NoyauError
from noyau.text import as_json
from noyau.timing.comparison import Clock, Comparison, SelfTimed, Verdict, compare
from noyau.timing.conditions import Conditions, conditions, last_level_bytes, others_rest, unsteady
from noyau.timing.output_checks import Check
from noyau.workers.tamper_detection import Snapshot, Watch, poison, seconds

Mistake = Callable[[float], str]

VERIFIED = 4  # timed runs of each side and temperature


def _as_it_is(result: object) -> object:
    return result


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
    gives: Callable[[object], object] = _as_it_is


@dataclass(frozen=True, slots=True)
class First:
    """A candidate's first calls, which are not timed against anything: the first is what compiles. `peak_bytes` is what
    one call allocates through Python and NumPy, at the peak."""

    first_s: float
    peak_bytes: int
    outputs: Arrays


@dataclass(frozen=True)
class PairwiseResult:
    """The results of a pair. `hot`: on inputs that stay in a core's cache where they fit; `cold`: on inputs that went
    through at least twice the last-level cache. `compile_s`, `peak_bytes`: of before, of after. `note`: what makes the
    times doubtful."""

    names: tuple[str, str]
    hot: Comparison
    cold: Comparison
    compile_s: tuple[float, float]
    peak_bytes: tuple[int, int]
    conditions: tuple[Conditions, Conditions]
    inputs: tuple[str, ...]
    verified: int
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict of the cold runs, for no cache is promised to a user; of the hot ones where those are
        AMBIGUOUS."""
        return self.cold.verdict if self.cold.verdict is not Verdict.AMBIGUOUS else self.hot.verdict

    @property
    def advice(self) -> str:
        """Advice where the verdict is AMBIGUOUS."""
        return "; ".join(filter(None, [self.hot.advice, self.note])) if self.verdict is Verdict.AMBIGUOUS else ""

    def to_json(self) -> Any:
        return as_json(
            {
                "names": self.names,
                "inputs": self.inputs,
                "verdict": self.verdict,
                "hot": comparison_json(self.hot),
                "cold": comparison_json(self.cold),
                "compile_s": self.compile_s,
                "peak_bytes": self.peak_bytes,
                "conditions": self.conditions,
                "verified": self.verified,
                "note": self.note,
            }
        )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison with every sample."""
    names = ("verdict", "speedup", "low", "high", "before_median_s", "after_median_s", "calls")
    record = {name: getattr(comparison, name) for name in names}
    quantiles = dict(zip(("before_p10_p90_s", "after_p10_p90_s"), comparison.quantiles_s(0.1, 0.9), strict=True))
    return {
        **record,
        "verdict": comparison.verdict.value,
        **quantiles,
        "before_s": comparison.before_s,
        "after_s": comparison.after_s,
    }


def _no_mistake(_: float) -> str:
    return ""


def trial(
    before: Contender,
    after: Contender,
    draws: Sequence[Sequence[np.ndarray]],
    check: Check,
    *,
    others: Sequence[Sequence[np.ndarray]] = (),
    budget_s: float = 1.0,
    cores: int = 1,
    mistake: Mistake = _no_mistake,
    seed: int = 0,
    clock: Clock = seconds,
) -> PairwiseResult:
    """Time `after` against `before` on inputs like the draws (two sets of arrays or more, of the same shapes).

    `check(inputs, outputs)` says what is wrong, or nothing (see `verifying`). Both sides must be right on `others`,
    sets of other shapes, and on runs that were timed, chosen at random. `mistake` says
    of a time in seconds why it cannot be (`bandwidth.mistake` of the bytes that must move), or nothing. CheckError
    where a side is wrong or cheats, with its name; else there is always a result, AMBIGUOUS where the machine is too
    noisy. Half of `budget_s` is for the hot runs, half for the cold ones."""
    watch, start = Watch(), conditions()
    firsts = [first_calls(each, draws[-1], others, check, clock) for each in (before, after)]
    sides = opposite_sides((before, after), firsts, draws, np.random.default_rng(seed), clock)
    comparisons = [compare(*pair, budget_s=budget_s / 2, seed=seed, clock=clock) for pair in sides]
    verified = refuse_wrong([side for pair in sides for side in pair], watch, check)
    refuse_mistakes(comparisons, (before.name, after.name), mistake)
    end = conditions()
    return PairwiseResult(
        (before.name, after.name),
        comparisons[0],
        comparisons[1],
        (firsts[0].first_s, firsts[1].first_s),
        (firsts[0].peak_bytes, firsts[1].peak_bytes),
        (start, end),
        tuple(f"{array.dtype}{list(array.shape)}" for array in draws[0]),
        verified,
        unsteady(start, end, cores),
    )


def opposite_sides(
    candidates: Sequence[Contender],
    firsts: Sequence[First],
    draws: Sequence[Sequence[np.ndarray]],
    rng: np.random.Generator,
    clock: Clock,
) -> list[list[RotatingSide]]:
    """The sides of the hot comparison and those of the cold one, each on sets of its own."""
    set_bytes = sum(array.nbytes for array in draws[0])
    pairs = list(zip(candidates, firsts, strict=True))
    return [
        [RotatingSide(each, Rotation(draws, sets, rng), first.outputs, rng, clock) for each, first in pairs]
        for sets in (hot_sets(set_bytes), cold_sets(set_bytes))
    ]


def refuse_wrong(sides: Sequence[RotatingSide], watch: Watch, check: Check) -> int:
    """Count the timed runs that were verified. CheckError where one was wrong, or where the clock was tampered with."""
    for side in sides:
        watch.refuse(side.candidate.name)
        side.refuse(check)
    return sum(len(side.snapshots) for side in sides)


def refuse_mistakes(comparisons: Sequence[Comparison], names: tuple[str, str], mistake: Mistake) -> None:
    """CheckError where a side took less time than can be."""
    for one in comparisons:
        for name, took_s in zip(names, (one.before_median_s, one.after_median_s), strict=True):
            fault = mistake(took_s)
            if fault:
                raise CheckError(f"{name} is not timed: {fault}")


def first_calls(
    candidate: Contender,
    inputs: Sequence[np.ndarray],
    others: Sequence[Sequence[np.ndarray]],
    check: Check,
    clock: Clock,
) -> First:
    """The first call, timed as what compiles; then a call on each of the other inputs, checked."""
    start_s = clock()
    outputs = call_once(candidate, inputs, check, ())
    first_s = clock() - start_s
    tracemalloc.start()
    try:
        call_once(candidate, inputs, check, outputs)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    for other in others:
        fault = check(other, call_once(candidate, other, check, ()))
        if fault:
            raise CheckError(f"{candidate.name} is wrong for {array_forms(other)}: {fault}")
    return First(first_s, peak_bytes, tuple(outputs))


def call_once(candidate: Contender, inputs: Sequence[np.ndarray], check: Check, out: Sequence[np.ndarray]) -> Arrays:
    """Call a candidate once on copies. A candidate that wants outputs and is given none is asked what it returns
    without them."""
    copies = tuple(array.copy() for array in inputs)
    try:
        arguments = candidate.takes(copies)
        into = {"out": candidate.takes_out(tuple(out))} if candidate.into and len(out) else {}
        result = candidate.gives(candidate.run(*arguments, **into))
    except NoyauError:
        raise
    except Exception as error:
        raise CheckError(
            f"{candidate.name} does not run on {array_forms(inputs)}: {type(error).__name__}: {error}"
        ) from error
    snapshot = Snapshot(tuple(inputs), copies)
    snapshot.keep(result, tuple(out) if candidate.into else ())
    snapshot.settle()
    if snapshot.fault:
        raise CheckError(f"{candidate.name} is wrong: {snapshot.fault}")
    return tuple(snapshot.outputs)


def array_forms(arrays: Sequence[np.ndarray]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)


@dataclass(slots=True)
class RotatingSide(SelfTimed):
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
    calls: int = 0
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
        """Seconds of so many calls, on inputs that are made new between turns of the rotation, while no clock runs, and
        once the threads of whoever was timed before rest."""
        others_rest()
        chosen, calls_before, took_s = int(self.rng.integers(calls)), 0, 0.0
        slot = self._slot()
        while calls_before < calls:
            first = self.rotation.next
            count = len(self.rotation.take(calls - calls_before))
            within = first + chosen - calls_before if calls_before <= chosen < calls_before + count else None
            took_s += self._turn(range(first, first + count), within, slot)
            calls_before += count
        self.calls += calls
        return took_s

    def _slot(self) -> int | None:
        """The slot of this sample's snapshot, or None: of n samples, each is kept as likely as any other."""
        self.samples += 1
        place = self.samples - 1 if self.samples <= self.verified else int(self.rng.integers(self.samples))
        return place if place < self.verified else None

    def _turn(self, sets: range, chosen: int | None, slot: int | None) -> float:
        """Seconds of a call on each set, in two parts: up to the chosen one, whose result is copied, and from there."""
        if chosen is None:
            return self._timed(sets)[0]
        snapshot, into = None, self.into[chosen] if self.taken_out else ()
        if slot is not None:
            live = self.rotation.sets[chosen]
            snapshot = Snapshot([array.copy() for array in live], live)
            poison(into)
        took_s, result = self._timed(range(sets.start, chosen + 1))
        if snapshot is not None:
            snapshot.keep(None if into else self.candidate.gives(result), into)
        rest_s = self._timed(range(chosen + 1, sets.stop))[0] if chosen + 1 < sets.stop else 0.0
        if snapshot is not None and slot is not None:
            snapshot.settle()
            self.snapshots[slot : slot + 1] = [snapshot]
        return took_s + rest_s

    def _timed(self, sets: range) -> tuple[float, object]:
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
    """The number of sets that stay in a core's cache; two at least, so that no call has the inputs of the one
    before."""
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
        self.sources = [np.stack([draw[k].reshape(-1) for draw in draws]) for k in range(len(draws[0]))]
        self.blocks = [_block(sets, draws[0][k]) for k in range(len(draws[0]))]
        for block, source in zip(self.blocks, self.sources, strict=True):
            picked = rng.integers(0, len(source), block.shape, np.uint8)
            for number, cells in enumerate(source):
                np.copyto(block, cells, where=picked == number)
        shapes = [array.shape for array in draws[0]]
        self.sets: list[Arrays] = [
            tuple(block[k].reshape(shape) for block, shape in zip(self.blocks, shapes, strict=True))
            for k in range(sets)
        ]

    @property
    def bytes(self) -> int:
        """The bytes of all sets."""
        return sum(block.nbytes for block in self.blocks)

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
                chosen = offered[liked, np.arange(len(rows))]
                block[rows, places] = chosen
            for row in rows[self.rng.random(len(rows)) < _COARSE]:
                start, number = int(self.rng.integers(cells)), int(self.rng.integers(len(source)))
                stretch = slice(start, start + max(cells // _STRETCH, 1))
                block[row, stretch] = source[number, stretch]


def refuse_unlike(draws: Sequence[Sequence[np.ndarray]]) -> None:
    """InputError where there is but one draw, or where draws differ in their shapes or dtypes."""
    kinds = [[(array.shape, array.dtype) for array in draw] for draw in draws]
    if len(draws) < 2:
        raise InputError("one draw of inputs would be the same input every time: give two or more")
    if any(kind != kinds[0] for kind in kinds):
        raise InputError(f"the draws of inputs differ in shape or dtype: {kinds[0]} and {kinds[1]}; draw them alike")


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
