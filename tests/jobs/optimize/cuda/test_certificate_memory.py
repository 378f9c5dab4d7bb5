"""Kernels on a device whose judging fails."""

from __future__ import annotations

import pytest
import torch

from noyau.compiler.schedules.gpu import rows
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.jobs.optimize.cuda import candidates as cuda_candidates
from noyau.jobs.optimize.cuda import certificate as cuda_certification
from noyau.jobs.optimize.cuda.host import CudaBench
from noyau.jobs.optimize.pipeline import Candidate, time_at
from noyau.jobs.optimize.torch import candidates as torch_candidates
from noyau.jobs.optimize.torch.candidates import CertifiedKernels
from noyau.jobs.optimize.torch.host import Budget
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import FULL, SMOKE
from tests.frontends.torch.exports import graph_of


class CompilationError(Exception):
    """As Triton has them: no RuntimeError."""


@pytest.mark.parametrize("error", [CompilationError("at 3:4"), torch.OutOfMemoryError("no room")])
def test_what_fails_is_a_reason(error, empty_cache, monkeypatch):
    def fails(*_):
        raise error

    monkeypatch.setattr(cuda_certification, "require_device", lambda _: None)
    monkeypatch.setattr(cuda_certification, "_certificate", fails)
    monkeypatch.setattr(cuda_candidates, "call_of", fails)
    found = modules_sites.trace_graph(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    (planned,) = torch_candidates.plan(modules_groups.cut(found).groups, found.operators, c_compiler.level()).kernels
    memory = CertifiedKernels()
    (one,) = cuda_certification.certify_all([planned], found, modules_sites.CPU, print, FULL, memory)
    assert one.reason == f"does not run: {error}" and one.planned is planned
    assert bool(memory.candidates) == isinstance(error, CompilationError)  # there may be memory another time
    bench = CudaBench(found, modules_sites.CPU, "eager", Budget(1.0))
    made = time_at(Candidate(planned), bench, "faster")
    assert made.reason == f"not timed: {error}" and not made.kept


def test_rows_that_programs_share_are_certified(monkeypatch):
    """What one launch leaves for the next is memory too."""
    from noyau.toolchain.triton import module as builder

    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    monkeypatch.setattr(rows, "SHORT", 8)
    found = modules_sites.trace_graph(graph_of(lambda x: torch.softmax(x * 2.5, -1), (torch.randn(2, 30),)))
    (planned,) = cuda_candidates.plan(modules_groups.cut(found).groups, found).kernels
    assert "_of_piece" in planned.text
    (one,) = cuda_certification.certify_all([planned], found, modules_sites.CPU, print, SMOKE, CertifiedKernels())
    assert not one.reason


def test_a_kernel_is_judged_on_each_kind_of_device(monkeypatch):
    """Two GPUs of one process may be of two kinds, and compiled for apart."""
    asked = []
    monkeypatch.setattr(cuda_certification, "require_device", lambda _: None)
    monkeypatch.setattr(cuda_certification, "_stamp", lambda device: f"{asked and 'another kind'} of {__name__}")
    monkeypatch.setattr(
        cuda_certification, "_certify", lambda kernel, *_: (asked.append(kernel) or Candidate(kernel), True)
    )
    monkeypatch.setattr(cuda_certification, "certificate_key", lambda *_: "")
    found = modules_sites.trace_graph(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    planned = torch_candidates.plan(modules_groups.cut(found).groups, found.operators, c_compiler.level()).kernels
    for count in (1, 2, 2):
        cuda_certification.certify_all(planned, found, modules_sites.CPU, print)
        assert len(asked) == count
