"""Reports of checks: as text and HTML for a notebook, with findings first and verdicts after them; as SARIF.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from noyau.errors import FindingKind
from noyau.text import TextRecord, several
from noyau.verify.findings import Finding, errors_first, finding_lines, lines_at, lines_shown
from noyau.version import __version__

Groups = Sequence[tuple[str, Sequence[Finding]]]  # the name of a kernel or script, and its findings
FINDINGS, LINES = 3, 6  # findings and lines of verdicts that a notebook shows unfolded
_COLOURS = {"error": "#d32f2f", "warning": "#c77700"}  # legible on white and on black
_ADDED = "#388e3c"
_CODE = "margin:.2em 0;padding:0;background:none;overflow-x:auto;white-space:pre;line-height:1.25"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

SAVERS: list[Callable[[Any, Path], None]] = []  # hooks that save a report as a page; `jobs`, a higher layer, adds one


class Report(TextRecord):
    """Base of checks that print themselves, in a notebook too: findings in `groups`, then the lines of `verdicts`."""

    __slots__ = ()

    @property
    @abstractmethod
    def groups(self) -> Groups: ...

    @abstractmethod
    def verdicts(self, *, everything: bool) -> list[str]: ...

    def report(self, *, everything: bool = False) -> str:
        """The text; with `everything` each finding, and the exactness of each kernel."""
        return text_of(self.groups, self.verdicts(everything=everything), everything=everything)

    def __str__(self) -> str:
        return self.report()

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as one HTML page that needs no network, and create its folder. OutputError where that fails."""
        for save in SAVERS:
            save(self, Path(path))

    def _repr_html_(self) -> str:
        """The report as HTML for a notebook, of which about a screen is unfolded."""
        return html_of(self.groups, self.verdicts(everything=False))


def text_of(groups: Groups, verdicts: Sequence[str], *, everything: bool = False) -> str:
    defects = finding_lines(groups, everything=everything)
    return "\n".join([*defects, *([""] if defects and verdicts else []), *verdicts])


def html_of(groups: Groups, verdicts: Sequence[str]) -> str:
    """The HTML of a report; its texts are escaped."""
    shown = [_finding(name, finding) for name, findings in errors_first(groups) for finding in findings]
    lines = [f"<div>{escape(line)}</div>" for line in verdicts]
    parts = [*_fold_away(shown, FINDINGS, "finding"), *_fold_away(lines, LINES, "line")]
    return f'<div style="max-width:70em">{"".join(parts)}</div>'


def _fold_away(parts: Sequence[str], most: int, noun: str) -> Iterable[str]:
    """The first parts, and the others folded away."""
    yield from parts[:most]
    if more := parts[most:]:
        yield f"<details><summary>and {several(len(more), noun)} more</summary>{''.join(more)}</details>"


def _finding(name: str, finding: Finding) -> str:
    """A finding beside a bar of the colour of its severity."""
    colour, is_watched = _COLOURS[finding.severity], bool(finding.digest)
    kind = f"{'' if finding.severity == 'error' else 'warning: '}{finding.kind}"
    at = f", with {finding.size}" if finding.size and is_watched else ""
    head = f'<b style="color:{colour}">{kind}</b> in <code>{escape(name)}</code>{escape(at)}'
    parts = [head, escape(finding.message), *([_code(lines_shown(finding)[0])] if is_watched else [])]
    parts.append(f"<b>To mend it</b>: {escape(finding.remedy)}")
    if finding.change:
        _, text, _ = lines_at(finding.place)
        signs = (("-", text, _COLOURS["error"]), ("+", finding.change, _ADDED))
        parts.append(_code([f"{sign} {line}" for sign, line, _ in signs], [each for *_, each in signs]))
    inner = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div style="margin:.6em 0;padding-left:.8em;border-left:.3em solid {colour}">{inner}</div>'


def _code(lines: Sequence[str], colours: Sequence[str] = ()) -> str:
    """Preformatted lines, each in its colour if there are colours."""
    texts = [escape(line) for line in lines]
    if colours:
        texts = [f'<span style="color:{each}">{text}</span>' for each, text in zip(colours, texts, strict=True)]
    body = "\n".join(texts)
    return f'<pre style="{_CODE}">{body}</pre>'


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as SARIF: one run with a rule for each kind and a result for each finding."""
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
    """The SARIF locations of `FILE:LINE`, with a URI relative to the current folder if the file is below it."""
    file, _, line = place.rpartition(":")
    if not line.isdigit() or int(line) < 1 or not file:
        return []
    path, here = Path(file).absolute(), Path.cwd()
    uri = quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()
    return [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": int(line)}}}]
