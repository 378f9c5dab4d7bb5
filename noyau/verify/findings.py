"""Findings: faults of a kernel, each with its line of the source and a remedy as text."""

import linecache
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

from noyau.errors import FindingKind, Severity

_CELL = re.compile(r"<ipython-input-.*>|.*[/\\\\]ipykernel_\d+[/\\\\]\d+\.py")  # the name of a cell of a notebook
FEW = 2  # findings of a kind on a kernel that a report shows in full


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a kernel: its kind, its place, the inputs (`size`), a message and a remedy.

    `severity`: an error makes the kernel wrong, a warning does not. From the sanitizer: `other_place`, the line of the
    conflicting access; `owners`, the iterations or threads of both; `digest`, of the text of the lines; `mend`, a
    specific remedy. `witnesses`: the tools that report it, if not only noyau; `drawing`: lines that show the accesses
    to the cell in order; `change`: the mended text of its line, where that is known."""

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
    drawing: tuple[str, ...] = ()
    change: str = ""

    @property
    def id(self) -> str:
        """An identifier that is the same in each check that finds it."""
        return f"{self.op}[{self.kernel}]:{self.kind}{self.digest and ':'}{self.digest}"

    @property
    def remedy(self) -> str:
        names_a_cell = self.cell is not None or self.kind not in (FindingKind.WRONG_VALUE, FindingKind.GRADIENT)
        return self.mend or (self.kind if names_a_cell else FindingKind.LAUNCH).remedy

    def without_effect(self) -> Self:
        """The warning that a read of unset cells is if no result depends on it."""
        return replace(self, severity="warning", message=f"{self.message}; no result depends on it")

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}; {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        file, _, line = self.place.rpartition(":")
        has_line, other = line.isdigit(), self.other_place.rpartition(":")[2]
        return {
            **{name: getattr(self, name) for name in ("id", "op", "kernel", "language", "kind", "severity")},
            "file": file if has_line else self.place,
            "line": int(line) if has_line else None,
            "other_line": int(other) if other.isdigit() else None,
            "owners": list(self.owners),
            "cell": None if self.cell is None else list(self.cell),
            **{name: getattr(self, name) for name in ("size", "message", "remedy", "change")},
            **({"witnesses": list(self.witnesses)} if self.witnesses else {}),
        }


def lines_of(finding: Finding) -> list[str]:
    """A finding on one line; one of the sanitizer is followed by its lines of the source."""
    warns = "" if finding.severity == "error" else "warning: "
    if not finding.digest:
        return [f"{warns}{finding}"]
    at = f" (for {finding.size})" if finding.size else ""
    by = f" [seen by {' and '.join(finding.witnesses)}]" if finding.witnesses else ""
    return [f"{warns}{finding.kind}: {finding.message}{at}{by}\n" + "\n".join(excerpt(finding))]


def finding_lines(groups: Iterable[tuple[str, Sequence[Finding]]], *, everything: bool = False) -> list[str]:
    """Lines on named groups of findings: errors, then warnings; the first few of each kind unless `everything`."""
    return [line for name, findings in errors_first(groups) for line in _few_lines(name, findings, everything)]


def errors_first(groups: Iterable[tuple[str, Sequence[Finding]]]) -> list[tuple[str, list[Finding]]]:
    """The errors of each group, then the warnings of each."""
    pairs = product(("error", "warning"), groups)
    return [(name, [each for each in findings if each.severity == severity]) for severity, (name, findings) in pairs]


def _few_lines(name: str, findings: Sequence[Finding], everything: bool) -> Iterator[str]:
    counts = Counter[FindingKind]()
    for each in findings:
        counts[each.kind] += 1
        if everything or counts[each.kind] <= FEW:
            yield from (f"{name}: {line}" for line in lines_of(each))
    more = [f"{number - FEW} more of {kind}" for kind, number in counts.items() if number > FEW]
    if more and not everything:
        yield f"{name}: and {', '.join(more)}: --all shows each"


def excerpt(finding: Finding) -> list[str]:
    """The numbered lines of the source that a finding names, then its remedy and the changed line."""
    shown, width = lines_shown(finding)
    mend = [f"{' ' * width}  = mend: {finding.remedy}"]
    if finding.change:
        before, _, number = lines_at(finding.place)
        mend.append(f" {number:>{width}} + {before}{finding.change}")
    return [*shown, *mend]


def lines_shown(finding: Finding) -> tuple[list[str], int]:
    """The lines of the source that a finding names, and its drawing; and the width of their numbers."""
    places = [place.rpartition(":") for place in (finding.place, finding.other_place) if place]
    numbered = [(file, int(line)) for file, _, line in places if line.isdigit()]
    lines = {place: linecache.getline(*place).rstrip() for place in numbered}
    width = max((len(str(line)) for _, line in lines), default=1)
    text_lines, before = list[str](), ""
    for (file, line), text in lines.items():
        text_lines += [f"{' ' * width} --> {_CELL.sub('a cell', file)}:{line}"] if file != before else []
        text_lines += [f" {line:>{width}} | {text}"] if text else []  # a text without a file has no lines
        before = file
    return [*text_lines, *(f" {' ' * width} : {line}" for line in finding.drawing)], width


def lines_at(place: str) -> tuple[str, str, str]:
    """The indentation of the line at a place, the rest of it, and its number."""
    file, _, line = place.rpartition(":")
    text = linecache.getline(file, int(line)).rstrip() if line.isdigit() else ""
    body = text.lstrip()
    return text[: len(text) - len(body)], body, line
