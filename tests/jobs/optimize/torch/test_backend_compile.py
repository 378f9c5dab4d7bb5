from __future__ import annotations

import pytest
import torch

from noyau.hosts.torch.modules.sites import ELSEWHERE
from noyau.jobs.optimize.torch.backend import GraphCompiler
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.options import CompileOptions
from tests.jobs.optimize.torch.modules import Block, F, compiled, same


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    return Block()


def operators(record):
    return [one.planned.replaces for graph in record.graphs for one in graph.kept]


def test_inference_with_sizes_that_are_names(block):
    function, record = compiled(block, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 5, 32), (3, 7, 32), (1, 20, 32)):
            x = torch.randn(shape)
            assert same(function(x), block(x))
    assert len(record.graphs) == 1 or [graph.kind for graph in record.graphs] == ["inference"] * len(record.graphs)
    assert ("native_layer_norm.default",) in operators(record)
    assert all(one.certificate is not None and one.certificate.ok for graph in record.graphs for one in graph.kept)
    assert not any(one.reason for graph in record.graphs for one in graph.candidates)


def test_gradients(block):
    function, record = compiled(block, dynamic=True)
    found = []
    for each in (function, block):
        x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)
        block.zero_grad()
        sum((out * out.cos()).sum() for out in each(x)).backward()
        found.append([x.grad, *(parameter.grad.clone() for parameter in block.parameters())])
    assert {graph.kind for graph in record.graphs} == {"forward", "backward"}
    assert all(graph.kept for graph in record.graphs)
    assert same(*found, tolerance=1e-4)


def test_equal_layers_are_one_kernel():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()) for _ in range(4)))
    function, record = compiled(layers)
    x = torch.randn(3, 16)
    with torch.no_grad():
        assert same(function(x), layers(x))
    assert [len(one.planned.groups) for one in record.graphs[0].kept] == [4]


def test_what_is_changed_in_place_is_changed():
    def step(x, state):
        state.mul_(0.5).add_(torch.sigmoid(x) * x.exp())
        return (state - x).tanh()

    function, record = compiled(step)
    x, states = torch.randn(4, 5), [torch.ones(4, 5), torch.ones(4, 5)]
    assert same(function(x, states[0]), step(x, states[1]))
    assert same(states[0], states[1])
    assert record.graphs[0].kept


def test_views_of_inputs_and_of_results():
    def several(x):
        y = (x * 2 + 1).relu()
        return y.t(), x[1:], y, y[:, ::2] + 1

    function, _ = compiled(several)
    x = torch.randn(4, 6)
    got, want = function(x), several(x)
    assert same(got, want)
    assert got[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert got[0].untyped_storage().data_ptr() == got[2].untyped_storage().data_ptr()


def test_inputs_that_are_not_packed(block):
    function, record = compiled(lambda x: F.softmax(x.exp() * 0.1, -1) - x)
    x = torch.randn(6, 4).t()
    y = torch.randn(4, 12)[:, ::2]
    for each in (x, y):
        assert torch.allclose(function(each), F.softmax(each.exp() * 0.1, -1) - each, atol=1e-6)
    assert record.graphs[0].kept


def negated(*shape):
    """What is in memory with the other sign."""
    return torch._neg_view(torch.randn(shape))


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x: F.softmax(torch.fft.rfft(x).conj().imag * 3, -1), lambda: torch.randn(3, 8)),
        (lambda x: F.softmax(x * 3, -1), lambda: negated(3, 8)),
        (lambda z: F.softmax(z.imag * 3, -1), lambda: torch.randn(3, 8, dtype=torch.complex64).conj()),
    ],
    ids=["made", "given", "shown"],
)
def test_views_that_negate_are_read_as_what_they_are(function, given):
    run, record = compiled(function)
    for _ in range(2):
        x = given()
        assert same(run(x), function(x))
    assert [len(graph.kept) for graph in record.graphs] == [1]


@pytest.mark.parametrize(
    "gradient", [lambda: negated(3, 8), lambda: torch._efficientzerotensor((3, 8))], ids=["negated", "no memory"]
)
def test_gradients_that_are_not_in_memory_as_they_are(gradient):
    def function(x):
        return F.softmax(x * 3, -1) * 2

    run, record = compiled(function)
    x, given = torch.randn(3, 8, requires_grad=True), gradient()
    for each in (torch.ones(3, 8), given):
        (got,) = torch.autograd.grad(run(x), x, each)
        (want,) = torch.autograd.grad(function(x), x, each.clone())
        assert same(got, want)
    assert [len(graph.kept) for graph in record.graphs] == [1, 1]


def test_a_graph_break_makes_two_graphs():
    def broken(x):
        y = (x * 2).exp() + 1
        torch._dynamo.graph_break()
        return (y.log() - x).sigmoid()

    function, record = compiled(broken)
    x = torch.rand(5)
    assert same(function(x), broken(x))
    assert [len(graph.kept) for graph in record.graphs] == [1, 1]


def test_data_dependent_shapes_are_a_boundary():
    def picked(x):
        y = (x * 2 + 1).sigmoid()
        return torch.nonzero(y > 0.7), (y - 1).exp() * y

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function, record = compiled(picked)
        x = torch.randn(20)
        assert same(function(x), picked(x))
    (graph,) = record.graphs
    assert graph.kept
    assert any("nonzero" in reason for reason in graph.source.imported.opaque.values())


def test_a_kernel_of_a_size_that_depends_on_values_is_not_kept():
    def picked(x):
        return x[x > 0.5].exp() * 2 + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function, record = compiled(picked)
        x = torch.linspace(0, 1, 20)
        assert same(function(x), picked(x))
    (judged,) = record.graphs[0].candidates
    assert not judged.kept
    assert "depends on values: torch has no number for it when it traces" in judged.reason


def test_what_noyau_does_not_know_is_left_to_torch():
    def root(x):
        return (x * 2 + 1).new_ones(int(x.shape[0] ** 0.5)) + 1

    function, record = compiled(root, dynamic=True)
    x = torch.zeros(9)
    with pytest.warns(RuntimeWarning, match=r"noyau leaves this graph to torch: the size .* is no polynomial"):
        assert torch.equal(function(x), root(x))
    assert record.graphs[0].whole
    assert not record.graphs[0].candidates


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn], ids=str)
def test_what_reads_a_dtype_that_noyau_has_not_is_torch_s_alone(dtype):
    def both(x, other):
        return (x * 2 + 1).relu(), other.to(torch.complex64).abs().sin() + 1, other

    function, record = compiled(both)
    x, other = torch.randn(3, 4), torch.randn(5).to(dtype)
    *got, unread = function(x, other)
    assert all(map(torch.equal, got, both(x, other)))
    assert unread.dtype is dtype
    (graph,) = record.graphs
    assert len(graph.kept) == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_index_outside_is_torchs_own_error(dynamic):
    def picked(x, where):
        return (x * 2).gather(1, where).abs() + 1

    function, record = compiled(picked, dynamic=dynamic)
    x, where = torch.randn(3, 4), torch.tensor([[0, 3]])
    assert same(function(x, where), picked(x, where))
    assert record.graphs[0].kept
    with pytest.raises(RuntimeError, match=r"^index 4 is out of bounds for dimension 1 with size 4$"):
        function(x, where + 4)


def test_what_has_no_cells_here_is_left_to_torch():
    function, record = compiled(lambda x: (x * 2 + 1).relu())
    assert function(torch.ones(3, device="meta")).device.type == "meta"
    (graph,) = record.graphs
    assert not graph.candidates
    assert ELSEWHERE in graph.source.model.opaque.values()


def test_what_a_gradient_needs_is_changed_in_place():
    def changed(x, p):
        y = (x * p).exp()
        x.add_(1.0)
        return y

    p = torch.ones(3, requires_grad=True)
    for each in (changed, compiled(changed)[0]):
        with pytest.raises(Exception, match="has been modified by an inplace operation"):
            each(torch.ones(3), p).sum().backward()


def test_a_kernel_that_loses_is_not_kept():
    function, record = compiled(lambda x: (x * 2 + 1).relu(), CompileOptions(budget_s=0))
    x = torch.randn(7)
    assert torch.equal(function(x), (x * 2 + 1).relu())
    (one,) = record.graphs[0].candidates
    assert not one.kept
    assert "no time left" in one.reason or one.timings


def test_a_graph_without_inputs():
    graph = torch.fx.Graph()
    made = graph.call_function(torch.ops.aten.full.default, ([2, 3], 1.5))
    made.meta["val"] = torch.full([2, 3], 1.5)
    graph.output((made,))
    kept, forgotten = GraphRecord(), GraphRecord(forgets=True)
    for record in (kept, forgotten):
        run = GraphCompiler(CompileOptions(), record).compile(torch.fx.GraphModule({}, graph), [], "inference")
        assert torch.equal(run([])[0], torch.full([2, 3], 1.5))
    assert [graph.kind for graph in kept.graphs] == ["inference"]
    assert forgotten.graphs == []
