"""Graphs that are judged as a whole; what they take is said by the test, but for one run of the real clock."""

from __future__ import annotations

import io
import logging

import pytest
import torch

from noyau.errors import DeviceError
from noyau.hosts.torch.modules import executor
from noyau.jobs.optimize.torch import whole
from noyau.jobs.optimize.torch.backend import backend
from noyau.jobs.optimize.torch.whole import JudgedGraph, least, loses, settle, step_of
from noyau.timing.verdict import Comparison
from tests.jobs.optimize.torch.modules import Block, same

FASTER, SLOWER = Comparison((2.0,) * 20, (1.0,) * 20), Comparison((1.0,) * 20, (2.0,) * 20)
AS_FAST, A_BIT_SLOWER = Comparison((1.0,) * 20, (1.0,) * 20), Comparison((0.98,) * 20, (1.0,) * 20)
GAINS = {"a": 3.0, "b": 1.0, "c": 2.0}


def kernels(x):
    return x + 1


def rival(x):
    return x + 2


def fewer(x):
    return x + 3


@pytest.fixture
def judged(monkeypatch):
    """A graph, the verdicts on it in turn, and the kernels that were dropped."""
    verdicts, dropped = [], []
    monkeypatch.setattr(whole, "compare", lambda *_, **__: verdicts.pop(0))

    def again(names, _):
        dropped.append(sorted(names))
        return fewer, {name: gain for name, gain in GAINS.items() if name not in names}

    return JudgedGraph(kernels, lambda _: rival, again, GAINS), verdicts, dropped


def third(graph, x):
    return [float(graph(x)) for _ in range(3)]


@pytest.mark.parametrize(
    ("verdicts", "results", "without"),
    [
        ([FASTER], [1, 1, 1], []),
        ([SLOWER, FASTER], [1, 1, 3], [["b", "c"]]),
        ([SLOWER, SLOWER], [1, 1, 2], [["b", "c"]]),  # one kernel is left
        ([AS_FAST], [1, 1, 1], []),
        ([A_BIT_SLOWER, FASTER], [1, 1, 3], [["b", "c"]]),
        ([A_BIT_SLOWER, A_BIT_SLOWER], [1, 1, 2], [["b", "c"]]),
    ],
)
def test_what_loses_has_fewer_kernels_and_at_last_none(judged, verdicts, results, without):
    graph, course, dropped = judged
    course += verdicts
    assert third(graph, torch.zeros(())) == results
    assert dropped == without and not course
    assert float(graph(torch.zeros(()))) == results[-1]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_changes_its_arguments_is_timed_on_copies(judged, mode):
    graph, course, _ = judged
    graph.run = lambda x, y: x.add_(y)
    graph.rival = lambda _: lambda x, y: x.add_(y)
    course.append(FASTER)
    with mode():
        x, one = torch.zeros(4, 4).t()[1:], torch.ones(4)
        assert [float(graph(x, one)[0, 0]) for _ in range(4)] == [1, 2, 3, 4]
    assert not course and graph.changed == {0}


def test_copies_of_what_shares_memory_are_not_made(judged):
    graph, course, _ = judged
    graph.run, told = lambda x, y: x.add_(1), []
    graph.tell = told.append
    course.append(SLOWER)
    memory = torch.zeros(4)
    for _ in range(3):
        graph(memory[:3], memory[1:])
    assert course and float(memory[0]) == 3
    assert told == ["not timed as a whole: it changes an argument that shares memory with another one"]


def test_what_goes_wrong_leaves_it_as_it_is(judged):
    graph, _, _ = judged
    told, log = io.StringIO(), logging.getLogger("noyau")
    handler, level = logging.StreamHandler(told), log.level
    log.addHandler(handler)
    log.setLevel("INFO")
    try:
        assert third(graph, torch.zeros(())) == [1, 1, 1]
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert "not timed as a whole" in told.getvalue()


def test_without_another_way_a_graph_that_loses_is_the_rivals_at_once(judged):
    graph, course, dropped = judged
    graph.again, told = None, []
    graph.tell = told.append
    course.append(SLOWER)
    assert third(graph, torch.zeros(())) == [1, 1, 2] and not dropped
    assert told == ["as a whole the module is SLOWER with its kernels: 0.50x; torch runs it"]


def test_a_device_that_is_lost_is_told_by_the_graph_itself(judged, monkeypatch):
    def refuses():
        raise RuntimeError("an illegal memory access was encountered")

    graph, _, _ = judged
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", refuses)
    assert third(graph, torch.zeros(())) == [1, 1, 1]


def test_a_step_touches_no_gradient():
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    step_of(lambda x, w: (x * w, None), [x, w])()
    assert w.grad is None


def test_the_half_that_gains_least_goes_first():
    assert least(GAINS) == ["b", "c"] and least({"a": 1.0}) == []
    assert settle(lambda dropped: (kernels, SLOWER, GAINS), 1)[:2] == (kernels, SLOWER)
    assert not loses(None) and loses(SLOWER) and not loses(FASTER)


def test_a_training_step_of_torch_compile_that_loses_runs_by_torch(monkeypatch):
    torch.manual_seed(0)
    torch._dynamo.reset()
    verdicts = [SLOWER] * whole.ATTEMPTS
    monkeypatch.setattr(whole, "compare", lambda *_, **__: verdicts.pop())
    module, x, lines = Block(), torch.randn(2, 5, 32), []
    options = {"budget_s": 0, "keep": "not-slower", "verdicts": lines}
    run = torch.compile(module, backend=backend, options=options, dynamic=False)
    for _ in range(4):
        module.zero_grad()
        run(x)[0].sum().backward()
    got = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    module(x)[0].sum().backward()
    assert all(map(same, got, [each.grad for each in module.parameters()]))
    assert len(verdicts) < whole.ATTEMPTS
    assert [line.rpartition("; ")[2] for line in lines] == ["torch runs it"]


def test_a_graph_of_any_size_is_timed_as_a_whole_and_what_torch_runs_names_a_lost_device(monkeypatch):
    def falls(x):
        if traps:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return (x + 2,)

    torch._dynamo.reset()
    traps, lines = [], []
    monkeypatch.setattr(whole, "compare", lambda *_, **__: SLOWER)
    monkeypatch.setitem(executor.RIVALS, "eager", lambda module, arguments: lambda *given: falls(given[-1]))
    run = torch.compile(lambda x: x * 2, backend=backend, options={"verdicts": lines}, dynamic=True)
    got = [float(run(torch.ones(count)).sum()) for count in (5, 6, 7)]
    assert got == [10, 12, 21] and len(lines) == 1
    traps.append(True)
    with pytest.raises(DeviceError, match="a compiled graph: a kernel that ran on the GPU before trapped"):
        run(torch.ones(8))


class Overtaken:
    """A lock that another thread takes first, for a whole call of the graph."""

    def __init__(self, graph, x):
        self.graph, self.x, self.lock = graph, x, graph.lock

    def acquire(self, blocking):
        self.graph.lock = self.lock
        self.graph(self.x)
        return self.lock.acquire(blocking=blocking)


def test_of_threads_that_reach_the_third_call_together_one_judges(judged):
    graph, course, _ = judged
    course += [FASTER]
    x = torch.zeros(())
    graph(x), graph(x)
    graph.lock = Overtaken(graph, x)
    assert float(graph(x)) == 1
    assert not course and graph.calls == 4


def test_of_threads_that_are_due_together_one_splits_the_wall_time(monkeypatch):
    walls, x = [], torch.zeros(())
    monkeypatch.setattr(whole, "measure_wall", lambda _: None)

    def is_due():
        if not nested:
            nested.append(True)
            run(x)  # another thread, between this one's look and its turn
        return True

    nested = []
    run = whole.time_wall_once(kernels, walls.append, is_due)
    run(x), run(x)
    assert len(walls) == 1
