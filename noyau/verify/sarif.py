"""The findings of a check as SARIF, which editors and code hosts show at the lines that they are about.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from noyau.errors import FindingKind
from noyau.verify.findings import Finding
from noyau.version import __version__

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One run with a result for each finding; a rule for each kind."""
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
