"""A problem of a benchmark, the kernels that were submitted to it, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from noyau.errors import FindingKind, InputError


class Status(StrEnum):
    """A verdict on a submission. `exit_status`: of a check of it alone; `trace`: its name in SOL-ExecBench and
    flashinfer-bench."""

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
RANK = tuple(Status)[1:]  # the first of several that hold is the verdict
OF_KINDS = {
    FindingKind.RACE: Status.RACY,
    FindingKind.DIVERGENT_BARRIER: Status.RACY,
    FindingKind.ORDER_DEPENDENT: Status.RACY,
    FindingKind.OUT_OF_BOUNDS: Status.OUT_OF_BOUNDS,
    FindingKind.NEGATIVE_INDEX: Status.OUT_OF_BOUNDS,
    FindingKind.UNWRITTEN: Status.UNWRITTEN,
    FindingKind.UNINITIALISED: Status.UNWRITTEN,
    FindingKind.MUTATED_INPUT: Status.CHANGED_INPUTS,
    FindingKind.CRASH: Status.CRASHED,
}


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


def wish_of(problem: Problem, submission: Submission | None, **more: Any) -> dict[str, Any]:
    """The wish that a process reads: all of the problem but its reference, where a submission runs."""
    wish = asdict(problem) | more
    if submission is not None:
        wish |= {"files": dict(submission.files), "entry": list(submission.entry), "fills": submission.fills_outputs}
        wish |= {"flags": list(submission.flags)}
    return wish


def field_of(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """A field of a record of JSON. InputError where it is missing, or of another kind."""
    if not isinstance(record, Mapping) or not isinstance(record.get(name), kind):
        words = {str: "a text", Mapping: "an object", list: "a list", int: "a number"}
        raise InputError(f"{place}: {name} is missing, or is not {words[kind]}; give it as the schema has it")
    return record[name]
