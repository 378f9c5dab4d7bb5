"""The stages in which a case is judged: more unfused runs as long as they may allow more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from noyau.verify.certificate import Errors, Outcome
from noyau.verify.failures import Array, Case
from noyau.verify.judges import Judge

MOVED_RUNS, FIRST_RUNS = 8, 2  # the others are made only where the first allow less than the kernel needs
# Where a difference cancels, all nine runs happen to be near the truth in about one cell of 10^7; where one rounding
# alone makes it cancel, as that of 1 + tanh(-30), in one of 2^8. So few wrong cells get a second look, with more runs.
RARE, MORE_RUNS = 100, 40


def first_runs(jumping: frozenset[str], outputs: Iterable[str]) -> int:
    """The number of moved runs before a case may be decided; `jumping`: the values that only jump (`stepped`), of which
    the closest run says what is allowed. There more runs allow less, and all of them are made."""
    return FIRST_RUNS if jumping.isdisjoint(outputs) else MOVED_RUNS


def is_undecided(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether more unfused runs may allow what is wrong so far, or nothing tells yet what some cell may be."""
    return is_wrong(outcome, judges) or any(judge.is_open for judge in judges)


def is_wrong(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    return outcome.beyond > 0


def is_rare(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether so few cells are wrong that they get a second look."""
    return 0 < outcome.beyond <= max(1, outcome.cells // RARE)


@dataclass(frozen=True, slots=True)
class Stage:
    """Unfused runs, each the arrays of the outputs, that judges see where `wanted` of the outcome so far."""

    runs: Iterable[Sequence[Array]]
    wanted: Callable[[Outcome, Sequence[Judge]], bool] = is_undecided


def decide(case: Case, inputs: str, judges: Sequence[Judge], stages: Iterator[Stage]) -> Outcome:
    """Judge a case by the first stage of unfused runs, and by further ones as long as they may allow more."""
    outcome = _judged(case, inputs, judges, next(stages).runs)
    for stage in stages:
        if stage.wanted(outcome, judges):
            outcome = _judged(case, inputs, judges, stage.runs)
    return outcome


def _judged(case: Case, inputs: str, judges: Sequence[Judge], runs: Iterable[Sequence[Array]]) -> Outcome:
    for run in runs:
        for judge, unfused in zip(judges, run, strict=True):
            judge.see(unfused)
    return combine_outcomes(case, [judge.outcome(case, inputs) for judge in judges])


def combine_outcomes(case: Case, parts: Sequence[Outcome]) -> Outcome:
    """The outcome of a case, from those of its outputs."""
    return Outcome(
        case.label,
        case.captured,
        sum(part.cells for part in parts),
        sum(part.beyond for part in parts),
        max((part.worst_ratio for part in parts), default=0.0),
        sum((part.kernel for part in parts), Errors()),
        sum((part.unfused for part in parts), Errors()),
        tuple(failure for part in parts for failure in part.failures),
    )
