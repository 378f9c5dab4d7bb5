"""What a check of an op found: the record, which prints itself."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from noyau.checking.certificate import Certificate, Failure
from noyau.errors import CheckError

SCHEMA_VERSION = 1
_PRECISE = 100.0  # times what is allowed: an error up to that is lost precision

# The kinds of what a run may do wrong, by the words of the message; and what would mend it.
_KINDS = (
    (r"wrote outside", "out-of-bounds"),
    (r"never wrote", "unwritten"),
    (r"changed its input", "mutated-input"),
    (r"depend on how its work is cut", "order-dependent"),
    (r"crashed|did not answer|ended its process|raised", "crash"),
    (r"\bgave\b|accepted what it must refuse|returned", "wrong-value"),
)
_REMEDIES = {
    "out-of-bounds": "compare each index with the size of its axis before the access",
    "unwritten": "let the loop reach the last cells, or give the output a value with init=",
    "mutated-input": "write to the outputs alone, or name the input in updates=",
    "order-dependent": "give each cell one owner, or merge in a fixed order",
    "crash": "run it on the inputs that are named, under a debugger",
    "wrong-value": "compare it with the reference at the cell that is named",
    "precision": "accumulate in a wider type, or in an order that loses less",
    "launch": "mend what the message names",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel: what kind, where, for which inputs, and what would mend it."""

    op: str
    kernel: str
    language: str
    kind: str
    place: str
    size: str
    message: str
    cell: tuple[int, ...] | None = None

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.kind]

    def to_json(self) -> dict[str, Any]:
        file, _, line = self.place.rpartition(":")
        known = line.isdigit()
        return {
            "id": f"{self.op}[{self.kernel}]:{self.kind}",
            "op": self.op,
            "kernel": self.kernel,
            "language": self.language,
            "kind": self.kind,
            "severity": "error",
            "file": file if known else self.place,
            "line": int(line) if known else None,
            "other_line": None,
            "owners": [],
            "cell": None if self.cell is None else list(self.cell),
            "size": self.size,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """What is known of one kernel: its certificate, or why there is none (`skipped`); `shapes` that were tried; `notes`
    on what was not seen."""

    name: str
    language: str
    certificate: Certificate | None
    findings: tuple[Finding, ...]
    shapes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against it; a kernel that cannot run here is neither right nor wrong."""
        return not self.findings

    def line(self, op: str) -> str:
        """The verdict in one line."""
        called = f"{op}[{self.name}]"
        if self.skipped:
            return f"{called}: not tried: {self.skipped}"
        if self.findings:
            first = self.findings[0]
            return f"{called}: {first.kind}: {first.message}; {first.remedy}"
        assert self.certificate is not None
        told = "; ".join([self.certificate.summary(), *self.notes])
        return f"{called}: {told}"


@dataclass(frozen=True, slots=True)
class Checked:
    """A check of all kernels of an op. `ok` where no kernel is wrong."""

    op: str
    place: str
    kernels: tuple[KernelCheck, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for kernel in self.kernels for finding in kernel.findings)

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        lines = [kernel.line(self.op) for kernel in self.kernels]
        return "\n".join(lines or [f"{self.op} has no kernel to check: attach one with @{self.op}.kernel"])

    def raise_if_bad(self) -> None:
        """CheckError with the first finding, unless `ok`."""
        for finding in self.findings[:1]:
            raise CheckError(f"{self.op}[{finding.kernel}] is {finding.message}")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "op": self.op,
            "place": self.place,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "checked": [
                {
                    "op": self.op,
                    "kernel": kernel.name,
                    "language": kernel.language,
                    "skipped": kernel.skipped,
                    "shapes": list(kernel.shapes),
                    "accesses": None,
                    "notes": list(kernel.notes),
                    "certificate": None if kernel.certificate is None else kernel.certificate.to_json(),
                }
                for kernel in self.kernels
            ],
        }


def kind_of(failure: Failure) -> str:
    """The kind of a failure, by its cell or by its words."""
    if failure.cell is not None:
        return "precision" if _is_near(failure) else "wrong-value"
    return next((kind for words, kind in _KINDS if re.search(words, failure.note)), "wrong-value")


def _is_near(failure: Failure) -> bool:
    if not (math.isfinite(failure.got) and math.isfinite(failure.want)):
        return False
    return abs(failure.got - failure.want) <= _PRECISE * failure.allowed
