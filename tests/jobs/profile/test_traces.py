from __future__ import annotations

import pytest

from noyau.errors import OutputError
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import OPTIMIZED, open_session
from noyau.jobs.profile.traces import NodeRuns, TraceEvent, nest, node_runs, read_trace
from tests.jobs.profile.traced import event, loop, told, written_trace
from tests.small_models import arrays_for, twice


def test_a_trace_is_read_run_by_run(tmp_path):
    runs = [loop(), loop(1000)]
    assert read_trace(written_trace(tmp_path / "t.json", runs)) == runs


def test_what_onnxruntime_itself_writes_is_read(tmp_path):
    session = open_session(twice().SerializeToString(), trace=tmp_path)
    for _ in range(3):
        run(session, arrays_for(twice()))
    (tmp_path / OPTIMIZED).stat()
    runs = read_trace(tmp_path / session.end_profiling())
    assert [len(events) for events in runs] == [len(runs[0])] * 3
    product = next(each for each in runs[-1] if each.operator == "MatMul")
    assert product.inputs[0] == ("float", (5, 6))  # a weight that was packed beforehand is not among them
    assert product.outputs == (("float", (5, 6)),)


@pytest.mark.parametrize(
    "content", [None, "", "[\n", '[\n{"cat": "Node", "na', '[\n{"cat": "Session", "name": "a"},\n']
)
def test_a_trace_that_is_cut_off(content, tmp_path):
    path = tmp_path / "t.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OutputError, match=r"did not write its whole profile to .*: is there room for it\? TMPDIR="):
        read_trace(path)


def test_events_of_other_kinds_are_passed_over(tmp_path):
    path = written_trace(tmp_path / "t.json", [[event("n0", 0, 5)]])
    fence = str(told(event("n1", 0, 5))).replace("_kernel_time", "_fence_before").replace("'", '"')
    path.write_text(path.read_text().replace("[", f"[\n{fence},", 1))
    assert [[each.name for each in events] for events in read_trace(path)] == [["n0"]]


def test_a_node_s_own_time_is_without_those_that_ran_in_it():
    found = {node.name: node for node in node_runs([loop(), loop(1000)], {"n1"})}
    assert list(found) == ["n0", "n1_0", "n1_1", "n1", "n2"]
    assert found["n0"].own_us == [5.5, 5.5]
    assert found["n1_0"].own_us == [7.0, 7.0]
    assert found["n1"].own_us == [60.5 - 2 * 3.5 - 2 * 4.5] * 2
    assert [found[name].calls for name in found] == [1, 2, 2, 1, 1]
    assert (found["n1"].inner, found["n2"].inner) == (4, 0)
    assert [found[name].within for name in found] == [None, "n1", "n1", None, None]


def test_all_own_times_add_up_to_those_of_the_outer_nodes():
    assert sum(own_us for _, own_us, _, _ in nest(loop(), {"n1"})) == 5.5 + 60.5 + 6.5


def test_subgraphs_in_subgraphs_are_of_the_outermost_node():
    events = [event("n1_0_0", 30, 2), event("n1_0", 20, 20, "If"), event("n1", 10, 60, "Loop")]
    found = {one.name: (own_us, inner, within) for one, own_us, inner, within in nest(events, {"n1", "n1_0"})}
    assert found == {"n1_0_0": (2.5, 0, "n1"), "n1_0": (18.0, 1, "n1"), "n1": (40.0, 1, None)}


def test_only_nodes_with_subgraphs_hold_others():
    """A node that takes no time may begin in the microsecond in which the one before it did."""
    assert [inner for _, _, inner, _ in nest([event("n0", 7, 0), event("n1", 7, 3)], ())] == [0, 0]


def test_a_node_that_does_not_run_every_time_has_a_zero_for_the_others():
    runs = [[event("n0", 0, 4)], [event("n0", 0, 4), event("n1", 9, 2)], [event("n1", 9, 2)]]
    found = {node.name: node for node in node_runs(runs, ())}
    assert found["n0"].own_us == [4.5, 4.5, 0.0]
    assert found["n1"].own_us == [0.0, 2.5, 2.5]
    assert (found["n0"].calls, found["n1"].calls) == (0, 1)


def test_the_median_has_its_place_within_the_microsecond():
    """Nine of ten runs took 1.x microseconds, one 2.x: the middle is in the upper half of [1, 2)."""
    node = NodeRuns("n0", "Mul", own_us=[1.5] * 9 + [2.5])
    assert node.median_us == pytest.approx(1 + 5 / 9)
    assert NodeRuns("n0", "Mul").median_us == 0


def test_tensors_and_extents_are_counted():
    one = TraceEvent("n", "Add", 0, 1, (("float", (2, 3)), ("float", ())), (("float", (2, 3)),))
    (node,) = node_runs([[one]], ())
    assert (node.tensors, node.extents) == (3, 4)
