from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.schedules.cpu.strategies import columns
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Reduce, Select, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Role
from noyau.ir.walk import extent_of
from tests.batching import build_many
from tests.compiler.schedules.groups import assert_keeps, flat, in_order, inputs_of, loops, lowered, reduced
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge

MONOIDS = ("sum", "prod", "max", "argmin", "variance", "logsumexp")


@pytest.mark.parametrize(("width", "rows"), [(4, 4), (16, 3), (64, 1000)])
@pytest.mark.parametrize("monoid", MONOIDS)
def test_columns_of_a_matrix(monoid, width, rows):
    graph = reduced(monoid, "rows", "n", axes=(0,), after="negative")
    made = columns(flat(graph), width=width, rows=rows)
    assert_keeps(graph, made, *({"rows": m, "n": n} for m, n in ((1, 5), (4, 4), (9, 17), (3, 0))))


def test_no_rows_at_all():
    graph = reduced("sum", "rows", "n")
    assert_keeps(graph, columns(flat(graph), rows=4), {"rows": 0, "n": 3})


@pytest.mark.parametrize(
    ("shape", "axes"), [(("a", "b", "n"), (1,)), (("a", "b", "n"), (0, 1)), (("a", "b", "c", "n"), (0, 2))]
)
def test_columns_within_other_loops(shape, axes):
    for monoid in ("sum", "argmax"):
        graph = reduced(monoid, *shape, axes=axes)
        made = columns(flat(graph), width=4, rows=4)
        assert_keeps(graph, made, *({"a": 2, "b": b, "c": 3, "n": n} for b, n in ((1, 5), (9, 4), (5, 9))))


def test_few_columns_of_many_rows_have_many_items():
    graph = reduced("sum", "rows", 8)
    made = check(schedule(lowered(graph)))
    assert [extent_of(launch).evaluate({"rows": 10**6}) for launch in made.launches] == [3907, 1]
    (scratch,) = made.of(Role.SCRATCH)
    assert scratch.shape[0].evaluate({"rows": 10**6}) * 8 * 4 < 10**6 * 8 * 4 / 200


def test_few_rows_are_one_launch_without_scratch():
    graph = reduced("sum", 40, "n")
    made = check(schedule(lowered(graph)))
    assert len(made.launches) == 1
    assert made.of(Role.SCRATCH) == ()
    assert_keeps(graph, made, {"n": 70})


def test_the_fold_is_outside_of_the_lanes():
    made = columns(flat(reduced("sum", 40, "n")), width=8)
    assert loops(made) == ["#i0t", "#i0", "#r1", "#i0", "#i0"]
    assert loops(made, Axis.LANES) == ["#i0"] * 3


def test_a_reduction_of_values_that_are_looked_up_outside():
    """The loop around the columns holds more than loops: one launch, one fold."""
    g = Group()
    x, scale = g.input("x", F32, "b", 6, "n"), g.input("scale", F32, "b")
    wide = g.add(View((Dim.of("#0"),)), [g.map("exp", scale)], F32, ("b", 6, "n"))
    scaled = g.map("multiply", x, wide)
    g.reduce("sum", scaled, axis=1)
    graph = g.graph()
    assert_keeps(graph, schedule(lowered(graph)), {"b": 2, "n": 5})


def test_large_ones_in_c_in_any_pieces():
    graphs = [reduced("sum", "rows", "n", dtype=dtype) for dtype in (F32, DType.BF16, DType.I16)]
    kernels = [replace(schedule(lowered(graph)), name=f"k{k}") for k, graph in enumerate(graphs)]
    for graph, made, native in zip(graphs, kernels, build_many(kernels), strict=True):
        for rows, n in ((255, 64), (256, 65), (257, 1), (1000, 130)):
            inputs = inputs_of(graph, {"rows": rows, "n": n})
            arrays = in_order(made, inputs)
            got = native.call_guarded(*arrays)
            assert Judge(graph, inputs).wrong(graph.outputs[0], got[0]) is None
            again = native.call_guarded(*arrays, pieces=5, order=lambda count: range(count)[::-1])
            np.testing.assert_array_equal(got[0], again[0])


def test_columns_that_are_cut_in_pieces_are_columns_each():
    """As the gradient of a table of angles is: of two halves, which read each other."""
    g = Group()
    x, turned = g.input("x", F32, "rows", Dim.of("k") * 2), g.input("y", F32, "rows", Dim.of("k") * 2)
    shape = ("rows", "k")
    low = g.add(View(indices(2)), [turned], F32, shape)
    high = g.add(View((indices(2)[0], indices(2)[1] + "k")), [turned], F32, shape)
    swapped = g.add(Select(1, shape_of((0, "k"))), [g.map("negative", high), low], F32, ("rows", Dim.of("k") * 2))
    graph = g.graph(g.add(Reduce("sum", (0,)), [g.map("multiply", x, swapped)], F32, (Dim.of("k") * 2,)))
    made = check(schedule(lowered(graph)))
    assert len(made.launches) == 4  # for each half, blocks of rows and their merge
    assert_keeps(graph, made, {"rows": 5, "k": 3}, {"rows": 300, "k": 2}, {"rows": 0, "k": 1})


def test_a_fold_over_a_few_rows_of_few_columns_is_in_the_lanes():
    """Its state is in a register: no memory is cleared for each row of a small product."""
    graph = reduced("sum", "n", 8, 16, axes=(1,))
    made = check(schedule(lowered(graph)))
    assert loops(made, Axis.LANES) == ["#i1"]
    assert loops(made) == ["#i0", "#i1", "#r1"]
    assert_keeps(graph, made, {"n": 3})
    assert "#i1t" in loops(check(schedule(lowered(reduced("sum", "n", 40, 16, axes=(1,))))))
