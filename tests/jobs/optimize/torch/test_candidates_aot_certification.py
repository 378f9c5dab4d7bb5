from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.jobs.optimize.pipeline import Candidate, decide
from noyau.jobs.optimize.torch import candidates as torch_candidates
from noyau.jobs.optimize.torch.candidates import Certification, CertifiedKernels
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import FULL, SMOKE
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


def certify(kernels, found, effort=FULL, memory=None):
    with Certification(effort, memory or CertifiedKernels()) as certification:
        return certification.candidates(kernels, found, print)


def test_a_wrong_kernel_is_dropped_with_its_first_cell(found, planned):
    args = torch.randn(4, 3), torch.randn(3, 4)
    other = modules_sites.trace_graph(graph_of(lambda x, y: (x.t() * 2.5 - y).exp(), args))
    (another,) = torch_candidates.plan(modules_groups.cut(other).groups, other.operators, c_compiler.level()).kernels
    wrong = replace(another, groups=planned.groups, graph=planned.graph)
    (one,) = certify([wrong], found)
    assert "wrong at" in one.reason
    assert decide(one, "all") is one and not one.kept


def test_a_kernel_that_does_not_build_has_the_reason(found, planned):
    (one,) = certify([replace(planned, text=planned.text + "\n#error no")], found)
    assert one.reason.startswith("does not build: ")
    assert one.library is None


def test_what_is_known_is_not_checked_again(found, planned):
    memory = CertifiedKernels({(planned.operator, FULL): Candidate(planned, reason="as it was")})
    for effort in (FULL, SMOKE):
        assert [one.reason for one in certify([planned], found, effort, memory)] == ["as it was"]


def test_a_smoke_certificate_tries_less(found, planned):
    (smoke,), (full,) = (certify([planned], found, effort) for effort in (SMOKE, FULL))
    assert smoke.certificate.ok and full.certificate.ok
    few, all_runs = smoke.certificate.outcomes[0], full.certificate.outcomes[0]
    assert few == replace(all_runs, worst_ratio=few.worst_ratio)
    assert few.worst_ratio >= all_runs.worst_ratio  # fewer unfused runs allow less
    assert CertifiedKernels({(planned.operator, SMOKE): smoke}).of(planned, FULL) is None
