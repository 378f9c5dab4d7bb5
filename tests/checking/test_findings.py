from __future__ import annotations

import pytest

from noyau.checking.certificate import Failure
from noyau.checking.findings import Checked, Finding, KernelCheck, kind_of
from noyau.errors import CheckError


def failure(note: str = "", **said) -> Failure:
    return Failure("case", "x: f32[3]", note, **said)


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        ("wrote outside out, 1 cells after its end", "out-of-bounds"),
        ("never wrote 3 cells of out", "unwritten"),
        ("changed its input x", "mutated-input"),
        ("changed its input 0", "mutated-input"),
        ("crashed (SIGSEGV)", "crash"),
        ("did not answer within 3 s and was ended", "crash"),
        ("ended its process with status 3", "crash"),
        ("raised ValueError: no", "crash"),
        ("gave f64[3] as out, not f32[3]", "wrong-value"),
        ("something else", "wrong-value"),
    ],
)
def test_the_kind_follows_from_the_words(note, kind):
    assert kind_of(failure(note)) == kind


@pytest.mark.parametrize(
    ("got", "want", "kind"),
    [(1.00001, 1.0, "precision"), (1.1, 1.0, "wrong-value"), (float("nan"), 1.0, "wrong-value")],
)
def test_a_value_that_is_nearly_right_lost_precision(got, want, kind):
    assert kind_of(failure(output="out", cell=(0,), got=got, want=want, allowed=1e-6)) == kind


def finding(place: str = "/folder/kernel.py:12") -> Finding:
    return Finding("op", "k", "python", "unwritten", place, "x: f32[3]", "wrong: it never wrote", (1, 2))


def test_a_finding_names_file_and_line():
    told = finding().to_json()
    assert (told["file"], told["line"]) == ("/folder/kernel.py", 12)
    assert (finding("/folder/kernel.c").to_json()["file"], finding("/folder/kernel.c").to_json()["line"]) == (
        "/folder/kernel.c",
        None,
    )
    assert told["id"] == "op[k]:unwritten"
    assert told["cell"] == [1, 2]
    assert told["remedy"].startswith("let the loop reach the last cells")


def test_a_check_prints_a_line_for_each_kernel():
    good = KernelCheck("gpu", "cuda", None, (), skipped="it is in cuda")
    found = Checked("op", "op.py:3", (KernelCheck("k", "python", None, (finding(),)), good))
    assert not found.ok
    first, second = str(found).splitlines()
    assert first.startswith("op[k]: unwritten: wrong: it never wrote; let the loop reach the last cells, or give ")
    assert second == "op[gpu]: not tried: it is in cuda"
    with pytest.raises(CheckError, match=r"op\[k\] is wrong: it never wrote"):
        found.raise_if_bad()
    Checked("op", "op.py:3", (good,)).raise_if_bad()
