"""Graphs that are judged as a whole; what they take is said by the test, but for one run of the real clock."""

from __future__ import annotations

import pytest
import torch

from noyau.jobs.optimize.torch import whole
from noyau.jobs.optimize.torch.backend import backend
from noyau.jobs.optimize.torch.whole import JudgedGraph, least, loses, settle, step_of
from noyau.timing.verdict import Comparison
from tests.jobs.optimize.torch.modules import Block, same

FASTER, SLOWER = Comparison((2.0,) * 20, (1.0,) * 20), Comparison((1.0,) * 20, (2.0,) * 20)
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
    ],
)
def test_what_loses_has_fewer_kernels_and_at_last_none(judged, verdicts, results, without):
    graph, course, dropped = judged
    course += verdicts
    assert third(graph, torch.zeros(())) == results
    assert dropped == without and not course
    assert float(graph(torch.zeros(()))) == results[-1]


def test_what_changes_its_arguments_is_not_run_twice(judged):
    graph, course, _ = judged
    graph.run = lambda x: x.add_(1)
    course.append(SLOWER)
    assert third(graph, torch.zeros(())) == [1, 2, 3]
    assert course


def test_what_goes_wrong_leaves_it_as_it_is(judged, caplog):
    graph, _, _ = judged
    caplog.set_level("INFO", "noyau")
    assert third(graph, torch.zeros(())) == [1, 1, 1]
    assert "not timed as a whole" in caplog.text


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
    assert settle(lambda dropped: (kernels, SLOWER, GAINS), 1) == (kernels, SLOWER)
    assert not loses(None) and loses(SLOWER) and not loses(FASTER)


def test_a_training_step_of_torch_compile_that_loses_runs_by_torch(monkeypatch):
    torch.manual_seed(0)
    torch._dynamo.reset()
    verdicts = [SLOWER] * whole.ATTEMPTS
    monkeypatch.setattr(whole, "compare", lambda *_, **__: verdicts.pop())
    module, x = Block(), torch.randn(2, 5, 32)
    run = torch.compile(module, backend=backend, options={"budget_s": 0, "keep": "not-slower"}, dynamic=False)
    for _ in range(4):
        module.zero_grad()
        run(x)[0].sum().backward()
    got = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    module(x)[0].sum().backward()
    assert all(map(same, got, [each.grad for each in module.parameters()]))
    assert len(verdicts) < whole.ATTEMPTS
