"""What goes wrong in the backend leaves a graph to torch, with one warning."""

from __future__ import annotations

import time

import pytest
import torch

from noyau.jobs.optimize.torch import backend as torch_backend
from noyau.jobs.optimize.torch.options import options_from
from tests.jobs.optimize.torch.modules import compiled

FAULT = (
    r"^noyau leaves this graph to torch: KeyError: 'odd'\. If torch runs it, that is a defect of noyau: please report "
    r"it to its maintainers with what `noyau doctor` prints$"
)


def bent(x):
    return (x * 2).exp().sum(-1) + 1


def fail(*_, **__):
    raise KeyError("odd")


@pytest.mark.parametrize("place", ["rewrite", "optimize_graph"])
def test_a_fault_leaves_its_graph_to_torch(monkeypatch, place):
    monkeypatch.setattr(f"{torch_backend.__name__}.{place}", fail)
    function, record = compiled(bent)
    x = torch.randn(3, 4)
    with pytest.warns(RuntimeWarning, match=FAULT) as said:
        assert torch.equal(function(x), bent(x))
    assert len(said) == 1
    assert "KeyError" in record.graphs[0].whole


def test_a_fault_in_the_graph_of_a_gradient(monkeypatch):
    function, record = compiled(bent)
    x = torch.randn(3, 4, requires_grad=True)
    result = function(x)
    monkeypatch.setattr(torch_backend, "rewrite", fail)
    with pytest.warns(RuntimeWarning, match=FAULT) as said:
        (gradient,) = torch.autograd.grad(result.sum(), x)
    assert len(said) == 1
    assert torch.allclose(gradient, torch.autograd.grad(bent(x).sum(), x)[0])
    assert [bool(graph.whole) for graph in record.graphs] == [False, True]


@pytest.mark.parametrize("place", ["AheadOfTime", "trace_with_autograd", "simplification.merge_equal"])
def test_a_fault_before_there_is_a_graph_leaves_all_to_torch(monkeypatch, place):
    monkeypatch.setattr(f"{torch_backend.__name__}.{place}", fail)
    function, record = compiled(bent)
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match=FAULT) as said:
        assert torch.equal(function(x), bent(x))
    assert len(said) == 1
    assert not record.graphs


def test_a_fault_ahead_of_time_is_said_when_the_graph_is_compiled(monkeypatch):
    monkeypatch.setattr("noyau.jobs.optimize.torch.candidates.plan", fail)
    function, _ = compiled(bent)
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match=FAULT) as said:
        function(x).sum().backward()
    assert len(said) == 2
    assert torch.allclose(x.grad, torch.autograd.grad(bent(x).sum(), x)[0])


def linger(*_, **__):
    while True:
        time.sleep(0.01)


def test_what_takes_too_long_ahead_of_time_is_left_to_torch(monkeypatch):
    monkeypatch.setattr("noyau.jobs.optimize.torch.candidates.plan", linger)
    function, record = compiled(bent, options_from({"limit_s": 0.2}))
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="take over 0.2 s"):
        assert torch.equal(function(x), bent(x))
    assert record.graphs[0].whole


def test_what_takes_too_long_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(torch_backend, "optimize_graph", linger)
    function, record = compiled(bent, options_from({"limit_s": 0.2}))
    x = torch.randn(3, 4)
    with pytest.warns(RuntimeWarning, match=r"take over 0.2 s; the option limit_s gives them longer$") as said:
        assert torch.equal(function(x), bent(x))
    assert len(said) == 1
    assert record.graphs[0].whole


def test_a_certificate_that_takes_too_long_is_left(monkeypatch):
    class Never:
        def result(self):
            raise AssertionError("nobody waits for it")

        def done(self):
            return False

    monkeypatch.setattr("noyau.jobs.optimize.torch.candidates.wait", lambda *_: time.sleep(0.01))
    monkeypatch.setattr(
        "noyau.jobs.optimize.torch.candidates.Certification.begin", lambda self, *_: self._begun.update(x=Never())
    )
    function, _ = compiled(bent, options_from({"limit_s": 0.2}))
    x = torch.randn(3, 4)
    with pytest.warns(RuntimeWarning, match="take over 0.2 s"):
        assert torch.equal(function(x), bent(x))
