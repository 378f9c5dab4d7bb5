"""Findings as SARIF: a result at each line, with the other line beside it."""

from __future__ import annotations

import json
from pathlib import Path

from noyau.checking.findings import Finding
from noyau.checking.sarif import sarif

HERE = Path.cwd() / "k.py"
RACE = Finding("op", "k", "numba", "race", f"{HERE}:4", "n = 2", "both write out[0]", other_place="/else/j.py:9")


def results(*findings):
    told = json.loads(json.dumps(sarif(findings)))
    assert told["version"] == "2.1.0"
    return told["runs"][0]


def test_a_result_for_each_finding():
    run = results(RACE, Finding("op", "k", "c", "wrong-value", "a text", "", "it is 3", severity="warning"))
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
    (found,) = results(Finding("op", "k", "numba", "race", "my book.ipynb[2]:4", "", "both write out[0]"))["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20book.ipynb%5B2%5D"


def test_nothing_was_found():
    assert results()["results"] == []
