from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func

from noyau.hosts.torch.modules.simplification import shows
from noyau.jobs.optimize.torch.backend import decompositions, trace_with_autograd


@pytest.mark.slow
def test_what_inductor_takes_apart_needs_nothing_else():
    pooled = decompositions("inductor")[torch.ops.aten.max_pool2d_with_indices.default]
    x = torch.randn(1, 2, 4, 6)
    assert torch.equal(pooled(x, [2, 2])[0], torch.nn.functional.max_pool2d(x, 2))


def test_maps_are_computed_again_in_backward_and_not_kept():
    kept = []

    def compiler(module, examples, kind):
        results = [each for each in module.graph.output_node().args[0] if each.op != "placeholder" and not shows(each)]
        kept.append((kind, sum(each.meta["val"].untyped_storage().nbytes() for each in results)))
        return make_boxed_func(module.forward)

    def net(x, w):
        return (((x @ w).tanh() * 2).sigmoid() + 1).exp().relu().sum()

    x, w = (torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True) for _ in range(2))
    torch._dynamo.reset()
    run = torch.compile(net, backend=lambda module, inputs: trace_with_autograd(module, inputs, compiler))
    run(x, w).backward()
    assert kept[0] == ("forward", 4 + 4 * 8 * 8)  # the sum, and what tanh is computed from
    got, (want, _) = x.grad, torch.autograd.grad(net(x, w), (x, w))
    assert torch.allclose(got, want)
