from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.verify.undefined import may_be_undefined, traps, undefined_cells
from tests.jobs.check import groups
from tests.jobs.check.groups import F32, Group


def test_most_groups_have_nothing_undefined():
    for make in (groups.softmax, groups.swiglu, groups.embedding):
        assert not may_be_undefined(make())
        assert undefined_cells(make(), {}) == {}


@pytest.mark.parametrize(
    ("dtype", "fine", "out"),
    [
        (DType.I8, (-128.9, 127.9, 0.0), (-129.0, 128.0, np.nan, np.inf)),
        (DType.U8, (-0.9, 255.5), (-1.0, 256.0, -np.inf)),
        (DType.I32, (-2147483648.0, 2147483520.0), (2147483648.0, 1e20)),
        (DType.I64, (-9223372036854775808.0, 9223371487098961920.0), (9223372036854775808.0,)),
    ],
)
def test_casts_out_of_range_are_found(dtype, fine, out):
    g = Group()
    whole = g.map("cast", g.input("x", F32, "n"), dtype=dtype)
    graph = g.graph(whole, g.map("is_nan", "x", dtype=DType.BOOL))
    found = undefined_cells(graph, {"x": np.array([*fine, *out], np.float32)})
    assert found[whole].tolist() == [False] * len(fine) + [True] * len(out)
    assert not found[graph.outputs[1]].any()


def test_a_cell_that_does_not_follow_the_undefined_result_is_defined():
    g = Group()
    x = g.input("x", F32, "n")
    whole = g.map("cast", g.map("cast", x, dtype=DType.I32), dtype=F32)
    chosen = g.map("where", g.map("less", x, g.full(100, x), dtype=DType.BOOL), whole, g.full(7, x))
    found = undefined_cells(g.graph(chosen), {"x": np.array([1.5, 1e20, -1e20], np.float32)})
    assert found[chosen].tolist() == [False, False, True]


def test_a_reduction_spreads_what_is_undefined():
    g = Group()
    whole = g.map("cast", g.input("x", F32, "rows", "n"), dtype=DType.I32)
    total = g.reduce("sum", whole)
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    assert undefined_cells(g.graph(total), {"x": x})[total].ravel().tolist() == [False, True, False]


@pytest.mark.parametrize("function", ["divide", "floor_divide", "floor_mod", "fmod"])
def test_integer_division_by_zero_is_undefined_and_traps(function):
    graph = groups.one_map(function, DType.I32, 2)
    given = {"x0": np.array([7, 7, -(2**31)], np.int32), "x1": np.array([2, 0, -1], np.int32)}
    assert undefined_cells(graph, given)[graph.outputs[0]].tolist() == [False, True, True]
    assert traps(graph, given)
    assert not traps(graph, {"x0": given["x0"], "x1": np.array([2, 3, 5], np.int32)})


def test_floats_divided_by_zero_are_defined():
    graph = groups.one_map("divide", F32, 2)
    assert not may_be_undefined(graph)
    assert not traps(graph, {"x0": np.ones(2, np.float32), "x1": np.zeros(2, np.float32)})


def test_an_index_from_an_undefined_cast_makes_every_cell_undefined():
    from noyau.ir.dims import indices
    from noyau.ir.graph import Gather, Lookup

    g = Group()
    at = g.map("cast", g.input("x", F32, "n"), dtype=DType.I64)
    rows = g.add(Gather((Lookup(1, indices(1)),)), [g.input("table", F32, 5), at], F32, ("n",))
    given = {"x": np.array([1.0, np.nan], np.float32), "table": np.arange(5, dtype=np.float32)}
    assert undefined_cells(g.graph(rows), given)[rows].all()
