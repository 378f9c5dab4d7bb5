"""Windows, convolutions and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Map, Reduce
from tests.frontends.numpy.traces import found, x


@pytest.mark.parametrize(
    "function",
    [
        lambda a: sliding_window_view(a, 3, axis=1).mean(-1),
        lambda a: sliding_window_view(a, (2, 3)).max((-1, -2)),
        lambda a: sliding_window_view(a, (2, 2), (1, 1)),
        lambda a: sliding_window_view(a, a.shape),
    ],
)
def test_windows(function):
    assert not found(function, x(4, 5)).specialised


def test_a_window_is_not_written():
    def write(a):
        out = np.zeros(a.shape)
        sliding_window_view(out, 2, axis=0)[0] = 1
        return out

    with pytest.raises(UnsupportedError, match=r"what np\.sliding_window_view gives is read-only"):
        found(lambda a: write(a) if not isinstance(a, np.ndarray) or type(a) is not np.ndarray else a, x(4, 5))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtypes", ["f4f4", "f8f4", "i4f4", "i1i1", "?? ", "f2f2"])
@pytest.mark.parametrize("extents", [(7, 3), (3, 7), (4, 4), (5, 1), (1, 5), (6, 4), (1, 1)], ids=str)
def test_convolve_and_correlate(mode, dtypes, extents):
    pair = (dtypes[0], dtypes[1]) if "?" in dtypes else (dtypes[:2], dtypes[2:])
    one, other = (x(n, dtype=dtype, seed=k) for k, (n, dtype) in enumerate(zip(extents, pair, strict=True)))
    wide = (lambda made: made.astype(np.float32).round(1)) if "f2" in dtypes else (lambda made: made)
    found(lambda a, v: wide(np.convolve(a, v, mode)), one, other)
    found(lambda a, v: wide(np.correlate(a, v, mode)), one, other)


def test_what_is_beyond_the_ends_meets_nothing():
    found(lambda a, v: np.convolve(a, v), x(5), np.array([1, np.inf, 2], np.float32))
    found(lambda a: np.convolve(a, [0.25, 0.5, 0.25], "same"), x(6))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1"])
@pytest.mark.parametrize("order", [1, 2])
def test_gradients(dtype, order):
    places = np.cumsum(np.abs(x(5, seed=3)) + np.float32(0.5))
    found(lambda a: np.gradient(a, edge_order=order), x(4, 5, dtype=dtype))
    found(lambda a: np.gradient(a, 0.5, axis=0, edge_order=order), x(4, 5, dtype=dtype))
    found(lambda a: np.gradient(a, 2, 0.5, edge_order=order), x(4, 5, dtype=dtype))
    if dtype != "f2":
        found(lambda a, p: np.gradient(a, p, axis=1, edge_order=order), x(4, 5, dtype=dtype), places)
        found(lambda a, p: np.gradient(a, 2, p, edge_order=order), x(4, 5, dtype=dtype), places)
        found(lambda a: np.gradient(a, [0, 1, 3, 4, 9], axis=-1, edge_order=order), x(4, 5, dtype=dtype))


def test_a_gradient_keeps_names_for_sizes():
    assert not found(lambda v: np.gradient(v), x(7)).specialised


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.gradient(a, 1, 2, 3), "np.gradient takes one step, or one for each axis"),
        (lambda a: np.gradient(a, edge_order=3), "edge_order= 1 or 2"),
        (lambda a: np.gradient(a[:, :1], axis=1), "it needs 2 to be at most 1"),
        (lambda a: np.convolve(a[0], a[1], "wide"), "np.correlate takes mode="),
        (lambda a: sliding_window_view(a, 3), "windows of 1 extents are over 2 axes"),
    ],
)
def test_what_is_refused(function, told):
    from noyau.dtypes import DType
    from noyau.frontends.numpy.trace import trace_shapes

    with pytest.raises(UnsupportedError, match="cannot be traced at line") as refusal:
        trace_shapes(function, {"a": (DType.F32, (4, 5))}, {})
    assert told in str(refusal.value)


@pytest.mark.parametrize("mode", ["full", "same"])
def test_beyond_the_ends_nothing_meets_and_inside_nothing_is_asked(mode):
    """0 times an infinity would be NaN; and each cell inside sums the products of a window."""
    taps = np.array([1, np.inf, -2, 0.5], np.float32)
    graph = found(lambda a, v: np.convolve(a, v, mode), x(9), taps).graph
    choices = [node.shape for node in graph.nodes if node.kind == Map("where")]
    inside = [graph[node.inputs[0]].shape for node in graph.nodes if isinstance(node.kind, Reduce)]
    assert len(choices) == 2
    assert len(inside) == 3
    assert [shape for shape in inside if shape not in choices] == [(Dim.of("x0_0") - 3, Dim.of(4))]
