from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import GraphError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import (
    Alloc,
    Axis,
    Const,
    If,
    Space,
    Sync,
)
from tests.nests import COL, ONE, ONE_CELL, ROW, X8, N, call, kernel, less, load, loop, store
from tests.nodes import F32


def test_threads_may_merge_into_one_cell_and_lanes_may_not():
    start = store("y", Const(0.0, F32), 0)
    for axis in (Axis.SERIAL, Axis.THREADS):
        made = kernel(start, loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=axis), outputs=ONE_CELL)
        assert run(made, [X8])[0].tolist() == [28]
    made = kernel(start, loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=Axis.LANES), outputs=ONE_CELL)
    with pytest.raises(GraphError, match=r"two lanes meet in y\[0\] without a Sync"):
        run(made, [X8])


def test_parallel_loops_run_in_another_order_for_each_seed():
    body = (
        store("y", Const(0.0, F32), 0),
        loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=Axis.THREADS),
    )
    x = np.float32([1e8, 3, -1e8, 5])
    found = {float(run(kernel(*body, outputs=ONE_CELL), [x], seed=seed)[0][0]) for seed in range(20)}
    assert len(found) > 1
    again = [float(run(kernel(*body, outputs=ONE_CELL), [x], seed=3)[0][0]) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize("axis", [Axis.THREADS, Axis.LANES])
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (store("y", load("x", ROW), 0), "y"),
        (store("y", load("y", (ROW + 1) % N), ROW), "y"),
        (store("y", call("add", load("y", ROW), load("y", 0)), ROW), "y"),
    ],
)
def test_indices_of_a_parallel_loop_must_not_meet(axis, statement, what):
    fill = loop("#i", "n", store("y", ONE, ROW))
    with pytest.raises(GraphError, match=rf"two (threads|lanes) meet in {what}\[\d+\] without a Sync"):
        run(kernel(fill, loop("#i", "n", statement, axis=axis)), [X8])


@pytest.mark.parametrize("axis", [Axis.THREADS, Axis.LANES])
def test_a_sync_parts_what_would_meet(axis):
    exchange = (store("s", load("x", ROW), ROW), Sync(Space.SHARED), store("y", load("s", N - 1 - ROW), ROW))
    shared = Alloc("s", F32, shape_of(["n"]), Space.SHARED)
    made = kernel(shared, loop("#i", "n", *exchange, axis=axis))
    for seed in range(3):
        assert run(made, [X8], seed=seed)[0].tolist() == X8[::-1].tolist()
    without = kernel(shared, loop("#i", "n", *(s for s in exchange if not isinstance(s, Sync)), axis=axis))
    with pytest.raises(GraphError, match=r"without a Sync|before it is set"):
        run(without, [X8])


def test_a_tree_of_merges_needs_a_sync_at_each_level():
    def tree(*sync):
        half = Dim.of(4) // 1
        body = [store("s", load("x", ROW), ROW), *sync]
        for half in (4, 2, 1):
            body += [If(less(ROW, half), (store("s", load("s", ROW + half), ROW, merge="sum"),)), *sync]
        body.append(If(less(ROW, 1), (store("y", load("s", 0), 0),)))
        shared = Alloc("s", F32, shape_of([8]), Space.SHARED)
        return kernel(shared, loop("#i", 8, *body, axis=Axis.THREADS), outputs=ONE_CELL)

    assert run(tree(Sync(Space.SHARED)), [X8])[0].tolist() == [28]
    with pytest.raises(GraphError):
        run(tree(), [X8])


def test_syncs_in_serial_loops_and_nested_parallel_loops():
    turn = (
        store("t", load("s", (ROW + 1) % 4, COL), ROW, COL),
        Sync(Space.SHARED),
        store("s", load("t", ROW, COL), ROW, COL),
        Sync(Space.SHARED),
    )
    lanes = loop(
        "#j", 2, store("s", load("x", ROW, COL), ROW, COL), Sync(Space.SHARED), loop("#k", 3, *turn), axis=Axis.LANES
    )
    out = loop("#i", 4, loop("#j", 2, store("y", load("s", ROW, COL), ROW, COL)), axis=Axis.THREADS)
    memory = [Alloc(name, F32, shape_of([4, 2]), Space.SHARED) for name in "st"]
    made = kernel(
        *memory,
        loop("#i", 4, lanes, axis=Axis.THREADS),
        out,
        inputs=[("x", F32, [4, 2])],
        outputs=[("y", F32, [4, 2])],
    )
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert run(made, [x], seed=5)[0].tolist() == np.roll(x, -3, 0).tolist()


def test_a_sync_of_lanes_does_not_hold_up_other_threads():
    """Threads exchange nothing at a Sync of their own lanes, so what they share across it meets."""
    body = (store("s", load("x", ROW), ROW), Sync(Space.THREAD), store("y", load("s", N - 1 - ROW), ROW))
    shared = Alloc("s", F32, shape_of(["n"]), Space.SHARED)
    lanes = kernel(shared, loop("#i", "n", *body, axis=Axis.LANES))
    assert run(lanes, [X8])[0].tolist() == X8[::-1].tolist()
    with pytest.raises(GraphError, match=r"before it is set|without a Sync"):
        run(kernel(shared, loop("#i", "n", *body, axis=Axis.THREADS)), [X8])


def test_a_sync_that_not_all_come_to():
    body = loop("#i", "n", If(less(ROW, 3), (Sync(Space.SHARED),)), store("y", load("x", ROW), ROW), axis=Axis.THREADS)
    with pytest.raises(GraphError, match="k: a Sync that not every thread comes to"):
        run(kernel(body), [X8])
