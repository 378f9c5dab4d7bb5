from __future__ import annotations

import json
from dataclasses import replace

from noyau.errors import FindingKind
from noyau.jobs.check.submissions.problem import (
    Complaint,
    Problem,
    Status,
    Trial,
    TrialRecord,
    Verdict,
    record_json,
    summary,
)
from noyau.verify.findings import Finding

WORKLOAD = {"uuid": "7", "axes": {"n": 4}, "inputs": {}}
SMALL = Trial("n = 1", {"axes": {"n": 1}}, 1, False)
PROBLEM = Problem("add", "definitions", {}, "", (SMALL, Trial("n = 4", {}, 4, True, None, WORKLOAD)))
FINDING = Finding("add", "mine", "triton", FindingKind.RACE, "mine/kernel.py:3", "n = 4", "two write one cell")
RIGHT = Verdict(PROBLEM, "mine", Status.RIGHT, records=(TrialRecord(0, True), TrialRecord(1, True, 0.5, 0.25)))
RACY = replace(RIGHT, status=Status.RACY, complaints=(Complaint(Status.RACY, FINDING, 1),))


def test_a_verdict_says_at_which_sizes_and_what_the_rule_of_the_benchmark_says():
    assert next(RIGHT.lines()) == "add[mine]: right at n = 1; n = 4"
    small = replace(RIGHT, records=(TrialRecord(0, True, is_right=False), TrialRecord(1, True)))
    assert next(small.lines()) == "add[mine]: right at n = 4, and not at n = 1"
    stated = replace(RIGHT, records=(TrialRecord(1, True),))
    assert next(stated.lines()) == "add[mine]: right at n = 4: only the stated sizes were tried"
    assert next(RACY.lines()) == "add[mine]: racy (the rule of its benchmark passes it)"
    assert "race: two write one cell" in "\n".join(RACY.lines())
    assert replace(RACY, records=(TrialRecord(1, False),)).rule == "fails"
    assert replace(RACY, records=()).rule == ""


def test_names_of_hostile_records_are_printed_safely():
    assert "\x1b" not in next(replace(RIGHT, submission="a\x1b[2J").lines())


def test_a_trace_of_each_workload_is_as_the_schema_has_it():
    (trace,) = RIGHT.traces()
    evaluation = trace["evaluation"]
    assert (trace["definition"], trace["solution"], trace["workload"]) == ("add", "mine", WORKLOAD)
    assert evaluation["status"] == "PASSED"
    assert evaluation["correctness"]["max_absolute_error"] == 0.5
    assert evaluation["performance"] == {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    assert {"hardware", "libs"} == set(evaluation["environment"])
    json.dumps(trace, allow_nan=False)


def test_a_trace_of_what_is_wrong_has_the_finding_in_its_log():
    (trace,) = RACY.traces()
    evaluation = trace["evaluation"]
    assert (evaluation["status"], evaluation["performance"]) == ("INCORRECT_NUMERICAL", None)
    assert "two write one cell" in evaluation["log"]
    crashed = next(replace(RIGHT, status=Status.CRASHED, reason="it raised", records=()).traces())["evaluation"]
    assert (crashed["status"], crashed["correctness"], crashed["performance"]) == ("RUNTIME_ERROR", None, None)
    assert "not run at its own size" in crashed["log"]


def test_without_workloads_the_small_sizes_have_traces():
    (trace,) = replace(RIGHT, problem=replace(PROBLEM, trials=(SMALL,)), records=RIGHT.records[:1]).traces()
    assert trace["workload"] == {"uuid": "n = 1", "axes": {"n": 1}, "inputs": {}}
    others = replace(SMALL, arguments={"constants": {"n": 1}})  # of a benchmark that has none
    assert not list(replace(RIGHT, problem=replace(PROBLEM, trials=(others,))).traces())


def test_the_record_lists_findings_with_their_status():
    record = record_json([RIGHT, RACY])
    assert (record["ok"], [each["status"] for each in record["verdicts"]]) == (False, ["right", "racy"])
    assert [(each["status"], each["kind"], each["trial"]) for each in record["findings"]] == [("racy", "race", "n = 4")]
    assert summary([RIGHT, RACY, RACY]) == "3 submissions: 1 right, 2 racy"


def test_statuses_have_exit_statuses():
    assert {each.exit_status for each in Status} == {0, 1, 3}
