from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.jobs.profile.onnx_overheads import CHAINS, LENGTH, MeasuredChain, Overhead, fit, measure_overhead
from noyau.jobs.profile.session_runs import SessionBench
from noyau.jobs.profile.traces import NodeRuns
from noyau.timing.verdict import Comparison

PLANTED = Overhead(2e-6, 0.25e-6, 0.125e-6, 3e-6, 7e-6, 4e-6)


def node(tensors: int = 2, extents: int = 0, us: float = 10.0, calls: int = 1, inner: int = 0) -> NodeRuns:
    shapes = [("float", ())] * (tensors - 1) + [("float", (1,) * extents)]
    return NodeRuns("n", "Mul", None, [us] * 5, calls, inner, tuple(shapes[:-1]), tuple(shapes[-1:]))


def chain_of(planted: Overhead, inputs: int, rank: int, length: int) -> MeasuredChain:
    """What would be measured if a node took 0.5 us and the profiler added what is planted."""
    one = node(inputs + 1, (inputs + 1) * rank)
    told_s = 0.5e-6 + planted.overhead_s(one)
    plain_s = 0.5e-6 + planted.entry_s / length
    return MeasuredChain(one, told_s, told_s + planted.after_s + (planted.run_s + planted.entry_s) / length, plain_s)


def test_what_was_planted_is_found():
    found = fit([chain_of(PLANTED, *each, 10**9) for each in CHAINS], chain_of(PLANTED, 1, 0, 1))
    for name in ("node_s", "tensor_s", "extent_s", "after_s", "run_s", "entry_s"):
        assert getattr(found, name) == pytest.approx(getattr(PLANTED, name), rel=1e-3), name


def test_nothing_is_below_zero():
    found = fit(
        [chain_of(Overhead(-1e-6, -1e-7, -1e-7, -1e-6, 0), *each, 1) for each in CHAINS], MeasuredChain(node(), 0, 0, 0)
    )
    assert found == Overhead()


def test_what_is_not_the_node_s_is_taken_off():
    assert PLANTED.overhead_s(node(2, 4)) == pytest.approx(3e-6)
    assert PLANTED.own_s(node(2, 4, us=10.0)) == pytest.approx(7e-6)
    assert PLANTED.own_s(node(2, 4, us=1.0)) == 0
    assert PLANTED.overhead_s(node(2, 4, calls=3)) == pytest.approx(9e-6)
    assert PLANTED.overhead_s(node(2, 4, inner=6)) == pytest.approx(3e-6 + 6 * 3e-6)


def test_what_comes_after_a_node_within_another_is_in_that_one():
    assert PLANTED.outside_s([node(calls=2), node(inner=2)]) == pytest.approx(7e-6 + 3e-6 * (2 + 1 - 2))


NODES = [node(2, 4), node(9, 0)]  # of 20 us by the profiler
KNOWN_S = sum(map(PLANTED.overhead_s, NODES)) + PLANTED.outside_s(NODES)


def factor(run_s: float, added: float, noise: float = 0.0) -> float:
    """By what the overhead is multiplied where the profiler adds so many times as much to a run as to a chain."""
    after_s = [run_s + (added + noise * (k % 5 - 2)) * KNOWN_S for k in range(25)]
    found = PLANTED.fit_to(Comparison((run_s,) * 25, tuple(after_s)), NODES)
    assert found.run_s / PLANTED.run_s == pytest.approx(found.node_s / PLANTED.node_s)
    return found.node_s / PLANTED.node_s


@pytest.mark.parametrize(("added", "most"), [(1.5, 1.5), (1.0, 1.0), (0.8, 0.8), (7.0, 2.0), (-1.0, 0.5)])
def test_the_whole_is_at_most_what_it_is_on_the_model(added, most):
    assert factor(1e-9 if added > 1 else 1.0, added) == pytest.approx(most, abs=2e-3)
    assert factor(1.0 if added > 1 else 1e-9, added) == pytest.approx(1.0, abs=2e-3)


def test_within_that_the_nodes_come_as_near_to_a_run_as_they_can():
    own_s = 20e-6 - 1.25 * sum(map(PLANTED.overhead_s, NODES))
    assert factor(own_s + PLANTED.entry_s, 1.5) == pytest.approx(1.25, abs=2e-3)


def test_what_is_lost_in_noise_changes_nothing():
    assert factor(1e-9, 1.5, noise=0.1) == pytest.approx(1.5, abs=2e-3)
    assert factor(1e-9, 1.5, noise=1.0) == 1


def test_without_nodes_nothing_changes():
    assert Overhead().fit_to(Comparison((1.0,), (2.0,)), []) == Overhead()
    assert replace(PLANTED, run_s=0).fit_to(Comparison((1.0,), (2.0,)), []) == replace(PLANTED, run_s=0)


def test_it_is_measured_on_chains(near):
    """No time is judged: each node was seen, and none of the parts is below zero."""
    with SessionBench(1) as bench:
        found = measure_overhead(bench)
    assert min(found.node_s, found.tensor_s, found.extent_s, found.after_s, found.run_s) >= 0
    assert LENGTH > 1
