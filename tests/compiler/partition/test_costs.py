"""The bytes and flops of a kernel, and the cells of its values."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.costs import bytes_moved, cells, flops
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Lookup, Map, Reduce, constant
from tests.nodes import F16, F32, I64, at, given, graph, value, view

N = Dim.of("n")


def softmax():
    column = view(at(0))
    return graph(
        "y",
        given("x", F32, "b", "n"),
        value("m", Reduce("max", (1,)), "x", F32, "b"),
        value("w", column, "m", F32, "b", "n"),
        value("d", Map("subtract"), "x w", F32, "b", "n"),
        value("e", Map("exp"), "d", F32, "b", "n"),
        value("s", Reduce("sum", (1,)), "e", F32, "b"),
        value("t", column, "s", F32, "b", "n"),
        value("y", Map("divide"), "e t", F32, "b", "n"),
    )


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((), 1),
        ((3, 4), 12),
        (("n",), 61),
        (("n", "m"), 3721),
        ((N - 100,), 0),
        ((N // 64 + 1,), 1),
        ((Dim.of(1000) // (N // 64),), 16),
    ],
)
def test_cells_where_every_size_is_usual(shape, count):
    """Where that would divide by zero, a larger size is taken."""
    assert cells(given("x", F32, *shape)) == count


def test_flops_count_every_pass():
    b, n = Dim.of("b"), Dim.of("n")
    subtract, exp, divide, maximum, add = 1, 10, 4, 1, 1
    once = subtract + exp
    assert flops(lower(softmax(), "k")) == b * n * (maximum + add + once + once + divide)


def test_bytes_are_those_of_the_ends():
    made = graph(
        "y s",
        given("x", F32, "n", 8),
        constant("c", np.float32(3)),
        value("s", Reduce("sum", (1,)), "x", F32, "n"),
        value("h", Map("cast"), "s", F16, "n"),
        value("w", view(at(0)), "h", F16, "n", 8),
        value("y", Map("negative"), "w", F16, "n", 8),
    )
    assert bytes_moved(lower(made, "k")) == N * 8 * 4 + N * 8 * 2 + N * 4


def test_bytes_of_a_table_are_those_that_indices_look_into():
    made = graph(
        "y s",
        given("table", F32, "words", "n"),
        given("ids", I64, "rows"),
        value("g", Gather((Lookup(1, (at(0),)), at(1))), "table ids", F32, "rows", "n"),
        value("s", Reduce("sum", (1,)), "g", F32, "rows"),
        value("y", Map("negative"), "g", F32, "rows", "n"),
    )
    moved = bytes_moved(lower(made, "k"))
    assert moved.evaluate({"words": 1000, "n": 5, "rows": 7}) == 7 * 5 * 4 + 7 * 8 + 7 * 5 * 4 + 7 * 4
    assert moved.evaluate({"words": 3, "n": 5, "rows": 7}) == 3 * 5 * 4 + 7 * 8 + 7 * 5 * 4 + 7 * 4
