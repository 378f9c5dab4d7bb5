"""Products as ONNX operators, of no cells too."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Graph, Input, Node
from tests.codegen.onnx.test_printer_reductions import RUNS, drawn
from tests.hosts.spelled import operators, results, spelled
from tests.judged import Judge


def product(equation: str, dtype: DType) -> Graph:
    operands, _, result = equation.partition("->")
    nodes = [
        Node(name, Input(), (), dtype, tuple(map(Dim.of, term)))
        for name, term in zip("ab", operands.split(","), strict=True)
    ]
    return Graph((*nodes, Node("y", Contract(equation), ("a", "b"), dtype, tuple(map(Dim.of, result)))), ("y",))


@pytest.mark.parametrize("dtype", [DType.I8, DType.U64, DType.BF16, DType.F32, DType.F64])
@pytest.mark.parametrize(
    ("equation", "operator"),
    [
        ("ij,jk->ik", "MatMul"),
        ("bij,bjk->bik", "MatMul"),
        ("bij,jk->bik", "MatMul"),
        ("ij,kj->ik", "MatMul"),
        ("jbi,kjb->bik", "MatMul"),
        ("ij,kj->ki", "Einsum"),
        ("bcj,cbj->bc", "Einsum"),
        ("i,i->", "Einsum"),
        ("ij,jk->ki", "Einsum"),
        ("ij,ij->ij", "Einsum"),
        ("bij,cjk->bcik", "Einsum"),
    ],
)
def test_products(equation, operator, dtype):
    graph = product(equation, dtype)
    sizes = dict(zip("bcijk", (2, 3, 4, 5, 6), strict=True))
    arrays = {n.output: drawn(dtype, tuple(sizes[str(dim)] for dim in n.shape)) for n in graph.inputs}
    judge = Judge(graph, arrays)
    assert operator in operators(graph)
    for run in RUNS:
        assert judge.wrong("y", results(graph, arrays, run)["y"]) is None


@pytest.mark.parametrize(
    "equation", ["ij,kj->ik", "ij,kj->ki", "j,kj->k", "bij,bkj->bik", "bcj,cbj->bc", "ij,kjb->ikb"]
)
@pytest.mark.parametrize("empty", ["j", "jk", "jb"])
def test_products_of_no_cells_are_0_and_end_no_process(equation, empty):
    """onnxruntime's Einsum ends it where it turns a second operand without cells."""
    graph = product(equation, DType.F32)
    sizes = {axis: 0 if axis in empty else size for axis, size in zip("bcijk", (2, 3, 4, 5, 6), strict=True)}
    arrays = {n.output: drawn(DType.F32, tuple(sizes[str(dim)] for dim in n.shape)) for n in graph.inputs}
    for run in RUNS:
        got = results(graph, arrays, run)["y"]
        assert np.array_equal(got, np.einsum(equation, *arrays.values()))


def test_products_of_truths_are_refused():
    with pytest.raises(UnsupportedError, match=r"^y: the product ij,jk->ik of bool has no ONNX operator"):
        spelled(product("ij,jk->ik", DType.BOOL))
