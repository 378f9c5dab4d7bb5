from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import GraphError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Iota,
    Lookup,
    Map,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
)
from noyau.ir.graph_verifier import check
from tests.nodes import BOOL, F32, F64, I8, I32, I64, at, given, value, view

X = given("x", F32, "n", 4)
B = given("b", BOOL, "n", 4)
D = given("d", F64, "n", 4)
R = given("r", F32, 4)
K = given("k", I32, 3)
TABLE = given("table", F32, 9, 4)


def select(*starts, axis=0):
    return Select(axis, shape_of(starts))


FINE = [
    value("y", Map("exp"), "x", F32, "n", 4),
    value("y", Map("add"), "x x", F32, Dim.of("n") * 2 - "n", 4),
    value("y", Map("where"), "b x x", F32, "n", 4),
    value("y", Map("cast"), "x", I8, "n", 4),
    value("y", Map("less"), "x x", BOOL, "n", 4),
    value("y", Reduce("sum", (1,)), "x", F32, "n"),
    value("y", Reduce("argmax", (0, 1)), "x", I64),
    value("y", Scan("sum", 1), "x", F32, "n", 4),
    value("y", view(at(1), at(0)), "x", F32, "n", "n"),
    value("y", view(0, 3), "x", F32),
    value("y", Iota(at(0) * "n" + 1), "", I64, 5),
    value("y", select(0, "n"), "x x", F32, Dim.of("n") * 2, 4),
    value("y", select(0, 4, 8, axis=1), "x x x", F32, "n", 12),
    value("y", Gather((Lookup(1, (at(0),)), at(1))), "table k", F32, 3, 4),
    value("y", Scatter((Lookup(1, (at(0),)), at(1)), "sum"), "table k x", F32, 9, 4),
    value("y", Contract("ij,ij->i"), "x x", F32, "n"),
    value("y", Opaque("made"), "x k b", F32, 7),
    value("y", Constant(np.float32([1, 2])), "", F32, 2),
]


@pytest.mark.parametrize("node", FINE, ids=lambda node: str(node.kind)[:40])
def test_what_keeps_the_rules(node):
    graph = Graph((X, B, D, R, K, TABLE, node), ("y",))
    assert check(graph) is graph


FAULTS = [
    (value("y", Map("exp"), "z", F32, "n", 4), "y uses z before it is made"),
    (value("x", Map("exp"), "x", F32, "n", 4), "x is made twice"),
    (value("q", Map("exp"), "x", F32, "n", 4), "the output y is never made"),
    (value("y", Map("expo"), "x", F32, "n", 4), "y: expo is not in the operator table"),
    (value("y", Map("add"), "x", F32, "n", 4), "y: 1 inputs, but it takes 2"),
    (value("y", Map("cast"), "x x", F32, "n", 4), "y: 2 inputs, but it takes 1"),
    (value("y", Map("add"), "x r", F32, "n", 4), "y: r has shape (Dim(4),), not (Dim(n), Dim(4)): expand it first"),
    (value("y", Map("exp"), "x", F32, 3, 4), "y: x has shape (Dim(n), Dim(4)), not (Dim(3), Dim(4)): expand it first"),
    (value("y", Map("add"), "x d", F32, "n", 4), "y: add cannot take f32, f64: cast them first"),
    (value("y", Map("exp"), "b", F32, "n", 4), "y: exp cannot take bool: cast them first"),
    (value("y", Map("where"), "x x x", F32, "n", 4), "y: where needs a bool condition, not f32"),
    (value("y", Map("add"), "x x", F64, "n", 4), "y: add does not give f64"),
    (value("y", Map("less"), "x x", F32, "n", 4), "y: less does not give f32"),
    (value("y", Reduce("total", (1,)), "x", F32, "n"), "y: total is not in the table of monoids"),
    (value("y", Reduce("sum", (1,)), "b", BOOL, "n"), "y: sum of bool does not give bool"),
    (value("y", Reduce("argmax", (1,)), "x", F32, "n"), "y: argmax of f32 does not give f32"),
    (value("y", Reduce("sum", (2,)), "x", F32, "n", 4), "y: the axes (2,) are not those of a value of rank 2"),
    (value("y", Reduce("sum", (1, 1)), "x", F32, "n"), "y: the axes (1, 1) are not those of a value of rank 2"),
    (value("y", Reduce("sum", (-1,)), "x", F32, "n"), "y: the axes (-1,) are not those of a value of rank 2"),
    (
        value("y", Reduce("sum", (0,)), "x", F32, "n"),
        "y: what is left of (Dim(n), Dim(4)) without (0,) is not (Dim(n),)",
    ),
    (value("y", Reduce("sum", (0,)), "x x", F32, 4), "y: 2 inputs, but it takes 1"),
    (value("y", Scan("sum", 2), "x", F32, "n", 4), "y: the scan of sum along 2 does not fit (Dim(n), Dim(4))"),
    (value("y", Scan("total", 1), "x", F32, "n", 4), "y: the scan of total along 1 does not fit (Dim(n), Dim(4))"),
    (value("y", view(at(0)), "x", F32, "n"), "y: the index has 1 entries for an operand of rank 2"),
    (value("y", view(at(0), at(1)), "x", F64, "n", 4), "y: a view cannot turn f32 into f64"),
    (value("y", view(at(0), at(2)), "x", F32, "n", 4), "y: #2 is no index of a value of rank 2"),
    (value("y", Iota(at(1)), "", I64, 5), "y: #1 is no index of a value of rank 1"),
    (value("y", Iota(at(0)), "x", I64, 5), "y: 1 inputs, but it takes 0"),
    (
        value("y", select(0, "n"), "x x", F32, "n", 4),
        "y: the piece x is f32(Dim(n), Dim(4)), not f32(Dim(0), Dim(4))",
    ),
    (
        value("y", select(0, "n"), "x d", F32, Dim.of("n") * 2, 4),
        "y: the piece d is f64(Dim(n), Dim(4)), not f32(Dim(n), Dim(4))",
    ),
    (value("y", select(0, "n"), "x", F32, "n", 4), "y: 1 inputs, but it takes 2"),
    (value("y", select(), "", F32, "n", 4), "y: 0 inputs, but it takes 1"),
    (
        value("y", select(0, axis=2), "x", F32, "n", 4),
        "y: 1 pieces from (Dim(0),) along axis 2 of a value of rank 2",
    ),
    (
        value("y", select(1), "x", F32, Dim.of("n") + 1, 4),
        "y: 1 pieces from (Dim(1),) along axis 0 of a value of rank 2",
    ),
    (
        value("y", Gather((Lookup(1, (at(0),)),)), "table k", F32, 3, 4),
        "y: the index has 1 entries for an operand of rank 2",
    ),
    (
        value("y", Gather((Lookup(1, (at(0),)), at(1))), "table r", F32, 4, 4),
        "y: the indices r are f32",
    ),
    (
        value("y", Gather((Lookup(1, (at(0), at(1))), at(1))), "table k", F32, 3, 4),
        "y: the indices k are looked up with 2 entries",
    ),
    (value("y", Gather((Lookup(1, (at(3),)), at(1))), "table k", F32, 3, 4), "y: #3 is no index of a value of rank 2"),
    (value("y", Gather((Lookup(1, (at(0),)), at(2))), "table k", F32, 3, 4), "y: #2 is no index of a value of rank 2"),
    (value("y", Gather((Lookup(2, (at(0),)), at(1))), "table k", F32, 3, 4), "y: 2 inputs, but it takes 3"),
    (
        value("y", Scatter((at(0),), None), "table k x", F32, 9, 4),
        "y: the index does not have the rank of the result",
    ),
    (value("y", Scatter((at(0), at(1)), None), "table x", F32, 9, 4), "y: 2 inputs, but it takes 3"),
    (value("y", Contract("ij,jk"), "x x", F32, "n"), "y: ij,jk is no einsum of two operands"),
    (value("y", Contract("ij->i"), "x", F32, "n"), "y: 1 inputs, but it takes 2"),
    (value("y", Constant(np.float64([1])), "", F32, 1), "y: the array is float64[1], not f32(Dim(1),)"),
    (value("y", Constant(np.float32([1])), "", F32, 2), "y: the array is float32[1], not f32(Dim(2),)"),
    (value("y", Part(0), "x x", F32, "n"), "y: 2 inputs, but it takes 1"),
]


@pytest.mark.parametrize(("node", "message"), FAULTS, ids=lambda part: part if isinstance(part, str) else "")
def test_what_breaks_them(node, message):
    with pytest.raises(GraphError) as caught:
        check(Graph((X, B, D, R, K, TABLE, node), ("y",)))
    assert str(caught.value) == message
