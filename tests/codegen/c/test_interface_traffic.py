"""Items of a launch, and the bytes that one of them moves."""

from __future__ import annotations

import pytest

from noyau.codegen.c.interface import item_bytes
from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Launch
from noyau.ir.walk import extent_of
from tests.nests import COL, COPY, ROW, call, kernel, load, loop, store
from tests.nodes import F16, F32, F64, I64

N, M = Dim.of("n"), Dim.of("m")


def launch(*body):
    return Launch(body)


def test_items_are_those_of_the_loops_on_threads():
    inner = loop("#j", "m", store("y", load("x", ROW), ROW))
    assert extent_of(launch(COPY)) == Dim.of(1)
    assert extent_of(launch(loop("#i", "n", inner, axis=Axis.THREADS))) == N
    both = loop("#i", "n", loop("#j", "m", store("y", load("x", ROW), ROW), axis=Axis.THREADS), axis=Axis.THREADS)
    assert extent_of(launch(both)) == N * M
    assert extent_of(launch(store("y", load("x", Dim.of(0)), Dim.of(0)), both)) == N * M


def test_an_item_moves_its_share_of_what_is_touched():
    made = kernel(
        loop("#i", "n", store("y", load("x", ROW, dtype=F64), ROW), axis=Axis.THREADS),
        inputs=(("x", F64, ["n"]), ("unused", F16, ["n"])),
    )
    assert item_bytes(made, made.launches[0]) == Dim.of(8 + 4 + 1)
    copied = kernel(loop("#i", "n", loop("#j", "m", store("y", load("x", COL), ROW)), axis=Axis.THREADS))
    assert item_bytes(copied, copied.launches[0]).evaluate({"n": 10, "m": 99}) == 9


def test_of_a_table_that_is_looked_into_nobody_knows_the_bytes():
    made = kernel(
        loop("#i", "n", store("y", load("table", Dim.of("#at")), ROW), axis=Axis.THREADS),
        inputs=(("table", F32, ["m"]), ("ids", I64, ["n"])),
    )
    assert item_bytes(made, made.launches[0]) == Dim.of(4 + 1)


def computed(*index, functions):
    """A store of what functions make of a cell, one after the other."""
    value = load("x", *index)
    for function in functions:
        value = call(function, value)
    return store("y", value, *index)


@pytest.mark.parametrize(
    ("functions", "times"),
    [
        ((), 1),
        (("negative",), 1),
        (("exp",), 1),
        (("exp", "log1p", "tanh"), 2),
        (("sin", "tanh", "exp", "log1p", "exp"), 3),
    ],
)
def test_what_computes_for_long_counts_as_more_bytes(functions, times):
    """In as many rounds as the loops of a launch have."""
    flat = kernel(loop("#i", "n", computed(ROW, functions=functions), axis=Axis.THREADS))
    assert item_bytes(flat, flat.launches[0]) == Dim.of(8 * times + 1)
    ends = {"inputs": (("x", F32, ["n", "m"]),), "outputs": (("y", F32, ["n", "m"]),)}
    cells = loop("#j", "m", computed(ROW * M + COL, functions=functions))
    rows = kernel(loop("#i", "n", cells, axis=Axis.THREADS), **ends)
    assert item_bytes(rows, rows.launches[0]) == M * (8 * times) + 1
