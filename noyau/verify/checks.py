"""The checks of kernels and ops, which are the records of a report and print themselves; and their coverage: sizes that
ran, constants of a kernel that no size exceeded, lines that never ran."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from noyau.errors import CheckError, FindingKind, InputError
from noyau.text import as_json, printable
from noyau.verify.certificate import Certificate
from noyau.verify.findings import Finding
from noyau.verify.reports import Groups, Report, text_of


@dataclass(slots=True)
class Coverage:
    """The coverage of a check. `points`: constants beyond which the kernel may behave differently, with a text for
    each; `sizes`: the least and largest size that ran, by name; `idle`: lines that never ran, if that was recorded."""

    PLAIN: ClassVar[str] = "sizes never_past lines_never_run=idle"
    points: Mapping[int, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    idle: tuple[int, ...] = ()

    def note(self, sizes: Mapping[str, int]) -> None:
        """Count sizes that ran."""
        for name, size in sizes.items():
            least, most = self.sizes.get(name, (size, size))
            self.sizes[name] = min(least, size), max(most, size)

    @property
    def never_past(self) -> tuple[str, ...]:
        """The texts of the points that no size exceeded."""
        most = max((most for _, most in self.sizes.values()), default=0)
        return tuple(text for number, text in sorted(self.points.items()) if self.sizes and number >= most)

    @property
    def spans(self) -> str:
        """The ranges of sizes as text: `rows 0 to 33, cols 3 to 513`."""
        spans = ((printable(name), *span) for name, span in self.sizes.items())
        texts = (f"{name} {least} to {most}" if least < most else f"{name} = {least}" for name, least, most in spans)
        return ", ".join(texts)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Texts on the points and lines that were not covered."""
        never = [f"never past {', '.join(self.never_past)}"] if self.never_past else []
        return (*never, *([f"{spell_lines(self.idle)} never ran"] if self.idle else []))


def spell_lines(lines: Iterable[int]) -> str:
    """Line numbers as text: `lines 14-16, 20`."""
    numbers = sorted(set(lines))
    runs = [[line for _, line in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"line{'s' * (len(numbers) != 1)} {', '.join(texts)}"


SCHEMA_VERSION = 1
LIMITS = (
    "only the inputs, shapes and branches that ran were seen",
    "where accesses are not watched, memory is seen where it is written, not where it is read: a race that changed no "
    "value is not found",
    f"found only where accesses are watched: {', '.join(kind for kind in FindingKind if kind.needs_watching)}",
)


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """The check of one kernel: its certificate, or the reason why there is none (`skipped`); the `shapes` tried;
    `notes` on gaps; the number of watched memory `accesses`, or None, and texts on them (`seen`); the `coverage`.

    `unverified`: the part of a user kernel that was not checked, and why; it is then neither wrong nor right."""

    name: str
    language: str
    certificate: Certificate | None
    findings: tuple[Finding, ...]
    shapes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str = ""
    accesses: int | None = None
    seen: tuple[str, ...] = ()
    unverified: str = ""
    coverage: Coverage | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether there is no error; a kernel that cannot run here is neither right nor wrong, and is `ok`."""
        return not self.errors

    def verdict(self, op: str, *, everything: bool = False) -> list[str]:
        """Lines on the inputs tried, the accesses watched, and the gaps of both."""
        name = f"{op}[{self.name}]"
        if self.skipped:
            return [f"{name}: not checked: {self.skipped}"]
        lines = [f"{name}: {'; '.join(self.seen)}"] if self.seen else []
        if self.unverified and not self.errors:
            lines.append(f"{name}: not verified: {self.unverified}")
        gaps = [] if self.coverage is None else [*self.coverage.gaps]
        if self.errors or (self.certificate is None and not self.notes):
            return [*lines, *([f"{name}: {'; '.join(gaps)}"] if gaps and self.errors and everything else [])]
        agreement = "; ".join([*self._agreement(), *gaps, *self.notes])
        return [f"{name}: {agreement}", *lines, *self._numbers(name, everything)]

    def _agreement(self) -> list[str]:
        if self.certificate is None or not self.certificate.ok:
            return [] if self.certificate is None else [self.certificate.summary()]
        spans = "" if self.coverage is None else self.coverage.spans
        return [f"agreed on {self.certificate.where}{spans and ': '}{spans}"]

    def _numbers(self, name: str, everything: bool) -> list[str]:
        """With `everything`, lines on the kernel's errors and on each of its shapes."""
        if not everything or self.certificate is None or not self.certificate.ok:
            return []
        return [f"{name}: {self.certificate.exactness}", *(f"{name}: tried on {shape}" for shape in self.shapes)]

    def to_json(self, op: str) -> dict[str, Any]:
        """The entry of `kernels` in the JSON report, without the findings."""
        return {
            "op": op,
            "kernel": self.name,
            **{name: getattr(self, name) for name in ("language", "ok", "skipped", "unverified")},
            "coverage": as_json(self.coverage),
            "notes": [*self.notes, *self.seen],
            "certificate": as_json(self.certificate),
        }


@dataclass(frozen=True, slots=True, repr=False)
class OpCheck(Report):
    """A check of all kernels of an op. `tolerance`: by the user, or None; `note`: why some kernels are missing."""

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

    @property
    def is_verified(self) -> bool:
        """Whether it is `ok`, some kernel was checked, and no user kernel is unverified."""
        checked = any(kernel.certificate is not None for kernel in self.kernels)
        return self.ok and checked and not any(kernel.unverified for kernel in self.kernels)

    @property
    def groups(self) -> Groups:
        """The findings of each kernel."""
        return [(f"{self.op}[{kernel.name}]", kernel.findings) for kernel in self.kernels]

    def verdicts(self, *, everything: bool) -> list[str]:
        """The lines of each kernel's verdict, and notes on the op."""
        lines = [line for kernel in self.kernels for line in kernel.verdict(self.op, everything=everything)]
        if not self.kernels:
            lines = [f"{self.op} has no kernel to check: attach one with @{self.op}.kernel"]
        lines += [f"{self.op}: {self.note}"] if self.note else []
        if self.tolerance is not None:
            lines.append(f"{self.op}: allowed by request: {self.tolerance:g} * max(1, |want|)")
        return lines

    def raise_if_bad(self) -> None:
        """CheckError with the first finding, unless `ok`."""
        for finding in (error for kernel in self.kernels for error in kernel.errors):
            raise CheckError(f"{self.op}[{finding.kernel}] is {finding.message}")

    def to_json(self) -> dict[str, Any]:
        return report_json([self])


def report_text(checks: Sequence[OpCheck], *, everything: bool = False) -> str:
    """The report on ops: first the findings of all kernels, then the verdicts."""
    verdicts = [line for each in checks for line in each.verdicts(everything=everything)]
    return text_of([group for each in checks for group in each.groups], verdicts, everything=everything)


def report_json(checks: Sequence[OpCheck]) -> dict[str, Any]:
    """The JSON record of the checks of ops."""
    kernels = [(check.op, kernel) for check in checks for kernel in check.kernels]
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": all(check.ok for check in checks),
        "tolerance": {check.op: check.tolerance for check in checks if check.tolerance is not None} or None,
        "limits": list(LIMITS),
        "ops": [{"op": check.op, "place": check.place, "note": check.note} for check in checks],
        "findings": [finding.to_json() for check in checks for finding in check.findings],
        "checked": [
            {"op": op, "kernel": kernel.name, "shapes": list(kernel.shapes), "accesses": kernel.accesses}
            for op, kernel in kernels
        ],
        "kernels": [kernel.to_json(op) for op, kernel in kernels],
    }


def require_tolerance(tolerance: float | None) -> None:
    """InputError for an invalid tolerance."""
    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 < tolerance < math.inf):
        raise InputError(f"the tolerance is {tolerance!r}; give a number above 0, such as 1e-3")
