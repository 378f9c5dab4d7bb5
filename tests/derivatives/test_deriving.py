from __future__ import annotations

import numpy as np
import pytest

from tests.derivatives.numeric import agrees, arrays_for, traced


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def layer_norm(x, w, b):
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away * away).mean(-1, keepdims=True) + 1e-5) * w + b


def dense(x, w, b):
    return np.tanh(x @ w + b)


def pieces(x, y):
    return (np.concatenate([x.T[::-1], np.abs(y)[:, ::2]], 1) * 2).reshape(-1)


def sums(x):
    return x.prod(-1) + x.max() + np.cumsum(x, -1).sum(-1) + np.var(x, -1)


CASES = [
    (softmax, [(3, 5)]),
    (rms_norm, [(3, 5), (5,)]),
    (layer_norm, [(3, 5), (5,), (5,)]),
    (dense, [(2, 3), (3, 4), (4,)]),
    (pieces, [(3, 4), (4, 7)]),
    (sums, [(3, 4)]),
]


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_gradients_are_those_of_central_differences(function, shapes):
    graph = traced(function, *shapes)
    given = zip(graph.inputs, shapes, strict=True)
    sizes = {f"{node.output}_{axis}": n for node, shape in given for axis, n in enumerate(shape)}
    agrees(graph, arrays_for(graph, sizes))
