"""Gathers and scatters as ONNX operators: the cells that are meant, and errors where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Gather, Graph, Input, Lookup, Node, Scatter
from noyau.ir.graph_interpreter import evaluate
from tests.hosts.spelled import by_import, by_onnxruntime, by_the_reference, results

N, M = Dim.of("n"), Dim.of("m")
A, B = Dim.of("#0"), Dim.of("#1")
RUNS = [by_onnxruntime, by_the_reference, by_import]


def looked_up(index, shape, dtype=DType.I64) -> Graph:
    table = Node("t", Input(), (), DType.F32, (N, M))
    ids = Node("i", Input(), (), dtype, (Dim.of("k"),))
    return Graph((table, ids, Node("y", Gather(index), ("t", "i"), DType.F32, shape)), ("y",))


ROWS = looked_up((Lookup(1, (A,)), B), (Dim.of("k"), M))
CELLS = looked_up((A, Lookup(1, (A,))), (Dim.of("k"),))
TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("graph", [ROWS, CELLS, looked_up((Lookup(1, (A,)), B), (Dim.of("k"), M), DType.U8)])
def test_looked_up(graph):
    arrays = {"t": TABLE, "i": np.array([2, 0, 1], graph["i"].dtype.numpy)}
    for run in RUNS:
        np.testing.assert_array_equal(results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"])


@pytest.mark.parametrize("graph", [ROWS, CELLS])
@pytest.mark.parametrize("bad", [-1, 4])
def test_an_index_outside_is_an_error_also_a_negative_one(graph, bad):
    arrays = {"t": TABLE, "i": np.array([2, 0, bad])}
    with pytest.raises(InputError):
        results(graph, arrays, by_onnxruntime)


@pytest.mark.parametrize("monoid", [None, "sum", "prod", "max", "min"])
@pytest.mark.parametrize("index", [(Lookup(1, (A,)), B), (A, Lookup(1, (A, B)))])
def test_updates(monoid, index):
    ids_shape = shape_of(("k",)) if index[1] == B else shape_of(("k", 4))
    table, ids = Node("t", Input(), (), DType.F32, (N, Dim.of(4))), Node("i", Input(), (), DType.I64, ids_shape)
    new = Node("u", Input(), (), DType.F32, shape_of(("k", 4)))
    merged = Node("y", Scatter(index, monoid), ("t", "i", "u"), DType.F32, table.shape)
    graph = Graph((table, ids, new, merged), ("y",))
    at = np.array([2, 0, 2]) if len(ids_shape) == 1 else np.array([[3, 1, 1, 0], [0, 2, 2, 2], [1, 1, 3, 0]])
    arrays = {"t": TABLE, "i": at, "u": np.linspace(-3, 9, 12, dtype=np.float32).reshape(3, 4)}
    for run in (by_onnxruntime, by_the_reference):
        np.testing.assert_allclose(results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"], rtol=1e-6)
