"""Findings as SARIF: a result at each line, with the other line beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from noyau.errors import FindingKind
from noyau.verify.findings import Finding
from noyau.verify.reports import sarif

HERE = Path.cwd() / "k.py"
RACE = Finding(
    "op", "k", "numba", FindingKind.RACE, f"{HERE}:4", "n = 2", "both write out[0]", other_place="/else/j.py:9"
)
# Of the objects that noyau writes: their properties, by SARIF 2.1.0 (sections 3.13 to 3.52), and which must be there.
# A name is an object of this table, a name in a list an array of them.
OBJECTS = {
    "sarifLog": ({"$schema": str, "version": str, "runs": ["run"]}, {"version", "runs"}),
    "run": ({"tool": "tool", "results": ["result"]}, {"tool"}),
    "tool": ({"driver": "toolComponent"}, {"driver"}),
    "toolComponent": ({"name": str, "version": str, "rules": ["reportingDescriptor"]}, {"name"}),
    "reportingDescriptor": ({"id": str, "shortDescription": "message", "help": "message"}, {"id"}),
    "message": ({"text": str}, {"text"}),
    "result": (
        {
            "ruleId": str,
            "ruleIndex": int,
            "level": str,
            "message": "message",
            "partialFingerprints": dict,
            "locations": ["location"],
            "relatedLocations": ["location"],
        },
        {"message"},
    ),
    "location": ({"id": int, "physicalLocation": "physicalLocation"}, set()),
    "physicalLocation": ({"artifactLocation": "artifactLocation", "region": "region"}, {"artifactLocation"}),
    "artifactLocation": ({"uri": str}, set()),
    "region": ({"startLine": int}, set()),
}
URI = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+")


def require_valid(value, name):
    """Whether an object has what the standard asks for, and nothing that it does not know."""
    properties, needed = OBJECTS[name]
    assert needed <= value.keys() <= properties.keys(), (name, value)
    for key, each in value.items():
        kind = properties[key]
        if isinstance(kind, list):
            assert len({json.dumps(part) for part in each}) == len(each)
            for part in each:
                require_valid(part, kind[0])
        elif isinstance(kind, str):
            require_valid(each, kind)
        else:
            assert type(each) is kind, (name, key, each)
    assert value.get("startLine", 1) >= 1
    assert value.get("level", "none") in ("none", "note", "warning", "error")
    assert URI.fullmatch(value.get("uri", "a"))


def results(*findings):
    told = json.loads(json.dumps(sarif(findings)))
    require_valid(told, "sarifLog")
    assert told["version"] == "2.1.0"
    (run,) = told["runs"]
    for each in run["results"]:
        assert run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
        assert all(isinstance(value, str) for value in each["partialFingerprints"].values())
    return run


def test_a_result_for_each_finding():
    run = results(RACE, Finding("op", "k", "c", FindingKind.WRONG_VALUE, "a text", "", "it is 3", severity="warning"))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["race", "wrong-value"]
    race, wrong = run["results"]
    assert (race["ruleId"], race["ruleIndex"], race["level"]) == ("race", 0, "error")
    assert race["message"]["text"].startswith("op[k]: both write out[0] (for n = 2); ")
    assert race["partialFingerprints"] == {"noyau/v1": RACE.id}
    assert (wrong["level"], wrong["locations"]) == ("warning", [])


def test_both_lines_have_a_place():
    (race,) = results(RACE)["results"]
    (place,) = race["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "k.py"}, "region": {"startLine": 4}}
    (other,) = race["relatedLocations"]
    assert other["physicalLocation"]["artifactLocation"]["uri"] == "file:///else/j.py"


def test_places_are_uris():
    """A cell of a notebook, named from the folder that the check runs in."""
    (found,) = results(Finding("op", "k", "numba", FindingKind.RACE, "my book.ipynb[2]:4", "", "both write out[0]"))[
        "results"
    ]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20book.ipynb%5B2%5D"


def test_a_line_that_is_none_is_no_place():
    (found,) = results(Finding("op", "k", "c", FindingKind.CRASH, "k.c:0", "", "it crashes"))["results"]
    assert found["locations"] == []


def test_nothing_was_found():
    assert results()["results"] == []
