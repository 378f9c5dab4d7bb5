"""Reductions and running sums as ONNX operators, on what is special too."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Input, Node, Reduce, Scan
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.monoids import MONOIDS
from tests.hosts.spelled import by_import, by_onnxruntime, by_the_reference, results, spelled
from tests.judged import Judge

RUNS = [by_onnxruntime, by_the_reference, by_import]
SHAPE = (3, 5, 4)
DTYPES = [DType.BOOL, DType.I8, DType.U16, DType.I64, DType.U64, DType.F16, DType.BF16, DType.F32, DType.F64]


def reduction(monoid: str, axes: tuple[int, ...], dtype: DType) -> Graph:
    x = Node("x", Input(), (), dtype, tuple(map(Dim.of, ("a", "b", 4))))
    left = tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)
    return Graph((x, Node("y", Reduce(monoid, axes), ("x",), MONOIDS[monoid].result(dtype), left)), ("y",))


def drawn(dtype: DType, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    rng = np.random.default_rng(1)
    array = rng.standard_normal(shape) if dtype.is_float else rng.integers(0, 2 if dtype is DType.BOOL else 9, shape)
    return array.astype(dtype.numpy)


@pytest.mark.parametrize("monoid", MONOIDS)
@pytest.mark.parametrize("axes", [(1,), (0, 2), (0, 1, 2)])
def test_every_monoid_in_every_dtype(monoid, axes):
    for dtype in DTYPES:
        if dtype.kind not in MONOIDS[monoid].accepts or (monoid == "prod" and not dtype.is_float):
            continue
        graph, arrays = reduction(monoid, axes, dtype), {"x": drawn(dtype)}
        judge = Judge(graph, arrays)
        for run in RUNS:
            assert judge.wrong("y", results(graph, arrays, run)["y"]) is None, (dtype, run)


ODD = [np.nan, np.inf, -np.inf, -0.0, 1.0, 1.0]


@pytest.mark.parametrize("monoid", [name for name in MONOIDS if "float" in MONOIDS[name].accepts])
@pytest.mark.parametrize("run", RUNS)
def test_what_is_special(monoid, run):
    rows = [[a, b, c, 1.0] for a in ODD for b in ODD for c in ODD]
    x = Node("x", Input(), (), DType.F32, (Dim.of("n"), Dim.of(4)))
    y = Node("y", Reduce(monoid, (1,)), ("x",), MONOIDS[monoid].result(DType.F32), (Dim.of("n"),))
    graph, arrays = Graph((x, y), ("y",)), {"x": np.array(rows, np.float32)}
    got, want = results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("monoid", ["sum", "prod", "any", "all", "logsumexp", "variance"])
def test_of_none(monoid, run):
    dtype = DType.BOOL if monoid in ("any", "all") else DType.F32
    graph, arrays = reduction(monoid, (1,), dtype), {"x": drawn(dtype, (2, 0, 4))}
    np.testing.assert_array_equal(results(graph, arrays, run)["y"], evaluate(graph, arrays)["y"])


def test_what_goes_through_floats_in_onnxruntime_is_refused():
    with pytest.raises(UnsupportedError, match=r"^y: the product of integers has no ONNX operator that keeps its bits"):
        spelled(reduction("prod", (1,), DType.I64))


@pytest.mark.parametrize("dtype", [DType.U8, DType.I64, DType.F16, DType.F32])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_sums(dtype, exclusive, reverse):
    x = Node("x", Input(), (), dtype, (Dim.of("n"), Dim.of("m")))
    graph = Graph((x, Node("y", Scan("sum", 1, exclusive, reverse), ("x",), dtype, x.shape)), ("y",))
    arrays = {"x": drawn(dtype, (3, 7))}
    judge = Judge(graph, arrays)
    for run in RUNS:
        assert judge.wrong("y", results(graph, arrays, run)["y"]) is None
