"""The page of a race."""

from __future__ import annotations

import dataclasses

import pytest

from noyau.jobs.bench.record import RETURNING, BenchRecord, CandidateTimes
from noyau.jobs.bench.render import page
from noyau.timing.verdict import Verdict
from tests.jobs.bench.samples import at
from tests.jobs.report.samples import MACHINE


def record(*sizes: int) -> BenchRecord:
    rows = (CandidateTimes("first"), CandidateTimes("second"), CandidateTimes("third", fault="it is wrong"))
    points = [at({("first", RETURNING): 2e-6 * n, ("second", RETURNING): 1e-6 * n}, *rows) for n in sizes]
    points = [dataclasses.replace(point, sizes={"n": n}) for point, n in zip(points, sizes, strict=True)]
    return BenchRecord("f", MACHINE, {}, tuple(points))


def test_who_is_fastest_is_said_first_and_who_is_wrong_is_bad():
    document = page(record(10))
    head = document.sections[0]
    assert head["headline"] == "n = 10: second is fastest, 10 us, 2.00x FASTER against first" and head["state"] == "bad"


def test_rows_have_times_ratios_and_faults():
    table = page(record(10)).sections[1]
    rows = {row[1]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert rows["second"]["verdict"] is Verdict.FASTER and rows["second"]["speedup"][0] == 2
    assert rows["first"]["returns_s"] == pytest.approx(2e-5) and rows["first"]["bytes_per_s"] == pytest.approx(6e11)
    assert (rows["third"]["verdict"], rows["third"]["remark"]) == ("WRONG", "it is wrong")


def test_a_size_that_varies_is_the_axis():
    sweep = page(record(10, 100)).sections[2]
    assert sweep["size"] == "n"
    assert [(name, [point.size for point in points]) for name, points in sweep["times"]] == [
        ("second", [10, 100]),
        ("first", [10, 100]),
    ]


def test_without_a_size_that_varies_the_bytes_are_the_axis(tmp_path):
    sweep = page(record(10)).sections[2]
    assert sweep["size"] == "" and sweep["times"][0][1][0].size == 12_000_000
    record(10).save_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
