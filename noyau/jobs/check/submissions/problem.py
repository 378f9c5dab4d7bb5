"""A problem of a benchmark, the kernels that were submitted to it, and the verdicts on them: as text and as JSON."""

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

from noyau.errors import InputError
from noyau.text import printable, several
from noyau.verify.checks import SCHEMA_VERSION
from noyau.verify.findings import Finding, lines_of
from noyau.version import __version__

_LIBRARIES = ("torch", "triton", "numba", "numpy")
LIMIT = "only what ran was seen: other sizes and values, and what a hostile text hides from its own process, were not"


class Status(StrEnum):
    """A verdict on a submission. `exit_status`: of a check of it alone; `trace`: its name in traces of benchmarks."""

    exit_status: int
    trace: str

    def __new__(cls, text: str, exit_status: int = 1, trace: str = "INCORRECT_NUMERICAL") -> Status:
        """A member, which is equal to its text."""
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


# The byte of memory that nobody wrote, by the call: `a`; `b`, on other values in the same memory; `c`, on those of a in
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
    """One call of a submission. `arguments`: what its format makes the inputs of; `cells`: about how many there are;
    `is_stated`: the problem asks for these sizes; `workload`: its record there."""

    label: str
    arguments: Mapping[str, Any]
    cells: int
    is_stated: bool = True
    tolerance: Tolerance | None = None
    workload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a format, by the files of its reference; `entry`: the one to run. `returns_outputs`: submissions
    return their results, or fill what stands behind the inputs."""

    name: str
    format: str
    files: Mapping[str, str]
    entry: str
    trials: tuple[Trial, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def wish(self, submission: Submission | None, **more: Any) -> dict[str, Any]:
        """The wish that a process reads: all of the problem but its reference, where a submission runs."""
        if submission is None:
            return asdict(self) | more
        own = {"files": dict(submission.files), "entry": list(submission.entry), "flags": list(submission.flags)}
        return asdict(self) | more | own | {"fills": submission.fills_outputs}


@dataclass(frozen=True, slots=True)
class Submission:
    """A kernel for a problem, by the files of its text. `entry`: a file and a function of it; `refusal`: a verdict that
    needs no run, with its reason; `flags`: for a compiler of C++."""

    name: str
    files: Mapping[str, str]
    entry: tuple[str, str]
    languages: tuple[str, ...] = ()
    fills_outputs: bool = False
    refusal: tuple[Status, str] | None = None
    flags: tuple[str, ...] = ()


def field_of(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """A field of a record of JSON. InputError where it is missing, or of another kind."""
    if not isinstance(record, Mapping) or not isinstance(record.get(name), kind):
        words = {str: "a text", Mapping: "an object", list: "a list", int: "a number"}
        raise InputError(f"{place}: {name} is missing, or is not {words[kind]}; give it as the schema has it")
    return record[name]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A finding, the status that it stands for, and the trial that showed it."""

    status: Status
    finding: Finding
    trial: int

    def to_json(self, verdict: Verdict) -> dict[str, Any]:
        own = {"problem": verdict.problem.name, "submission": verdict.submission, "status": self.status}
        return own | {"trial": verdict.problem.trials[self.trial].label, **self.finding.to_json()}


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial that was run. `passes`: by the rule of its benchmark, if that is known; errors: of the first call."""

    number: int
    passes: bool | None
    absolute: float = 0.0
    relative: float = 0.0
    has_nan: bool = False
    has_inf: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a submission. `reason`: of a status that no finding stands for; `kernels`: those that it launched;
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
        """The verdict of the benchmark's own rule on what was run."""
        known = [each.passes for each in self.records if each.passes is not None]
        return "" if not known else "passes" if all(known) else "fails"

    def trials(self) -> list[Trial]:
        """Those that were run."""
        return [self.problem.trials[each.number] for each in self.records]

    def lines(self) -> Iterator[str]:
        """The lines of a report."""
        name = f"{printable(self.problem.name)}[{printable(self.submission)}]"
        errors = [each for each in self.complaints if each.finding.severity == "error"]
        summary = f"{name}: {self.status}"
        if self.reason:
            summary += f": {self.reason}"
        elif self.status is Status.RIGHT:
            summary += f" at {'; '.join(each.label for each in self.trials())}"
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
        """A trace for each workload, in the schema of SOL-ExecBench: nothing was timed, so times are 0."""
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
    """The record of a check, as JSON has it."""
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
