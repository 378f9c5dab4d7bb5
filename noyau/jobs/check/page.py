"""The page of a check: findings on the lines of the source, who touches which cell, and how exact the kernels are."""

import linecache
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from noyau.jobs.check.submissions.problem import Verdict
from noyau.jobs.page.document import Page, Section, lines, summary, table
from noyau.sanitizer.access_map import AccessMap, svg
from noyau.text import printable, several
from noyau.verify.checks import LIMITS, KernelCheck, OpCheck
from noyau.verify.findings import Finding
from noyau.verify.reports import Report

STATES = {0: ("right", "good"), 1: ("wrong", "bad"), 3: ("not verified", "doubt")}  # by the exit status


def verdict_text(findings: Sequence[Finding], status: int) -> str:
    """The verdict of a check with an exit status, and the numbers of its findings, in one line."""
    counts = Counter(each.severity for each in findings)
    known = [several(counts[each], each) for each in ("error", "warning") if counts[each]]
    return f"{STATES[status][0]}: {' and '.join(known) or 'no finding'}"


def check_page(title: str, checks: Sequence[Report], maps: Sequence[AccessMap], status: int) -> Page:
    """The page of a check of ops, of a script or of a program; `status`: the exit status of the command."""
    findings = [finding for each in checks for _, group in each.groups for finding in group]
    verdicts = [line for each in checks for line in each.verdicts(everything=False)]
    kernels = [(each, kernel) for each in checks if isinstance(each, OpCheck) for kernel in each.kernels]
    drawn = [each for each in maps if each.arrays]
    pictures = [{"title": f"{each.kernel}{each.launch}", "svg": svg([each]), "text": str(each)} for each in drawn]
    sections = [
        summary(verdict_text(findings, status), STATES[status][1], verdicts),
        _findings(findings),
        {"kind": "pictures", "title": "Who writes which cell", "pictures": pictures},
        table("Kernels", (_row(*each) for each in kernels), "Choose a kernel for its file and certificate."),
        lines("Limits", LIMITS),
    ]
    sources = {f"{each.op}[{one.name}]": _source(each, one) for each, one in kernels}
    return Page(printable(title), "check", sections, sources)


def submissions_page(title: str, verdicts: Sequence[Verdict], headline: str, status: int, limit: str) -> Page:
    """The page of a check of submissions: the verdict on each, and the findings on the lines of its source."""
    rows = []
    for each in verdicts:
        fields = each.to_json().items()
        words = {name: ", ".join(text) if isinstance(text, list) else text or "" for name, text in fields}
        rows.append(words | {"notes": "; ".join((*each.skipped, *each.notes))})
    findings = [one.finding for each in verdicts for one in each.complaints]
    head = summary(headline, STATES[status][1], [printable(next(each.lines())) for each in verdicts])
    sections = [head, table("Submissions", rows), _findings(findings), lines("Limits", [limit])]
    return Page(printable(title), "check", sections)


def report_page(check: Any) -> Page:
    """The page of one check, with its own verdict."""
    status = 1 if not check.ok else 0 if check.is_verified else 3
    name = check.op if isinstance(check, OpCheck) else getattr(check, "script", type(check).__name__)
    return check_page(name, [check], getattr(check, "maps", ()), status)


def _findings(findings: Sequence[Finding]) -> Section:
    """The findings, and the texts of the files that they name."""
    places = {place.rpartition(":")[0] for each in findings for place in (each.place, each.other_place) if place}
    files = {file: "".join(linecache.getlines(file)) for file in sorted(places)}
    rows = [one.to_json() | {"place": one.place, "other": one.other_place, "drawing": one.drawing} for one in findings]
    return {"kind": "findings", "title": "Findings", "findings": rows, "files": files}


def _row(check: OpCheck, kernel: KernelCheck) -> dict[str, Any]:
    exact = kernel.certificate
    return {
        "kernel": f"{check.op}[{kernel.name}]",
        "verdict": "wrong" if not kernel.ok else "right" if exact else "unverified",
        "cases": exact and len(exact.outcomes),
        "allowed_share": exact and exact.worst_ratio,
        "error": exact and exact.kernel.worst_relative,
        "unfused_error": exact and exact.unfused.worst_relative,
        "accesses": kernel.accesses,
        "note": "; ".join(filter(None, (kernel.skipped, kernel.unverified, *kernel.notes))),
    }


def _source(check: OpCheck, kernel: KernelCheck) -> Mapping[str, Any]:
    text = "".join(linecache.getlines(check.place.rpartition(":")[0]))
    evidence = kernel.certificate.summary() if kernel.certificate else kernel.skipped or kernel.unverified
    return {"text": text, "evidence": evidence, "about": check.place, "certificate": kernel.certificate}
