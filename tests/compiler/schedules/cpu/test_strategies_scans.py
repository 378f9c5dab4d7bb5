from __future__ import annotations

from itertools import product

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategies import scan
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Scan, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis
from tests.compiler.schedules.groups import assert_keeps, flat, loops, lowered, scanned
from tests.jobs.check.groups import F32, Group

SIZES = ({"a": 2, "m": 3, "n": 5}, {"a": 1, "m": 20, "n": 1}, {"a": 0, "m": 3, "n": 4}, {"a": 2, "m": 3, "n": 0})
PLACES = [(shape, axis) for shape in (("n",), ("m", "n"), ("a", "m", "n")) for axis in range(len(shape))]


@pytest.mark.parametrize(("exclusive", "reverse"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize(("shape", "axis"), PLACES)
def test_a_scan_along_any_axis(shape, axis, exclusive, reverse):
    graph = scanned("sum", *shape, axis=axis, exclusive=exclusive, reverse=reverse)
    assert_keeps(graph, lowered(graph), *SIZES)
    assert_keeps(graph, schedule(lowered(graph)), *SIZES)


@pytest.mark.parametrize(
    ("monoid", "dtype"), [("prod", DType.I32), ("max", F32), ("min", DType.U8), ("sum", DType.F16)]
)
def test_other_monoids_and_dtypes(monoid, dtype):
    graph = scanned(monoid, "m", "n", axis=1, dtype=dtype)
    assert_keeps(graph, schedule(lowered(graph)), *SIZES)


def test_the_scanned_loop_is_serial_and_rows_run_in_parallel():
    made = check(schedule(lowered(scanned("sum", "m", "n", axis=1))))
    assert loops(made, Axis.SERIAL) == ["#i1"]
    assert loops(made, Axis.THREADS) == ["#i0t"]
    along = check(schedule(lowered(scanned("sum", "m", "n", axis=0))))
    assert loops(along, Axis.SERIAL) == ["#i0"]
    assert loops(along, Axis.LANES)[-1] == "#i1"


def test_rows_one_by_one_where_they_cannot_run_side_by_side():
    """The scanned row has another loop in it, of a reduction for each cell."""
    g = Group()
    x = g.input("x", F32, "m", "n", "k")
    y = g.add(Scan("sum", 1), [g.reduce("max", x)], F32, ("m", "n", 1))
    graph = g.graph(y)
    made = check(scan(flat(graph), width=2, lanes=4))
    assert_keeps(graph, made, {"m": 3, "n": 4, "k": 5}, {"m": 1, "n": 1, "k": 1})


def test_positions_from_a_mask():
    """As transformers compute them: cumsum - 1, and 1 where the mask is 0."""
    g = Group()
    mask = g.input("mask", DType.I64, "b", "s")
    places = g.add(Scan("sum", 1), [mask], DType.I64, ("b", "s"))
    less = g.map("subtract", places, g.full(1, places))
    g.map("where", g.map("equal", mask, g.full(0, mask), dtype=DType.BOOL), g.full(1, less), less)
    graph = g.graph()
    assert_keeps(graph, schedule(lowered(graph)), {"b": 2, "s": 6}, {"b": 1, "s": 1}, {"b": 3, "s": 0})


def test_a_scan_that_others_share_and_broadcast():
    g = Group()
    x, w = g.input("x", F32, "n"), g.input("w", F32, "m", "n")
    y = g.add(Scan("sum", 0), [x], F32, ("n",))
    z = g.map("multiply", w, g.add(View((Dim.of("#1"),)), [y], F32, ("m", "n")))
    graph = g.graph(z)
    assert_keeps(graph, schedule(lowered(graph)), {"m": 3, "n": 4}, {"m": 0, "n": 4})


def test_a_part_of_a_scan_is_refused():
    g = Group()
    x = g.input("x", F32, Dim.of("n") + 1)
    y = g.add(Scan("sum", 0), [x], F32, (Dim.of("n") + 1,))
    g.add(View((indices(1)[0] + 1,)), [y], F32, ("n",))
    with pytest.raises(UnsupportedError, match="no loop runs along the whole axis of the scan"):
        lower(g.graph(), "kernel")


def test_scans_both_ways_are_refused():
    g = Group()
    x = g.input("x", F32, "n")
    there, back = (g.add(Scan("sum", 0, False, reverse), [x], F32, ("n",)) for reverse in (False, True))
    with pytest.raises(UnsupportedError, match=r"the scans in .* run both ways"):
        lower(g.graph(g.map("add", there, back)), "kernel")


def test_scans_along_two_axes_are_refused():
    g = Group()
    x = g.input("x", F32, "m", "n")
    one, other = (g.add(Scan("sum", axis), [x], F32, ("m", "n")) for axis in (0, 1))
    with pytest.raises(UnsupportedError, match=r"no order in which its scans can run|more than 16 places"):
        lower(g.graph(g.map("add", one, other)), "kernel")


def test_the_sum_of_a_scan_is_refused():
    g = Group()
    x = g.input("x", F32, "m", "n")
    y = g.add(Scan("sum", 1), [x], F32, ("m", "n"))
    with pytest.raises(UnsupportedError, match="no loop runs along the whole axis of the scan"):
        lower(g.graph(g.reduce("sum", y)), "kernel")
