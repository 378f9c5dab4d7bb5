from __future__ import annotations

import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.compute_sanitizer.tool import merge_witnesses
from noyau.verify.findings import Finding


def finding(kind, line, other=0, kernel="add", witnesses=()):
    place, other_place = f"k.cu:{line}", f"k.cu:{other}" if other else ""
    return Finding("op", kernel, "cuda", kind, place, "", "", other_place=other_place, witnesses=witnesses)


TOOL = ("compute-sanitizer",)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (finding(FindingKind.OUT_OF_BOUNDS, 5), finding(FindingKind.OUT_OF_BOUNDS, 5, witnesses=TOOL)),
        (finding(FindingKind.RACE, 5, 7), finding(FindingKind.RACE, 7, 5, witnesses=TOOL)),
        (finding(FindingKind.NEGATIVE_INDEX, 5), finding(FindingKind.OUT_OF_BOUNDS, 5, witnesses=TOOL)),
    ],
)
def test_one_defect_with_two_witnesses(own, other):
    (found,) = merge_witnesses([own], [other])
    assert found.witnesses == ("noyau", "compute-sanitizer")
    assert found.place == own.place
    assert merge_witnesses([found], [other]) == (found,)


@pytest.mark.parametrize(
    "other",
    [
        finding(FindingKind.RACE, 5, witnesses=TOOL),
        finding(FindingKind.OUT_OF_BOUNDS, 6),
        finding(FindingKind.OUT_OF_BOUNDS, 5, 0, "mul"),
    ],
)
def test_two_defects(other):
    own = finding(FindingKind.OUT_OF_BOUNDS, 5)
    assert merge_witnesses([own], [other]) == (own, other)


def test_one_file_by_two_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = finding(FindingKind.RACE, 5)
    other = Finding("op", "add", "cuda", FindingKind.RACE, f"{tmp_path}/k.cu:5", "", "", witnesses=TOOL)
    assert len(merge_witnesses([own], [other])) == 1
