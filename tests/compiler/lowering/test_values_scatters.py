"""Scatters in a nest: asked of each cell, or merged in memory."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.lowering.values import asks_each_cell
from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph import Lookup, Map, Scatter
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Require, Role, Store
from noyau.ir.walk import every_statement
from tests.nodes import BF16, F32, I32, I64, at, given, graph, value

MONOIDS = ("sum", "prod", "max", "min", None)
ROWS = Lookup(1, (at(0),)), at(1)
LABELS = at(0), Lookup(1, (at(0),))
DATA = np.array([[1, -0.0, np.nan], [4, 5, 6], [-np.inf, 8, 9], [10, 11, 12]], np.float32)


def scatter(index, monoid, *, rows="rows", columns="n", dtype=F32, ids=I64):
    shape = (rows,) if index == LABELS else (rows, columns)
    data_rows = rows if index == LABELS else "words"
    return graph(
        "y",
        given("data", dtype, data_rows, columns),
        given("ids", ids, rows),
        given("x", dtype, *shape),
        value("y", Scatter(index, monoid), "data ids x", dtype, data_rows, columns),
    )


def same(made, **arrays):
    """Whether the kernel gives the bits of NumPy, which merges in the order of the updates."""
    kernel = check(lower(made, "k"))
    (got,) = run(kernel, [arrays[buffer.source] for buffer in kernel.of(Role.INPUT)])
    return got.tobytes() == evaluate(made, arrays)["y"].tobytes()


@pytest.mark.parametrize("monoid", MONOIDS)
def test_rows_at_the_same_place_are_merged_in_order(monoid):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert same(scatter(ROWS, monoid), data=DATA, ids=np.array([3, 0, 3, 3, 1]), x=x)
    assert same(scatter(ROWS, monoid), data=DATA, ids=np.zeros(0, int), x=x[:0])
    assert same(scatter(ROWS, monoid), data=DATA[:, :0], ids=np.array([3, 3]), x=x[:2, :0])


@pytest.mark.parametrize("monoid", MONOIDS)
def test_a_cell_asks_whether_it_is_the_one(monoid):
    made = scatter(LABELS, monoid)
    assert asks_each_cell(made, made["y"])
    ids, x = np.array([0, 2, 2, 1]), np.array([1, np.nan, 3, -0.0], np.float32)
    assert same(made, data=DATA, ids=ids, x=x)
    kernel = lower(made, "k")
    assert len(kernel.launches) == 1
    assert not [s for s in every_statement(kernel.launches[0].body) if isinstance(s, Store) and s.merge]


def test_one_place_for_all_is_asked_of_each_cell():
    made = scatter(ROWS, "sum", rows=1)
    assert asks_each_cell(made, made["y"])
    assert same(made, data=DATA, ids=np.array([2], np.int64), x=DATA[:1])


def test_updates_that_may_be_shorter_than_the_result_are_merged():
    made = graph(
        "y",
        given("data", F32, "a", "n"),
        given("ids", I32, "b"),
        given("x", F32, "b"),
        value("y", Scatter(LABELS, "sum"), "data ids x", F32, "a", "n"),
    )
    assert not asks_each_cell(made, made["y"])
    assert same(made, data=DATA, ids=np.array([2, 0], np.int32), x=np.ones(2, np.float32))


def test_a_sum_in_bfloat16_is_rounded_at_each_merge():
    made, ids = scatter(ROWS, "sum", dtype=BF16), np.array([0, 0, 0, 2])
    arrays = {"data": DATA.astype(BF16.numpy), "x": np.full((4, 3), 0.001, BF16.numpy)}
    assert same(made, ids=ids, **arrays)


@pytest.mark.parametrize("index", [ROWS, LABELS])
@pytest.mark.parametrize("wrong", [-1, 9, 2**40])
def test_an_index_outside_is_an_error(index, wrong):
    made = scatter(index, "sum")
    x = np.ones((4, 3) if index == ROWS else 4, np.float32)
    arrays = {"data": DATA, "ids": np.array([0, 1, wrong, 1]), "x": x}
    with pytest.raises(InputError, match="index out of bounds"):
        run(lower(made, "k"), list(arrays.values()))
    with pytest.raises(InputError):
        evaluate(made, arrays)


def test_the_places_come_before_what_is_merged_there():
    """So that a thread for which a place is not need not compute it."""
    _, merging = lower(scatter(ROWS, "sum"), "k").launches
    kinds = [type(s) for s in every_statement(merging.body)]
    assert kinds.index(Require) < kinds.index(Store)


def test_what_reads_a_merged_scatter_is_another_kernel():
    made = scatter(ROWS, "sum")
    read = graph("z", *made.nodes, value("z", Map("exp"), "y", F32, "words", "n"))
    with pytest.raises(UnsupportedError, match="y: what reads a Scatter waits until all of it is merged"):
        lower(read, "k")
    both = graph("y z", *made.nodes, value("z", Map("exp"), "data", F32, "words", "n"))
    with pytest.raises(UnsupportedError, match="waits until all of it is merged"):
        lower(both, "k")
