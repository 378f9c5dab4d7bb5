"""The page of a profile."""

from __future__ import annotations

import dataclasses

from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.profile.record import CallTime, NodeTime, Wall
from noyau.jobs.profile.render import page
from noyau.jobs.profile.run import subject_of
from tests.jobs.profile.samples import at, profile
from tests.small_models import twice, written


def test_each_size_has_its_tables_and_all_have_a_plot():
    document = page(profile(1, 128))
    titles = [each["title"] for each in document.sections]
    assert titles[0] == "Summary" and "A run at each size" in titles
    assert len([title for title in titles if title.startswith("Operators with")]) == 2
    sweep = next(each for each in document.sections if each["kind"] == "sweeps")
    assert sweep["size"] == "sequence" and [point.size for point in sweep["times"][0][1]] == [1, 128]


def test_shares_are_of_a_run():
    document = page(profile(128))
    table = next(each for each in document.sections if each["title"] == "Operators")
    assert table["columns"] == ["operator", "nodes", "time_s", "median_s", "in_file", "share"]
    assert abs(sum(row[-1] for row in table["rows"]) - 1) < 0.1


def test_times_stand_on_the_nodes_of_the_file(tmp_path):
    original = open_model(written(twice(), tmp_path), flat=True)
    nodes = (NodeTime("FusedMatMul", ("MatMul#3", "Mul#1"), True, 1, 2e-6), NodeTime("Exp", (), True, 1, 1e-6))
    record = dataclasses.replace(profile(128), at=(at(128, nodes=nodes),), subject=subject_of(original, None))
    drawing = next(each for each in page(record).sections if each["kind"] == "graphs")["drawings"][0]
    timed = [each for each in drawing["nodes"] if "time" in each.get("facts", {})]
    assert [each["lines"][0] for each in timed] == ["Mul", "MatMul"]
    assert all("in FusedMatMul with 1 other node" in each["facts"]["time"] for each in timed)


def test_a_call_of_a_module_has_its_kernels():
    document = page(Wall(1e-3, 0.5, 0.25, 0.1, 3, (CallTime("gemm", "", 2, 5e-4, 6e-4),), (("exp", "mul"), 1e-4)))
    head, table = document.sections
    assert head["headline"].startswith("1 ms: kernels 50%") and "exp, mul: that makes the whole" in head["lines"][0]
    assert dict(zip(table["columns"], table["rows"][0], strict=True)) == {
        "name": "gemm", "calls": 2, "self_s": 5e-4, "total_s": 6e-4, "where": "host", "share": 0.5
    }  # fmt: skip
