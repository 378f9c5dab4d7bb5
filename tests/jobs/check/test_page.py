"""The page of a check."""

from __future__ import annotations

from noyau.errors import FindingKind
from noyau.jobs.check.model_difference import DifferenceRun, ModelDifference, ValueDifference
from noyau.jobs.check.page import check_page
from noyau.sanitizer.access_map import AccessMap, ArrayMap, Owner
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.checks import KernelCheck, OpCheck
from noyau.verify.findings import Finding


def check(folder) -> OpCheck:
    """A check of two kernels, one with a race on line 2 of a file."""
    file = folder / "kernels.py"
    file.write_text("def f(out):\n    out[0] += 1\n")
    race = Finding(
        *("op", "racy", "numba", FindingKind.RACE, f"{file}:2", "n = 2", "two write out[0]"),
        cell=(0,), owners=("iteration 0", "iteration 1"), digest="ab", drawing=(" 2  writes",),
    )  # fmt: skip
    right = Certificate("op", (Outcome("first", captured=False, cells=4, worst_ratio=0.5),))
    kernels = KernelCheck("racy", "numba", None, (race,)), KernelCheck("right", "c", right, (), accesses=12)
    return OpCheck("op", f"{file}:1", kernels)


def test_findings_come_with_the_text_of_their_file_and_their_drawing(tmp_path):
    document = check_page("kernels.py", [check(tmp_path)], [], 1)
    head, findings = document.sections[:2]
    assert (head["headline"], head["state"]) == ("wrong: 1 error", "bad")
    assert findings["files"] == {f"{tmp_path}/kernels.py": "def f(out):\n    out[0] += 1\n"}
    (found,) = findings["findings"]
    assert (found["line"], found["owners"], found["cell"]) == (2, ["iteration 0", "iteration 1"], [0])
    assert found["drawing"] == (" 2  writes",) and found["remedy"] == FindingKind.RACE.remedy


def test_a_kernel_has_its_verdict_and_its_certificate(tmp_path):
    document = check_page("kernels.py", [check(tmp_path)], [], 1)
    table = next(each for each in document.sections if each["title"] == "Kernels")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert [(row["verdict"], row["cases"], row["accesses"]) for row in rows] == [
        ("wrong", None, None),
        ("right", 1, 12),
    ]
    assert document.to_json()["sources"]["op[right]"]["certificate"]["cases"][0]["case"] == "first"


def test_maps_are_drawn_and_told(tmp_path):
    drawn = AccessMap("f", "(2)", "iteration", {0: Owner("", "0")}, (ArrayMap("out", (1,), (0,), (1,)),))
    empty = AccessMap("g", "(2)", "iteration", {}, (), ("too large",))
    document = check_page("kernels.py", [check(tmp_path)], [drawn, empty], 1)
    (picture,) = next(each for each in document.sections if each["kind"] == "pictures")["pictures"]
    assert picture["svg"].startswith("<svg") and picture["text"] == str(drawn)


def test_models_that_differ_have_each_value(tmp_path):
    values = (
        ValueDifference("a", "Exp#0", False, Outcome("c", False, 4)),
        ValueDifference("y", "Add#1", True, Outcome("c", False, 4, beyond=4, worst_ratio=9.0)),
    )
    difference = ModelDifference("a.onnx", "b.onnx", (DifferenceRun("n=2", values),))
    document = difference._page()
    assert document.sections[0]["state"] == "bad" and "y, made by Add#1" in document.sections[0]["headline"]
    assert [row[1] for row in document.sections[1]["rows"]] == ["alike", "differs"]
    difference.save_html(tmp_path / "page.html")


def test_a_check_saves_itself(tmp_path):
    check(tmp_path).save_html(tmp_path / "new" / "page.html")
    assert "two write out[0]" in (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
