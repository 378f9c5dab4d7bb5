"""Checks as they print themselves, and their record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.errors import CheckError, FindingKind
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.checks import Coverage, KernelCheck, OpCheck, report_json, report_text
from tests.verify.test_findings import finding


def test_a_check_prints_a_line_for_each_kernel():
    good = KernelCheck("gpu", "cuda", None, (), skipped="it is in cuda")
    found = OpCheck("op", "op.py:3", (KernelCheck("k", "python", None, (finding(),)), good))
    assert repr(found) == str(found)
    assert not found.ok
    first, blank, second = str(found).splitlines()
    assert not blank
    assert first.startswith("op[k]: unwritten: wrong: it never wrote; let the loop reach the last cells, or give ")
    assert second == "op[gpu]: not checked: it is in cuda"
    with pytest.raises(CheckError, match=r"op\[k\] is wrong: it never wrote"):
        found.raise_if_bad()
    OpCheck("op", "op.py:3", (good,)).raise_if_bad()


def test_a_kernel_of_which_something_was_not_checked_is_neither_right_nor_wrong():
    certificate = Certificate("k", ())
    right = KernelCheck("a", "c", certificate, ())
    unseen = KernelCheck("b", "c", certificate, (), unverified="no lines")
    missing = KernelCheck("c", "triton", None, (), skipped="no Triton", unverified="no Triton")
    generated = KernelCheck("numba", "numba", None, (), skipped="no Numba")
    assert OpCheck("op", "op.py:3", (right, generated)).is_verified
    for kernels in [(right, unseen), (right, missing), (generated,), ()]:
        found = OpCheck("op", "op.py:3", kernels)
        assert (found.ok, found.is_verified) == (True, False)
    assert "op[b]: not verified: no lines" in str(OpCheck("op", "op.py:3", (unseen,))).splitlines()
    assert unseen.to_json("op")["unverified"] == "no lines"


def test_a_warning_does_not_speak_against_a_kernel():
    warned = KernelCheck("k", "c", Certificate("k", ()), (finding(severity="warning"),), notes=("packed",))
    found = OpCheck("op", "op.py:3", (warned,), note="no others")
    assert found.ok
    found.raise_if_bad()
    assert [line.partition(";")[0] for line in str(found).splitlines()] == [
        "op[k]: warning: unwritten: wrong: it never wrote",
        "",
        "op[k]: tried on 0 cases: not tried on any case",
        "op: no others",
    ]


def test_several_ops_are_one_record():
    bad = OpCheck("a", "ops.py:3", (KernelCheck("k", "python", None, (finding(),), ("x: f32[3]",)),))
    good = OpCheck("b", "ops.py:9", (), tolerance=0.5)
    told = report_json([bad, good])
    assert (told["ok"], told["tolerance"]) == (False, {"b": 0.5})
    assert told["checked"] == [{"op": "a", "kernel": "k", "shapes": ["x: f32[3]"], "accesses": None}]
    assert [each["op"] for each in told["ops"]] == ["a", "b"]
    assert report_json([good])["ok"]


def races(count, kernel):
    site = replace(finding(), kind=FindingKind.RACE, kernel=kernel, digest="d")
    return tuple(replace(site, message=f"thread {number} writes", digest=str(number)) for number in range(count))


def test_errors_of_all_kernels_come_first_and_of_one_kind_the_first_few():
    warned = KernelCheck("a", "c", None, (finding(severity="warning"),), notes=("packed",))
    raced = KernelCheck("b", "c", None, races(5, "b"))
    checks = [OpCheck("op", "op.py:3", (warned, raced))]
    heads = [line for line in report_text(checks).splitlines() if line.startswith("op[")]
    assert [head.partition(";")[0] for head in heads] == [
        "op[b]: race: thread 0 writes (for x: f32[3])",
        "op[b]: race: thread 1 writes (for x: f32[3])",
        "op[b]: and 3 more of race: --all shows each",
        "op[a]: warning: unwritten: wrong: it never wrote",
        "op[a]: packed",
    ]
    assert report_text(checks, everything=True).count("race: thread") == 5


def test_a_verdict_names_the_sizes_and_what_was_not_reached():
    coverage = Coverage({512: "BLOCK = 512", 16: "16"}, idle=(14, 15, 16, 20))
    for cols in (3, 511, 512):
        coverage.note({"rows": 5, "cols": cols})
    right = Outcome("normal numbers", captured=False, cells=4)
    check = KernelCheck("k", "c", Certificate("k", (right, right)), (), notes=("packed",), coverage=coverage)
    told = (
        "op[k]: agreed on 2 cases: rows = 5, cols 3 to 512; never past BLOCK = 512; lines 14-16, 20 never ran; packed"
    )
    assert check.verdict("op") == [told]
    assert "at most 0.00 of what is allowed" in check.verdict("op", everything=True)[1]
    record = {"sizes": {"rows": [5, 5], "cols": [3, 512]}, "never_past": ["BLOCK = 512"]}
    assert check.to_json("op")["coverage"] == {**record, "lines_never_run": [14, 15, 16, 20]}
