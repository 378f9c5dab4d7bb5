from __future__ import annotations

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree as xml

from noyau.jobs.bench.baseline.record import ChangeRecord
from noyau.jobs.bench.record import FILLING, RETURNING, BenchRecord, CandidateTimes
from noyau.jobs.bench.render import csv_text, junit, markdown
from tests.jobs.bench.baseline.test_record import MACHINE, change
from tests.jobs.bench.samples import at

POINT = at(
    {("reference", RETURNING): 4e-3, ("fast|er", RETURNING): 2e-3, ("fast|er", FILLING): 1e-3},
    CandidateTimes("reference"),
    CandidateTimes("fast|er"),
    CandidateTimes("<b>", fault="is 3 & not 2"),
    CandidateTimes("cuda", skipped="it needs a GPU"),
)
BENCH = BenchRecord("add", MACHINE, {"cores": 2}, (POINT,))
CHANGES = ChangeRecord("add", "main", "2026-01-02", MACHINE, (change(1.1), change(1.0)), {}, ("a note",), 0.05)


def test_csv_has_each_way_and_what_is_wrong():
    rows = list(csv.DictReader(io.StringIO(csv_text(BENCH))))
    assert [(row["candidate"], row["way"]) for row in rows if not row["fault"]] == [
        ("reference", "returns"), ("fast|er", "returns"), ("fast|er", "out="),
    ]  # fmt: skip
    assert [row["fault"] for row in rows if row["fault"]] == ["is 3 & not 2", "it needs a GPU"]
    timed = next(row for row in rows if row["verdict"])
    assert (timed["against"], float(timed["ratio"]), timed["verdict"]) == ("reference", 2.0, "FASTER")


def test_markdown_escapes_names_and_says_the_verdict():
    text = markdown(BENCH)
    assert text.startswith("### :x: add: WRONG")
    assert "| fast\\|er | n = 1000 | hot | 2 ms | reference | 2.00x | [2.00, 2.00] | FASTER |" in text
    assert "- &lt;b&gt; is wrong: is 3 &amp; not 2" in text and "- cuda is not timed: it needs a GPU" in text
    changes = markdown(CHANGES)
    assert (
        changes.startswith("### :x: add: SLOWER against the baseline main")
        and "| ok |" in changes
        and "- a note" in changes
    )
    fine = markdown(replace(CHANGES, changes=CHANGES.changes[1:]))
    assert fine.startswith("### :white_check_mark: add: of 1 timing none is slower by more than 5%")


def test_junit_has_a_case_for_each_timing_and_its_failures():
    suite = xml.fromstring(junit(BENCH)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "1")
    assert [each.get("message") for each in suite.iter("failure")] == ["is 3 & not 2"]
    assert [each.get("time") for each in suite.iter("testcase")][2:] == ["0.004000000", "0.002000000", "0.001000000"]
    failure = next(xml.fromstring(junit(CHANGES)).iter("failure"))
    assert failure.get("message") == "SLOWER: takes +10.0% against the baseline main"
