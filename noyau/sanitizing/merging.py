"""Findings of two witnesses as one list: what both have seen is one finding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from noyau.checking.findings import Finding

SHADOW = "noyau"
_ALIKE = {"negative-index": "out-of-bounds", "written-twice": "race", "crash": "out-of-bounds"}


def merged(watched: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of watched runs, those that the other witness has seen too with both names; then what it alone has
    seen. Two are the same where the kind is, and a line of theirs."""
    found = list(watched)
    for other in others:
        same = next((k for k, each in enumerate(found) if _same(each, other)), None)
        if same is None:
            found.append(other)
        else:
            known = found[same].witnesses or (SHADOW,)
            found[same] = replace(found[same], witnesses=tuple(dict.fromkeys((*known, *other.witnesses))))
    return tuple(found)


def _same(one: Finding, other: Finding) -> bool:
    kinds = {_ALIKE.get(each.kind, each.kind) for each in (one, other)}
    return one.kernel == other.kernel and len(kinds) == 1 and bool(_lines(one) & _lines(other))


def _lines(finding: Finding) -> set[tuple[str, str]]:
    """The lines that it names, files by their whole paths."""
    places = [place.rpartition(":") for place in (finding.place, finding.other_place) if place]
    return {(os.path.abspath(file), line) for file, _, line in places}
