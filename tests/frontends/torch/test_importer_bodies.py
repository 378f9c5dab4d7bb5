from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._functorch.aot_autograd import aot_function

from noyau.frontends.torch.importer import body, import_graph
from noyau.frontends.torch.tensors import as_array
from noyau.ir.graph_interpreter import evaluate
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


def boundaries(function, *args):
    """The boundaries of the forward and of the backward graph; each gives what torch gives."""
    found = []

    def compiler(module, inputs):
        def run(given):
            want = module.forward(*given)
            made = import_graph(module.graph)
            tensors = [each for each in given if isinstance(each, torch.Tensor)]
            names = [node.output for node in made.graph.inputs]
            got = evaluate(made.graph, dict(zip(names, map(as_array, tensors), strict=True)))
            for name, right in zip(made.graph.outputs, [each for each in want if each is not None], strict=True):
                assert got[name].shape == tuple(right.shape)
                assert np.allclose(got[name], as_array(right), rtol=1e-4, atol=1e-5)
            found.extend(made.opaque)
            return want

        run._boxed_call = True
        return run

    given = [each.clone().requires_grad_(each.is_floating_point()) for each in args]
    made = aot_function(function, fw_compiler=compiler, bw_compiler=compiler)(*given)
    made.sum().backward()
    return found


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        lambda x, w, b: F.softmax(x, -1) * F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) * torch.tanh(w),
        lambda x, w, b: F.log_softmax(x, 1) + torch.sigmoid(x) + F.relu(x - 0.5) + F.leaky_relu(x - 0.5),
        lambda x, w, b: F.elu(x - 0.5) + F.softplus(x) + F.hardtanh(x * 3) + F.hardswish(x) + F.mish(b),
        lambda x, w, b: x[:, 1:3].sum(1) + x[0, 2] + x[..., 2:].sum(1) + torch.cat([w, b]).mean(),
        lambda x, w, b: torch.var(x, 1) + x.std(1) + x.amax(1) + torch.cumsum(x, 1)[:, 0] + torch.logsumexp(x, 1),
        lambda x, w, b: F.mse_loss(x, x * w) + F.smooth_l1_loss(x, x * b) + F.binary_cross_entropy(x, x * 0.5),
    ],
)
def test_composites_and_their_gradients_have_bodies(function):
    assert boundaries(function, numbers(3, 6), numbers(6), numbers(6)) == []


def test_norms_of_images():
    assert boundaries(lambda x: F.group_norm(x, 2), numbers(2, 4, 5, 5)) == []


def test_what_is_random_or_better_done_by_a_library_has_none():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for target, args in (
        (torch.ops.aten.mm.default, (x, x)),
        (torch.ops.aten.native_dropout.default, (x, 0.5, True)),
        (torch.ops.aten.convolution.default, (x, x, None, [1], [0], [1], False, [0], 1)),
    ):
        assert body(graph.call_function(target, args)) is None


def test_slices_put_back():
    def function(x, y):
        z = torch.slice_scatter(x, y, 1, 2, 4)
        return torch.select_scatter(z, y[:, 0], 1, -1) * 2

    assert boundaries(function, numbers(3, 6), numbers(3, 2)) == []
    assert boundaries(lambda x: x[:, ::2] * 2, numbers(3, 6)) == ["slice_backward"]
