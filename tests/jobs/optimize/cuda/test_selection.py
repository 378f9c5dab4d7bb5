"""Kernels on a device whose judging fails."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from noyau.compiler.schedules.gpu import shared_rows  # noqa: E402
from noyau.hosts.torch.modules import executor  # noqa: E402
from noyau.hosts.torch.modules import sites as modules_sites  # noqa: E402
from noyau.jobs.optimize.candidate import Candidate  # noqa: E402
from noyau.jobs.optimize.cuda import candidates as cuda_candidates  # noqa: E402
from noyau.jobs.optimize.cuda import selection as cuda_selection  # noqa: E402
from noyau.jobs.optimize.torch import candidates as torch_candidates  # noqa: E402
from noyau.jobs.optimize.torch.selection import Clock, Known  # noqa: E402
from noyau.toolchain.c import compiler as c_compiler  # noqa: E402
from noyau.verify.adversarial import FULL, SMOKE  # noqa: E402
from tests.frontends.torch.exports import graph_of  # noqa: E402


class CompilationError(Exception):
    """As Triton has them: no RuntimeError."""


@pytest.mark.parametrize("error", [CompilationError("at 3:4"), torch.OutOfMemoryError("no room")])
def test_what_fails_is_a_reason(error, monkeypatch):
    def fails(*_):
        raise error

    monkeypatch.setattr(cuda_selection, "require_device", lambda _: None)
    monkeypatch.setattr(cuda_selection, "_certificate", fails)
    monkeypatch.setattr(cuda_selection, "_timing", fails)
    found = modules_sites.traced(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    (planned,) = torch_candidates.plan(modules_sites.cut(found).groups, found.operators, c_compiler.level()).kernels
    known = Known()
    (one,) = cuda_selection.checked([planned], found, modules_sites.CPU, print, FULL, known)
    assert one.reason == f"does not run: {error}" and one.planned is planned
    assert bool(known.checked) == isinstance(error, CompilationError)  # there may be memory another time
    judged = Candidate(planned)
    made = cuda_selection.timed(
        judged, found, modules_sites.CPU, "eager", executor.RIVALS["eager"], "faster", Clock(1.0)
    )
    assert made.reason == f"not timed: {error}" and not made.kept


def test_rows_that_programs_share_are_certified(monkeypatch):
    """What one launch leaves for the next is memory too."""
    builder = pytest.importorskip("noyau.toolchain.triton.module")
    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    monkeypatch.setattr(shared_rows, "SHORT", 8)
    found = modules_sites.traced(graph_of(lambda x: torch.softmax(x * 2.5, -1), (torch.randn(2, 30),)))
    (planned,) = cuda_candidates.plan(modules_sites.cut(found).groups, found).kernels
    assert "_of_piece" in planned.text
    (one,) = cuda_selection.checked([planned], found, modules_sites.CPU, print, SMOKE, Known())
    assert not one.reason


def test_a_kernel_is_judged_on_each_kind_of_device(monkeypatch):
    """Two GPUs of one process may be of two kinds, and compiled for apart."""
    asked = []
    monkeypatch.setattr(cuda_selection, "require_device", lambda _: None)
    monkeypatch.setattr(cuda_selection, "_what_judges", lambda device: f"{asked and 'another kind'} of {__name__}")
    monkeypatch.setattr(
        cuda_selection, "_checked", lambda kernel, *_: (asked.append(kernel) or Candidate(kernel), True)
    )
    monkeypatch.setattr(cuda_selection, "certificate_key", lambda *_: "")
    found = modules_sites.traced(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    planned = torch_candidates.plan(modules_sites.cut(found).groups, found.operators, c_compiler.level()).kernels
    for count in (1, 2, 2):
        cuda_selection.checked(planned, found, modules_sites.CPU, print)
        assert len(asked) == count
