"""Diagnostics: warnings on a line, before they belong to a report."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from noyau.errors import FindingKind
from noyau.sanitizer.records import Site, digest
from noyau.verify.findings import Finding

HOST = "python"  # the language of a script's own lines


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A warning on a line of a file, and its remedy. `kind`: launch or precision; `about`: the function concerned, or
    ""; `size`: the sizes concerned; `other_line`: a related line, 0 for none."""

    kind: FindingKind
    file: str
    line: int
    message: str
    mend: str
    about: str = ""
    size: str = ""
    other_line: int = 0

    def finding(self, op: str, kernel: str, language: str) -> Finding:
        """Return the diagnostic as a warning in a report."""
        site = Site.of(self.file, self.line)
        other = Site.of(self.file, self.other_line) if self.other_line else None
        return Finding(
            *(op, kernel, language, self.kind, site.place, self.size, self.message),
            severity="warning",
            other_place=other.place if other else "",
            digest=digest(self.kind, kernel, site.text, other.text if other else "", self.mend),
            mend=self.mend,
        )

    @property
    def is_allowed(self) -> bool:
        """Whether a mark `noyau: allow(KIND) REASON` on the line silences it."""
        return Site.of(self.file, self.line).allows(self.kind) is not None


def warnings_of(remarks: Iterable[Diagnostic], op: str, kernel: str, language: str) -> list[Finding]:
    """Return the diagnostics that no mark silences; `kernel`: named by those without a function."""
    return [each.finding(op, each.about or kernel, language) for each in remarks if not each.is_allowed]


def dotted_name(node: ast.AST) -> str:
    """Return `a.b.c` for a name with attributes; "" for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            before = dotted_name(value)
            return f"{before}.{attr}" if before else ""
    return ""
