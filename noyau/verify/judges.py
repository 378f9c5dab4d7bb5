"""Judges of the cells of one output: the allowed error of each cell, and the kernel's distance from the truth.

A case is judged in stages, with more unfused runs as long as they may raise the allowance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from noyau.dtypes import DType
from noyau.ir.graph import Node
from noyau.text import printable
from noyau.verify.certificate import Outcome
from noyau.verify.failures import Array, Case, Failure, extent_of
from noyau.verify.floats import FORMATS, Errors, distance, equal_cells, kind, ulp, widen

ULPS = 2.0  # allowed in any case
FACTOR = 8.0  # multiple of the unfused runs' spread that is allowed


def judge_of(node: Node, got: Array, truth: Array, skipped: Array, steps: bool, tolerance: float | None) -> Judge:
    if node.dtype.is_float:
        return FloatJudge(node, got, truth, skipped, steps, tolerance)
    return Judge(node, got, truth, skipped)


class Judge:
    """Judge of an output of integers, bools or float8: each cell must equal the truth or an unfused run."""

    def __init__(self, node: Node, got: Array, truth: Array, skipped: Array) -> None:
        self.node, self.got, self.truth, self.skipped = node, got, truth, skipped
        self.matched = equal_cells(got, truth)
        self.first: Array | None = None

    def see(self, unfused: Array) -> None:
        """Take in one unfused run; the first is the one without changed roundings."""
        self.first = unfused if self.first is None else self.first
        self.matched |= equal_cells(self.got, unfused)

    @property
    def is_open(self) -> bool:
        """Whether more runs may lower the allowance."""
        return False

    @cached_property
    def ulp(self) -> Array:
        """The distance between neighbouring numbers at each cell."""
        return np.ones(())

    def allowance(self) -> Array:
        return np.zeros(self.got.shape)

    def ratios(self) -> Array:
        """The error of each cell divided by its allowance; up to 1 is right."""
        return np.where(self.matched, 0.0, np.inf)

    def errors(self, values: Array) -> Errors:
        """The distances of finite values from the truth, in ulp of the dtype at the truth, or in units."""
        truth = widen(self.truth)
        away = distance(widen(values), truth)
        is_counted = np.isfinite(away) & ~self.skipped
        return Errors.of((away / self.ulp)[is_counted], away[is_counted], truth[is_counted])

    def outcome(self, case: Case, inputs: str) -> Outcome:
        ratios = np.where(self.skipped, 0.0, self.ratios())
        worst, beyond = float(ratios.max(initial=0.0)), int(np.count_nonzero(ratios > 1))
        assert self.first is not None
        errors, failures = (self.errors(self.got), self.errors(self.first)), self.failures(ratios, case, inputs)
        return Outcome(case.label, case.captured, ratios.size, beyond, worst, *errors, failures)

    def failures(self, ratios: Array, case: Case, inputs: str) -> tuple[Failure, ...]:
        """The failures of the first and of the worst cell beyond its allowance."""
        wrong = np.argwhere(ratios > 1)
        if not len(wrong):
            return ()
        numbers, note = (self.got, self.truth, self.allowance()), extent_of(wrong, ratios.shape)
        cells = dict.fromkeys(tuple(map(int, cell)) for cell in (wrong[0], np.argwhere(ratios == ratios.max())[0]))
        failure = partial(Failure.of_cell, case.label, inputs, note, printable(self.node.output))
        return tuple(failure(cell, *(float(each[cell]) for each in numbers)) for cell in cells)


class FloatJudge(Judge):
    """Judge of a float output.

    `base`: the truth, or the first finite unfused run where the truth is not finite; `spread` and `closest`: the
    largest and the least distance of an unfused run from it; `nearest`: the least distance of the kernel's value from
    any of them; `kinds`: a bit for each of finite, NaN, inf and -inf in the truth or a run; `lost`: the truth is finite
    and a run is not, so an intermediate overflows and any non-finite result is right; `measured`: a run was finite."""

    def __init__(
        self, node: Node, got: Array, truth: Array, skipped: Array, steps: bool, tolerance: float | None = None
    ) -> None:
        super().__init__(node, got, truth, skipped)
        self.steps, self.tolerance = steps, tolerance
        self.value, self.base = widen(got), np.array(truth)
        self.kinds, self.spread = kind(truth), np.zeros(truth.shape)
        self.lost, self.measured = np.zeros(truth.shape, bool), np.zeros(truth.shape, bool)
        self.nearest, self.closest = distance(self.value, self.base), np.full(truth.shape, np.inf)

    def see(self, unfused: Array) -> None:
        self.first = unfused if self.first is None else self.first
        run = widen(unfused)
        finite = np.isfinite(run)
        self.kinds |= kind(run)
        self.lost, self.measured = self.lost | (np.isfinite(self.truth) & ~finite), self.measured | finite
        self.base = np.where(finite & ~np.isfinite(self.base), run, self.base)
        away = distance(run, self.base)
        np.fmax(self.spread, away, out=self.spread, where=np.isfinite(away))
        if self.steps:
            self.nearest = np.fmin(self.nearest, distance(self.value, run))
            if unfused.dtype == self.got.dtype:  # a run with more bits does not show this dtype's roundings
                self.closest = np.fmin(self.closest, away)

    @cached_property
    def ulp(self) -> Array:
        return ulp(self.node.dtype, np.where(np.isfinite(self.base), np.abs(self.base), 0.0))

    @property
    def is_open(self) -> bool:
        """Whether the spread of some cell is unknown, so that its allowance is the largest of the other cells."""
        return bool((self.lost & ~self.measured).any())

    def allowance(self) -> Array:
        """The allowed errors: 2 ulp + 8 max(d, r |truth|), of the spread d and r, the median of d/|truth|. If the value
        only jumps, d is the distance of the closest run, and the error that from the nearest run: no value between two
        steps is right. Where every run overflows d is unknown, and r is the largest d/|truth| of other cells. With a
        tolerance: tolerance * max(1, |truth|)."""
        size, spread = np.where(np.isfinite(self.base), np.abs(self.base), 0.0), self.spread
        if self.tolerance is not None:
            return np.asarray(self.tolerance * np.maximum(1.0, size))
        if self.steps:
            spread = np.where(np.isfinite(self.closest), self.closest, 0.0)
        if self.node.dtype is DType.F64:
            spread = np.maximum(spread, self.ulp / 2)  # the truth itself is rounded to float64
        is_counted = (size > 0) & np.isfinite(self.truth)  # elsewhere base is a run, whose own distance is 0
        relative = spread[is_counted] / size[is_counted]
        usual, most = (float(np.median(relative)), float(relative.max())) if relative.size else (0.0, 0.0)
        at_least = np.where(self.lost & ~self.measured, most, usual) * size
        return np.asarray(ULPS * self.ulp + FACTOR * np.maximum(spread, at_least))

    def ratios(self) -> Array:
        allowed = self.allowance()
        right = ((self.kinds & kind(self.value)) != 0) | (self.lost & ~np.isfinite(self.value))
        beyond = np.copysign(1.0, self.value) * self.base + allowed >= FORMATS[self.node.dtype].overflow
        away = self.nearest if self.steps else distance(self.value, self.base)
        near = np.isfinite(self.value) & np.isfinite(self.base)
        # Where the truth is infinite by a cancellation, as log(1 - 1), any finite value beyond a run's is right.
        beyond_run = np.where(self.truth > 0, self.value >= self.base, self.value <= self.base)
        away = np.where(np.isinf(self.truth) & near & beyond_run, 0.0, away)
        return np.where(near, away / allowed, np.where(right | (np.isinf(self.value) & beyond), 0.0, np.inf))


MOVED_RUNS, FIRST_RUNS = 8, 2  # the others run only if the first do not allow the kernel's errors
# By chance all nine runs are near the truth in about one cell of 10^7 where a difference cancels, and in one of 2^8
# where a single rounding decides it, as in 1 + tanh(-30). So a few wrong cells are judged again, with more runs.
RARE, MORE_RUNS = 100, 40


def first_runs(jumping: frozenset[str], outputs: Iterable[str]) -> int:
    """The number of moved runs before a case may be decided. For an output in `jumping`, the values that only jump
    (`step_values`), the closest run sets the allowance; more runs lower it, so all of them are made."""
    return FIRST_RUNS if jumping.isdisjoint(outputs) else MOVED_RUNS


def is_undecided(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether more unfused runs may allow the cells that are wrong so far, or the spread of some cell is unknown."""
    return is_wrong(outcome, judges) or any(judge.is_open for judge in judges)


def is_wrong(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    return outcome.beyond > 0


def is_rare(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether so few cells are wrong that they are judged again, with more runs."""
    return 0 < outcome.beyond <= max(1, outcome.cells // RARE)


@dataclass(frozen=True, slots=True)
class Stage:
    """Unfused runs, each the arrays of all outputs, that the judges take in if the outcome so far is `wanted`."""

    runs: Iterable[Sequence[Array]]
    wanted: Callable[[Outcome, Sequence[Judge]], bool] = is_undecided


def decide(case: Case, inputs: str, judges: Sequence[Judge], stages: Iterator[Stage]) -> Outcome:
    """Judge a case by the first stage of unfused runs, and by each further stage that is wanted."""
    outcome = _judge(case, inputs, judges, next(stages).runs)
    for stage in stages:
        if stage.wanted(outcome, judges):
            outcome = _judge(case, inputs, judges, stage.runs)
    return outcome


def _judge(case: Case, inputs: str, judges: Sequence[Judge], runs: Iterable[Sequence[Array]]) -> Outcome:
    for run in runs:
        for judge, unfused in zip(judges, run, strict=True):
            judge.see(unfused)
    return combine_outcomes(case, [judge.outcome(case, inputs) for judge in judges])


def combine_outcomes(case: Case, parts: Sequence[Outcome]) -> Outcome:
    """The outcome of a case, combined from those of its outputs."""
    cells, beyond = sum(part.cells for part in parts), sum(part.beyond for part in parts)
    worst = max((part.worst_ratio for part in parts), default=0.0)
    errors = sum((part.kernel for part in parts), Errors()), sum((part.unfused for part in parts), Errors())
    failures = tuple(failure for part in parts for failure in part.failures)
    return Outcome(case.label, case.captured, cells, beyond, worst, *errors, failures)
