"""The record of a check, which prints itself.

The findings of a check as SARIF, which editors and code hosts show at the lines that they are about.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from noyau.errors import CheckError, FindingKind, Severity
from noyau.text import Printed
from noyau.verify.certificate import Certificate

SCHEMA_VERSION = 1
LIMITS = (
    "only the inputs, shapes and branches that ran were seen",
    "where accesses are not watched, memory is seen where it is written, not where it is read: a race that changed no "
    "value is not found",
    f"found only where accesses are watched: {', '.join(kind for kind in FindingKind if kind.needs_watching)}",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel: what kind, where, for which inputs, and what would mend it.

    `severity`: an error speaks against the kernel, a warning does not. Where every access was watched: `other_place`,
    the line of the other access; `owners`, who they were; `digest`, of what the lines say; `mend`, what would do.
    `witnesses`: who has seen it, where that is not noyau alone."""

    op: str
    kernel: str
    language: str
    kind: FindingKind
    place: str
    size: str
    message: str
    cell: tuple[int, ...] | None = None
    severity: Severity = "error"
    other_place: str = ""
    owners: tuple[str, ...] = ()
    digest: str = ""
    mend: str = ""
    witnesses: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same in each check that finds it."""
        return f"{self.op}[{self.kernel}]:{self.kind}{self.digest and ':'}{self.digest}"

    @property
    def remedy(self) -> str:
        return self.mend or self.kind.remedy

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}; {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        file, _, line = self.place.rpartition(":")
        has_line, other = line.isdigit(), self.other_place.rpartition(":")[2]
        witnesses = {"witnesses": list(self.witnesses)} if self.witnesses else {}
        return {
            "id": self.id,
            "op": self.op,
            "kernel": self.kernel,
            "language": self.language,
            "kind": self.kind,
            "severity": self.severity,
            "file": file if has_line else self.place,
            "line": int(line) if has_line else None,
            "other_line": int(other) if other.isdigit() else None,
            "owners": list(self.owners),
            "cell": None if self.cell is None else list(self.cell),
            "size": self.size,
            "message": self.message,
            "remedy": self.remedy,
            **witnesses,
        }


def finding_from_json(fields: Mapping[str, Any]) -> Finding:
    """A finding from its fields as JSON has kept them."""
    cell = None if fields["cell"] is None else tuple(fields["cell"])
    lists = {name: tuple(fields[name]) for name in ("owners", "witnesses")}
    return Finding(**{**fields, **lists, "kind": FindingKind(fields["kind"]), "cell": cell})


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """The check of one kernel: its certificate, or why there is none (`skipped`); the `shapes` tried; `notes` on what
    was not seen; `accesses` to memory that were watched, None where none was, and what was `seen` of them."""

    name: str
    language: str
    certificate: Certificate | None
    findings: tuple[Finding, ...]
    shapes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str = ""
    accesses: int | None = None
    seen: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against it; a kernel that cannot run here is neither right nor wrong."""
        return not self.errors

    def lines(self, op: str) -> list[str]:
        """The verdict: a line for each finding, or one that says how right it is."""
        name = f"{op}[{self.name}]"
        if self.skipped:
            return [f"{name}: not tried: {self.skipped}"]
        lines = [f"{name}: {line}" for each in self.findings for line in lines_of(each)]
        accesses = [f"{name}: {'; '.join(self.seen)}"] if self.seen else []
        if self.errors or (self.certificate is None and not self.notes):
            return [*lines, *accesses]
        right = [] if self.certificate is None else [self.certificate.summary()]
        return [f"{name}: {'; '.join([*right, *self.notes])}", *accesses, *lines]

    def to_json(self, op: str) -> dict[str, Any]:
        """The entry of `kernels`, without the findings."""
        return {
            "op": op,
            "kernel": self.name,
            "language": self.language,
            "ok": self.ok,
            "skipped": self.skipped,
            "notes": [*self.notes, *self.seen],
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }


@dataclass(frozen=True, slots=True, repr=False)
class OpCheck(Printed):
    """A check of all kernels of an op. `ok` where no kernel is wrong. `tolerance`: what a user allowed, else None.
    `note`: why some kernels are not among them."""

    op: str
    place: str
    kernels: tuple[KernelCheck, ...]
    tolerance: float | None = None
    note: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for kernel in self.kernels for finding in kernel.findings)

    @property
    def ok(self) -> bool:
        return all(kernel.ok for kernel in self.kernels)

    def __str__(self) -> str:
        lines = [line for kernel in self.kernels for line in kernel.lines(self.op)]
        lines = lines or [f"{self.op} has no kernel to check: attach one with @{self.op}.kernel"]
        lines += [f"{self.op}: {self.note}"] if self.note else []
        if self.tolerance is not None:
            lines.append(f"{self.op}: allowed by request: {self.tolerance:g} * max(1, |want|)")
        return "\n".join(lines)

    def raise_if_bad(self) -> None:
        """CheckError with the first finding, unless `ok`."""
        for finding in (error for kernel in self.kernels for error in kernel.errors):
            raise CheckError(f"{self.op}[{finding.kernel}] is {finding.message}")

    def to_json(self) -> dict[str, Any]:
        return report_json([self])


def report_json(checks: Sequence[OpCheck]) -> dict[str, Any]:
    """The record of the ops of a file, as JSON has it."""
    kernels = [(check.op, kernel) for check in checks for kernel in check.kernels]
    tolerances = {check.op: check.tolerance for check in checks if check.tolerance is not None}
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": all(check.ok for check in checks),
        "tolerance": tolerances or None,
        "limits": list(LIMITS),
        "ops": [{"op": check.op, "place": check.place, "note": check.note} for check in checks],
        "findings": [finding.to_json() for check in checks for finding in check.findings],
        "checked": [
            {"op": op, "kernel": kernel.name, "shapes": list(kernel.shapes), "accesses": kernel.accesses}
            for op, kernel in kernels
        ],
        "kernels": [kernel.to_json(op) for op, kernel in kernels],
    }


def lines_of(finding: Finding) -> list[str]:
    """A finding in one line; where every access was watched, with the lines of the source below."""
    warns = "" if finding.severity == "error" else "warning: "
    if not finding.digest:
        return [f"{warns}{finding}"]
    at = f" (for {finding.size})" if finding.size else ""
    by = f" [seen by {' and '.join(finding.witnesses)}]" if finding.witnesses else ""
    return [f"{warns}{finding.kind}: {finding.message}{at}{by}\n" + "\n".join(excerpt(finding))]


def excerpt(finding: Finding) -> list[str]:
    """The lines of the source that a finding names, with their numbers, then what would mend it."""
    places = [place.rpartition(":") for place in (finding.place, finding.other_place) if place]
    lines = {
        (file, int(line)): linecache.getline(file, int(line)).rstrip() for file, _, line in places if line.isdigit()
    }
    width = max((len(str(line)) for _, line in lines), default=1)
    text_lines, before = list[str](), ""
    for (file, line), text in lines.items():
        text_lines += [f"{' ' * width} --> {file}:{line}"] if file != before else []
        text_lines += [f" {line:>{width}} | {text}"] if text else []  # of a text that is in no file there is none
        before = file
    return [*text_lines, f"{' ' * width}  = mend: {finding.remedy}"]


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One run with a result for each finding; a rule for each kind."""
    from noyau.version import __version__

    kinds = sorted({finding.kind for finding in findings})
    rules = [{"id": kind, "shortDescription": {"text": kind}, "help": {"text": kind.remedy}} for kind in kinds]
    driver = {"name": "noyau", "version": __version__, "rules": rules}
    results = [_result(finding, kinds) for finding in findings]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding, kinds: Sequence[FindingKind]) -> dict[str, Any]:
    at = f" (for {finding.size})" if finding.size else ""
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": finding.severity,
        "message": {"text": f"{finding.op}[{finding.kernel}]: {finding.message}{at}; {finding.remedy}"},
        "partialFingerprints": {"noyau/v1": finding.id},
        "locations": _locations(finding.place),
    }
    other = _locations(finding.other_place)
    return {**result, "relatedLocations": [{"id": 1, **each} for each in other]} if other else result


def _locations(place: str) -> list[dict[str, Any]]:
    """A line of a file, as a URI relative to the folder that the check ran in where it lies below that."""
    file, _, line = place.rpartition(":")
    if not line.isdigit() or int(line) < 1 or not file:
        return []
    path, here = Path(file).absolute(), Path.cwd()
    uri = quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": int(line)}}}]
