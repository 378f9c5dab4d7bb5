from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils.checkpoint import checkpoint

from noyau.hosts.torch.modules.simplification import keep_compared
from noyau.jobs.optimize.torch.backend import trace_with_autograd


def again(function, x):
    """The function, computed again in backward."""
    return checkpoint(function, x, use_reentrant=False)


def otherwise(x):
    """exp, rounded otherwise than torch's."""
    return torch.nextafter(x.exp(), torch.tensor(torch.inf))


def gradients(function, x):
    """The gradient in eager, that of the captured graphs where backward rounds exp otherwise, and how many it has."""
    repeated = []

    def compiler(graph, examples, kind):
        for node in graph.graph.nodes if kind == "backward" else ():
            if node.target is torch.ops.aten.exp.default:
                node.target = otherwise
                repeated.append(node)
        graph.recompile()
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=lambda module, inputs: trace_with_autograd(module, inputs, compiler))
    want, got = (torch.autograd.grad(run(x).sin().sum(), x)[0] for run in (function, compiled))
    return want, got, len(repeated)


def with_largest(v):
    return torch.cat([v, v.amax(1, keepdim=True)], 1)


def largest_apart(v):
    return torch.where(v >= v.amax(), v * v, 0.5 * v)


@pytest.mark.parametrize(
    ("function", "repeats"),
    [
        (lambda x: with_largest(again(torch.exp, x)), 0),
        (lambda x: with_largest(again(torch.exp, x).t()), 0),
        (lambda x: torch.linalg.vector_norm(again(torch.exp, x), float("inf"), 1), 0),
        (lambda x: largest_apart(again(torch.exp, x)), 0),
        (lambda x: again(torch.sin, again(lambda z: z.exp().amax(1), x)), 0),
        (lambda x: again(lambda z: with_largest(z.exp()), x), 1),
        (lambda x: again(torch.exp, x).sin(), 1),
    ],
    ids=["maximum", "through a view", "norm", "mask", "kept by torch", "inside a checkpoint", "nothing compared"],
)
def test_what_was_largest_in_forward_is_so_in_backward(function, repeats):
    want, got, repeated = gradients(function, torch.randn(4, 7, requires_grad=True))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert repeated == repeats


def kept(name, reads, results=2, dtype=torch.float32) -> int:
    """How many nodes of a graph are kept that compares exp of x with an operator of one of its nodes: x, v, grads."""
    graph, aten = fx.Graph(), torch.ops.aten
    nodes = {each: graph.placeholder(each) for each in ("x", "grads")}
    nodes["v"] = graph.call_function(aten.exp.default, (nodes["x"],))
    other = graph.call_function(getattr(aten, name).default, (nodes[reads],))
    equal = graph.call_function(aten.eq.Tensor, (nodes["v"], other))
    graph.output((nodes["v"], other, graph.call_function(aten.mul.Tensor, (equal, nodes["grads"]))))
    for node in graph.nodes:
        node.meta["val"] = torch.ones(2, 3, dtype=dtype)
    keep_compared(graph, results)
    return sum("recompute" in node.meta for node in graph.nodes)


def test_only_what_is_computed_from_one_another_in_forward_is_kept():
    assert kept("amax", "v") == 2
    assert kept("amax", "v", results=1) == 1
    assert kept("neg", "x") == 0
    assert kept("neg", "grads", results=1) == 0
    assert kept("amax", "v", dtype=torch.int64) == 0
