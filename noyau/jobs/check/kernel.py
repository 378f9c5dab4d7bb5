"""The check of one kernel: everything that is tried on it, and what comes of that."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import (
    BuildError,
    FindingKind,
    InputError,
    NoyauError,
    Severity,
    SignatureError,
    UnansweredError,
    UnsupportedError,
)
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.check.attempts import Attempt, Sizes, attempts, grown
from noyau.jobs.check.candidates import Candidate
from noyau.jobs.check.diagnosis import Smallest, diagnosed, is_slight, shrunk
from noyau.jobs.check.op_lint import warned
from noyau.jobs.check.runs import TwoRuns, Unlike, thorough, why_unlike
from noyau.jobs.check.sanitized_runs import Seen, explained, watched
from noyau.kernels.reference import as_signed, reference, without_warnings
from noyau.ops.op import Op
from noyau.signatures.inputs import maker_text
from noyau.signatures.instances import axes_of, spell_axes
from noyau.signatures.types import Instance
from noyau.text import several
from noyau.verify.certificate import Certificate, Failure, Outcome
from noyau.verify.findings import Finding, KernelCheck
from noyau.verify.tolerances import trial
from noyau.verify.values import Case, KernelFunction

Array = np.ndarray
FEWEST = 30  # inputs that are tried, however long a compiler took, where they are quickly done with
ENOUGH = 3  # broken cases after which a kernel is not tried further
# Cells of an input or a result, and seconds of two runs with the reference, that large ones have; seconds that they
# must not have: with each size a kernel of four loops grows 256 times as long at once.
LARGE, LONG_S, TOO_LONG_S = 1 << 18, 0.03, 1.0
WATCHED, WATCHED_S = 60, 2.0  # attempts that are watched, and for how long
LOOKS = 2  # cases of which it is found out why two runs differ


@dataclass(frozen=True, slots=True)
class Raised:
    """What a kernel raised: for which attempt, what number that was, how it failed, and the error in a few words."""

    attempt: Attempt
    number: int
    failure: Failure
    told: str


@dataclass(slots=True)
class Tried:
    """What came of the attempts so far. `raised`: instances whose very first inputs the kernel raised for; as long as
    it is right on others, it is not written for these. `right` and `wrong`: on inputs of how many axes it was so.
    `refused`: the last reason why the reference took none of the inputs."""

    outcomes: list[Outcome] = field(default_factory=list)
    findings: dict[FindingKind, Finding] = field(default_factory=dict)
    shapes: dict[str, None] = field(default_factory=dict)
    instances: dict[Instance, None] = field(default_factory=dict)
    raised: dict[Instance, Raised] = field(default_factory=dict)
    right: set[tuple[int, ...]] = field(default_factory=set)
    wrong: set[tuple[int, ...]] = field(default_factory=set)
    broken: int = 0
    looks: int = 0
    hangs: bool = False
    left_out: int = 0
    untaken: int = 0
    refused: str = ""

    def add(self, finding: Finding) -> None:
        """Keep the first finding of each kind."""
        self.findings.setdefault(finding.kind, finding)


class OneKernel:
    """The check of one kernel."""

    def __init__(
        self, op: Op[..., Any], candidate: Candidate, tolerance: float | None, budget_s: float, declared: Sizes
    ) -> None:
        self.op, self.candidate, self.tolerance, self.budget_s = op, candidate, tolerance, budget_s
        self.declared = declared
        self.reference = op.description.reference
        self.signed: set[Instance] = set()

    def run(self, sizes: Sizes, seed: int) -> KernelCheck:
        candidate = self.candidate
        if candidate.skipped:
            return KernelCheck(candidate.name, candidate.language, None, (), skipped=candidate.skipped)
        try:
            tried = self.tried(sizes, seed)
        except UnsupportedError as error:
            return KernelCheck(candidate.name, candidate.language, None, (), skipped=str(error))
        except BuildError as error:
            finding = self.finding(FindingKind.LAUNCH, "", str(error))
            candidate.failed(f"{finding.kind}: {finding.message}")
            return KernelCheck(candidate.name, candidate.language, None, (finding,))
        first = next(self.attempts(sizes, seed, tried), None)
        found = self.judged(tried, self.watched(tried, sizes, seed))
        return warned(found, self.op, self.candidate, first, self.declared, is_usual=bool(sizes))

    def attempts(self, sizes: Sizes, seed: int, tried: Tried) -> Iterator[Attempt]:
        ranks_first = self.candidate.is_trusted
        return attempts(self.op, sizes, seed, self.accepts, ranks_first=ranks_first, left_out=tried.raised)

    def watched(self, tried: Tried, sizes: Sizes, seed: int) -> Seen:
        """What runs with every access watched show."""
        run = self.candidate.watched()
        if run is None or tried.hangs:
            return Seen()
        some = list(islice(self.attempts(sizes, seed, tried), WATCHED))
        return watched(run, some, partial(self.inputs, tried=Tried(), runs=False), min(WATCHED_S, self.budget_s / 2))

    def tried(self, sizes: Sizes, seed: int) -> Tried:
        """Every attempt, until enough is wrong or the time is used up; then those alone that are needed."""
        tried, end_s, first, is_late = Tried(), time.monotonic() + self.budget_s, None, False
        for number, attempt in enumerate(self.attempts(sizes, seed, tried)):
            began_s = time.monotonic()
            if self.is_enough(tried) or (is_late and not attempt.needed):
                break
            arrays = self.inputs(attempt, attempt.sizes, tried)
            if arrays is None:
                continue
            is_new = attempt.instance not in tried.instances
            right = self.judge(attempt, "contiguous", arrays, number, tried)
            first = first or (attempt if right and any(array.size for array in arrays) else None)
            if is_new and right and not is_late:
                self.judge_layouts(attempt, arrays, number, tried, end_s)
            now_s = time.monotonic()
            is_short = number == 0 or (number < FEWEST and now_s - began_s < LONG_S * 10)
            is_late = now_s > end_s and not is_short
        if first is not None and not self.is_enough(tried):
            for larger in grown(first):
                self.judge_large(larger, tried, end_s)
        if first is None and tried.raised:
            one = next(iter(tried.raised.values()))
            tried.add(self.explained(one.attempt, "contiguous", one.number, one.failure, tried))
        self.require_some(tried)
        return tried

    def require_some(self, tried: Tried) -> None:
        """UnsupportedError where there is no kernel for any inputs, InputError where there were none."""
        if tried.untaken and not tried.outcomes:
            raise UnsupportedError(self.candidate.reason)
        if not tried.findings and not any(outcome.cells for outcome in tried.outcomes):
            told = f": {tried.refused}" if tried.refused else ""
            made = f", as {maker_text(self.op.signature)} with sizes that it takes" if self.op.signature else ""
            told = f"no inputs could be made up that its reference takes{told}; give inputs={made}"
            raise InputError(f"{self.op.name}: {told}")

    def is_enough(self, tried: Tried) -> bool:
        return tried.hangs or tried.broken >= ENOUGH

    def accepts(self, instance: Instance) -> bool:
        """Whether the kernel takes arrays of these dtypes and ranks."""
        try:
            self.candidate.open(instance)
        except SignatureError:
            return False
        return True

    def inputs(self, attempt: Attempt, sizes: Sizes, tried: Tried, *, runs: bool = True) -> tuple[Array, ...] | None:
        """Inputs of these sizes that the reference takes and that the kernel runs, or is watched, on, or None."""
        try:
            arrays = attempt.make(sizes)
            if arrays is not None:
                named = dict(zip((node.output for node in attempt.graph.inputs), arrays, strict=True))
                evaluate(attempt.graph, named)
                self.require_dtypes(attempt.instance, arrays)
            if arrays is not None and not self.candidate.takes(attempt.instance, arrays, runs=runs):
                tried.untaken += 1
                return None
            return arrays
        except (InputError, SignatureError) as refusal:
            stretched = 1 in sizes.values()  # an axis of one cell may become what it is not signed to be
            if isinstance(refusal, SignatureError) and not (tried.outcomes or stretched) and sizes == attempt.sizes:
                raise
            tried.left_out, tried.refused = tried.left_out + 1, str(refusal)
            return None

    def require_dtypes(self, instance: Instance, arrays: Sequence[Array]) -> None:
        """SignatureError where the reference, as it is, gives another dtype than it is signed to; asked once."""
        if instance in self.signed:
            return
        with without_warnings(), reference():
            results = self.reference.run(instance, arrays, self.reference.constants)
        for result, value in zip(results, instance.outputs, strict=True):
            as_signed(result, value, self.op.name)
        self.signed.add(instance)

    def judge_layouts(
        self, attempt: Attempt, arrays: tuple[Array, ...], number: int, tried: Tried, end_s: float
    ) -> None:
        """The same inputs in other places of memory, for what takes strided arrays; the first however late it is."""
        for place, name in enumerate(self.candidate.layouts):
            if place and time.monotonic() > end_s:
                return
            laid = replace(attempt, made_of=f"{name} arrays, {attempt.made_of}")
            if name == "expanded":
                laid = replace(laid, make=lambda sizes: _equal(attempt.make(sizes)))
            given = _equal(arrays) if name == "expanded" else arrays
            self.judge(laid, name, given or (), number, tried)

    def judge_large(self, attempts: Iterator[Attempt], tried: Tried, end_s: float) -> None:
        """The largest of some inputs that are quickly done with, run again and again, and with other numbers of
        threads."""
        largest = None
        for attempt in attempts:
            began_s = time.monotonic()
            arrays = self.inputs(attempt, attempt.sizes, Tried()) if began_s < end_s else None
            if arrays is None or _are_large(arrays):
                break
            made: list[Array] = []
            with suppress(NoyauError):  # what is wrong with it is found when it is judged
                made = TwoRuns(self.candidate, attempt.instance)(arrays)
            took_s = time.monotonic() - began_s
            if largest is None or (took_s < TOO_LONG_S and not _are_large(made)):
                largest = attempt, arrays
            if took_s > LONG_S or _are_large(made):
                break
        if largest is not None and not self.is_enough(tried):
            self.judge(largest[0], "contiguous", largest[1], 0, tried, again=True)

    def judge(
        self,
        attempt: Attempt,
        layout: str,
        arrays: tuple[Array, ...],
        number: int,
        tried: Tried,
        *,
        again: bool = False,
    ) -> bool:
        """Whether the kernel is right on these inputs; what fails is shrunk. `again`: they are large, and it runs more
        than twice; lost precision is then a warning, as long as half of the digits are right."""
        runs = TwoRuns(self.candidate, attempt.instance, layout)
        outcome, given = self.outcome(attempt, runs, arrays, number)
        if runs.is_refused and self.candidate.is_trusted and attempt.instance not in tried.instances:
            told = outcome.failures[0].note.partition(" | ")[0]
            tried.raised[attempt.instance] = Raised(attempt, number, outcome.failures[0], told)
            return False
        tried.shapes[given], tried.instances[attempt.instance] = None, None
        slight = again and bool(outcome.failures) and is_slight(outcome.failures[0], attempt.instance)
        if not slight:
            tried.outcomes.append(outcome)
        (tried.wrong if outcome.broken else tried.right).add(attempt.instance.ranks)
        if outcome.broken:
            tried.broken += 1
            tried.hangs = isinstance(runs.fault, UnansweredError)
            finding = self.explained(attempt, layout, number, outcome.failures[0], tried)
            warns = slight and finding.kind is FindingKind.PRECISION
            tried.add(replace(finding, severity="warning") if warns else finding)
        elif runs.second and tried.looks < LOOKS and (again or not runs.alike):
            unlike = why_unlike(runs, arrays) if not runs.alike else thorough(runs, arrays)
            if unlike is not None:
                tried.looks += 1
                tried.add(self.differing(attempt, unlike, arrays, number, given))
        return not outcome.broken

    def outcome(
        self, attempt: Attempt, kernel: KernelFunction, arrays: tuple[Array, ...], number: int
    ) -> tuple[Outcome, str]:
        """The outcome of a case, and what the kernel was given, in words."""
        case = Case(attempt.label, arrays)
        judge = trial(attempt.graph, kernel, self.tolerance, attempt.spelt)
        with np.errstate(all="ignore"):
            outcome = judge.outcome(case, number)
        return outcome, judge.given(case)

    def explained(self, attempt: Attempt, layout: str, number: int, failure: Failure, tried: Tried) -> Finding:
        """A failure at the smallest sizes that show it, and what it shows."""

        def failure_at(sizes: Sizes) -> Failure | None:
            return self.failure_at(replace(attempt, sizes=sizes), layout, number)

        found = Smallest(failure, attempt.sizes)
        found = found if tried.hangs else shrunk(found, failure_at)
        unlike = None if failure.cell is None else self.unlike_at(replace(attempt, sizes=found.sizes), layout)
        diagnosis = diagnosed(found, attempt.instance, layout, unlike, failure_at)
        if diagnosis.kind is FindingKind.RACE and not self.has_threads:
            diagnosis = replace(diagnosis, kind=FindingKind.ORDER_DEPENDENT)
        made = self.finding(diagnosis.kind, found.failure.given, diagnosis.message(found.failure))
        return replace(made, cell=found.failure.cell)

    @property
    def has_threads(self) -> bool:
        """Whether it may run in more than one thread, as far as is known."""
        return bool(self.candidate.threads) or LANGUAGES[self.candidate.language].is_threaded

    def failure_at(self, attempt: Attempt, layout: str, number: int) -> Failure | None:
        """How it fails at the sizes of an attempt, or None."""
        arrays = self.inputs(attempt, attempt.sizes, Tried())
        if arrays is None:
            return None
        outcome, _ = self.outcome(attempt, TwoRuns(self.candidate, attempt.instance, layout), arrays, number)
        return outcome.failures[0] if outcome.broken else None

    def unlike_at(self, attempt: Attempt, layout: str) -> Unlike | None:
        """How two runs differ at the sizes of an attempt, or None."""
        arrays = self.inputs(attempt, attempt.sizes, Tried())
        runs = TwoRuns(self.candidate, attempt.instance, layout)
        if arrays is None:
            return None
        with suppress(NoyauError):
            runs(arrays)
            return None if runs.alike else why_unlike(runs, arrays)
        return None

    def differing(
        self, attempt: Attempt, unlike: Unlike, arrays: tuple[Array, ...], number: int, given: str
    ) -> Finding:
        """What two runs that differ show, where the first of them is right."""
        outcome, _ = self.outcome(attempt, lambda _: unlike.results, arrays, number)
        if outcome.broken:
            failure = outcome.failures[0]
            is_race = unlike.kind is FindingKind.ORDER_DEPENDENT and self.has_threads
            told = f"{failure}; another run on the same inputs is right: {unlike}"
            return replace(self.finding(FindingKind.RACE if is_race else unlike.kind, given, told), cell=failure.cell)
        made = self.finding(unlike.kind, given, f"{unlike}; for {given} ({attempt.label})")
        severity: Severity = "warning" if unlike.kind is FindingKind.ORDER_DEPENDENT else "error"
        return replace(made, cell=unlike.spread.cell, severity=severity)

    def judged(self, tried: Tried, seen: Seen) -> KernelCheck:
        """The record, and where nothing is wrong, the note that it was checked."""
        candidate, findings = self.candidate, explained(self.mended(tried), seen)
        alike = None if FindingKind.ORDER_DEPENDENT in tried.findings else True
        certificate = Certificate(candidate.called, tuple(tried.outcomes), order_independent=alike)
        wrong = next((finding for finding in findings if finding.severity == "error"), None)
        if wrong is None and not certificate.ok:
            failure = certificate.failures[0]
            wrong = replace(self.finding(failure.kind, failure.given, str(failure)), cell=failure.cell)
            findings.append(wrong)
        if wrong is None:
            candidate.passed(tuple(tried.instances), certificate)
        else:
            candidate.failed(f"{wrong.kind}: {wrong.message}")
        shapes, notes = tuple(tried.shapes), [*candidate.notes(), *self.left_out(tried)]
        if tried.left_out:
            notes.append(f"{several(tried.left_out, 'case')} left out that the reference refuses")
        if tried.untaken:
            notes.append(f"{several(tried.untaken, 'case')} left out that have no kernel: {candidate.reason}")
        told = tuple(findings), shapes, tuple(notes)
        return KernelCheck(
            candidate.name, candidate.language, certificate, *told, "", seen.accesses or None, seen.lines
        )

    def mended(self, tried: Tried) -> list[Finding]:
        """The findings; where there are none with some number of axes, with what does for a kernel of that number."""
        if not tried.right or not tried.wrong or not tried.right.isdisjoint(tried.wrong):
            return list(tried.findings.values())
        axes = " or ".join(self.axes(ranks) for ranks in sorted(tried.right))
        told = f"it is right with {axes}: where it is for no others, let it raise an error there"
        return [replace(each, mend=f"{each.remedy}; {told}") for each in tried.findings.values()]

    def left_out(self, tried: Tried) -> list[str]:
        """What the kernel is not written for, as it raised for all inputs of the kind that were tried."""
        kinds: dict[str, list[str]] = {}
        for instance, raised in tried.raised.items() if tried.right else ():
            known = any(each.dtypes == instance.dtypes for each in tried.instances)
            dtypes, axes = ", ".join(dtype.value for dtype in instance.dtypes), self.axes(instance.ranks)
            told = axes if known and axes else " and ".join(filter(None, [dtypes, axes]))
            kinds.setdefault(raised.told, []).append(told)
        return [f"not run with {' or '.join(told)}, where it {raised}" for raised, told in kinds.items()]

    def axes(self, ranks: Sequence[int]) -> str:
        """How many axes stand for each Rest of the signature, in words."""
        assert self.op.signature is not None
        return spell_axes(axes_of(self.op.signature, ranks))

    def finding(self, kind: FindingKind, size: str, message: str) -> Finding:
        candidate = self.candidate
        return Finding(self.op.name, candidate.name, candidate.language, kind, candidate.place, size, message)


def _equal(arrays: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
    """The arrays, each with its first cell everywhere."""
    if arrays is None:
        return None
    return tuple(np.full_like(array, array.flat[0]) if array.size else array for array in arrays)


def _are_large(arrays: Sequence[Array]) -> bool:
    return any(array.size > LARGE for array in arrays)
