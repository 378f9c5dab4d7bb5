"""Ops as operators of torch: in its registry, compiled, exported."""

from __future__ import annotations

import pytest
import torch

import noyau
from noyau.ops.torch_entry import tensor_calls
from tests.hosts.torch.kinds import embedding, layer, peak, rmsnorm, scaled, softmax, spread, unsigned


def overload(op, *given, **constants):
    return tensor_calls(op.calls).operator(tuple(isinstance(each, torch.Tensor) for each in given), constants, {})


def real(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("op", "given", "constants"),
    [
        (softmax, (real(3, 4),), {}),
        (softmax, (real(4, 3).T,), {}),
        (rmsnorm, (real(0, 4), real(4)), {"eps": 1e-5}),
        (embedding, (real(4, 2), torch.tensor([0, 2, 2])), {}),
        (peak, (real(4),), {}),
        (scaled, (0.5, real(4)), {}),
        (layer, (real(3, 4), real(4, 2)), {}),
        (spread, (real(3), 4), {}),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_operators_keep_torch_s_rules(op, given, constants):
    keys = {f"c{at}": value for at, value in enumerate(constants.values())}
    found = torch.library.opcheck(overload(op, *given, **constants), given, keys)
    assert set(found.values()) == {"SUCCESS"}


def test_names_never_clash():
    def made(factor):
        @noyau.op("float[n] -> float[n]")
        def times(x):
            return factor * x

        return times

    two, three, x = made(2.0), made(3.0), torch.ones(2)
    assert overload(two, x).name() != overload(three, x).name()
    assert overload(two, x) is overload(two, x)
    assert overload(two, x)(x).tolist() == [2, 2]
    assert overload(three, x)(x).tolist() == [3, 3]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return rmsnorm(softmax(x * 2), self.weight, eps=0.5) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_ops_are_nodes_of_compiled_graphs(backend):
    torch.compiler.reset()
    block, x = Block(), torch.randn(3, 4, requires_grad=backend != "eager")
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    assert torch.allclose(compiled(x), block(x), atol=1e-5)
    wanted = torch.autograd.grad(block(x).square().sum(), block.weight)
    assert torch.allclose(torch.autograd.grad(compiled(x).square().sum(), block.weight)[0], wanted[0], atol=1e-4)


def test_one_graph_serves_all_sizes():
    torch.compiler.reset()
    graphs = []

    def count(module, _):
        graphs.append(module)
        return module

    def run(x, weight):
        return rmsnorm(x, weight, eps=0.1)

    compiled = torch.compile(run, backend=count, fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        x, weight = torch.randn(2 * n, n), torch.randn(n)
        assert torch.allclose(compiled(x, weight), rmsnorm(x, weight, eps=0.1))
    assert len(graphs) == 1


def test_a_compiled_graph_is_of_one_op_alone():
    torch.compiler.reset()

    @noyau.op("float[n] -> float[n]")
    def squared(x):
        return x * x

    @noyau.op("float[n] -> float[n]")
    def cubed(x):
        return x * x * x

    def run(op, x):
        return op(x).sum()

    compiled, x = torch.compile(run, backend="aot_eager", fullgraph=True), torch.full((3,), 2.0, requires_grad=True)
    assert [compiled(op, x).item() for op in (squared, cubed, squared)] == [12, 24, 12]
    assert torch.autograd.grad(compiled(squared, x), x)[0].tolist() == [4, 4, 4]

    @squared.gradient
    def squared_back(grad):
        return 5 * grad

    assert torch.autograd.grad(compiled(squared, x), x)[0].tolist() == [5, 5, 5]


def test_numbers_and_out_in_compiled_graphs():
    torch.compiler.reset()
    x, out = torch.randn(3, dtype=torch.float64), torch.empty(3, dtype=torch.float64)
    assert torch.equal(torch.compile(scaled, backend="eager", fullgraph=True)(0.5, x), 0.5 * x)
    halved = noyau.op("f64[n], f64 -> f64[n]")(lambda x, a=0.5: a * x)
    assert torch.equal(torch.compile(lambda x: halved(x), backend="eager", fullgraph=True)(x), 0.5 * x)
    sums = torch.compile(lambda x, bins: spread(x, bins), backend="aot_eager", fullgraph=True)
    assert [sums(x, bins).shape[0] for bins in (2, 4, 5)] == [2, 4, 5]
    torch.compile(lambda x, out: scaled(2.0, x, out=out), backend="aot_eager", fullgraph=True)(x, out)
    assert torch.equal(out, 2 * x)


def test_without_a_signature_the_graph_breaks():
    torch.compiler.reset()
    x = torch.randn(3)
    made = torch.compile(lambda x: unsigned(x, x) * 2, backend="eager")(x)
    assert torch.allclose(made, x.tanh() * x * 2)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_hold_the_op(strict):
    block, x = Block(), torch.randn(3, 4)
    exported = torch.export.export(block, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},), strict=strict)
    assert {"softmax", "rmsnorm"} <= {
        str(node.target).split(".")[1].rsplit("_", 1)[0]
        for node in exported.graph.nodes
        if str(node.target).startswith("noyau.")
    }
    assert torch.allclose(exported.module()(torch.ones(7, 4)), block(torch.ones(7, 4)))
