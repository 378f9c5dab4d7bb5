from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Map, Reduce, View
from noyau.kernels.programs.program import program
from tests.compiler.autodiff.numeric import agrees, arrays_for, traced
from tests.compiler.autodiff.test_adjoints_reverse_deriving import layer_norm, rms_norm, softmax

SHAPE = (7, 5)


def log_softmax(x):
    moved = x - x.max(-1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(-1, keepdims=True))


def cross_entropy(x, labels):
    return -np.take_along_axis(log_softmax(x), labels[:, None], -1)[:, 0]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def swiglu(x, up):
    return x / (1 + np.exp(-x)) * up


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[:, half:], x[:, :half]], -1)
    return x * cos + turned * sin


def linear(x, w):
    return np.tanh(x @ w) * 2


def shares(x):
    return x / x.sum(-1, keepdims=True)


def is_row(graph, name):
    """Whether a value has at most one cell a row."""
    return all(dim == Dim.of(1) for dim in graph[name].shape[1:])


ROWS = [(softmax, [SHAPE]), (log_softmax, [SHAPE]), (rms_norm, [SHAPE, (5,)]), (layer_norm, [SHAPE, (5,), (5,)])]
MAPS = [(gelu, [SHAPE]), (swiglu, [SHAPE, SHAPE])]


def names(each):
    return getattr(each, "__name__", "")


@pytest.mark.parametrize(("function", "shapes"), ROWS + MAPS, ids=names)
def test_no_more_is_saved_than_rows(function, shapes):
    graph = traced(function, *shapes)
    derived = derive(graph, [node.output for node in graph.inputs])
    extra = derived.forward.outputs[len(graph.outputs) :]
    assert all(is_row(derived.forward, name) for name in extra)
    assert len(extra) <= 2
    assert set(derived.saved) <= {*extra, *graph.outputs, *(node.output for node in graph.inputs)}
    assert [node.output for node in derived.backward.inputs] == [*derived.saved, "grad_out"]


@pytest.mark.parametrize(("function", "shapes"), ROWS + MAPS, ids=names)
def test_forward_is_one_kernel_and_backward_one_beside_those_of_weights(function, shapes):
    graph = traced(function, *shapes, dtype=DType.F32)
    derived = derive(graph, [node.output for node in graph.inputs])
    assert program(derived.forward, "forward").single
    steps = program(derived.backward, "backward").steps
    assert len(steps) <= len(shapes if (function, shapes) in ROWS else shapes[:1])
    assert all(hasattr(step, "kernel") for step in steps)


def test_the_gradient_of_a_cross_entropy_is_a_map():
    graph = traced(cross_entropy, SHAPE, (7,), dtypes={"labels": DType.I64})
    derived = derive(graph, ["x"])
    assert not any(isinstance(node.kind, Reduce) for node in derived.backward.nodes)
    assert program(derived.backward, "backward").single


def test_what_turns_only_saves_only_what_it_turns_by():
    derived = derive(traced(rope, (7, 6), (7, 6), (7, 6)), ["x"])
    assert derived.saved == ("cos", "sin")
    assert program(derived.backward, "backward").single


def test_an_output_stands_for_what_it_was_made_of():
    derived = derive(traced(linear, SHAPE, (5, 3)), ["x", "w"])
    inside = [node for node in derived.backward.nodes if node.kind == Map("tanh")]
    assert not inside or derived.forward.outputs == ("out",)
    assert not any(isinstance(n.kind, Contract) and n.inputs == ("x", "w") for n in derived.backward.nodes)


def test_a_view_is_never_saved_and_what_it_shows_is():
    graph = traced(shares, SHAPE)
    derived = derive(graph, ["x"])
    extra = derived.forward.outputs[1:]
    assert extra
    assert not any(isinstance(derived.forward[name].kind, View) for name in extra)


def test_sizes_that_no_gradient_tells_are_told_by_an_input():
    graph = traced(lambda x, y: (x.sum(), y * 2), (3, 4), (2,))
    derived = derive(graph, ["x", "y"])
    assert derived.saved == ("x",)
    agrees(graph, arrays_for(graph, {"x_0": 3, "x_1": 4, "y_0": 2}))


def test_nothing_is_saved_where_nothing_is_needed():
    derived = derive(traced(lambda x: x * 2 + 1, SHAPE), ["x"])
    assert derived.saved == ()
    assert derived.forward.outputs == ("out",)


def test_a_long_way_is_not_gone_again():
    def chain(x):
        for _ in range(12):
            x = np.tanh(x) * 1.5
        return x

    graph = traced(chain, SHAPE)
    derived = agrees(graph, arrays_for(graph, {"x_0": 7, "x_1": 5}))
    again = [node for node in derived.backward.nodes if node.kind == Map("tanh")]
    assert 1 <= len(derived.forward.outputs) - 1 <= 3
    assert len(again) < 12
