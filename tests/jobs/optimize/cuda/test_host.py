"""A module's graph on the route of GPUs, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from noyau.errors import BuildError
from noyau.hosts.torch.modules import flat_codegen
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.rewrite import rewrite
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.cuda import certificate as cuda_certification
from noyau.jobs.optimize.cuda.host import CudaHost, plan_for_triton
from noyau.jobs.optimize.torch.candidates import input_names
from noyau.jobs.optimize.torch.graph_hosts import CompiledGraph
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.toolchain.triton.module import interprets
from tests.frontends.torch.exports import graph_of
from tests.jobs.optimize.torch.modules import Block, same

pytestmark = pytest.mark.skipif(not interprets(), reason="Triton does not interpret")


def compiled(function, args, **wishes):
    """A function as a flat one, and what became of its graph."""
    program = graph_of(function, args)
    found = modules_sites.trace_graph(program)
    wishes = CompileOptions(keep="all", **wishes)
    outcome = pipeline.optimize(CudaHost(found, modules_sites.CPU, wishes), wishes.keep, print)
    record = CompiledGraph("inference", found, outcome.partition, outcome.plan, outcome.candidates)
    graph = rewrite(program, outcome.installed)
    return flat_codegen.flat(torch.fx.GraphModule(torch.nn.Module(), graph), []), record


def near(got, want):
    """Whether results lie alike, and differ by a rounding or two of the largest."""
    away = (got.double() - want.double()).abs().max() / want.double().abs().max()
    return got.stride() == want.stride() and away < (1e-5 if want.dtype is torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_is_right_and_lies_as_torch_has_it(dtype):
    module = Block().to(dtype)
    names = [name for name, _ in module.named_parameters()]

    def function(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

    args = (torch.randn(2, 5, 32, dtype=dtype), *(each.detach() for each in module.parameters()))
    run, record = compiled(function, args)
    assert [one.reason for one in record.kept] == [""] * 4
    assert {one.planned.language for one in record.kept} == {"triton"}
    assert all(one.certificate.ok and one.certificate.order_independent for one in record.kept)
    want = function(*args)
    for _ in range(2):
        given = list(args)
        assert all(map(near, run(given), want))
        assert given == []
    assert "import triton" in record.kept[0].planned.explain("right")


def test_inputs_in_any_order_of_memory():
    x, y = torch.randn(6, 4, 8).transpose(1, 2), torch.randn(6, 8, 9)[..., :4]
    row = torch.randn(4).expand(6, 8, 4)
    run, record = compiled(lambda x, y, row: ((x * y).tanh() + row).sum(-1), (x, y, row))
    assert len(record.kept) == 1
    (made,) = run([x, y, row])
    assert same(made, ((x * y).tanh() + row).sum(-1))


def test_a_graph_that_scatters_is_cut_once(monkeypatch):
    seen, cut = [], modules_groups.cut
    monkeypatch.setattr(modules_groups, "cut", lambda *args, **words: seen.append(args[0]) or cut(*args, **words))

    def scattered(x, at, values):
        return torch.index_put(x.exp(), (at,), values * 2, accumulate=True).sum(-1).tanh()

    args = (torch.randn(6, 8), torch.tensor([1, 4, 1]), torch.randn(3, 8))
    _, plan = plan_for_triton(modules_sites.trace_graph(graph_of(scattered, args)))
    assert len(seen) == 1 and not plan.refused and plan.kernels
    assert not any("index_put" in str(operator) for kernel in plan.kernels for operator in kernel.replaces)


def test_a_graph_of_positions_is_cut_once(monkeypatch):
    """Positions that are computed from no tensor are no kernel of Triton's, however the graph is cut."""
    seen, cut = [], modules_groups.cut
    monkeypatch.setattr(modules_groups, "cut", lambda *args, **words: seen.append(args[0]) or cut(*args, **words))

    def biased(x, table):
        apart = torch.arange(x.shape[-1])[None, :] - torch.arange(x.shape[-2])[:, None]
        side, far = (apart > 0).long() * 4, apart.abs()
        near = far < 2
        large = 2 + (torch.log(far.float() / 2) / 1.4 * 2).long()
        bucket = side + torch.where(near, far, torch.minimum(large, torch.full_like(large, 3)))
        bias = torch.nn.functional.embedding(bucket, table).permute(2, 0, 1)
        return (x + bias).softmax(-1)

    args = (torch.randn(2, 6, 6), torch.randn(8, 2))
    _, plan = plan_for_triton(modules_sites.trace_graph(graph_of(biased, args)))
    assert len(seen) == 1 and plan.kernels
    assert all(not input_names(group) for group, _ in plan.refused)


def test_without_an_interpreter_or_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr("noyau.toolchain.triton.module.interprets", lambda: False)
    with pytest.raises(BuildError, match="kernels in Triton run on a GPU; TRITON_INTERPRET=1"):
        cuda_certification.require_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BuildError, match="CUDA"):
        cuda_certification.require_device(torch.device("cuda:0"))
