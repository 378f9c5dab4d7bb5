from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.errors import GraphError
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Axis, Const
from tests.nests import ONE, ONE_CELL, ROW, X8, N, call, kernel, load, loop, store
from tests.nodes import F32


def test_threads_may_merge_into_one_cell_and_lanes_may_not():
    start = store("y", Const(0.0, F32), 0)
    for axis in (Axis.SERIAL, Axis.THREADS):
        made = kernel(start, loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=axis), outputs=ONE_CELL)
        assert run(made, [X8])[0].tolist() == [28]
    made = kernel(start, loop("#i", "n", store("y", load("x", ROW), 0, merge="sum"), axis=Axis.LANES), outputs=ONE_CELL)
    with pytest.raises(GraphError, match=r"two lanes meet in y\[0\]"):
        run(made, [X8])


def test_lanes_meet_in_a_cell_where_each_merge_is_atomic_but_no_load_does():
    start, merge = store("y", Const(0.0, F32), 0), replace(store("y", load("x", ROW), 0, merge="sum"), is_atomic=True)
    made = kernel(start, loop("#i", "n", merge, axis=Axis.LANES), outputs=ONE_CELL)
    assert run(made, [X8])[0].tolist() == [28]
    read = store("y", load("y", 0), 0)
    with pytest.raises(GraphError, match=r"two lanes meet in y\[0\]"):
        run(kernel(start, loop("#i", "n", merge, read, axis=Axis.LANES), outputs=ONE_CELL), [X8])


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
    with pytest.raises(GraphError, match=rf"two (threads|lanes) meet in {what}\[\d+\]"):
        run(kernel(fill, loop("#i", "n", statement, axis=axis)), [X8])
