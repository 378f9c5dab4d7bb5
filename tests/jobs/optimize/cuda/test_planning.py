"""Graphs of a GPU that another process cuts; that process is here this one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import pytest
import torch

from noyau.hosts.torch.modules import flat_codegen, sites
from noyau.hosts.torch.modules.rewrite import rewrite
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.cuda import candidates as cuda_candidates
from noyau.jobs.optimize.cuda import host as cuda_host
from noyau.jobs.optimize.cuda import planning
from noyau.jobs.optimize.cuda.host import CudaHost, plan_for_triton
from noyau.jobs.optimize.torch.candidates import AheadOfTime
from noyau.jobs.optimize.torch.graph_hosts import host_of
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.toolchain.triton.module import interprets
from tests.frontends.torch.exports import graph_of

GPU = torch.device("cuda", 0)


def attended(x, weight, mask):
    x = x * torch.linalg.qr(x.float()).Q  # noyau does not look into that
    scores = (x.transpose(1, 2) * weight).softmax(-1) + mask
    return scores.transpose(1, 2).contiguous(), (scores * x.sum(-1).unsqueeze(1)).tanh().sum(-1), x.view(-1)


@pytest.fixture
def program():
    mask = torch.zeros(4, 4, dtype=torch.bfloat16)
    return graph_of(attended, (torch.randn(2, 4, 4, dtype=torch.bfloat16), torch.randn(4), mask))


@pytest.fixture
def sent(monkeypatch):
    """Tasks that are sent, each done where it is asked for."""
    tasks = []

    def send(message):
        tasks.append(pickle.loads(message))
        event = Event()
        event.set()
        try:
            planning.planned(tasks[-1])
        except Exception:  # noqa: BLE001  a process that fails says no more
            tasks.append("failed")
        return event

    monkeypatch.setattr(planning, "PLANNER", SimpleNamespace(send=send))
    return tasks


def test_another_process_cuts_as_this_one_does(program, sent):
    early = planning.begin(program)
    cut, plan = plan_for_triton(sites.trace_graph(program), reasons=False)
    sketch = early.sketch()
    assert plan.kernels and sketch.plan == plan and sketch.cut.groups == cut.groups
    assert [one.text for one in sketch.plan.kernels] == [one.text for one in plan.kernels]
    assert early.sketch() is sketch and not early.file.exists() and len(sent) == 1


def test_what_it_has_cut_is_taken_once(program, sent, monkeypatch):
    monkeypatch.setattr(cuda_host.certificate, "require_device", lambda device: None)
    with AheadOfTime(CompileOptions(), print) as ahead:
        ahead.early[program] = early = planning.begin(program)
        early.source = replace(early.source, device=GPU)
        host = host_of(program, CompileOptions(), ahead, False)
        assert isinstance(host, CudaHost) and host.source.nodes is early.source.nodes and not ahead.early
        monkeypatch.setattr(cuda_host, "plan_for_triton", lambda *_, **__: pytest.fail("it was cut again"))
        assert host.plan() == (early.sketch().cut, early.sketch().plan)


def test_launches_of_what_is_cut_by_then_are_begun_before_others_are_timed(program, sent, monkeypatch):
    begun = []
    monkeypatch.setattr(cuda_candidates, "begin", lambda kernels, source, device: begun.append((source, kernels)))
    with AheadOfTime(CompileOptions(), print) as ahead:
        ahead.early[program] = early = planning.begin(program)
        ahead.early["not yet"] = SimpleNamespace(sketch=lambda patience_s: None)
        CudaHost(early.source, GPU, CompileOptions(), ahead).bench({}, [])
        assert begun == [(early.source, early.sketch().plan.kernels)] and program in ahead.early


def test_where_it_fails_the_graph_is_cut_here(program, sent, monkeypatch):
    monkeypatch.setattr(planning, "plan_for_triton", lambda *_, **__: 1 / 0)
    assert planning.begin(program).sketch() is None and sent[1:] == ["failed"]
    monkeypatch.setattr(planning, "PLANNER", SimpleNamespace(send=lambda message: None))
    assert planning.begin(program) is None
    monkeypatch.setattr(planning, "task_of", lambda *_: pytest.fail("no graph"))
    monkeypatch.setattr(planning, "trace_graph", lambda program: 1 / 0)
    assert planning.begin(program) is None


def test_it_is_not_waited_for_without_end(program, monkeypatch):
    monkeypatch.setattr(planning, "PLANNER", SimpleNamespace(send=lambda message: Event()))
    early = planning.begin(program)
    assert early.sketch(patience_s=0) is None and early.sketch(patience_s=0.01) is None and early.file.exists()


@pytest.mark.skipif(not interprets(), reason="Triton does not interpret")
def test_kernels_that_another_process_has_planned_are_right(program, sent):
    early = planning.begin(program)
    host = CudaHost(early.source, sites.CPU, CompileOptions(keep="all"), sketch=early.sketch())
    outcome = pipeline.optimize(host, "all", print)
    assert [one.reason for one in outcome.candidates] == [""] * len(outcome.plan.kernels) and outcome.plan.kernels
    run = flat_codegen.flat(torch.fx.GraphModule(torch.nn.Module(), rewrite(program, outcome.installed)), [])
    args = (torch.randn(2, 4, 4, dtype=torch.bfloat16), torch.randn(4), torch.ones(4, 4, dtype=torch.bfloat16))
    for got, want in zip(run([args[0], args[1], args[2]]), attended(*args), strict=True):
        assert got.stride() == want.stride() and torch.allclose(got.float(), want.float(), atol=2e-2)
