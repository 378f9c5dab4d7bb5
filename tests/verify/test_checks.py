"""Checks as they print themselves, and their record."""

from __future__ import annotations

import pytest

from noyau.errors import CheckError
from noyau.verify.certificate import Certificate
from noyau.verify.checks import KernelCheck, OpCheck, report_json
from tests.verify.test_findings import finding


def test_a_check_prints_a_line_for_each_kernel():
    good = KernelCheck("gpu", "cuda", None, (), skipped="it is in cuda")
    found = OpCheck("op", "op.py:3", (KernelCheck("k", "python", None, (finding(),)), good))
    assert repr(found) == str(found)
    assert not found.ok
    first, second = str(found).splitlines()
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
        "op[k]: tried on 0 cases: not tried on any case",
        "op[k]: warning: unwritten: wrong: it never wrote",
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
