from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.compiler.lowering.input_layouts import (
    INNER,
    PACKED,
    STRIDED,
    Layout,
    Order,
    laid_out,
    layout_of,
    lie,
    strided_names,
)
from noyau.dtypes import DType
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Map, Node
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check

WHOLE = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (WHOLE, PACKED),
        (WHOLE[:0], PACKED),
        (np.float32(3), PACKED),
        (WHOLE.T, Layout(Order.PERMUTED, (2, 1, 0))),
        (WHOLE.transpose(1, 0, 2), Layout(Order.PERMUTED, (1, 0, 2))),
        (WHOLE[:, :2], INNER),
        (WHOLE[::-1], INNER),
        (np.broadcast_to(WHOLE[0], (5, 3, 4)), INNER),
        (WHOLE[..., ::2], STRIDED),
        (WHOLE[..., ::-1], STRIDED),
        (np.broadcast_to(WHOLE[..., :1], (2, 3, 4)), STRIDED),
    ],
    ids=str,
)
def test_the_layout_of_an_array(array, layout):
    assert layout_of(np.asarray(array)) == layout


def test_what_no_kernel_reads_has_no_layout():
    records = np.zeros(4, np.dtype([("a", np.float32), ("b", np.int8)]))
    assert layout_of(records["a"]) is None
    unaligned = np.zeros(17, np.int8)[1:].view(np.float32)
    assert layout_of(unaligned) is None


@pytest.mark.parametrize("layout", [PACKED, Layout(Order.PERMUTED, (2, 0, 1)), INNER, STRIDED], ids=str)
def test_a_copy_that_lies_so(layout):
    laid = lie(WHOLE, layout)
    assert np.array_equal(laid, WHOLE)
    assert layout_of(laid) == layout
    assert layout.in_memory(laid).flags.c_contiguous == (layout.order in (Order.PACKED, Order.PERMUTED))


@given(st.permutations(range(3)))
def test_in_memory_and_back(axes):
    layout = Layout(Order.PERMUTED, tuple(axes))
    assert layout.as_called(layout.in_memory(WHOLE)).strides == WHOLE.strides


def test_no_cells_lie_any_way():
    for layout in (PACKED, Layout(Order.PERMUTED, (1, 0)), INNER, STRIDED):
        assert lie(np.empty((0, 3), np.float32), layout).shape == (0, 3)


def sum_of_two() -> Graph:
    shape = shape_of(["m", "n"])
    ends = [Node(name, Input(), (), DType.F32, shape) for name in ("x", "y")]
    return Graph((*ends, Node("out", Map("add"), ("x", "y"), DType.F32, shape)), ("out",))


def test_a_permuted_input_is_a_transpose_of_what_lies_in_memory():
    graph = check(laid_out(sum_of_two(), [Layout(Order.PERMUTED, (1, 0)), INNER]))
    assert [node.output for node in graph.inputs] == ["x_in_memory", "y"]
    x, y = WHOLE[0], WHOLE[1]
    assert np.array_equal(evaluate(graph, {"x_in_memory": x.T, "y": y})["out"], x + y)
    assert strided_names(graph, [Layout(Order.PERMUTED, (1, 0)), INNER]) == {"y": "inner"}
