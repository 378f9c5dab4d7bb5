from __future__ import annotations

import pytest
import torch

from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.jobs.optimize.pipeline import Candidate, decide, time_at
from noyau.jobs.optimize.torch import candidates as torch_candidates
from noyau.jobs.optimize.torch import host as torch_bench
from noyau.jobs.optimize.torch.host import Budget, TorchBench, kernel_of
from noyau.kernels.certificates import CachedTiming
from noyau.timing.verdict import Comparison
from noyau.toolchain.c import compiler as c_compiler
from tests.frontends.torch.exports import graph_of


@pytest.fixture(scope="module")
def found():
    return modules_sites.trace_graph(
        graph_of(lambda x, y: (x.t() * 2.5 + y).exp(), (torch.randn(4, 3), torch.randn(3, 4)))
    )


@pytest.fixture(scope="module")
def planned(found):
    (one,) = torch_candidates.plan(modules_groups.cut(found).groups, found.operators, c_compiler.level()).kernels
    return one


def built(planned):
    return Candidate(planned, library=torch_candidates.library_of(planned.text))


def test_a_right_kernel_is_timed_against_torchs_nodes(found, planned):
    one = built(planned)
    made = time_at(one, TorchBench(found, "eager", Budget(1.0), 1), "faster")
    (timing,) = made.timings
    assert timing.hot.pairs >= 6
    assert timing.traffic.bytes == 3 * 12 * 4
    assert decide(made, "faster").kept == (timing.verdict.value == "FASTER")
    (group,) = one.planned.groups
    x, y = torch.randn(4, 3), torch.randn(3, 4)
    given = [x if node.shape[0].constant == 4 else y for node in group.graph.inputs if node.shape]
    want = (x.t() * 2.5 + y).exp()
    assert want.stride() == (1, 3)
    assert torch.allclose(kernel_of(one, group)(*given), want.t())  # it writes in the order of torch's memory


def test_a_timing_that_is_remembered_needs_no_inputs(found, planned, monkeypatch):
    def once():
        return time_at(one, TorchBench(found, "eager", Budget(1.0), 1), "faster")

    one, keys = built(planned), []
    known = CachedTiming(Comparison((2.0,) * 9, (1.0,) * 9), "2026-11-01")
    monkeypatch.setattr(
        torch_bench, "recall_timing", lambda key: keys.append(key) or (known if len(keys) > 1 else None)
    )
    (first,) = once().timings
    monkeypatch.setattr(torch_bench, "make_inputs", None)
    (again,) = once().timings
    assert keys[0] == keys[1] and not first.recalled
    assert again.recalled and again.comparison is known.comparison and again.traffic == first.traffic


def test_without_time_nothing_is_timed(found, planned, empty_cache):
    made = time_at(built(planned), TorchBench(found, "eager", Budget(0.0), 1), "faster")
    assert made.reason == "not timed: there is no time left; a larger budget_s would do" and not made.kept


def test_torchs_nodes_that_do_not_run_are_a_reason(found, planned, empty_cache, monkeypatch):
    def fails(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(torch_bench, "compare_briefly", fails)
    assert time_at(built(planned), TorchBench(found, "eager", Budget(1.0), 1), "faster").reason == "not timed: no room"
