from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from noyau.hosts.torch.modules import executor  # noqa: E402
from noyau.hosts.torch.modules import sites as modules_sites  # noqa: E402
from noyau.jobs.optimize.candidate import Candidate  # noqa: E402
from noyau.jobs.optimize.torch import candidates as torch_candidates  # noqa: E402
from noyau.jobs.optimize.torch import selection as torch_selection  # noqa: E402
from noyau.jobs.optimize.torch.selection import Clock, Known, checked, kernel_of, timed  # noqa: E402
from noyau.kernels.result_cache import Recalled  # noqa: E402
from noyau.timing.comparison import Comparison  # noqa: E402
from noyau.toolchain.c import compiler as c_compiler  # noqa: E402
from noyau.verify.adversarial import FULL, SMOKE  # noqa: E402
from tests.frontends.torch.exports import graph_of  # noqa: E402


@pytest.fixture(scope="module")
def found():
    return modules_sites.traced(graph_of(lambda x, y: (x.t() * 2.5 + y).exp(), (torch.randn(4, 3), torch.randn(3, 4))))


@pytest.fixture(scope="module")
def planned(found):
    (one,) = torch_candidates.plan(modules_sites.cut(found).groups, found.operators, c_compiler.level()).kernels
    return one


def test_a_right_kernel_is_timed_against_torchs_nodes(found, planned):
    (one,) = checked([planned], found, print, known=Known())
    assert one.certificate.ok and not one.reason
    made = timed(one, found, "eager", executor.RIVALS["eager"], "faster", Clock(1.0), 1)
    (timing,) = made.timings
    assert timing.hot.pairs >= 6
    assert timing.traffic.bytes == 3 * 12 * 4
    assert made.kept == (timing.verdict.value == "FASTER")
    (group,) = one.planned.groups
    x, y = torch.randn(4, 3), torch.randn(3, 4)
    given = [x if node.shape[0].constant == 4 else y for node in group.graph.inputs if node.shape]
    want = (x.t() * 2.5 + y).exp()
    assert want.stride() == (1, 3)
    assert torch.allclose(kernel_of(one, group)(*given), want.t())  # it writes in the order of torch's memory


def test_a_timing_that_is_remembered_needs_no_inputs(found, planned, monkeypatch):
    def once():
        return timed(one, found, "eager", executor.RIVALS["eager"], "faster", Clock(1.0), 1)

    one, keys = replace(Candidate(planned), library=torch_candidates.library_of(planned.text)), []
    known = Recalled(Comparison((2.0,) * 9, (1.0,) * 9), "2026-11-01")
    monkeypatch.setattr(
        torch_selection, "recall_timing", lambda key: keys.append(key) or (known if len(keys) > 1 else None)
    )
    (first,) = once().timings
    monkeypatch.setattr(torch_selection, "make_inputs", None)
    (again,) = once().timings
    assert keys[0] == keys[1] and not first.recalled
    assert again.recalled and again.comparison is known.comparison and again.traffic == first.traffic


def test_a_wrong_kernel_is_dropped_with_its_first_cell(found, planned):
    args = torch.randn(4, 3), torch.randn(3, 4)
    other = modules_sites.traced(graph_of(lambda x, y: (x.t() * 2.5 - y).exp(), args))
    (another,) = torch_candidates.plan(modules_sites.cut(other).groups, other.operators, c_compiler.level()).kernels
    wrong = replace(another, groups=planned.groups, graph=planned.graph)
    (one,) = checked([wrong], found, print, known=Known())
    assert "wrong at" in one.reason
    kept = timed(one, found, "eager", executor.RIVALS["eager"], "all", Clock(1.0), 1)
    assert not kept.kept and not kept.timings


def test_a_kernel_that_does_not_build_has_the_reason(found, planned):
    (one,) = checked([replace(planned, text=planned.text + "\n#error no")], found, print, known=Known())
    assert one.reason.startswith("does not build: ")
    assert one.library is None


def test_what_is_known_is_not_checked_again(found, planned):
    known = Known({(planned.operator, FULL): Candidate(planned, reason="as it was")})
    for effort in (FULL, SMOKE):
        assert [one.reason for one in checked([planned], found, print, effort, known)] == ["as it was"]


def test_a_smoke_certificate_tries_less(found, planned):
    (smoke,), (full,) = (checked([planned], found, print, effort, Known()) for effort in (SMOKE, FULL))
    assert smoke.certificate.ok and full.certificate.ok
    few, all_runs = smoke.certificate.outcomes[0], full.certificate.outcomes[0]
    assert few == replace(all_runs, worst_ratio=few.worst_ratio)
    assert few.worst_ratio >= all_runs.worst_ratio  # fewer unfused runs allow less
    assert Known({(planned.operator, SMOKE): smoke}).of(planned, FULL) is None
