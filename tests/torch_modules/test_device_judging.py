"""Kernels on a device whose judging fails."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from noyau.builders import cc  # noqa: E402
from noyau.checking.adversarial import FULL, SMOKE  # noqa: E402
from noyau.schedules import grid_shared  # noqa: E402
from noyau.torch_modules import device_judging, device_kernels, kernels, places, running  # noqa: E402
from noyau.torch_modules.judging import Clock, Judged, Known  # noqa: E402
from tests.frontends.torch.exports import graph_of  # noqa: E402


class CompilationError(Exception):
    """As Triton has them: no RuntimeError."""


@pytest.mark.parametrize("error", [CompilationError("at 3:4"), torch.OutOfMemoryError("no room")])
def test_what_fails_is_a_reason(error, monkeypatch):
    def fails(*_):
        raise error

    monkeypatch.setattr(device_judging, "require_device", lambda _: None)
    monkeypatch.setattr(device_judging, "_certificate", fails)
    monkeypatch.setattr(device_judging, "_timing", fails)
    found = places.traced(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    (planned,) = kernels.plan(places.cut(found).groups, found.operators, cc.level()).kernels
    known = Known()
    (one,) = device_judging.checked([planned], found, places.CPU, print, FULL, known)
    assert one.reason == f"does not run: {error}" and one.planned is planned
    assert bool(known.checked) == isinstance(error, CompilationError)  # there may be memory another time
    judged = Judged(planned)
    made = device_judging.timed(judged, found, places.CPU, "eager", running.RIVALS["eager"], "faster", Clock(1.0))
    assert made.reason == f"not timed: {error}" and not made.kept


def test_rows_that_programs_share_are_certified(monkeypatch):
    """What one launch leaves for the next is memory too."""
    builder = pytest.importorskip("noyau.builders.triton")
    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    monkeypatch.setattr(grid_shared, "SHORT", 8)
    found = places.traced(graph_of(lambda x: torch.softmax(x * 2.5, -1), (torch.randn(2, 30),)))
    (planned,) = device_kernels.plan(places.cut(found).groups, found).kernels
    assert "_of_piece" in planned.text
    (one,) = device_judging.checked([planned], found, places.CPU, print, SMOKE, Known())
    assert not one.reason


def test_a_kernel_is_judged_on_each_kind_of_device(monkeypatch):
    """Two GPUs of one process may be of two kinds, and compiled for apart."""
    asked = []
    monkeypatch.setattr(device_judging, "require_device", lambda _: None)
    monkeypatch.setattr(device_judging, "_what_judges", lambda device: f"{asked and 'another kind'} of {__name__}")
    monkeypatch.setattr(device_judging, "_checked", lambda kernel, *_: (asked.append(kernel) or Judged(kernel), True))
    monkeypatch.setattr(device_judging, "certificate_key", lambda *_: "")
    found = places.traced(graph_of(lambda x: (x * 2.5).exp(), (torch.randn(4, 3),)))
    planned = kernels.plan(places.cut(found).groups, found.operators, cc.level()).kernels
    for count in (1, 2, 2):
        device_judging.checked(planned, found, places.CPU, print)
        assert len(asked) == count
