"""Along which axes the cells of a value differ, and what is then computed once."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.loop_nest import dependence
from noyau.compiler.lowering.nest import lower
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Constant, Gather, Iota, Lookup, Map, Reduce, Scan, Select
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Fold, Let, Load, Loop, Role
from noyau.ir.walk import every_expression
from tests.nodes import F32, I64, at, given, graph, value, view

N = Dim.of("n")
ROW = (given("r", F32, "n"), value("x", view(at(1)), "r", F32, "b", "n"))  # rows that are all alike


def agrees(made, **arrays):
    """Whether the kernel and the graph give the same bits."""
    kernel, want = lower(made, "k"), evaluate(made, arrays)
    got = run(kernel, [arrays[buffer.source] for buffer in kernel.of(Role.INPUT)])
    return all(np.array_equal(array, want[name]) for name, array in zip(made.outputs, got, strict=True))


@pytest.mark.parametrize(
    ("node", "axes"),
    [
        (value("y", Constant(np.float32(2)), "", F32), []),
        (value("y", Constant(np.float32([1, 2])), "", F32, 2), [0]),
        (value("y", Iota(at(1) + "n"), "", I64, "b", "n"), [1]),
        (value("y", Map("exp"), "x", F32, "b", "n"), [1]),
        (value("y", Map("add"), "x a", F32, "b", "n"), [0, 1]),
        (value("y", view(at(1), at(0)), "x", F32, "n", "b"), [0]),
        (value("y", view(at(0) // 2, at(0) % 2), "x", F32, N * 2), [0]),
        (value("y", Reduce("sum", (1,)), "x", F32, "b"), []),
        (value("y", Reduce("sum", (0,)), "x", F32, "n"), [0]),
        (value("y", Reduce("sum", (1,)), "a", F32, "b"), [0]),
        (value("y", Scan("sum", 0), "x", F32, "b", "n"), [0, 1]),
        (value("y", Select(0, shape_of([0, "b"])), "x x", F32, Dim.of("b") * 2, "n"), [0, 1]),
        (value("y", Gather((at(0), Lookup(1, (at(1),)))), "x i", F32, "b", 3), [1]),
        (value("y", Gather((Lookup(1, (at(1),)), at(0))), "x i", F32, "n", 3), [0, 1]),
    ],
)
def test_the_axes_that_matter(node, axes):
    made = graph("y", *ROW, given("a", F32, "b", "n"), given("i", I64, 3), node)
    assert dependence(made)["y"] == frozenset(axes)
    assert dependence(made)["a"] == frozenset([0, 1])


def test_what_is_alike_along_a_loop_stands_outside_it():
    """A sum over rows that are all alike is one sum, however often the graph writes it down."""
    made = graph(
        "y",
        *ROW,
        given("a", F32, "b", "n"),
        value("s", Reduce("sum", (1,)), "x", F32, "b"),
        value("e", view(at(0)), "s", F32, "b", "n"),
        value("g", Map("exp"), "e", F32, "b", "n"),
        value("y", Map("multiply"), "g a", F32, "b", "n"),
    )
    total, after, rows = lower(made, "k").launches[0].body
    assert isinstance(total, Let) and isinstance(total.value, Fold)
    assert isinstance(after, Let) and after.value.function == "exp"
    assert isinstance(rows, Loop)
    noise = np.random.default_rng(0)
    for b, n in ((3, 5), (1, 1), (0, 4), (4, 0)):
        r, a = noise.normal(size=n).astype(np.float32), noise.normal(size=(b, n)).astype(np.float32)
        assert agrees(made, r=r, a=a)


def test_a_reduction_behind_a_choice_is_done_once():
    """A softmax beside other cells, of which the place is known only as it runs: its sum is not done in each cell."""
    made = graph(
        "y",
        given("x", F32, "b"),
        given("w", F32, 3),
        value("s", Reduce("sum", (0,)), "x", F32),
        value("e", view(), "s", F32, "b"),
        value("d", Map("divide"), "x e", F32, "b"),
        value("c", Select(0, shape_of([0, "b"])), "d w", F32, Dim.of("b") + 3),
        value("y", view(Dim.of("b") + 2 - at(0)), "c", F32, Dim.of("b") + 3),
    )
    body = lower(made, "k").launches[0].body
    assert isinstance(body[0], Let) and isinstance(body[0].value, Fold)
    assert not any(isinstance(expr, Fold) for expr in every_expression(body[1:]))
    for b in (0, 1, 7):
        assert agrees(made, x=np.arange(1, b + 1, dtype=np.float32), w=np.float32([1, 2, 3]))


def test_a_cell_that_may_be_missing_stays_behind_the_choice():
    """The first cell of x where there is one: the other piece is all there is where x is empty."""
    made = graph(
        "y",
        given("x", F32, "b"),
        given("w", F32, 3),
        value("f", view(Dim.of(0)), "x", F32, "b"),
        value("c", Select(0, shape_of([0, "b"])), "f w", F32, Dim.of("b") + 3),
        value("y", view(Dim.of("b") + 2 - at(0)), "c", F32, Dim.of("b") + 3),
    )
    loads = [expr for expr in every_expression(lower(made, "k").launches[0].body) if isinstance(expr, Load)]
    assert all(load.where is not None for load in loads)
    for b in (0, 1, 5):
        assert agrees(made, x=np.arange(b, dtype=np.float32), w=np.float32([1, 2, 3]))
