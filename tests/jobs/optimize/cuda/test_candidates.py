"""Kernels of groups on a GPU, as texts: no GPU is needed."""

from __future__ import annotations

import torch

from noyau.hosts.torch.modules import sites
from noyau.hosts.torch.modules.groups import cut
from noyau.jobs.optimize.cuda import candidates
from tests.frontends.torch.exports import graph_of


def test_a_kernel_is_lowered_once_and_its_text_has_its_name(monkeypatch):
    lowered, lower = [], candidates.device_kernel
    monkeypatch.setattr(candidates, "SHELF", candidates.DeviceShelf())
    monkeypatch.setattr(candidates, "device_kernel", lambda *args: lowered.append(args) or lower(*args))

    def two(x, y):
        return (x * 2).tanh().sum(-1), (y.exp() + 1).amax(0)

    source = sites.trace_graph(graph_of(two, (torch.randn(6, 8), torch.randn(5, 7))))
    plan = candidates.plan(cut(source).groups, source)
    assert len(lowered) == len(plan.kernels) == 2
    for kernel in plan.kernels:
        assert "0" * 12 not in kernel.text and f"def {kernel.operator}" in kernel.text
        assert kernel.kernel.name == kernel.operator
