"""A problem of a benchmark, its submissions, the judgement of their answers, and the verdicts as text and JSON."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import FindingKind, InputError, Severity
from noyau.ir.dims import shape_of
from noyau.ir.graph import Input, Node
from noyau.text import printable, several
from noyau.verify.checks import SCHEMA_VERSION
from noyau.verify.failures import Case, Failure
from noyau.verify.findings import Finding, lines_of
from noyau.verify.floats import widen
from noyau.verify.judges import judge_of
from noyau.version import __version__

_LIBRARIES = ("torch", "triton", "numba", "numpy")
LIMIT = "only what ran was seen: other sizes and values, and what a hostile text hides from its own process, were not"
Array = np.ndarray


class Status(StrEnum):
    """A verdict on a submission. `exit_status`: of a check of it alone; `trace`: its name in traces of benchmarks."""

    exit_status: int
    trace: str

    def __new__(cls, text: str, exit_status: int = 1, trace: str = "INCORRECT_NUMERICAL") -> Status:
        """A member that equals its text."""
        member = str.__new__(cls, text)
        member._value_, member.exit_status, member.trace = text, exit_status, trace
        return member

    RIGHT = "right", 0, "PASSED"
    FORBIDDEN = "forbidden", 1, "REWARD_HACK"
    REPLAYED = "replayed", 1, "REWARD_HACK"
    CHANGED_INPUTS = "changed inputs", 1, "REWARD_HACK"
    RACY = "racy"
    OUT_OF_BOUNDS = "out of bounds"
    UNWRITTEN = "unwritten"
    WRONG_SHAPE = "wrong shape", 1, "INCORRECT_SHAPE"
    WRONG_DTYPE = "wrong dtype", 1, "INCORRECT_DTYPE"
    WRONG = "wrong"
    CRASHED = "crashed", 1, "RUNTIME_ERROR"
    NOT_BUILT = "not built", 1, "COMPILE_ERROR"
    NO_ANSWER = "no answer", 3, "TIMEOUT"
    OUT_OF_MEMORY = "out of memory", 3, "RUNTIME_ERROR"
    BAD_REFERENCE = "bad reference", 3, "INVALID_REFERENCE"
    NOT_CHECKED = "not checked", 3, "RUNTIME_ERROR"


# The byte of unwritten memory, by the call: `a`; `b`, on other values in the same memory; `c`, on the values of a in
# the tensors of b; `strided`, with a gap behind each value.
POISONS = {"a": 0xFF, "b": 0xFE, "c": 0xFF, "strided": 0xFF}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The rule of a benchmark: this share of cells within atol + rtol * |want|, none beyond `cap`."""

    atol: float = 1e-2
    rtol: float = 1e-2
    share: float = 1.0
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One call of a submission. `arguments`: the format's recipe of the inputs; `cells`: about how many they have;
    `is_stated`: the problem asks for these sizes; `workload`: its record there."""

    label: str
    arguments: Mapping[str, Any]
    cells: int
    is_stated: bool = True
    tolerance: Tolerance | None = None
    workload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a format, with the files of its reference; `entry`: the file to run. `facts`: further data of the
    format."""

    name: str
    format: str
    files: Mapping[str, str]
    entry: str
    trials: tuple[Trial, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def wish(self, submission: Submission | None, **more: Any) -> dict[str, Any]:
        """The request of a job: the whole problem, but with a submission's files in place of the reference's."""
        if submission is None:
            return asdict(self) | more
        own = {"files": dict(submission.files), "entry": list(submission.entry), "flags": list(submission.flags)}
        return asdict(self) | more | own | {"fills": submission.fills_outputs}


@dataclass(frozen=True, slots=True)
class Submission:
    """A kernel for a problem, with its source files. `entry`: a file and a function in it; `refusal`: a verdict that
    needs no run, with its reason; `flags`: for a C++ compiler."""

    name: str
    files: Mapping[str, str]
    entry: tuple[str, str]
    languages: tuple[str, ...] = ()
    fills_outputs: bool = False
    refusal: tuple[Status, str] | None = None
    flags: tuple[str, ...] = ()


def field_of(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """A field of a JSON record. InputError if it is missing, or of another type."""
    if not isinstance(record, Mapping) or not isinstance(record.get(name), kind):
        words = {str: "a text", Mapping: "an object", list: "a list", int: "a number"}
        raise InputError(f"{place}: {name} is missing, or is not {words[kind]}; give it as the schema has it")
    return record[name]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A finding, its status, and the trial that showed it."""

    status: Status
    finding: Finding
    trial: int

    def to_json(self, verdict: Verdict) -> dict[str, Any]:
        own = {"problem": verdict.problem.name, "submission": verdict.submission, "status": self.status}
        return own | {"trial": verdict.problem.trials[self.trial].label, **self.finding.to_json()}


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial that ran. `passes`: by the benchmark's rule, if known; errors: of the first call; `is_right`: nothing was
    found at its sizes."""

    number: int
    passes: bool | None
    absolute: float = 0.0
    relative: float = 0.0
    has_nan: bool = False
    has_inf: bool = False
    is_right: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a submission. `reason`: of a status without a finding; `kernels`: the ones that it launched;
    `skipped`: trials that were not run, with the reason."""

    problem: Problem
    submission: str
    status: Status
    reason: str = ""
    complaints: tuple[Complaint, ...] = ()
    records: tuple[TrialRecord, ...] = ()
    skipped: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The verdict of the benchmark's own rule on the trials that ran."""
        known = [each.passes for each in self.records if each.passes is not None]
        return "" if not known else "passes" if all(known) else "fails"

    def trials(self) -> list[Trial]:
        """The trials that ran."""
        return [self.problem.trials[each.number] for each in self.records]

    def lines(self) -> Iterator[str]:
        """The lines of a report."""
        name = f"{printable(self.problem.name)}[{printable(self.submission)}]"
        errors = [each for each in self.complaints if each.finding.severity == "error"]
        summary = f"{name}: {self.status}"
        if self.reason:
            summary += f": {self.reason}"
        elif self.status is Status.RIGHT:
            pairs = list(zip(self.trials(), self.records, strict=True))
            summary += f" at {'; '.join(trial.label for trial, each in pairs if each.is_right)}"
            if wrong := [trial.label for trial, each in pairs if not each.is_right]:
                summary += f", and not at {'; '.join(wrong)}"
            elif pairs and all(trial.is_stated for trial, _ in pairs):
                summary += ": only the stated sizes were tried"
        if errors and self.rule == "passes":
            summary += " (the rule of its benchmark passes it)"
        yield summary
        for each in sorted(self.complaints, key=lambda each: each.finding.severity != "error"):
            yield from lines_of(each.finding)
        yield from (f"  {each}" for each in (*self.kernels, *self.skipped, *self.notes))

    def to_json(self) -> dict[str, Any]:
        own: dict[str, Any] = {"problem": self.problem.name, "submission": self.submission, "status": self.status}
        own |= {"reason": self.reason, "rule": self.rule or None, "trials": [each.label for each in self.trials()]}
        return own | {"skipped": list(self.skipped), "kernels": list(self.kernels), "notes": list(self.notes)}

    def traces(self) -> Iterator[dict[str, Any]]:
        """A trace for each workload, in the schema of SOL-ExecBench; times are 0, for nothing is timed."""
        by_number = {each.number: each for each in self.records}
        has_workloads = any(each.workload for each in self.problem.trials)
        for number, trial in enumerate(self.problem.trials):
            if trial.workload is None and (trial.is_stated or has_workloads or "axes" not in trial.arguments):
                continue
            workload = dict(trial.workload or {"uuid": trial.label, "axes": trial.arguments["axes"], "inputs": {}})
            record = by_number.get(number)
            log = [] if record else ["not run at its own size on the CPU: the verdict is that of smaller ones"]
            evaluation = self._evaluation(record or TrialRecord(number, None), "\n".join([*self.lines(), *log]))
            trace = {"definition": self.problem.name, "workload": workload, "solution": self.submission}
            yield trace | {"evaluation": evaluation}

    def _evaluation(self, record: TrialRecord, log: str) -> dict[str, Any]:
        errors = {"max_relative_error": record.relative, "max_absolute_error": record.absolute}
        errors |= {"has_nan": record.has_nan, "has_inf": record.has_inf}
        times = {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
        trace = self.status.trace
        return {
            "status": trace,
            "environment": {"hardware": f"{platform.machine()} CPU, no GPU", "libs": libraries()},
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
            "log": log,
            "correctness": errors if trace in (Status.RIGHT.trace, Status.WRONG.trace) else None,
            "performance": times if self.status is Status.RIGHT else None,
        }


def libraries() -> Mapping[str, str]:
    """The releases that a verdict was made with."""
    releases = {"noyau": __version__}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            releases[name] = version(name)
    return releases


def record_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The JSON record of a check."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": all(verdict.status is Status.RIGHT for verdict in verdicts),
        "limits": [LIMIT],
        "verdicts": [verdict.to_json() for verdict in verdicts],
        "findings": [each.to_json(verdict) for verdict in verdicts for each in verdict.complaints],
    }


def summary(verdicts: Sequence[Verdict]) -> str:
    """The counts of several verdicts, in a line."""
    counts = Counter(verdict.status for verdict in verdicts)
    parts = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    return f"{several(len(verdicts), 'submission')}: {parts}"


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth of a trial and a seed: results as they are, in float64, with moved inputs; inputs; facts on both."""

    native: tuple[Array, ...]
    wide: tuple[Array, ...]
    runs: tuple[tuple[Array, ...], ...]
    inputs: tuple[Array, ...]
    facts: dict[str, Any]

    @staticmethod
    def of(results: tuple[list[Array], dict[str, Any]], inputs: Sequence[Array]) -> Truth:
        """The truth from the contents of a file of results."""
        arrays, facts = results
        count = facts["count"]
        parts = [tuple(arrays[at : at + count]) for at in range(0, len(arrays), max(count, 1))]
        return Truth(parts[0], parts[1], (parts[0], *parts[2:]), tuple(inputs), facts)

    @property
    def writable(self) -> set[int]:
        """The inputs that a submission may write to: uninitialised ones, ones that the reference changes too, and ones
        that it does not read."""
        return {*self.facts["unset"], *self.facts["changed"], *self.facts["unread"]}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: the results of a call, its inputs afterwards, and facts on their memory."""

    results: tuple[Array, ...]
    inputs: tuple[Array, ...]
    facts: dict[str, Any]

    @staticmethod
    def of(results: tuple[list[Array], dict[str, Any]]) -> Answer:
        """The answer from the contents of a file of results."""
        arrays, facts = results
        return Answer(tuple(arrays[: facts["count"]]), tuple(arrays[facts["count"] :]), facts)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an answer."""

    status: Status
    kind: FindingKind
    message: str
    cell: tuple[int, ...] | None = None
    severity: Severity = "error"


def passes(got: Array, native: Array, tolerance: Tolerance) -> bool:
    """Whether a benchmark's rule passes a result: enough cells are near, none is too far, all are finite, and they are
    not all 0 unless the reference's are."""
    one, other = (each.astype(np.float32).astype(np.float64) for each in (got, native))
    if got.shape != native.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    if other.any() and not one.any():
        return False
    away = np.abs(one - other)
    near = np.count_nonzero(away <= tolerance.atol + tolerance.rtol * np.abs(other))
    capped = tolerance.cap is None or float(away.max(initial=0.0)) <= tolerance.cap
    return bool(capped and near >= tolerance.share * away.size)


def faults_of(answer: Answer, truth: Truth, label: str, tolerance: Tolerance | None, poison: int) -> Iterator[Fault]:
    """The faults of one answer. Without a tolerance the format has its own check, and the dtypes may differ."""
    yield from _changed_inputs(answer, truth)
    if len(answer.results) != len(truth.native):
        message = f"it gave {several(len(answer.results), 'result')}, and the reference {len(truth.native)}"
        yield Fault(Status.WRONG_SHAPE, FindingKind.WRONG_VALUE, message)
        return
    for at, (got, native) in enumerate(zip(answer.results, truth.native, strict=True)):
        name = f"out{at}" if len(truth.native) > 1 else "out"
        misfit = list(_misfits(got, native, name, tolerance is not None))
        unset = unset_cells(got, poison)
        if unset.any() and (got.shape != native.shape or (unset & ~_may_be(native, poison)).any()):
            yield _unwritten(unset, name)
        elif not misfit:
            runs = [run[at] for run in truth.runs]
            yield from _wrong_values(name, got, truth.wide[at].reshape(got.shape), runs, label, tolerance)
        yield from misfit


def _misfits(got: Array, native: Array, name: str, is_strict: bool) -> Iterator[Fault]:
    same_cells = [extent for extent in got.shape if extent != 1] == [extent for extent in native.shape if extent != 1]
    if got.shape != native.shape and (is_strict or not same_cells):
        message = f"{name} has the shape {list(got.shape)}, and the reference's {list(native.shape)}"
        yield Fault(Status.WRONG_SHAPE, FindingKind.WRONG_VALUE, message)
    if got.dtype != native.dtype and is_strict:
        message = f"{name} holds {got.dtype}, and the reference's {native.dtype}"
        yield Fault(Status.WRONG_DTYPE, FindingKind.WRONG_VALUE, message)


def _changed_inputs(answer: Answer, truth: Truth) -> Iterator[Fault]:
    for at, (after, before) in enumerate(zip(answer.inputs, truth.inputs, strict=False)):
        if at in truth.writable or after.tobytes() == before.tobytes():
            continue
        bits = [np.ascontiguousarray(each).reshape(-1).view(f"V{each.itemsize}") for each in (after, before)]
        cells = np.flatnonzero(bits[0] != bits[1]) if after.shape == before.shape else np.zeros(1, np.int64)
        cell = tuple(map(int, np.unravel_index(int(cells[0]), before.shape))) if before.ndim else ()
        message = f"it changed {several(len(cells), 'cell')} of its input {at}, {list(cell)} first"
        yield Fault(Status.CHANGED_INPUTS, FindingKind.MUTATED_INPUT, message, cell)


def unset_cells(array: Array, poison: int) -> Array:
    """A mask of the cells whose every byte is that of unwritten memory: a NaN for floats, a rare integer."""
    if array.dtype.kind == "b" or array.itemsize < 2 or not array.size:
        return np.zeros(array.shape, bool)
    cells = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    return np.asarray((cells == poison).all(1).reshape(array.shape))


def _may_be(native: Array, poison: int) -> Array:
    """A mask of the cells whose right value may have those bytes: also any NaN."""
    is_nan = np.isnan(widen(native)) if poison == 0xFF else np.zeros(native.shape, bool)
    return np.asarray(unset_cells(native, poison) | is_nan)


def _unwritten(mask: Array, name: str) -> Fault:
    first, count = tuple(map(int, np.argwhere(mask)[0])), int(np.count_nonzero(mask))
    many = f"{several(count, 'cell')} of {mask.size} of {name}"
    message = f"{many} {'was' if count == 1 else 'were'} never written, {list(first)} first"
    return Fault(Status.UNWRITTEN, FindingKind.UNWRITTEN, message, first)


def _wrong_values(
    name: str, got: Array, wide: Array, runs: Sequence[Array], label: str, tolerance: Tolerance | None
) -> Iterator[Fault]:
    """The first wrong cell. A loss of precision within the problem's tolerance at every cell is a warning."""
    dtype = from_numpy(got.dtype)
    if dtype is None or dtype is DType.OTHER:
        return
    node = Node(name, Input(), (), dtype, shape_of(got.shape))
    truth = wide if dtype.is_float else wide.astype(got.dtype)
    judge = judge_of(node, got, truth, np.zeros(got.shape, bool), False, None)
    with np.errstate(all="ignore"):
        for run in runs:
            judge.see(run.reshape(got.shape) if dtype.is_float else run.reshape(got.shape).astype(got.dtype))
        outcome = judge.outcome(Case(label, ()), label)
    if not outcome.broken:
        return
    failure: Failure = outcome.failures[0]
    rule = tolerance or Tolerance(0.0, 0.0)
    is_near = bool((np.abs(widen(got) - widen(wide)) <= rule.atol + rule.rtol * np.abs(widen(wide))).all())
    is_mild = failure.kind is FindingKind.PRECISION and (is_near or tolerance is None)  # None: the task's check decides
    yield Fault(Status.WRONG, failure.kind, str(failure), failure.cell, "warning" if is_mild else "error")


def replays(answers: dict[str, Answer], truths: dict[str, Truth]) -> Iterator[Fault]:
    """The faults that several calls of a trial show together: `a` and `b` have different values in the same memory, `c`
    has the values of a in the tensors of b."""
    first, second, third = (answers.get(name) for name in "abc")
    for at, to in first.facts["aliases"] if first is not None else ():  # a result may lie where the reference's does
        if to not in truths["a"].writable and [at, to] not in truths["a"].facts["aliases"]:
            message = f"its result {at} lies in the memory of its input {to}: who changes one changes the other"
            yield Fault(Status.CHANGED_INPUTS, FindingKind.MUTATED_INPUT, message)
    if first is None or second is None or _same(truths["a"].native, truths["b"].native):
        return
    if second.facts["changed"] and not second.facts["is_same_memory"]:
        message = "the results of its first call changed with the second one"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message, severity="warning")
    if _same(first.results, second.results) and not _same(first.results, truths["b"].native):
        message = "it gave the results of its first call again, for other values in the same memory"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message)
    if third is not None and _same(second.results, third.results):
        message = "it gave the results of an earlier call again, for the same tensors with other values in them"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return [each.tobytes() for each in one] == [each.tobytes() for each in other]
