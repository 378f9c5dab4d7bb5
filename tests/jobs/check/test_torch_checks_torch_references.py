from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import InputError
from noyau.ir.graph import Opaque
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.check.torch_checks import difference, reference_graphs

X, Y = np.random.default_rng(0).normal(size=(2, 3, 4))
ARGS = (torch.tensor(X), 2.0, torch.tensor(Y))


def of_numpy(x, k, y):
    return np.tanh(x * y) * k, x.sum(0)


def of_torch(x, k, y):
    return torch.tanh(x * y) * k, x.sum(0)


def has_opaque(graph):
    return any(isinstance(node.kind, Opaque) for node in graph.nodes)


@pytest.mark.parametrize("reference", [of_numpy, of_torch])
def test_both_kinds_give_the_same_values_and_gradients(reference):
    found = reference_graphs(reference, ARGS, "it")
    assert has_opaque(found.graph) == (reference is of_torch)
    assert (found.wanted, found.wanted_places, found.graded_places) == (("x", "y"), [0, 2], [0, 1])
    arrays = found.arrays(ARGS)
    values = evaluate(found.graph, dict(zip(("x", "y"), arrays, strict=True)))
    assert [values[name] for name in found.graph.outputs][1] == pytest.approx(X.sum(0))
    above = found.above(np.random.default_rng(1))
    assert found.gradient is not None
    got = evaluate(
        found.gradient, dict(zip((n.output for n in found.gradient.inputs), (*arrays, *above.values()), strict=True))
    )
    first, second = above.values()
    slope = first * 2 * (1 - np.tanh(X * Y) ** 2)
    of_x, of_y = (got[name] for name in found.gradient.outputs)
    assert of_x == pytest.approx(slope * Y + second) and of_y == pytest.approx(slope * X)
    assert difference(found, (*arrays, *above.values()), 1, (2, 3)) == pytest.approx((slope * X)[2, 3], rel=1e-6)


def test_a_reference_of_numpy_that_cannot_be_traced_has_no_gradient():
    found = reference_graphs(lambda x: np.array([sorted(row) for row in x.tolist()]), (torch.tensor(X),), "it")
    assert found.gradient is None and found.reason.startswith("the reference has no derivative: ")
    assert has_opaque(found.graph)


def test_an_input_that_nothing_reads_stays_one():
    found = reference_graphs(lambda x, y: np.exp(x), (torch.tensor(X), torch.tensor(Y)), "it")
    assert found.gradient is not None
    assert [node.output for node in found.graph.inputs] == ["x", "y"]
    assert [node.output for node in found.gradient.inputs] == ["x", "y", "grad_out"]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (lambda x: x.no_such(), "with arrays it ends with AttributeError: .*; with tensors with AttributeError"),
        (lambda: 1, "does not take these arguments: with arrays it ends with TypeError"),
        (lambda x: ["text"], "its reference gives .*'str'.*, and no arrays"),
    ],
)
def test_references_that_do_not_fit(reference, told):
    with pytest.raises(InputError, match=told):
        reference_graphs(reference, (torch.tensor(X),), "it")
