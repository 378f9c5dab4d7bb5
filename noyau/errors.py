"""Errors that a user can meet, each of which says what, where, and what would do; and the kinds of findings."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import warnings
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Severity = Literal["error", "warning"]
_FOLDER = os.path.dirname(__file__) + os.sep


class FindingKind(StrEnum):
    """A kind of defect of a kernel; its value is the name in reports and in marks of a source text.

    `remedy`: how to mend it; `remedies`: the same by language, where every access is watched; `severity`: "warning"
    where a watched kernel may do it on purpose; `needs_watching`: no value shows it."""

    remedy: str
    remedies: Mapping[str, str]
    severity: Severity
    needs_watching: bool

    def __new__(
        cls,
        text: str,
        remedy: str = "",
        remedies: Mapping[str, str] | None = None,
        severity: Severity = "error",
        needs_watching: bool = False,
    ) -> FindingKind:
        """Create a member that equals its text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.remedy, member.remedies = remedy, remedies or {}
        member.severity, member.needs_watching = severity, needs_watching
        return member

    RACE = (
        "race",
        "give each cell one owner, or use a reduction or an atomic",
        {
            "c": "give each iteration its own cells and variables, or use reduction(), #pragma omp atomic or critical",
            "cpp": "give each thread its own cells, or use a mutex, an atomic or a reduction",
            "cuda": "put a __syncthreads() between them, give each thread its own cells, or use atomicAdd",
            "numba_cuda": "put cuda.syncthreads() between the two, give each cell one thread, or use cuda.atomic",
            "triton": "let one program write each cell (indices that are loaded may repeat), or sum with tl.atomic_add",
        },
    )
    OUT_OF_BOUNDS = (
        "out-of-bounds",
        "compare each index with the size of its axis before the access",
        {
            "cuda": "compare the index with the size before the access: if (i < n)",
            "triton": "give the access a mask: mask=offsets < n",
        },
    )
    NEGATIVE_INDEX = "negative-index", "an index lies below 0: compare it with 0 before the access", None, "warning"
    UNINITIALISED = (
        "uninitialised",
        "write each cell before it is read, or say what the output holds with init=",
        {
            "numba_cuda": "write each cell before it is read, with cuda.syncthreads() between two threads",
            "triton": "store each cell before it is loaded, or say what the output holds with init=",
        },
    )
    UNWRITTEN = (
        "unwritten",
        "let the loop reach the last cells, or give the output a value with init=",
        {
            "cuda": "let the grid cover every cell, or loop with a stride of the grid",
            "triton": "launch enough programs for the last cells: triton.cdiv(n, BLOCK)",
        },
    )
    WRITTEN_TWICE = (
        "written-twice",
        "give each cell one owner",
        {"triton": "let one program write each cell"},
        "warning",
        True,
    )
    ORDERED_BY_CHANCE = (
        "ordered-by-chance",
        "hold one lock around both accesses, or wait for what is to come first",
        None,
        "warning",
        True,
    )
    DIVERGENT_BARRIER = (
        "divergent-barrier",
        "let every thread of a block reach the barrier",
        {"cuda": "let every thread of the block, and each lane of the mask, reach it; guard the work alone"},
        "error",
        True,
    )
    WRONG_VALUE = "wrong-value", "look at how that cell is computed at these sizes"
    MUTATED_INPUT = "mutated-input", "write to the outputs alone, or name the input in updates="
    ORDER_DEPENDENT = "order-dependent", "merge in a fixed order, if its bits are to be the same each time"
    GRADIENT = "gradient", "compare it with the derivative of the reference at the cell that is named"
    LAUNCH = "launch", "mend what the message names"
    PRECISION = "precision", "accumulate in a wider type, or in an order that loses less"
    CRASH = "crash", "run it on the inputs that are named, under a debugger"


class NoyauError(Exception):
    """The base of all errors raised on purpose by noyau."""

    def reword(self, message: str) -> Self:
        """The same error with another message."""
        return type(self)(message)


class UnsupportedError(NoyauError, NotImplementedError):
    """A language, a strategy or a runtime lacks a feature. `at`: a predicate on the sizes of a call that says where the
    refusal applies, if it depends on them."""

    def __init__(self, message: str = "", at: Callable[[Mapping[str, int]], bool] | None = None) -> None:
        super().__init__(message)
        self.at = at


class SignatureError(NoyauError, TypeError):
    """A signature cannot be read, or an argument, a kernel or a parameter does not fit it."""


class GraphError(NoyauError, ValueError):
    """A graph or a kernel breaks a rule of its IR; always a defect of a front end or of a pass."""


class ModelError(NoyauError, ValueError):
    """A model file cannot be read: truncated, cyclic, hostile, or not a model at all."""


class InputError(NoyauError, ValueError):
    """The arrays or sizes that were given do not fit the model."""


class OutsideError(InputError, IndexError):
    """An index that was given is outside the axis that it looks into."""


class BuildError(NoyauError, RuntimeError):
    """No compiler was found, or the compiler refused a text."""


class DeviceError(NoyauError, RuntimeError):
    """A GPU refuses: a launch is beyond its limits, or a kernel has trapped and its context is lost."""


class OutputError(NoyauError, OSError):
    """A result cannot be written: the folder is missing, read-only or full."""

    @property
    def lacks_room(self) -> bool:
        """Whether the cause is a full disk or quota, which may pass."""
        return getattr(self.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


class CheckError(NoyauError, AssertionError):
    """A kernel is wrong: which one, at which cell, by how much. `kind`: the kind of finding."""

    usual_kind = FindingKind.WRONG_VALUE

    def __init__(self, message: str = "", kind: FindingKind | None = None) -> None:
        super().__init__(message)
        self.kind = kind or self.usual_kind

    def reword(self, message: str) -> Self:
        """The same error, of the same kind, with another message."""
        return type(self)(message, self.kind)


class RaisedError(CheckError, RuntimeError):
    """A kernel raised an error of its own: it is wrong, or not written for such arrays."""

    usual_kind = FindingKind.CRASH


class UnansweredError(CheckError, RuntimeError):
    """A process of a kernel did not answer in time, and was ended."""

    usual_kind = FindingKind.CRASH


class MissingExtraError(NoyauError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


@contextmanager
def dependency(what: str, package: str) -> Iterator[None]:
    """Imports of an optional package: MissingExtraError says that `what` is missing, and what pip installs for it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{what} is not installed; run: pip install {shlex.quote(package)}") from error


@contextmanager
def output_errors(path: object) -> Iterator[None]:
    """Turn an error of writing a file within the block into an OutputError that names the file."""
    try:
        yield
    except NoyauError:
        raise
    except (OSError, ValueError) as error:
        remedy = "give a folder that exists, with room in it"
        raise OutputError(f"{path} cannot be written: {reason_of(error)}; {remedy}") from error


def reason_of(error: BaseException) -> str:
    """The reason of an error in one line, without its number and its path, which the message names by itself."""
    text = getattr(error, "strerror", None) or first_line(error)
    return re.sub(r"^.*\[[Ee]rrno \d+\] ", "", text)  # the texts of pyarrow have such numbers


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def warn(message: str, kind: type[Warning] = RuntimeWarning) -> None:
    """Warn at the user's line: the innermost one that is not noyau's, however deep the call is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)
