from __future__ import annotations

import json
from pathlib import Path

from noyau.errors import DeviceError
from noyau.sanitizing import scripts
from noyau.sanitizing.driving import WISH
from noyau.sanitizing.reading import reported
from noyau.sanitizing.scripts import second_opinion
from noyau.scripts.records import KernelSeen, ScriptCheck

FOLDER = Path(__file__).parent / "recorded"
CHECKED = ScriptCheck("script.py", (KernelSeen("raced", "numba_cuda", "script.py:3", 1, ("x",), 9),))


def test_each_report_goes_to_its_kernel(monkeypatch):
    asked = []

    def sanitized(command, environment, tools):
        asked.append(json.loads(environment[WISH]))
        names = ("racecheck.raced", "memcheck.outside")
        return [each for name in names for each in reported((FOLDER / f"{name}.xml").read_text(), "memcheck")]

    monkeypatch.setattr(scripts, "missing", lambda: "")
    monkeypatch.setattr(scripts, "sanitized", sanitized)
    found = second_opinion(CHECKED, Path("script.py"), ["--n", "5"])
    assert asked == [{"script": "script.py", "arguments": ["--n", "5"]}]
    assert [each.kind for each in found.kernels[0].findings] == ["race"]
    assert [(each.kind, each.kernel) for each in found.advice] == [("out-of-bounds", "twice")]
    assert found.notes == ("compute-sanitizer looked at it too: memcheck, racecheck, initcheck, synccheck",)


def test_why_it_was_not_asked(monkeypatch):
    def refused(*args):
        raise DeviceError("it does not end")

    monkeypatch.setattr(scripts, "missing", lambda: "there is no GPU")
    assert second_opinion(CHECKED, Path("script.py")).notes == ("there is no GPU",)
    assert second_opinion(CHECKED, Path("b.ipynb")).notes == ("compute-sanitizer runs scripts, and no notebooks",)
    monkeypatch.setattr(scripts, "missing", lambda: "")
    monkeypatch.setattr(scripts, "sanitized", refused)
    assert second_opinion(CHECKED, Path("script.py")).notes == ("it does not end",)
