from __future__ import annotations

import json
from pathlib import Path

import pytest

from noyau.errors import CheckError, DeviceError, FindingKind
from noyau.sanitizer.compute_sanitizer import tool
from noyau.sanitizer.compute_sanitizer.driver import WISH
from noyau.sanitizer.compute_sanitizer.tool import ToolReport, read_reports, second_opinion
from noyau.sanitizer.records import Site
from noyau.sanitizer.scripts.record import ScriptCheck, SeenKernel

FOLDER = Path(__file__).parent / "recorded"
CHECKED = ScriptCheck("script.py", (SeenKernel("raced", "numba_cuda", "script.py:3", 1, ("x",), 9),))


def test_each_report_goes_to_its_kernel(monkeypatch):
    asked = []

    def sanitized(command, environment):
        asked.append(json.loads(environment[WISH]))
        names = ("racecheck.raced", "memcheck.outside")
        return [each for name in names for each in read_reports((FOLDER / f"{name}.xml").read_text(), "memcheck")]

    monkeypatch.setattr(tool, "missing", lambda: "")
    monkeypatch.setattr(tool, "run_tools", sanitized)
    found = second_opinion(CHECKED, Path("script.py"), ["--n", "5"])
    assert asked == [{"script": "script.py", "arguments": ["--n", "5"]}]
    assert [each.kind for each in found.kernels[0].findings] == ["race"]
    assert [(each.kind, each.kernel) for each in found.advice] == [("out-of-bounds", "twice")]
    assert found.notes == ("compute-sanitizer looked at it too: memcheck, racecheck, initcheck, synccheck",)


def opinion(monkeypatch, told, *names):
    monkeypatch.setattr(tool, "missing", lambda: "")
    monkeypatch.setattr(tool, "run_tools", lambda *_: told)
    kernels = tuple(SeenKernel(name, "triton", f"script.py:{k}", 1, ("x",), 9) for k, name in enumerate(names))
    return second_opinion(ScriptCheck("script.py", kernels), Path("script.py"))


def test_an_error_that_is_of_no_watched_kernel_counts(monkeypatch):
    told = read_reports((FOLDER / "memcheck.outside.xml").read_text(), "memcheck")
    found = opinion(monkeypatch, told)
    assert not found.ok
    with pytest.raises(CheckError, match=r"^twice of script\.py: "):
        found.raise_if_bad()


def test_what_is_on_no_line_is_of_an_installed_package(monkeypatch):
    told = [ToolReport(FindingKind.OUT_OF_BOUNDS, "told", None, None, (), "their_kernel")]
    assert opinion(monkeypatch, told).findings == ()
    mine = opinion(monkeypatch, told, "other", "their")
    assert [(each.kernel, each.place) for each in mine.findings] == [("their", "script.py:1")]
    (call,) = opinion(monkeypatch, [ToolReport(FindingKind.LAUNCH, "it failed", None, None, (), "")]).findings
    assert (call.severity, call.message) == ("warning", "it failed")


def test_the_longest_name_is_meant_and_a_mark_silences(monkeypatch):
    site = Site("script.py", 7, "x[i] = 1  # noyau: allow(race) on purpose")
    told = [
        ToolReport(kind, "told", site, None, (), "_Z8add_rowsPf")
        for kind in (FindingKind.RACE, FindingKind.OUT_OF_BOUNDS)
    ]
    found = opinion(monkeypatch, told, "add", "add_rows", "rows")
    assert [(each.kernel, each.kind) for each in found.findings] == [("add_rows", "out-of-bounds")]


def test_why_it_was_not_asked(monkeypatch):
    def refused(*args):
        raise DeviceError("it does not end")

    monkeypatch.setattr(tool, "missing", lambda: "there is no GPU")
    assert second_opinion(CHECKED, Path("script.py")).notes == ("there is no GPU",)
    assert second_opinion(CHECKED, Path("b.ipynb")).notes == ("compute-sanitizer runs scripts, and no notebooks",)
    monkeypatch.setattr(tool, "missing", lambda: "")
    monkeypatch.setattr(tool, "run_tools", refused)
    assert second_opinion(CHECKED, Path("script.py")).notes == ("it does not end",)
