from __future__ import annotations

import json

import pytest

from noyau.errors import InputError
from noyau.jobs.check.submissions.definitions import evaluate, leaves_folder, read_definition, read_solution
from noyau.jobs.check.submissions.problem import Status, Tolerance

TENSOR = {"shape": ["rows", "cols", "both"], "dtype": "float32"}
AXES = {
    "rows": {"type": "var"},
    "cols": {"type": "const", "value": 8},
    "both": {"type": "expr", "expression": "rows * cols // 2"},
}
RECORD = {
    "name": "norm", "axes": AXES, "inputs": {"x": TENSOR, "eps": {"shape": None, "dtype": "float32"}},
    "outputs": {"out": TENSOR}, "reference": "def run(x, eps): return x",
}  # fmt: skip
WORKLOAD = {
    "uuid": "1",
    "axes": {"rows": 12},
    "inputs": {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1}},
}
SOLUTION = {
    "name": "mine", "definition": "norm", "sources": [{"path": "kernel.py", "content": "def run(x, eps, out): ..."}],
    "spec": {"languages": ["triton"], "entry_point": "kernel.py::run"},
}  # fmt: skip


def read(folder, record=RECORD, workloads=(WORKLOAD,)):
    (folder / "definition.json").write_text(record if isinstance(record, str) else json.dumps(record))
    lines = [each if isinstance(each, str) else json.dumps(each) for each in workloads]
    (folder / "w.jsonl").write_text("\n".join(lines))
    return read_definition(folder / "definition.json", folder / "w.jsonl")


def test_small_sizes_come_first_and_keep_what_all_workloads_share(tmp_path):
    trials = read(tmp_path, workloads=[WORKLOAD, {**WORKLOAD, "axes": {"rows": 20}}]).trials
    assert [(each.label, each.is_stated) for each in trials] == [
        ("rows = 4", False), ("rows = 8", False), ("rows = 12", True), ("rows = 20", True),
    ]  # fmt: skip
    assert trials[0].arguments["shapes"] == {"x": [4, 8, 16], "eps": None, "out": [4, 8, 16]}
    assert trials[0].cells == 2 * 4 * 8 * 16
    assert trials[2].tolerance == Tolerance(1e-2, 1e-2, 0.99)


def test_traces_hold_workloads_and_tolerances_are_theirs(tmp_path):
    own = {**WORKLOAD, "tolerance": {"max_atol": 1e-3, "max_error_cap": 2.0}}
    trials = read(tmp_path, workloads=[{"definition": "norm", "workload": own}]).trials
    assert [each.tolerance for each in trials if each.is_stated] == [Tolerance(1e-3, 1e-2, 0.99, 2.0)]


def test_constraints_leave_sizes_out(tmp_path):
    trials = read(tmp_path, {**RECORD, "constraints": ["rows % 3 == 0"]}).trials
    assert [each.label for each in trials] == ["rows = 12"]
    with pytest.raises(InputError, match="no sizes keep its constraints"):
        read(tmp_path, {**RECORD, "constraints": ["rows < 0"]}, ())


@pytest.mark.parametrize(
    ("record", "workloads", "message"),
    [
        ("{", (), "is no JSON"),
        ({**RECORD, "name": 3}, (), "name is missing, or is not a text"),
        ({**RECORD, "axes": []}, (), "axes is missing, or is not an object"),
        ({**RECORD, "reference": None}, (), "reference is missing"),
        ({**RECORD, "axes": {"rows": {"type": "odd"}}}, (), "the axis rows is of the type odd; there are const"),
        ({**RECORD, "axes": {**AXES, "cols": {"type": "const"}}}, (), "value is missing, or is not a number"),
        ({**RECORD, "axes": {**AXES, "both": {"type": "expr", "expression": "f()"}}}, (), "cannot be evaluated"),
        ({**RECORD, "inputs": {"x": {"shape": ["depth"], "dtype": "int8"}}}, (), "names 'depth', which is no axis"),
        ({**RECORD, "inputs": {"x": {"dtype": "int8"}}}, (), "has no shape or no dtype"),
        (RECORD, ["{"], r"w.jsonl:1 is no JSON"),
        (RECORD, [{"axes": {}, "inputs": {}}], "gives no size, 0 or more, for the axis rows"),
        (RECORD, [{**WORKLOAD, "inputs": {"x": {"type": "magic"}}}], "the input x is of the type magic"),
        (RECORD, [{**WORKLOAD, "tolerance": {"max_atol": "much"}}], "the tolerance max_atol is no number"),
    ],
)  # fmt: skip
def test_what_is_no_definition_is_one_line(tmp_path, record, workloads, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, record, workloads)


def test_missing_files_are_one_line(tmp_path):
    with pytest.raises(InputError, match="is no JSON"):
        read_definition(tmp_path / "none.json", None)
    (tmp_path / "d.json").write_text(json.dumps(RECORD))
    with pytest.raises(InputError, match="cannot be read"):
        read_definition(tmp_path / "d.json", tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    "text", ["2 ** 2 ** 9 ** 9", "rows ** -1", "9 ** 99", "1 / 0", "'a'", "[", "other", "(" * 5000]
)
def test_hostile_arithmetic_is_refused(text):
    with pytest.raises(InputError, match="cannot be evaluated"):
        evaluate(text, {"rows": 3}, "d.json")


def test_arithmetic_of_sizes():
    assert evaluate("-(rows - 1) ** 2 % 7 + rows // 2 == 6", {"rows": 4}, "d.json") is False
    assert evaluate("rows / 2", {"rows": 4}, "d.json") == 2


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({}, None, ""),
        ({"sources": [{"path": "../kernel.py", "content": ""}]}, Status.FORBIDDEN, "'../kernel.py' would lie outside"),
        ({"sources": [{"path": "/tmp/kernel.py", "content": ""}]}, Status.FORBIDDEN, "would lie outside its folder"),
        ({"spec": {"languages": ["cutile"], "entry_point": "kernel.py::run"}}, Status.NOT_CHECKED, "cutile is not run"),
        ({"spec": {"language": "hip", "entry_point": "kernel.py::run"}}, Status.NOT_CHECKED, "hip is not run"),
        ({"spec": {"languages": ["triton"], "entry_point": "other.py::run"}}, Status.NOT_CHECKED, "is no function of"),
        ({"spec": {"languages": ["triton"]}}, Status.NOT_CHECKED, "entry_point is missing"),
        ({"definition": "other"}, Status.NOT_CHECKED, "it solves other, and the definition is norm"),
        ({"sources": "none"}, Status.NOT_CHECKED, "sources is missing, or is not a list"),
    ],
)  # fmt: skip
def test_a_solution_that_cannot_be_run_has_a_verdict(tmp_path, change, status, reason):
    (tmp_path / "s.json").write_text(json.dumps({**SOLUTION, **change}))
    solution = read_solution(tmp_path / "s.json", read(tmp_path))
    assert (solution.refusal or (None, ""))[0] is status
    assert reason in (solution.refusal or (None, ""))[1]
    assert solution.fills_outputs or not solution.files


@pytest.mark.parametrize("path", ["", "/a", "a/../b", "..", "a\\b", "a\0b", "a" * 300])
def test_hostile_paths_leave_the_folder(path):
    assert leaves_folder(path)
    assert not leaves_folder("src/kernel.cu")
