from __future__ import annotations

from types import SimpleNamespace

import jsonschema

from noyau.jobs.profile.timeline import gaps, model_events, stack_events, write_trace
from noyau.jobs.profile.traces import TraceEvent
from tests.jobs.profile.samples import TRACE


def test_gaps_are_the_times_between_spans_that_may_overlap():
    found = [(each["ts"], each["dur"]) for each in gaps([(5, 9), (0, 4), (1, 6), (12, 13)], 1, 2)]
    assert found == [(9, 3.0)]
    assert list(gaps([], 1, 2)) == []


def test_the_runs_of_a_model_are_nodes_and_gaps_that_add_up(tmp_path):
    shape = (("float", (2, 3)),)
    run = [
        TraceEvent("n0", "Exp", 10, 5, shape, shape),
        TraceEvent("n1_0", "Add", 21, 4),
        TraceEvent("n1", "If", 20, 10),
    ]
    events = list(model_events(SimpleNamespace(runs=[run] * 9), {"n0": ("Exp#0",)}, "<b>m", 7))
    spans = {each["name"]: each for each in events if each["ph"] == "X"}
    assert [each["args"]["name"] for each in events if each["ph"] == "M"] == ["<b>m", "nodes", "gaps between nodes"]
    assert spans["Exp"]["args"] == {"nodes": ["Exp#0"], "inputs": ["float[2, 3]"], "outputs": ["float[2, 3]"]}
    assert sum(each["name"] == "a run" for each in events) == 5
    assert spans["a run"]["dur"] == 20 == spans["Exp"]["dur"] + spans["If"]["dur"] + spans["gap"]["dur"]
    write_trace(events, tmp_path / "t.json")
    jsonschema.validate({"traceEvents": events}, TRACE)


def sample(phase, name, ts, tid=1, file="work.py"):
    return {"name": name, "ph": phase, "ts": ts, "pid": 5, "tid": tid, "args": {"filename": file, "line": 3}}


def test_frames_above_the_script_are_left_out_and_other_threads_are_whole():
    samples = [
        sample("B", "run_path", 0, file="runpy.py"),
        sample("B", "<module>", 10),
        sample("B", "f", 20),
        sample("B", "f", 30),
        sample("B", "loop", 30, tid=2, file="other.py"),
        sample("E", "f", 40),
        sample("E", "f", 50),
        sample("E", "<module>", 60),
        sample("E", "loop", 70, tid=2, file="other.py"),
        sample("E", "run_path", 80, file="runpy.py"),
    ]
    events, rows = stack_events(samples, "work.py")
    times = {row.name: (round(row.self_s * 1e6), round(row.total_s * 1e6)) for row in rows}
    assert times == {"<module> (work.py:3)": (20, 50), "f (work.py:3)": (30, 30), "loop (other.py:3)": (40, 40)}
    first, *mine, second, loop = [(each["name"][:4], each["ts"], each.get("dur"), each["tid"]) for each in events]
    row, other = first[-1], second[-1]  # of the timeline, none a thread that has ranges
    assert mine == [("f (w", 30, 10, row), ("f (w", 20, 30, row), ("<mod", 10, 50, row)]
    assert loop == ("loop", 30, 40, other) and row != other and min(row, other) > 1 << 20


def test_the_cells_of_a_notebook_are_its_module():
    file = "folder/book.ipynb[cell 2]"
    samples = [sample("B", "run_cells", 0, file="notebooks.py"), sample("B", "<module>", 10, file=file)]
    samples += [sample("B", "0x1", 20, file="/lib/libm.so.6"), sample("E", "0x1", 40, file="/lib/libm.so.6")]
    samples += [sample("E", "<module>", 50, file=file), sample("E", "run_cells", 60, file="notebooks.py")]
    _, rows = stack_events(samples, "folder/book.ipynb")
    assert {row.name: (row.where, round(1e6 * (row.python_s or 0))) for row in rows} == {
        "<module> (book.ipynb[cell 2]:3)": ("host", 40),
        "(libm)": ("host", 0),
    }
