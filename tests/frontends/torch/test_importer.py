from __future__ import annotations

import operator

import numpy as np
import pytest
import torch

from noyau.errors import UnsupportedError
from noyau.frontends.torch.importer import import_graph
from noyau.ir.graph import Opaque
from noyau.ir.graph_interpreter import evaluate
from tests.frontends.torch.exports import compare, imported
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_a_module_with_sizes_that_are_names():
    torch.manual_seed(0)
    block = Block().eval()
    x = torch.randn(2, 5, 8)
    shapes = {"x": {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("seq", min=2)}}
    program = torch.export.export(block, (x,), dynamic_shapes=shapes).run_decompositions()
    made = import_graph(program.graph_module.graph)
    assert not made.opaque
    named = {name.replace(".", "_"): value.detach().numpy() for name, value in block.state_dict().items()}
    for shape in ((2, 5, 8), (3, 7, 8)):
        given = torch.randn(*shape)
        inputs = {"x": given.numpy(), **{f"p_{name}": value for name, value in named.items()}}
        (got,) = evaluate(made.graph, inputs).values()
        assert np.allclose(got, block(given).detach().numpy(), atol=1e-5)


def test_what_has_no_meaning_here_is_a_boundary_that_torch_evaluates():
    def sorted_twice(x):
        values, places = torch.sort(x, -1)
        return values * 2, places + 1

    made = imported(sorted_twice, [numbers(3, 5)])
    assert made.opaque == {"sort": "noyau does not know aten.sort.default"}
    assert sum(isinstance(node.kind, Opaque) for node in made.graph.nodes) == 1
    compare(sorted_twice, numbers(3, 5), opaque=True)
    compare(lambda x: F.conv1d(x, x[:, :, :2]) + 1, numbers(2, 2, 5), opaque=True)


def test_an_operator_that_takes_a_graph_is_a_boundary_that_torch_evaluates():
    def chosen(x):
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y - 1, (x + 0,)) * 2

    made = imported(chosen, [numbers(3, 5)])
    assert made.opaque == {"cond": "noyau does not know cond"}
    for sign in (1, -1):
        compare(chosen, numbers(3, 5).abs() * sign, opaque=True)


def test_what_only_requires_something_makes_no_value():
    made = imported(lambda x: (x[x > 0].exp(), x.nonzero().shape[0]), [numbers(4)])
    assert [name for name in made.opaque if "assert_scalar" in name]
    assert not {value for value, giver in made.made_by.items() if "assert_scalar" in giver}


def test_a_slice_from_the_first_cell_on_asks_no_size():
    made = imported(lambda x: x.nonzero()[0:, :] * 3, [numbers(4)])
    assert not {"slice_1", "slice_2", "mul"} & set(made.opaque)


def test_a_result_that_is_an_input_or_given_twice():
    compare(lambda x: (x, x + 1, x), numbers(3))


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float8_e5m2], ids=str)
def test_what_reads_an_input_without_a_dtype_here_is_a_boundary(dtype):
    made = imported(lambda x: (x.to(torch.complex64), x), [torch.zeros(2, dtype=dtype)])
    (reason,) = made.opaque.values()
    assert reason == f"aten._to_copy.default is given args_0, of {dtype}: noyau has no kernels for that"


def test_which_of_torchs_nodes_made_a_value():
    made = imported(lambda x: torch.softmax(x, -1), [numbers(3, 4)])
    assert set(made.made_by.values()) >= {"_softmax"}
    assert made.graph.outputs == ("_softmax",)


def test_a_part_that_has_no_number_is_named():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(3)
    part = graph.call_function(operator.getitem, (x, slice(None)))
    part.meta["val"] = torch.zeros(3)
    graph.output((part,))
    with pytest.raises(UnsupportedError, match=r"getitem takes slice\(None, None, None\) of x"):
        import_graph(graph)


def test_a_generator_is_read_by_operators_that_torch_runs():
    """The state of random numbers that a checkpoint gives its attention again in backward, on a GPU."""
    graph = torch.fx.Graph()
    x, state = graph.placeholder("x"), graph.placeholder("fwd_rng_state_0")
    drawn = graph.call_function(torch.ops.aten.bernoulli.default, (x,), {"generator": state})
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (drawn, 2.0))
    for node in (x, drawn, doubled):
        node.meta["val"] = torch.zeros(3)
    state.meta["val"] = torch.Generator()
    graph.output((doubled,))
    made = import_graph(graph)
    assert set(made.opaque) == {drawn.name} and [node.output for node in made.graph.inputs] == ["x"]


def test_results_within_results_have_numbers_too():
    """A state of random numbers, and the two results of the operator that is called with it."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    drawn = graph.call_function(lambda x: (x[0], (x + 1, x * 2)), (x,))
    first, pair = (graph.call_function(operator.getitem, (drawn, at)) for at in range(2))
    parts = [graph.call_function(operator.getitem, (pair, at)) for at in range(2)]
    x.meta["val"], drawn.meta["val"] = torch.zeros(3), (torch.zeros(()), (torch.zeros(3), torch.zeros(3)))
    first.meta["val"], pair.meta["val"] = drawn.meta["val"]
    for node, value in zip(parts, pair.meta["val"], strict=True):
        node.meta["val"] = value
    graph.output((first, *parts))
    results = evaluate(import_graph(graph).graph, {"x": np.arange(3, dtype=np.float32)})
    assert [each.tolist() for each in results.values()] == [0, [1, 2, 3], [0, 2, 4]]
