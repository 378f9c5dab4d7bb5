from __future__ import annotations

import json

import pytest

from tools.suites import driver
from tools.suites.driver import Case, Outcome, Score

PROGRAM = """\
int main() {
    int sum[4] = {0};
#pragma omp parallel for
    for (int i = 0; i < 100; ++i) sum[0] += i;
    return sum[0] < 0;
}
"""
CASE = Case("one", ("one.c",), None, True)


def test_programs_are_judged_and_counted(tmp_path, capsys):
    def cases_of(folder):
        (folder / "racy.c").write_text(PROGRAM, encoding="utf-8")
        racy = Case("racy", ("racy.c",), folder, True, driver.RACES)
        return [racy, Case("none", ("none.c",), folder, False)]

    log = tmp_path / "log"
    assert driver.main("a suite", cases_of, [str(tmp_path), "--jobs", "1", "--log", str(log)]) == 1
    rows = {row["name"]: row for row in map(json.loads, log.read_text("utf-8").splitlines())}
    assert (rows["racy"]["verdict"], rows["none"]["verdict"]) == ("defective", "undecided")
    assert rows["racy"]["findings"][0].startswith("race, line 4: ")
    printed = capsys.readouterr().out
    assert "2 cases: precision 1.000, recall 1.000 of all" in printed
    assert "none: undecided, labelled right" in printed
    assert "none.c cannot be read" in printed
    with pytest.raises(SystemExit):
        driver.main("a suite", cases_of, [str(tmp_path), "--only", "nothing"])


def test_a_case_that_runs_no_kernel_is_none(tmp_path):
    texts = {
        "nothing": "",
        "skipped": "raise SystemExit('skipped: no reason')",
        "asserts": "raise SystemExit('AssertionError: 1 != 2')",
        "fails": "raise SystemExit('TypeError: no kernel could be made')",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    cases = [Case(name, (f"{name}.py",), tmp_path, False, may_be_empty=True) for name in texts]
    outcomes = [driver.check_case(each, 60.0) for each in cases]
    assert [each.verdict for each in outcomes] == ["empty", "empty", "empty", "undecided"]
    assert outcomes[-1].reason.endswith("TypeError: no kernel could be made")
    assert driver.score_of("a suite", "noyau", outcomes).cases == 1
    assert "1 undecided; 3 more run no kernel" in driver.table_of(driver.score_of("", "", outcomes), outcomes)[0]
    (tmp_path / "query.cu").write_text('#include <cstdio>\nint main() { puts("no device"); }\n', encoding="utf-8")
    query = Case("query", ("query.cu",), tmp_path, False, may_be_empty=True)
    assert driver.check_case(query, 60.0).verdict == "empty"
    assert driver.check_case(Case("plain", ("nothing.py",), tmp_path, False), 60.0).verdict == "undecided"
    missed = Case("missed", ("nothing.py",), tmp_path, True, may_be_empty=True)  # a defect that no kernel shows
    assert driver.check_case(missed, 60.0).verdict == "undecided"


def test_a_log_goes_on(tmp_path, capsys, monkeypatch):
    cases = [Case("one", ("one.c",), tmp_path, True), Case("two", ("two.c",), tmp_path, False)]
    runs = []

    def check_case(case, time_s):
        runs.append(case.name)
        return Outcome(case, "defective" if case.is_defective else "right", 0, 0.1, ("race, line 1: of two",), "")

    monkeypatch.setattr(driver, "check_case", check_case)
    log = tmp_path / "log"
    words = [str(tmp_path), "--log", str(log)]
    driver.main("a suite", lambda _: cases, [*words, "--only", "one"])
    capsys.readouterr()
    assert driver.main("a suite", lambda _: cases, words) == 0
    assert runs == ["one", "two"]
    assert "2 cases: precision 1.000, recall 1.000" in capsys.readouterr().out
    assert [json.loads(line)["name"] for line in log.read_text("utf-8").splitlines()] == runs
    with log.open("a", encoding="utf-8") as file:
        file.write('{"name": "tw')
    with pytest.raises(SystemExit):
        driver.main("a suite", lambda _: cases, words)
    assert f"line 3 of {log} is no outcome of a case; remove the line" in capsys.readouterr().err


def test_a_case_without_an_end_is_undecided(tmp_path):
    (tmp_path / "loops.c").write_text("int main() { for (;;) {} }\n", encoding="utf-8")
    outcome = driver.check_case(Case("loops", ("loops.c",), tmp_path, False), 0.05)
    assert (outcome.verdict, outcome.status, outcome.differs) == ("undecided", None, True)
    assert outcome.reason == "no end within 0.05 s"


def test_the_record_has_one_score_of_a_suite_and_a_tool(tmp_path):
    path = tmp_path / "results.json"
    outcomes = [Outcome(CASE, verdict, 1, 0.1, (), "") for verdict in ("defective", "right", "undecided")]
    score = driver.score_of("a suite", "noyau", outcomes)
    assert score == Score("a suite", "noyau", 3, 3, 1, 0, 1, 1)
    assert (score.precision, score.recall, score.recall_of_decided) == (1.0, 1 / 3, 0.5)
    driver.keep_score(Score("a suite", "noyau", 3, 3, 0, 0, 3, 0), path)
    driver.keep_score(score, path)
    driver.keep_score(Score("a suite", "another", 3, 3, 2, 1, 0, 1, "published"), path)
    assert [each.tool for each in driver.scores_of(path)] == ["another", "noyau"]
    assert driver.scores_of(path)[1] == score
