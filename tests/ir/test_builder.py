from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Graph, Scan
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check

CELLS = np.arange(6, dtype=np.float64).reshape(2, 3)


def start(*shape, dtype=DType.F64):
    """A builder and its input `x`."""
    builder = GraphBuilder()
    return builder, builder.add_input("x", dtype, shape_of(shape or ("n", "m")))


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda b, x: b.transpose(x, [1, 0]), CELLS.T),
        (lambda b, x: b.restore_axes(x, [0, 2]), CELLS[None, :, None]),
        (lambda b, x: b.drop_axes(b.restore_axes(x, [1]), [1]), CELLS),
        (lambda b, x: b.slice(x, 1, 0, 2, 2), CELLS[:, ::2]),
        (lambda b, x: b.pick(x, 0, 1), CELLS[1]),
        (lambda b, x: b.flip(x, 1), CELLS[:, ::-1]),
        (lambda b, x: b.concat([x, x], 1), np.concatenate([CELLS, CELLS], 1)),
        (lambda b, x: b.reduce("sum", x, [1], keep=True), CELLS.sum(1, keepdims=True)),
        (lambda b, x: b.expand_along(b.reduce("max", x, [0]), [0], x.shape), np.broadcast_to(CELLS.max(0), (2, 3))),
        (lambda b, x: b.scan(Scan("sum", 1), x), CELLS.cumsum(1)),
        (lambda b, x: b.call("add", x, b.like(1.5, x)), CELLS + 1.5),
        (lambda b, x: b.size(Dim.of("n") * 2, DType.F64, (Dim.of("m"),)), np.full(3, 4.0)),
        (lambda b, x: b.reshape(x, (Dim.of("n") * Dim.of("m"),)), CELLS.reshape(-1)),
    ],
)
def test_nodes_mean_what_numpy_means(build, wanted):
    builder, x = start()
    output = build(builder, x).output
    graph = check(Graph(tuple(builder.nodes), (output,), tuple(builder.demands)))
    np.testing.assert_array_equal(evaluate(graph, {"x": CELLS})[output], wanted)


def test_equal_values_are_one():
    builder, x = start()
    assert builder.call("exp", x) is builder.call("exp", x)
    assert builder.constant(2, DType.F32) is builder.constant(2.0, DType.F32)


def test_extents_that_must_be_equal_are_demanded():
    builder, x = start()
    y = builder.add_input("y", DType.F64, shape_of(["k", 1]))
    assert builder.call("add", x, y).shape == x.shape
    builder.concat([x, builder.add_input("z", DType.F64, shape_of(["n", 4]))], 0)
    assert list(map(str, builder.demands)) == ["n = k", "m = 4"]


def test_extents_that_never_are_equal_are_refused():
    builder, x = start("n", 3)
    with pytest.raises(UnsupportedError, match=r"shapes do not fit: an extent is n and n \+ 1 at once"):
        builder.demand_equal("n", Dim.of("n") + 1)
    with pytest.raises(UnsupportedError, match=r"it needs n \+ 1 to be at most n"):
        builder.demand_at_most(Dim.of("n") + 1, "n")
    with pytest.raises(UnsupportedError, match="shapes do not fit: an extent is 3 and 1 at once"):
        builder.drop_axes(x, [1])


def test_what_has_no_meaning_is_refused():
    builder, x = start(dtype=DType.BOOL)
    with pytest.raises(UnsupportedError, match="the sum of bool is not defined"):
        builder.reduce("sum", x, [0])
    with pytest.raises(UnsupportedError, match="exp"):
        builder.call("exp", x)
    with pytest.raises(UnsupportedError, match="300 does not fit into u8"):
        builder.constant(300, DType.U8)
    with pytest.raises(UnsupportedError, match="nan does not fit into i32"):
        builder.constant(float("nan"), DType.I32)


def test_float8_is_computed_in_float32():
    builder, x = start(dtype=DType.F8E4M3FN)
    assert builder.call("exp", x).dtype is DType.F8E4M3FN
    assert builder.cast(x, DType.F64).inputs != (x.output,)
    assert builder.reduce("max", x, [0]).dtype is DType.F8E4M3FN
    with pytest.raises(UnsupportedError, match="is rounded after each step, in an order that nobody promises"):
        builder.reduce("sum", x, [0])
    with pytest.raises(UnsupportedError, match="the running sum of f8e4m3fn is not traced; cast it to float32"):
        builder.scan(Scan("sum", 0), x)
