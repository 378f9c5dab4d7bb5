from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategies import along_reads, map_, thread_loops
from noyau.dtypes import DType
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis
from noyau.ir.walk import loads_of
from tests.compiler.schedules.groups import assert_keeps, concatenated, flat, loops, padded, rotary
from tests.jobs.check.groups import F32, Group, embedding, swiglu
from tests.nests import ONE, ROW, N, loop, store

SIZES = [{"rows": 3, "n": n, "a": 2, "b": 3, "s": 2} for n in (5, 0, 1, 17)]


def broadcast():
    g = Group()
    x, w = g.input("x", F32, "rows", "n"), g.input("w", F32, "n")
    g.map("add", g.map("exp", x), g.expand(w, ("rows", "n")))
    return g.graph()


def scalar():
    g = Group()
    g.map("exp", g.input("x", F32))
    return g.graph()


GRAPHS = {
    "swiglu": swiglu(),
    "swiglu f16": swiglu(DType.F16),
    "broadcast": broadcast(),
    "rotary": rotary(),
    "rotary bf16": rotary(DType.BF16),
    "padded": padded(),
    "padded i32": padded(DType.I32),
    "rows side by side": concatenated(1),
    "embedding": embedding(),
    "scalar": scalar(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_maps(name):
    assert_keeps(GRAPHS[name], map_(flat(GRAPHS[name])), *SIZES)


@pytest.mark.parametrize(
    "function", [lambda x: x - x[0], lambda x: np.exp(x[-1]) + x, lambda x: x - x[:1, None] * x[-1]]
)
def test_a_load_is_under_no_condition_that_its_own_loop_ensures(function):
    graph = normalise(trace_shapes(function, {"x": (DType.F32, (7,))}, {}).graph)
    kernel = map_(flat(graph))
    assert any(load.where is not None for load in loads_of(flat(graph).launches[0].body))
    assert all(load.where is None for load in loads_of(kernel.launches[-1].body))
    assert_keeps(graph, kernel, {"x_0": 5}, {"x_0": 2})


def test_loops_that_count_as_one_are_one_on_threads():
    assert loops(map_(flat(swiglu())), Axis.THREADS) == loops(map_(flat(swiglu())))


def test_of_several_loops_the_last_is_in_lanes():
    made = check(map_(flat(broadcast())))
    assert loops(made, Axis.THREADS) == ["#i0"]
    assert loops(made, Axis.LANES) == ["#i1"]


def test_pieces_are_lanes_within_threads():
    made = check(map_(flat(padded())))
    assert loops(made, Axis.THREADS) == ["#i0"]
    assert loops(made, Axis.LANES) == ["#i1"] * 3


def test_a_lone_loop_goes_to_threads():
    (made,) = thread_loops((loop("#i", "n", store("y", ONE, ROW)),))
    assert made.axis is Axis.THREADS
    assert made.extent == N


def test_the_outer_loops_follow_the_reads():
    """Heads that are transposed: the rows of the input lie one after the other, those of the output need not."""
    made = check(map_(flat(rotary())))
    assert loops(made, Axis.THREADS) == ["#i0", "#i2", "#i1"]


@pytest.mark.parametrize("graph", [broadcast(), padded(), swiglu(), embedding(), scalar()])
def test_loops_that_follow_the_reads_already_stay(graph):
    body = flat(graph).launches[0].body
    assert along_reads(body) == body
