from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.shift_invariance import invariant_values
from noyau.ir.graph import Map
from tests.compiler.autodiff.numeric import agrees, arrays_for, traced


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_of_columns(x):
    turned = np.exp(x - x.max(0)).T
    return turned / turned.sum(1, keepdims=True)


def log_softmax(x):
    moved = x - np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    return moved - np.log(np.exp(moved).sum(-1, keepdims=True))


def logsumexp(x):
    top = x.max(-1)
    return top + np.log(np.exp(x - top[..., None]).sum(-1))


def guarded_logsumexp(x):
    top = x.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


def picked(x):
    return log_softmax(x)[..., 0]


IDLE = [softmax, softmax_of_columns, log_softmax, logsumexp, guarded_logsumexp, picked]


@pytest.mark.parametrize("function", IDLE, ids=lambda each: each.__name__)
def test_no_gradient_goes_through_a_maximum_that_is_subtracted_again(function):
    graph = traced(function, (3, 4))
    assert invariant_values(graph)
    derived = agrees(graph, arrays_for(graph, {"x_0": 3, "x_1": 4}))
    backward = derived.backward
    assert not [
        node for node in backward.nodes if node.kind == Map("equal") and backward[node.inputs[0]].dtype.is_float
    ]


def moved_only(x):
    return x - x.max(-1, keepdims=True)


def unnormed(x):
    return np.exp(x - x.max(-1, keepdims=True))


def of_another_axis(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(0, keepdims=True)


def squared(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e * e / e.sum(-1, keepdims=True)


def seen_too(x):
    return softmax(x) + x.max(-1, keepdims=True)


def turned_against_itself(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.T.sum(0)


MOVING = [moved_only, unnormed, of_another_axis, squared, seen_too, turned_against_itself]


@pytest.mark.parametrize("function", MOVING, ids=lambda each: each.__name__)
def test_a_maximum_that_results_depend_on_has_its_gradient(function):
    shape = (4, 4) if function is turned_against_itself else (3, 4)
    graph = traced(function, shape)
    assert invariant_values(graph) == frozenset()
    agrees(graph, {"x": np.random.default_rng(0).normal(size=shape)})
