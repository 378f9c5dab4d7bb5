"""`noyau.check(op)`: each kernel of an op against its reference in float64, by the one certificate."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noyau.builders.native import Order
from noyau.checking.attempts import Attempt, Sizes, attempts
from noyau.checking.certificate import Certificate, Failure, Outcome
from noyau.checking.findings import Checked, Finding, KernelCheck, kind_of
from noyau.checking.native import GuardedKernel, TwoRuns
from noyau.checking.values import Case, Trial
from noyau.errors import BuildError, InputError, NoyauError, SignatureError
from noyau.handwritten.calling import CALLED_HERE, SYMBOL, FunctionKernel, built
from noyau.handwritten.isolation import Isolated
from noyau.handwritten.kernels import HandKernel
from noyau.handwritten.layouts import LAYOUTS
from noyau.handwritten.trusting import remember
from noyau.ir.evaluation import evaluate
from noyau.ops import Op
from noyau.references import narrowed
from noyau.signatures.types import Instance
from noyau.timing.workers import Worker

Array = np.ndarray
_END = re.compile(r"\b(its )?(input|output) (\d+)")
ENOUGH = 3  # broken cases after which a kernel is not tried further
SHRINK_S, SHRINK_TRIALS = 10.0, 60
_SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


def check(
    op: Op[..., Any],
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    patience_s: float = 20.0,
    budget_s: float = 30.0,
) -> Checked:
    """Every kernel of an op against its reference evaluated in float64, by the certificate that generated kernels have.

    Inputs are made from the signature (awkward numbers and sizes: 0, 1, primes, block sizes and their neighbours), or
    by `inputs=`, whose sizes are varied; `sizes` are usual ones. Kernels in C run in a process of their own, so that a
    crash, or a run that takes longer than `patience_s`, is a finding; Python callables run here, on strided arrays too.
    After `budget_s` no further inputs are tried on a kernel.
    A failure is shrunk to the smallest sizes that show it. A kernel that passes is remembered: from then on the op
    runs it. SignatureError and InputError where the reference or the inputs do not fit the signature."""
    found = [_Check(op, kernel, patience_s, budget_s).run(sizes or {}, seed) for kernel in op.kernels.values()]
    return Checked(op.name, op.description.place, tuple(found))


@dataclass(slots=True)
class Tried:
    """What came of the attempts so far. `refused`: the last reason why the reference took none of the inputs."""

    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    shapes: dict[str, None] = field(default_factory=dict)
    instances: dict[Instance, None] = field(default_factory=dict)
    alike: bool = True
    left_out: int = 0
    refused: str = ""

    @property
    def hangs(self) -> bool:
        """Whether a run had to be ended."""
        return any("did not answer" in failure.note for failure in self.failures)


class _Check:
    """The check of one kernel."""

    def __init__(self, op: Op[..., Any], kernel: HandKernel, patience_s: float, budget_s: float) -> None:
        self.op, self.kernel, self.budget_s = op, kernel, budget_s
        self.reference = op.description.reference
        self.worker, self.stack = Worker(kernel.called, patience_s), ExitStack()
        self.opened: dict[Instance, GuardedKernel] = {}

    def run(self, sizes: Sizes, seed: int) -> KernelCheck:
        name, language = self.kernel.name, self.kernel.language
        if language not in CALLED_HERE:
            skipped = f"it is in {language}, which needs a GPU that noyau cannot use here yet"
            return KernelCheck(name, language, None, (), skipped=skipped)
        with self.stack, self.worker:
            try:
                tried = self.tried(sizes, seed)
            except BuildError as error:
                return KernelCheck(name, language, None, (self.finding("launch", "", str(error)),))
        return self.judged(tried)

    def tried(self, sizes: Sizes, seed: int) -> Tried:
        """Every attempt, until enough is wrong or the time is used up."""
        tried, end_s = Tried(), time.monotonic() + self.budget_s
        for number, attempt in enumerate(attempts(self.op, sizes, seed, self.accepts)):
            arrays = self.inputs(attempt, attempt.sizes, tried)
            if arrays is None:
                continue
            is_new = attempt.instance not in tried.instances
            if is_new:
                self.require_dtypes(attempt.instance, arrays)
                tried.instances[attempt.instance] = None
            right = self.judge(attempt, self.open(attempt.instance), arrays, number, tried)
            if is_new and right and self.kernel.language != "c":
                self.judge_layouts(attempt, arrays, number, tried)
            if tried.hangs or len(tried.failures) >= ENOUGH or time.monotonic() > end_s:
                break
        if not tried.failures and not any(outcome.cells for outcome in tried.outcomes):
            told = f": {tried.refused}" if tried.refused else ""
            raise InputError(f"{self.op.name}: no inputs could be made up that its reference takes{told}; give inputs=")
        return tried

    def accepts(self, instance: Instance) -> bool:
        """Whether the kernel takes arrays of these dtypes and ranks."""
        try:
            self.open(instance)
        except SignatureError:
            return False
        return True

    def open(self, instance: Instance) -> GuardedKernel:
        """The kernel for an instance: in C in the worker, else here. BuildError where it does not build."""
        if instance not in self.opened:
            constants = self.reference.constants
            made: GuardedKernel = FunctionKernel(self.kernel, instance, constants)
            if self.kernel.language == "c":
                library, symbol = built(self.kernel, instance, constants)
                made = self.stack.enter_context(Isolated(library, symbol, self.kernel.called, worker=self.worker))
            self.opened[instance] = Worded(made, self.kernel, instance)
        return self.opened[instance]

    def inputs(self, attempt: Attempt, sizes: Sizes, tried: Tried) -> tuple[Array, ...] | None:
        """Inputs of these sizes that the reference takes, or None."""
        try:
            arrays = attempt.make(sizes)
            if arrays is not None:
                named = dict(zip((node.output for node in attempt.graph.inputs), arrays, strict=True))
                evaluate(attempt.graph, named)
            return arrays
        except (InputError, SignatureError) as refusal:
            if isinstance(refusal, SignatureError) and not tried.outcomes and sizes == attempt.sizes:
                raise
            tried.left_out, tried.refused = tried.left_out + 1, str(refusal)
            return None

    def require_dtypes(self, instance: Instance, arrays: Sequence[Array]) -> None:
        """SignatureError where the reference, as it is, gives another dtype than it is signed to."""
        results = self.reference.run(instance, arrays, self.reference.constants)
        for result, value in zip(results, instance.outputs, strict=True):
            narrowed(result, value, self.op.name)

    def judge_layouts(self, attempt: Attempt, arrays: tuple[Array, ...], number: int, tried: Tried) -> None:
        """The same inputs in other places of memory, for what takes strided arrays."""
        for name, layout in LAYOUTS.items():
            plain = FunctionKernel(self.kernel, attempt.instance, self.reference.constants, layout)
            laid = replace(attempt, label=f"{name} arrays, {attempt.label}")
            if name == "expanded":
                laid = replace(laid, make=lambda sizes: _equal(attempt.make(sizes)))
            given = _equal(arrays) if name == "expanded" else arrays
            self.judge(laid, Worded(plain, self.kernel, attempt.instance), given or (), number, tried)

    def judge(
        self, attempt: Attempt, kernel: GuardedKernel, arrays: tuple[Array, ...], number: int, tried: Tried
    ) -> bool:
        """Whether the kernel is right on these inputs; what fails is shrunk."""
        outcome, alike, given = outcome_of(attempt, kernel, Case(attempt.label, arrays), number)
        tried.outcomes.append(outcome)
        tried.shapes[given] = None
        tried.alike &= alike
        if outcome.broken:
            hangs = "did not answer" in outcome.failures[0].note
            smaller = None if hangs else self.shrunk(attempt, kernel, number)
            tried.failures.append(smaller or outcome.failures[0])
        return not outcome.broken

    def shrunk(self, attempt: Attempt, kernel: GuardedKernel, number: int) -> Failure | None:
        """The failure at the smallest sizes that were found to show one, each size made smaller in turn."""
        sizes, found, end_s, trials = dict(attempt.sizes), None, time.monotonic() + SHRINK_S, 0
        for name in list(sizes) * 2:
            low, high = -1, sizes[name]  # it is right at `low`, and wrong at `high`
            while high - low > 1 and trials < SHRINK_TRIALS and time.monotonic() < end_s:
                size = next((small for small in _SMALL if low < small < high), (low + high) // 2)
                failure = self.failure_at(attempt, kernel, {**sizes, name: size}, number)
                trials += 1
                if failure is None:
                    low = size
                else:
                    high, sizes[name], found = size, size, failure
        return found

    def failure_at(self, attempt: Attempt, kernel: GuardedKernel, sizes: Sizes, number: int) -> Failure | None:
        arrays = self.inputs(attempt, sizes, Tried())
        if arrays is None:
            return None
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        label = f"{attempt.label.partition(f', {next(iter(sizes), None)} =')[0]}, {told}"
        outcome, _, _ = outcome_of(attempt, kernel, Case(label, arrays), number)
        return outcome.failures[0] if outcome.broken else None

    def judged(self, tried: Tried) -> KernelCheck:
        """The record, and where nothing is wrong, the note that it was checked."""
        certificate = Certificate(self.kernel.called, tuple(tried.outcomes), order_independent=tried.alike)
        findings = [self.found(failure) for failure in tried.failures]
        if not findings and not certificate.ok:
            failure = next(iter(certificate.failures), None)
            if failure is None:
                findings = [
                    self.finding("order-dependent", "", "wrong: two runs on the same inputs differ in their bits")
                ]
            else:
                findings = [self.found(failure)]
        kernel = self.kernel
        if not findings:
            for dtypes in dict.fromkeys(instance.dtypes for instance in tried.instances):
                remember(kernel, self.reference, dtypes, certificate.to_json())
        shapes = tuple(tried.shapes)
        return KernelCheck(kernel.name, kernel.language, certificate, tuple(findings), shapes, tuple(self.notes(tried)))

    def notes(self, tried: Tried) -> Iterator[str]:
        if self.kernel.language != "c":
            yield "it ran in this process; what it reads is not seen"
        else:
            yield "on packed arrays, one thread; what it reads is not seen"
        if tried.left_out:
            yield f"{tried.left_out} cases left out that the reference refuses"

    def found(self, failure: Failure) -> Finding:
        return replace(self.finding(kind_of(failure), failure.given, str(failure)), cell=failure.cell)

    def finding(self, kind: str, size: str, message: str) -> Finding:
        return Finding(self.op.name, self.kernel.name, self.kernel.language, kind, self.kernel.place, size, message)


@dataclass(frozen=True, slots=True)
class Worded:
    """A kernel of which the errors name inputs and outputs as the op does, and not itself."""

    kernel: GuardedKernel
    hand: HandKernel
    instance: Instance

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        try:
            return self.kernel.call_guarded(*arrays, pieces=pieces, order=order)
        except NoyauError as error:
            raise type(error)(self.worded(str(error))) from None

    def worded(self, message: str) -> str:
        for prefix in (f"{self.hand.called}: ", f"{self.hand.called} ", f"{SYMBOL}: ", f"{SYMBOL} "):
            message = message.removeprefix(prefix)
        return _END.sub(self.named, message)

    def named(self, found: re.Match[str]) -> str:
        """An input or an output by its name; `its input x` keeps the word."""
        ends = self.instance.outputs if found[2] == "output" else self.instance.inputs
        return f"{'its input ' if found[1] else ''}{ends[int(found[3])].name}"


def outcome_of(attempt: Attempt, kernel: GuardedKernel, case: Case, number: int) -> tuple[Outcome, bool, str]:
    """The outcome of a case, whether two runs of the kernel were alike, and what it was given, in words."""
    runs = TwoRuns(kernel)
    trial = Trial(attempt.graph, runs)
    with np.errstate(all="ignore"):
        outcome = trial.outcome(case, number)
    failures = tuple(replace(f, note=f.note.removeprefix("ended with CheckError: ")) for f in outcome.failures)
    return replace(outcome, failures=failures), runs.alike, trial.given(case)


def _equal(arrays: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
    """The arrays, each with its first cell everywhere."""
    if arrays is None:
        return None
    return tuple(np.full_like(array, array.flat[0]) if array.size else array for array in arrays)
