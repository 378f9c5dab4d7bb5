"""The record of a run of a script or notebook, which prints itself."""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noyau.errors import CheckError, FindingKind
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.access_map import AccessMap, TracingShadow
from noyau.sanitizer.records import WatchedRun, digest
from noyau.sanitizer.scripts.fakes import shown_difference
from noyau.text import count_text, few, several
from noyau.verify.checks import LIMITS, SCHEMA_VERSION, KernelCheck
from noyau.verify.findings import Finding
from noyau.verify.reports import Groups, Report

OBSERVERS: list[Callable[[KernelCheck, str], None]] = []  # called with each check of a single kernel and its place


@dataclass(frozen=True, slots=True)
class SeenKernel:
    """A kernel that was called. `shapes`: of its arguments, without repeats; `unseen`: why it was not watched."""

    name: str
    language: str
    place: str
    calls: int
    shapes: tuple[str, ...]
    accesses: int
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    unseen: str = ""

    def verdict(self) -> list[str]:
        """Lines on the watched accesses and on what was not watched."""
        if self.unseen and not self.accesses and not self.findings:
            return [f"{self.name}: not checked: {self.unseen}"]
        raced = any(finding.kind in (FindingKind.RACE, FindingKind.WRITTEN_TWICE) for finding in self.findings)
        many = f"{several(self.calls, 'call')}, {several(len(self.shapes), 'shape')}"
        if not self.shapes:  # a whole program
            many = several(self.calls, "run")
        if not self.accesses and not self.findings and not self.notes:
            return [f"{self.name}: not verified: no access to an array was seen in {many}"]
        part = "part of " if self.unseen else ""
        summary = f"{'watched' if raced else 'no race found'} in {part}{many}, {count_text(self.accesses)} accesses"
        text_lines = [f"{self.name}: {'; '.join([summary, *self.notes])}"]
        if self.unseen:
            which = "not all accesses are seen: " if self.shapes else ""
            text_lines.append(f"{self.name}: not verified: {which}{self.unseen}")
        return text_lines

    def to_json(self, script: str) -> dict[str, Any]:
        """Return the kernel's entry in `checked`."""
        facts = {name: getattr(self, name) for name in ("accesses", "calls", "unseen")}
        return {"op": script, "kernel": self.name, "shapes": list(self.shapes), **facts}


@dataclass(frozen=True, slots=True, repr=False)
class ScriptCheck(Report):
    """A run of a script or notebook. `fault`: how it failed, if it did; `unseen`: why parts of it were not watched;
    `notes`: what was left out; `advice`: warnings on the script's own lines; `maps`: on request, an access map of a
    small launch of each kernel."""

    script: str
    kernels: tuple[SeenKernel, ...]
    fault: str = ""
    notes: tuple[str, ...] = ()
    advice: tuple[Finding, ...] = ()
    maps: tuple[AccessMap, ...] = ()
    unseen: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(finding for kernel in self.kernels for finding in kernel.findings), *self.advice)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether the script succeeded and no kernel has an error."""
        return not self.fault and not self.errors

    @property
    def is_verified(self) -> bool:
        """Whether it is `ok`, some kernel ran, and every call of each kernel was watched with at least one access."""
        seen = (not kernel.unseen and (kernel.accesses or kernel.notes) for kernel in self.kernels)
        return self.ok and not self.unseen and bool(self.kernels) and all(seen)

    @property
    def groups(self) -> Groups:
        """The findings of each kernel, and those of the script's own lines."""
        return [*((each.name, each.findings) for each in self.kernels), (self.script, self.advice)]

    def verdicts(self, *, everything: bool) -> list[str]:
        """Lines on the observations of each kernel, and on how the script ended."""
        del everything
        lines = [line for kernel in self.kernels for line in kernel.verdict()]
        unseen = self.unseen
        if not (self.kernels or self.fault or unseen) and self.script.endswith((".py", ".ipynb")):
            unseen = "no parallel loop of Numba ran in it, and no kernel was launched"
        lines += [f"{self.script}: not verified: {unseen}"] if unseen else []
        lines += [f"{self.script}: {note}" for note in self.notes]
        if self.fault:
            early = "" if self.kernels else ", before any launch or parallel loop was over"
            lines.append(f"{self.script}: {self.fault}{early}")
        return lines

    def raise_if_bad(self) -> None:
        """Raise CheckError with the first error, or with how the script ended, unless `ok`."""
        for finding in self.errors:
            raise CheckError(f"{finding.kernel} of {self.script}: {finding}")
        if self.fault:
            raise CheckError(f"{self.script}: {self.fault}")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in ("ok", "script", "fault", "unseen")},
            "notes": list(self.notes),
            "limits": list(LIMITS[:1]),
            "findings": [finding.to_json() for finding in self.findings],
            "checked": [kernel.to_json(self.script) for kernel in self.kernels],
        }


@dataclass(slots=True)
class ScriptSession:
    """Observations while a script runs, kernel by kernel."""

    script: str
    kernels: dict[tuple[str, str], SeenKernel] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    maps: dict[tuple[str, str], AccessMap] | None = None  # by kernel and place; None without a request for maps
    keep: Callable[[], None] | None = None  # called after each new observation, since a script may crash
    advice: dict[str, Finding] = field(default_factory=dict)  # on calls that are not watched, by the finding's id
    goes_on: bool = True  # skips a launch that cannot run here; else its error is raised
    is_partial: bool = False  # a launch did not run, so nothing is known of the script's later results
    lacks: dict[str, str] = field(default_factory=dict)  # why kernels are not checked, by the text of an import error
    empties: Any = None  # torch tensors without values, where they are tracked
    look: Callable[[], Any] | None = None  # called after each launch, to check that noyau's functions are still its own

    def trace(self, name: str, place: str) -> TracingShadow | None:
        """Return a shadow that records writes for an access map, for a kernel that has no map with arrays yet."""
        if self.maps is None:
            return None
        earlier = self.maps.get((name, place))
        return None if earlier is not None and earlier.arrays else TracingShadow()

    def draw(self, access_map: AccessMap, place: str) -> None:
        """Store the map of a call of the kernel at a place."""
        assert self.maps is not None
        self.maps[access_map.kernel, place] = access_map

    def add(self, name: str, language: str, place: str, shapes: str, run: WatchedRun | None, unseen: str = "") -> None:
        """Record a call of a kernel; equal findings are kept once."""
        if self.look is not None:
            self.look()
        earlier = self.kernels.get((name, place)) or SeenKernel(name, language, place, 0, (), 0)
        run = run or WatchedRun((), 0)
        by_id = {finding.id: finding for finding in (*run.findings, *earlier.findings)}
        self.kernels[name, place] = replace(
            earlier,
            calls=earlier.calls + 1,
            shapes=tuple(dict.fromkeys((*earlier.shapes, shapes))),
            accesses=earlier.accesses + run.accesses,
            findings=tuple(by_id.values()),
            notes=tuple(dict.fromkeys((*earlier.notes, *run.allowed, *run.notes))),
            unseen=earlier.unseen or unseen,
        )
        if self.keep is not None and (earlier.calls == 0 or len(by_id) > len(earlier.findings)):
            self.keep()

    def note(self, line: str) -> None:
        """Add a line to the report, once."""
        if line not in self.notes:
            self.notes.append(line)

    def find_unwritten(self, name: str, place: str, language: str, message: str, mend: str, line: str = "") -> None:
        """Add a finding to a kernel that was added before: the host reads elements that it should have written."""
        kernel, kind, at = self.kernels[name, place], FindingKind.UNWRITTEN, line or place
        finding = Finding(self.script, name, language, kind, at, "", message, digest=digest(kind, name), mend=mend)
        if finding.id not in {each.id for each in kernel.findings}:
            self.kernels[name, place] = replace(kernel, findings=(*kernel.findings, finding))
            if self.keep is not None:
                self.keep()

    def note_difference(self, name: str, place: str) -> None:
        """Report a comparison of arrays that returned False, unless an earlier launch did not run."""
        if self.kernels and not self.is_partial:
            self.advice |= {each.id: each for each in shown_difference(name, place, self.script)}

    def finish(self, fault: str = "", unseen: str = "") -> ScriptCheck:
        """Return the record; `unseen`: why the observations do not count."""
        maps = tuple((self.maps or {}).values())
        kernels, advice = tuple(self.kernels.values()), tuple(self.advice.values())
        return ScriptCheck(self.script, kernels, fault, tuple(self.notes), advice, maps, unseen)


def is_counted(is_set: np.ndarray, counts: Iterable[int]) -> bool:
    """Whether the written cells are a prefix whose length, in cells or rows, is a number that a kernel has counted."""
    many, row = int(np.count_nonzero(is_set)), math.prod(is_set.shape[1:])
    return many > 0 and bool(is_set.reshape(-1)[:many].all()) and any(many in (each, each * row) for each in counts)


def place_of(function: Any) -> str:
    """Return FILE:LINE of a function; for a stand-in, that of the original."""
    plain = python_function(function)
    file = inspect.getsourcefile(plain) or plain.__code__.co_filename
    return getattr(plain, "noyau_place", f"{file}:{plain.__code__.co_firstlineno}")


def describe_shapes(names: Sequence[str], values: Sequence[Any]) -> str:
    """Describe a call's arguments, as in `x: f32[5, 4], n = 3`; only the number of those beyond six is shown."""
    return few([_argument_text(*each) for each in zip(names, values, strict=False)], 6)


def _argument_text(name: str, value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"{name} = {value!r}" if isinstance(value, bool | int | float) else name
    dtype = getattr(value, "dtype", "")
    element = "records" if getattr(dtype, "names", None) else str(dtype).removeprefix("torch.")
    return f"{name}: {element}[{', '.join(map(str, shape))}]"
