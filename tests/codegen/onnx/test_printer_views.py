"""Views as ONNX operators: those that a person would write, and the cells that are meant."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.dims import Dim, flat_index, shape_of
from noyau.ir.graph import Graph, Input, Iota, Node, Select, View
from noyau.ir.graph_interpreter import evaluate
from tests.hosts.spelled import by_import, by_onnxruntime, by_the_reference, operators, results

N, M = Dim.of("n"), Dim.of("m")
A, B, C = (Dim.of(f"#{axis}") for axis in range(3))
RUNS = [by_onnxruntime, by_the_reference, by_import]


def shown(shape, index, target) -> Graph:
    x = Node("x", Input(), (), DType.F32, shape_of(shape))
    return Graph((x, Node("y", View(shape_of(index)), ("x",), DType.F32, shape_of(target))), ("y",))


VIEWS = {
    "transpose": (shown((N, M), (B, A), (M, N)), ["Transpose"]),
    "slice": (shown((N, 8), (A, B + 2), (N, 3)), ["Slice"]),
    "every other": (shown((N, 8), (A, B * 2), (N, 4)), ["Slice"]),
    "flip": (shown((N, 8), (A, 7 - B), (N, 8)), ["Slice"]),
    "the last": (shown((N, M), (A, M - 1), (N,)), ["Gather"]),
    "the first": (shown((N, 8), (A, 0), (N,)), ["Gather"]),
    "a new axis": (shown((N, M), (A, C), (N, 1, M)), ["Unsqueeze"]),
    "merged": (shown((N, 4, 8), flat_index(shape_of((N, 4, 8)), (N * 4, Dim.of(8))), (N * 4, 8)), ["Reshape"]),
    "split": (shown((N, 32), flat_index(shape_of((N, 32)), shape_of((N, 4, 8))), (N, 4, 8)), ["Reshape"]),
    "expanded": (shown((N, 1), (A, 0), (N, 5)), None),
    "diagonal": (shown((N, N), (A, A), (N,)), None),
    "folded": (shown((N,), ((A * 3 + B) % N,), (N, 3)), None),
    "backwards by two": (shown((N, 8), (A, 7 - B * 2), (N, 4)), ["Slice", "Slice"]),
    "one cell": (shown((N, 8), (N - 1, 3), ()), ["Gather", "Gather"]),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("n", [5, 1])
def test_views(name, n):
    graph, wanted = VIEWS[name]
    sizes = {"n": n, "m": 7}
    shape = [dim.evaluate(sizes) for dim in graph["x"].shape]
    arrays = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    if wanted is not None:
        assert operators(graph) == wanted
    for run in RUNS:
        np.testing.assert_array_equal(results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"])


def test_pieces_are_concatenated_whole():
    x = Node("x", Input(), (), DType.BF16, (N, Dim.of(2)))
    one = Node("one", Input(), (), DType.BF16, ())
    wide = Node("wide", View(()), ("one",), DType.BF16, (N, Dim.of(3)))
    joined = Node("y", Select(1, shape_of((0, 2))), ("x", "wide"), DType.BF16, (N, Dim.of(5)))
    graph = Graph((x, one, wide, joined), ("y",))
    arrays = {"x": np.ones((4, 2), DType.BF16.numpy), "one": np.array(2, DType.BF16.numpy)}
    for run in RUNS:
        assert results(graph, arrays, run)["y"].tolist() == [[1, 1, 2, 2, 2]] * 4


@pytest.mark.parametrize("index", [A, B - A, N - 1 - A, (A * 7 + B) // 3, (A - 3) // 2, (A - B) % 3, N * 2 + M])
def test_indices_as_values(index):
    x = Node("x", Input(), (), DType.F32, (N, M))
    graph = Graph((x, Node("y", Iota(index), (), DType.I32, (N, M))), ("y",))
    arrays = {"x": np.zeros((4, 3), np.float32)}
    for run in RUNS:
        np.testing.assert_array_equal(results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"])
