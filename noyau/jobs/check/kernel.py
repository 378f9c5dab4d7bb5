"""The check of one kernel: all trials of it, and their outcome."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from noyau import errors
from noyau.codegen.language import LANGUAGES
from noyau.errors import FindingKind, Severity
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.check import diagnosis
from noyau.jobs.check.attempts import Attempt, Budget, Costs, Sizes, attempts, grown
from noyau.jobs.check.candidates import ByHand, KernelCandidate
from noyau.jobs.check.diagnosis import Smallest, TwoRuns, Unlike, thorough, why_unlike, with_lint
from noyau.jobs.check.sanitized_runs import SanitizedRuns, explain_findings, watch_attempts
from noyau.kernels.reference import as_signed, reference, without_warnings
from noyau.ops.op import Op
from noyau.sanitizer.lint.idle_lines import idle_lines
from noyau.signatures.instances import axes_of, maker_text, spell_axes
from noyau.signatures.types import Instance
from noyau.text import several
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.checks import Coverage, KernelCheck
from noyau.verify.failures import Case, Failure, inputs_text
from noyau.verify.findings import Finding
from noyau.verify.trial import KernelFunction, KernelTrial
from noyau.workers.worker import spent_s

Array = np.ndarray
Arrays = tuple[Array, ...]
FEWEST = 30  # inputs that are tried if they are quick, however long a compiler took
ENOUGH = 3  # broken cases after which a kernel is not tried further
# Inputs are large from so many cells of an input or result, or seconds of two runs with the reference; a run must not
# take TOO_LONG_S: a step to 4 times a size may make a kernel of four loops 256 times as slow.
LARGE, LONG_S, TOO_LONG_S = 1 << 18, 0.03, 1.0
SHARE = 0.25  # the most of the budget that a case may be expected to take
SHORT_S = 2 * LONG_S  # the longest case that is still tried beyond the budget
WATCHED, WATCHED_S = 60, 2.0  # the most watched attempts, and seconds for them
LOOKS = 2  # the most cases for which the cause of differing runs is searched


@dataclass(slots=True)
class AttemptResults:
    """The results of the attempts so far. `raised`: instances for whose very first inputs the kernel raised, with the
    attempt and the failure; while it is right on others, it counts as not written for these. `right`, `wrong`: the
    ranks of inputs with such results. `refused`: the last reason why the reference refused inputs; `unsupported`: a
    feature of the kernel that noyau cannot run, which ends its trials."""

    outcomes: list[Outcome] = field(default_factory=list)
    findings: dict[FindingKind, Finding] = field(default_factory=dict)
    shapes: dict[str, None] = field(default_factory=dict)
    instances: dict[Instance, None] = field(default_factory=dict)
    raised: dict[Instance, tuple[Attempt, Failure]] = field(default_factory=dict)
    right: set[tuple[int, ...]] = field(default_factory=set)
    wrong: set[tuple[int, ...]] = field(default_factory=set)
    broken: int = 0
    looks: int = 0
    hangs: bool = False
    left_out: int = 0
    untaken: int = 0
    refused: str = ""
    unsupported: str = ""
    kinds: set[FindingKind] = field(default_factory=set)  # kinds of failures that were diagnosed
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, finding: Finding) -> None:
        """Keep the first finding of each kind."""
        self.findings.setdefault(finding.kind, finding)


class OneKernel:
    """The check of one kernel."""

    def __init__(
        self, op: Op[..., Any], candidate: KernelCandidate, tolerance: float | None, budget_s: float, declared: Sizes
    ) -> None:
        self.op, self.candidate, self.tolerance, self.budget_s = op, candidate, tolerance, budget_s
        self.declared = declared
        self.reference = op.description.reference
        self.signed: set[Instance] = set()
        self.points: Mapping[int, str] = {}
        self.works: dict[Any, int] = {}  # the work of a run, by instance and sizes

    def run(self, sizes: Sizes, seed: int) -> KernelCheck:
        candidate = self.candidate
        if candidate.skipped:
            return self.without_check(candidate.skipped, lacks_compiler=not LANGUAGES[candidate.language].packages)
        self.points = candidate.points
        try:
            results = self.run_attempts(sizes, seed)
        except errors.UnsupportedError as error:
            return self.without_check(str(error))
        except errors.BuildError as error:
            finding = self.finding(FindingKind.LAUNCH, "", str(error))
            candidate.record_failure(f"{finding.kind}: {finding.message}")
            return KernelCheck(candidate.name, candidate.language, None, (finding,))
        first = next(self.attempts(sizes, seed, results), None)
        check = self.conclude(results, self.sanitize(results, sizes, seed))
        is_usual = bool(sizes) or self.op.inputs is not None
        return with_lint(check, self.candidate, first, self.declared, is_usual=is_usual)

    def without_check(self, reason: str, *, lacks_compiler: bool = False) -> KernelCheck:
        """The record of a kernel that cannot be tried here: unverified, unless it is generated and lacks a package."""
        candidate = self.candidate
        unverified = reason if candidate.is_trusted or lacks_compiler else ""
        return KernelCheck(candidate.name, candidate.language, None, (), skipped=reason, unverified=unverified)

    def attempts(self, sizes: Sizes, seed: int, results: AttemptResults) -> Iterator[Attempt]:
        plan = partial(attempts, self.op, sizes, seed, self.accepts, points=self.points, work=self.work)
        return plan(ranks_first=self.candidate.is_trusted, left_out=results.raised)

    def affordable(self, plan: Iterator[Attempt], budget: Budget, results: AttemptResults) -> Iterator[Attempt]:
        """The attempts of a plan; those that seemed too slow come last, if by then they no longer do."""
        late: list[Attempt] = []
        for attempt in plan:
            if not results.outcomes or attempt.needed or self.is_affordable(attempt, budget, results):
                yield attempt
            else:
                late.append(attempt)
        yield from (each for each in late if self.is_affordable(each, budget, results))

    def is_affordable(self, attempt: Attempt, budget: Budget, results: AttemptResults) -> bool:
        """Whether a run is expected to take a small share of the budget; or, among the first few, to be short."""
        work = self.work(attempt.instance, attempt.sizes)
        is_short = len(results.outcomes) < FEWEST and budget.costs.expect_s(work) < SHORT_S
        return is_short or budget.affords(work, SHARE)

    def sanitize(self, results: AttemptResults, sizes: Sizes, seed: int) -> SanitizedRuns:
        """Run the kernel with every access watched."""
        run, earlier = self.candidate.watch_run(), self.candidate.seen
        if run is None or results.hangs or (self.candidate.is_replayed and not self.is_enough(results)):
            return earlier
        some = list(islice(self.attempts(sizes, seed, results), WATCHED))
        inputs = partial(self.inputs, results=AttemptResults(), runs=False)
        budget = Budget(min(WATCHED_S, self.budget_s / 2), Costs(self.is_steep))
        return watch_attempts(run, some, inputs, budget, earlier, lambda each: self.work(each.instance, each.sizes))

    @property
    def is_steep(self) -> bool:
        """Whether Python runs each of its threads or programs."""
        return LANGUAGES[self.candidate.language].on_gpu and not LANGUAGES[self.candidate.language].is_text

    def work(self, instance: Instance, sizes: Sizes) -> int:
        """The work of a run at sizes."""
        key = instance, tuple(sizes.items())
        if key not in self.works:
            self.works[key] = self.candidate.work(instance, sizes)
        return self.works[key]

    def run_attempts(self, sizes: Sizes, seed: int) -> AttemptResults:
        """Run the attempts until enough are wrong or the budget is spent; after that only needed ones. The first run's
        time is not counted, for it compiles."""
        results, first, is_late = AttemptResults(coverage=Coverage(self.points)), None, False
        budget = Budget(self.budget_s, Costs(self.is_steep))
        for number, attempt in enumerate(self.affordable(self.attempts(sizes, seed, results), budget, results)):
            if self.is_enough(results) or (is_late and not attempt.needed):
                break
            attempt = replace(attempt, number=number)
            arrays = self.inputs(attempt, results)
            if arrays is None:
                continue
            began_s, is_new, is_first = spent_s(), attempt.instance not in results.instances, not results.outcomes
            right = self.judge(attempt, arrays, results)
            took_s = spent_s() - began_s
            if is_first:
                budget.begin()
            else:
                budget.costs.note(self.work(attempt.instance, attempt.sizes), took_s)
            first = first or (attempt if right and any(array.size for array in arrays) else None)
            if is_new and right and not is_late:
                self.judge_layouts(attempt, arrays, results, budget)
            is_late = budget.is_spent and not (number < FEWEST and (is_first or took_s < SHORT_S))
        if first is not None and not self.is_enough(results):
            for larger in grown(replace(first, number=0)):
                self.judge_large(larger, results, budget)
        if first is None and results.raised:
            results.add(self.smallest_finding(*next(iter(results.raised.values())), results))
        self.require_some(results)
        return results

    def require_some(self, results: AttemptResults) -> None:
        """UnsupportedError if there is no kernel for any of the inputs, InputError if there were no inputs."""
        if (results.untaken or results.unsupported) and not results.outcomes and not results.findings:
            raise errors.UnsupportedError(results.unsupported or self.candidate.reason)
        if not results.findings and not any(outcome.cells for outcome in results.outcomes):
            reason = f": {results.refused}" if results.refused else ""
            signature = f", as {maker_text(self.op.signature)} with sizes that it takes" if self.op.signature else ""
            reason = f"no inputs could be made up that its reference takes{reason}; give inputs={signature}"
            raise errors.InputError(f"{self.op.name}: {reason}")

    def is_enough(self, results: AttemptResults) -> bool:
        return results.hangs or bool(results.unsupported) or results.broken >= ENOUGH

    def accepts(self, instance: Instance) -> bool:
        """Whether the kernel accepts arrays of these dtypes and ranks."""
        with suppress(errors.SignatureError):
            self.candidate.open(instance)
            return True
        return False

    def inputs(self, attempt: Attempt, results: AttemptResults, *, runs: bool = True) -> Arrays | None:
        """Inputs that the reference accepts and on which the kernel can run, or be watched; otherwise None."""
        try:
            arrays = attempt.make(attempt.sizes)
            if arrays is not None:
                evaluate(attempt.graph, dict(zip((node.output for node in attempt.graph.inputs), arrays, strict=True)))
                self.require_dtypes(attempt.instance, arrays)
                if not self.candidate.takes(attempt.instance, arrays, runs=runs):
                    results.untaken += 1
                    return None
            return arrays
        except (errors.InputError, errors.SignatureError) as refusal:
            stretched = 1 in attempt.sizes.values()  # an axis of one cell may broadcast against the signature
            if isinstance(refusal, errors.SignatureError) and not results.outcomes and not stretched:
                raise
            results.left_out, results.refused = results.left_out + 1, str(refusal)
            return None

    def require_dtypes(self, instance: Instance, arrays: Sequence[Array]) -> None:
        """SignatureError if the reference itself returns other dtypes than its signature says; once per instance."""
        if instance in self.signed:
            return
        with without_warnings(), reference():
            results = self.reference.run(instance, arrays, self.reference.constants)
        for result, value in zip(results, instance.outputs, strict=True):
            as_signed(result, value, self.op.name)
        self.signed.add(instance)

    def judge_layouts(self, attempt: Attempt, arrays: Arrays, results: AttemptResults, budget: Budget) -> None:
        """Judge the same inputs in other memory layouts that the kernel takes; the first even beyond the budget."""
        for place, name in enumerate(self.candidate.layouts):
            if place and budget.is_spent:
                return
            laid, inputs = replace(attempt, made_of=f"{name} arrays, {attempt.made_of}", layout=name), arrays
            if name == "expanded":
                laid, inputs = replace(laid, make=lambda sizes: _equal(attempt.make(sizes))), _equal(arrays) or ()
            self.judge(laid, inputs, results)

    def judge_large(self, attempts: Iterator[Attempt], results: AttemptResults, budget: Budget) -> None:
        """Judge the largest of some growing inputs that is still quick, also with other numbers of threads."""
        largest = None
        for attempt in attempts:
            began_s = time.monotonic()
            is_late = budget.is_spent or not budget.affords(self.work(attempt.instance, attempt.sizes), SHARE)
            arrays = None if is_late else self.inputs(attempt, AttemptResults())
            if arrays is None or _are_large(arrays):
                break
            outputs: list[Array] = []
            with suppress(errors.NoyauError):  # `judge` finds errors again
                outputs = TwoRuns(self.candidate, attempt.instance)(arrays)
            took_s = time.monotonic() - began_s
            if largest is None or (took_s < TOO_LONG_S and not _are_large(outputs)):
                largest = attempt, arrays
            if took_s > LONG_S or _are_large(outputs):
                break
        if largest is not None and not self.is_enough(results):
            self.judge(*largest, results, again=True)

    def judge(self, attempt: Attempt, arrays: Arrays, results: AttemptResults, *, again: bool = False) -> bool:
        """Whether the kernel is right on these inputs; failures are shrunk, the first of each kind. `again`: large
        inputs, with more than two runs; a loss of precision is then a warning, while half of the digits are right."""
        runs = TwoRuns(self.candidate, attempt.instance, attempt.layout)
        try:
            outcome, inputs = self.outcome(attempt, runs, arrays), inputs_text(attempt.graph, arrays)
        except errors.UnsupportedError as refusal:
            # If a run is cut off, smaller ones may still be judged; the first attempt is the smallest.
            results.unsupported = "" if self.candidate.cut and results.outcomes else str(refusal)
            return False
        is_refused = isinstance(runs.fault, errors.RaisedError) and not runs.first  # by the kernel's own error
        if is_refused and self.candidate.is_trusted and attempt.instance not in results.instances:
            results.raised[attempt.instance] = attempt, outcome.failures[0]
            return False
        results.shapes[inputs], results.instances[attempt.instance] = None, None
        slight = again and bool(outcome.failures) and diagnosis.is_slight(outcome.failures[0], attempt.instance)
        results.coverage.note(attempt.sizes)
        if not slight:
            results.outcomes.append(outcome)
        (results.wrong if outcome.broken else results.right).add(attempt.instance.ranks)
        if outcome.broken:
            results.broken += 1
            results.hangs = isinstance(runs.fault, errors.UnansweredError)
            failure = outcome.failures[0]
            if failure.kind not in results.kinds:
                results.kinds.add(failure.kind)
                finding = self.smallest_finding(attempt, failure, results)
                warns = slight and finding.kind is FindingKind.PRECISION
                results.add(replace(finding, severity="warning") if warns else finding)
        elif runs.second and results.looks < LOOKS and (again or not runs.alike):
            unlike = thorough(runs, arrays) if runs.alike else why_unlike(runs, arrays)
            if unlike is not None:
                results.looks += 1
                results.add(self.differing(attempt, unlike, arrays, inputs))
        return not outcome.broken

    def outcome(self, attempt: Attempt, kernel: KernelFunction, arrays: Arrays) -> Outcome:
        """The outcome of a case."""
        judge = KernelTrial(attempt.graph, kernel, attempt.traced, is_check=True, tolerance=self.tolerance)
        with np.errstate(all="ignore"):
            return judge.outcome(Case(attempt.label, arrays), attempt.number)

    def smallest_finding(self, attempt: Attempt, failure: Failure, results: AttemptResults) -> Finding:
        """The finding for a failure at the smallest sizes that show it."""
        smallest, failure_at = Smallest(failure, attempt.sizes), partial(self.failure_at, attempt)
        smallest = smallest if results.hangs else diagnosis.shrink(smallest, failure_at)
        unlike = None if failure.cell is None else self.unlike_at(replace(attempt, sizes=smallest.sizes))
        cause = diagnosis.diagnose(smallest, attempt.instance, attempt.layout, unlike, failure_at)
        if cause.kind is FindingKind.RACE and not self.has_threads:
            cause = replace(cause, kind=FindingKind.ORDER_DEPENDENT)
        failure, past = smallest.failure, ""
        if cause.kind is FindingKind.WRONG_VALUE and not results.hangs:
            past = diagnosis.past_point(smallest, self.points, failure_at)
            cause = replace(cause, notes=(*cause.notes, *([past] if past else [])))
        finding = self.finding(cause.kind, failure.inputs, cause.message(failure), failure.cell)
        return replace(finding, mend="let the kernel reach all of that size, however much it is") if past else finding

    @property
    def has_threads(self) -> bool:
        """Whether it may run in more than one thread, as far as is known."""
        return bool(self.candidate.threads) or LANGUAGES[self.candidate.language].is_threaded

    def failure_at(self, attempt: Attempt, sizes: Sizes) -> Failure | None:
        """The failure of an attempt at other sizes, or None."""
        attempt = replace(attempt, sizes=sizes)
        with suppress(errors.UnsupportedError):
            if (arrays := self.inputs(attempt, AttemptResults())) is not None:
                outcome = self.outcome(attempt, TwoRuns(self.candidate, attempt.instance, attempt.layout), arrays)
                return outcome.failures[0] if outcome.broken else None
        return None

    def unlike_at(self, attempt: Attempt) -> Unlike | None:
        """The difference of two runs at the sizes of an attempt, or None."""
        arrays = self.inputs(attempt, AttemptResults())
        runs = TwoRuns(self.candidate, attempt.instance, attempt.layout)
        if arrays is not None:
            with suppress(errors.NoyauError):
                runs(arrays)
                return None if runs.alike else why_unlike(runs, arrays)
        return None

    def differing(self, attempt: Attempt, unlike: Unlike, arrays: Arrays, inputs: str) -> Finding:
        """The finding for two runs that differ, of which the first is right."""
        outcome = self.outcome(attempt, lambda _: unlike.results, arrays)
        if outcome.broken:
            failure = outcome.failures[0]
            is_race = unlike.kind is FindingKind.ORDER_DEPENDENT and self.has_threads
            message = f"{failure}; another run on the same inputs is right: {unlike}"
            return self.finding(FindingKind.RACE if is_race else unlike.kind, inputs, message, failure.cell)
        message = f"{unlike}; for {inputs} ({attempt.label})"
        severity: Severity = "warning" if unlike.kind is FindingKind.ORDER_DEPENDENT else "error"
        return replace(self.finding(unlike.kind, inputs, message, unlike.spread.cell), severity=severity)

    def conclude(self, results: AttemptResults, runs: SanitizedRuns) -> KernelCheck:
        """The record of the check; without an error, the kernel is recorded as passed."""
        candidate, findings = self.candidate, explain_findings(self.mend(results), runs)
        alike = None if FindingKind.ORDER_DEPENDENT in results.findings else True
        certificate = Certificate(candidate.called, tuple(results.outcomes), order_independent=alike)
        wrong = next((finding for finding in findings if finding.severity == "error"), None)
        if wrong is None and not certificate.ok:
            failure = certificate.failures[0]
            wrong = self.finding(failure.kind, failure.inputs, str(failure), failure.cell)
            findings.append(wrong)
        if wrong is None:
            candidate.record_pass(tuple(results.instances), certificate)
        else:
            candidate.record_failure(f"{wrong.kind}: {wrong.message}")
        lacks = {"the reference refuses": results.left_out, f"have no kernel: {candidate.reason}": results.untaken}
        cases = [f"{several(count, 'case')} left out that {lack}" for lack, count in lacks.items() if count]
        notes = [*candidate.notes(), *self.notes_on_inputs(results), *cases]
        if isinstance(candidate, ByHand):
            results.coverage.idle = idle_lines(candidate.kernel, runs.lines_seen)
        parts = tuple(findings), tuple(results.shapes), tuple(notes), "", runs.accesses or None, runs.lines
        reason = results.unsupported or candidate.cut or runs.unverified_reason(candidate.language)
        unverified = reason if candidate.is_trusted else ""
        return KernelCheck(candidate.name, candidate.language, certificate, *parts, unverified, results.coverage)

    def mend(self, results: AttemptResults) -> list[Finding]:
        """The findings; if all inputs of some ranks are right, with a remedy for the other ranks."""
        if not results.right or not results.wrong or not results.right.isdisjoint(results.wrong):
            return list(results.findings.values())
        axes = " or ".join(self.axes(ranks) for ranks in sorted(results.right))
        note = f"it is right with {axes}: where it is for no others, let it raise an error there"
        return [replace(each, mend=f"{each.remedy}; {note}") for each in results.findings.values()]

    def notes_on_inputs(self, results: AttemptResults) -> list[str]:
        """Notes on kinds of inputs that the kernel is not written for: it raised for all of them."""
        kinds: dict[str, list[str]] = {}
        for instance, (_, failure) in results.raised.items() if results.right else ():
            has_dtypes = any(each.dtypes == instance.dtypes for each in results.instances)
            dtypes, axes = ", ".join(dtype.value for dtype in instance.dtypes), self.axes(instance.ranks)
            inputs = axes if has_dtypes and axes else " and ".join(filter(None, [dtypes, axes]))
            kinds.setdefault(failure.note.partition(" | ")[0], []).append(inputs)
        return [f"not run with {' or '.join(inputs)}, where it {raised}" for raised, inputs in kinds.items()]

    def axes(self, ranks: Sequence[int]) -> str:
        """Describe the number of axes of each Rest of the signature."""
        assert self.op.signature is not None
        return spell_axes(axes_of(self.op.signature, ranks))

    def finding(self, kind: FindingKind, size: str, message: str, cell: tuple[int, ...] | None = None) -> Finding:
        candidate = self.candidate
        return Finding(self.op.name, candidate.name, candidate.language, kind, candidate.place, size, message, cell)


def _equal(arrays: Arrays | None) -> Arrays | None:
    """The arrays, each filled with its first cell."""
    return None if arrays is None else tuple(np.full_like(each, each.flat[0]) if each.size else each for each in arrays)


def _are_large(arrays: Sequence[Array]) -> bool:
    return any(array.size > LARGE for array in arrays)
