"""Scatters on a GPU: each way computes what the graph does, and is chosen where order matters not, or is asked for."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import scatters
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.scatters import Way, ways_in
from noyau.dtypes import DType
from noyau.errors import OutsideError, UnsupportedError
from noyau.ir.graph import Lookup, Scatter
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Alloc, Space
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import Group, assert_keeps, in_order, inputs_of, scattered, scattered_cells


def lowered(graph):
    return lower(normalise(graph), "kernel")


@pytest.fixture
def small(monkeypatch):
    """Blocks of few threads, so that few updates are several pieces."""
    monkeypatch.setattr(scatters, "PRIVATE_THREADS", 8)
    monkeypatch.setattr(scatters, "PRIVATE_PIECES", 3)


@pytest.mark.parametrize("dtype", [DType.F32, DType.I64])
@pytest.mark.parametrize(("axis", "monoid"), [(0, "sum"), (1, "max")])
def test_cells_of_a_blocks_own(small, axis, monoid, dtype):
    graph = scattered_cells(axis, monoid, dtype)
    kernel = in_blocks(lowered(graph), Way.PRIVATE)
    assert_keeps(normalise(graph), kernel, {"a": 7, "n": 5, "b": 19}, {"a": 1, "n": 1, "b": 0})


@pytest.mark.parametrize("graph", [scattered(), scattered_cells(1, "min", DType.I32)], ids=["rows", "cells"])
def test_merges_at_once(graph):
    sizes = {"a": 7, "n": 300, "b": 3, "words": 3, "rows": 4}, {"a": 3, "n": 8, "b": 9, "words": 4, "rows": 9}
    assert_keeps(normalise(graph), in_blocks(lowered(graph), Way.ATOMIC), *sizes)


@pytest.mark.parametrize(
    ("graph", "asked", "ways"),
    [
        (scattered(), None, [Way.OWNER, Way.ATOMIC]),
        (scattered(columns=300), None, [Way.OWNER]),
        (scattered(columns=30), None, [Way.ATOMIC]),
        (scattered(dtype=DType.I32), Way.OWNER, [Way.OWNER, Way.ATOMIC]),
        (scattered(), Way.OWNER, [Way.OWNER]),
        (scattered(None, DType.I32), None, [Way.OWNER]),
        (scattered(dtype=DType.BF16), Way.ATOMIC, [Way.OWNER]),
        (scattered_cells(0), None, [Way.PRIVATE, Way.ATOMIC]),
        (scattered_cells(0), Way.OWNER, [Way.OWNER]),
        (scattered_cells(0, "max"), Way.OWNER, [Way.PRIVATE, Way.ATOMIC]),
        (scattered_cells(0, dtype=DType.I64), Way.OWNER, [Way.PRIVATE, Way.ATOMIC]),
    ],
)
def test_owners_merge_rows_of_floats_and_what_has_an_order(graph, asked, ways):
    assert ways_in(in_blocks(lowered(graph), asked)) == ways


def test_few_cells_have_copies_so_that_each_thread_of_a_warp_has_a_bank():
    group = Group()
    ids, x = group.input("ids", DType.I64, "n"), group.input("x", DType.I32, "n")
    group.add(
        Scatter((Lookup(1, (scatters.Dim.of("#0"),)),), "sum"),
        [group.input("data", DType.I32, 64), ids, x],
        DType.I32,
        (64,),
    )
    kernel = in_blocks(lowered(group.graph()))
    memory = [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Alloc)]
    assert [s.shape[0].constant for s in memory if s.space is Space.BLOCK] == [64 * 32]


def test_an_index_outside_is_named(small):
    graph = scattered_cells(0)
    inputs = inputs_of(graph, {"a": 3, "n": 3, "b": 4})
    inputs["ids"][1, 2] = 7
    for way in Way:
        with pytest.raises(OutsideError, match=r"index out of bounds: 7 is not in \[0, 3\)"):
            run(kernel := in_blocks(lowered(graph), way), in_order(kernel, inputs))


def test_what_is_no_plain_update_is_refused():
    group = Group()
    ids, x = group.input("ids", DType.I64, "n"), group.input("x", DType.F32, "n", "m")
    updates = group.reduce("sum", x)
    group.add(
        Scatter((Lookup(1, (scatters.Dim.of("#0"),)),), "sum"),
        [group.input("data", DType.F32, "k"), ids, updates],
        DType.F32,
        ("k",),
    )
    with pytest.raises(UnsupportedError, match="scatters what is no plain update yet"):
        in_blocks(lowered(group.graph()))
