"""Few rows in the place of many that nothing connects."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Gather, Graph, Input, Iota, Lookup, Map, Node, Reduce, Scan, Scatter, View
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.trial import RepeatedRows, axes_of, few_rows

ROWS, WIDTH = CELLS = 64, 5
F32 = DType.F32


def node(name, kind, inputs, *shape, dtype=F32):
    return Node(name, kind, inputs, dtype, shape_of(shape))


def of(*names):
    return View(tuple(Dim.of(name) for name in names))


X = node("x", Input(), (), ROWS, WIDTH)
SCALED = (
    X,
    node("total", Reduce("sum", (1,)), ("x",), ROWS),
    node("wide", of("#0"), ("total",), ROWS, WIDTH),
    node("weight", Input(), (), WIDTH),
    node("weights", of("#1"), ("weight",), ROWS, WIDTH),
    node("scaled", Map("multiply"), ("x", "wide"), ROWS, WIDTH),
    node("out", Map("multiply"), ("scaled", "weights"), ROWS, WIDTH),
)
RESHAPED = (
    X,
    node(
        "view",
        View((Dim.of("#0") * ROWS + Dim.of("#1") + Dim.of("#2") // WIDTH, Dim.of("#2") % WIDTH)),
        ("x",),
        1,
        ROWS,
        WIDTH,
    ),
    node("out", Map("exp"), ("view",), 1, ROWS, WIDTH),
)
LOOKED_UP = (
    node("table", Input(), (), 9, WIDTH),
    node("ids", Input(), (), ROWS, dtype=DType.I64),
    node("out", Gather((Lookup(1, (Dim.of("#0"),)), Dim.of("#1"))), ("table", "ids"), ROWS, WIDTH),
)
MERGED = (
    X,
    node("ids", Input(), (), ROWS, 1, dtype=DType.I64),
    node("more", Input(), (), ROWS, 1),
    node("out", Scatter((Dim.of("#0"), Lookup(1, (Dim.of("#0"), Dim.of("#1")))), None), ("x", "ids", "more"), *CELLS),
)


@pytest.mark.parametrize(
    ("nodes", "inputs"), [(SCALED, (0, None)), (RESHAPED, (0,)), (LOOKED_UP, (None, 0)), (MERGED, (0, 0, 0))]
)
def test_the_few_rows_are_those_of_the_many(nodes, inputs):
    graph, rng = Graph(nodes, ("out",)), np.random.default_rng(0)
    few = few_rows(graph)
    assert few.inputs == inputs and (few.count, few.rows) == (8, ROWS)
    shapes = {each.output: [dim.constant for dim in each.shape] for each in graph.inputs}
    given = {
        each.output: rng.standard_normal(shapes[each.output], np.float32)
        if each.dtype is F32
        else rng.integers(0, WIDTH, shapes[each.output])
        for each in graph.inputs
    }
    pairs = zip(given.items(), few.inputs, strict=True)
    short = {name: each if axis is None else np.take(each, range(8), axis) for (name, each), axis in pairs}
    (axis,) = few.outputs
    want = np.take(evaluate(graph, given)["out"], range(8), axis)
    assert np.array_equal(evaluate(few.graph, short)["out"], want)


COUNTED = (X, node("at", Iota(Dim.of("#0")), (), *CELLS), node("out", Map("add"), ("x", "at"), *CELLS))
MIXED = (
    X,
    node("all", Reduce("sum", (0,)), ("x",), WIDTH),
    node("back", of("#1"), ("all",), *CELLS),
    node("out", Map("add"), ("x", "back"), *CELLS),
)
MOVED = (X, node("out", View((Dim.of("#0") + 1, Dim.of("#1"))), ("x",), ROWS - 1, WIDTH))
RUNNING = (X, node("out", Scan("sum", 0), ("x",), *CELLS))


@pytest.mark.parametrize("nodes", [COUNTED, MIXED, MOVED, RUNNING])
def test_rows_that_know_of_others_or_of_where_they_lie(nodes):
    graph = Graph(nodes, ("out",))
    assert few_rows(graph) is None
    assert axes_of(graph, "out", 0) is None


def test_few_rows_and_sizes_that_are_names_are_left_as_they_are():
    assert few_rows(Graph((node("x", Input(), (), 8, 3), node("out", Map("exp"), ("x",), 8, 3)), ("out",))) is None
    assert few_rows(Graph((node("x", Input(), (), "n", 3), node("out", Map("exp"), ("x",), "n", 3)), ("out",))) is None


class Doubling:
    """Twice each cell; `wrong` changes the result."""

    def __init__(self, wrong=None):
        self.wrong = wrong or (lambda array: array)

    def call_guarded(self, *arrays, pieces=1, order=range):
        return [self.wrong(arrays[0] * 2)]


def _last_row(array):
    array[-1] += 1
    return array


@pytest.mark.parametrize("wrong", [lambda array: np.roll(array, 1, 0), _last_row])
def test_a_row_that_is_another_ones_shows(wrong):
    graph = Graph((X, node("out", Map("exp"), ("x",), ROWS, WIDTH)), ("out",))
    given = np.arange(8.0 * WIDTH, dtype=np.float32).reshape(8, WIDTH)
    for kernel, alike in ((Doubling(), True), (Doubling(wrong), False)):
        repeated = RepeatedRows(kernel, few_rows(graph), np.random.default_rng(0))
        (made,) = repeated.call_guarded(given)
        assert repeated.alike == alike
        assert not alike or np.array_equal(made, given * 2)


def test_a_row_takes_each_place_in_one_call_or_another():
    graph = Graph((X, node("out", Map("exp"), ("x",), ROWS, WIDTH)), ("out",))
    kernel = Doubling()
    seen = []
    kernel.call_guarded = lambda *arrays, **_: seen.append(arrays[0][:, 0].copy()) or [arrays[0] * 2]
    repeated = RepeatedRows(kernel, few_rows(graph), np.random.default_rng(0))
    for _ in range(3):
        repeated.call_guarded(np.arange(8.0 * WIDTH, dtype=np.float32).reshape(8, WIDTH))
    assert repeated.alike and not np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[1], seen[2])
