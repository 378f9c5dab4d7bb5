"""Sizes at which a graph means something."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Graph, Input, Iota, Lookup, Node, Scatter, Select, View
from noyau.ir.sizes import Demand
from noyau.verify import awkward_sizes
from noyau.verify.awkward_sizes import cells, fits, fitting, shrunk
from tests.jobs.check import groups
from tests.jobs.check.groups import F32, Group
from tests.verify.test_adversarial import made, shapes


def test_shrinking_keeps_one_size_as_long_as_it_can():
    graph = groups.softmax()
    assert shrunk(graph, {"rows": 129, "n": 4099}, 1 << 14, "n") == {"rows": 3, "n": 4099}
    assert shrunk(graph, {"rows": 129, "n": 4099}, 1 << 10, "n") == {"rows": 1, "n": 513}
    assert cells(graph, {"rows": 3, "n": 5}) == 15


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda a: np.kron(np.add.outer(a, a), np.add.outer(a, a)), 12**4),
        (lambda a: np.tile(a, (a.size**2, 1)), 12**3),
        (lambda a: np.repeat(a, a.size**3), 12**4),
        (lambda a: np.zeros((a.size,) * 5), 12**5),
    ],
)
def test_what_no_result_needs_counts_for_the_reference_makes_it(make, count):
    def program(a):
        make(a)
        return np.arange(a.size)

    graph = trace_shapes(program, {"a": (DType.F32, (3, 4))}, {}).graph
    assert cells(graph, {"a_0": 3, "a_1": 4}) == count
    assert cells(graph, shrunk(graph, {"a_0": 33, "a_1": 33}, 1 << 13)) <= 1 << 13


def test_negative_extents_and_views_outside_do_not_fit():
    tail, first = Group(), Group()
    tail.add(View(shape_of([Dim.of("#0") + 3])), [tail.input("x", F32, "n")], F32, (Dim.of("n") - 3,))
    first.add(View(indices(1)), [first.input("x", F32, "n")], F32, (8,))
    assert not fits(tail.graph(), {"n": 2})
    assert fits(tail.graph(), {"n": 3})
    assert not fits(first.graph(), {"n": 7})
    assert fits(first.graph(), {"n": 8})
    assert min(shape[0] for shape in shapes(made(first.graph(), {"n": 20}))) >= 8


def test_an_extent_divided_by_a_size_leaves_out_size_zero():
    g = Group()
    x = g.input("x", F32, "n")
    g.input("y", F32, "k")
    g.add(View(shape_of([Dim.of("#0") * "k"])), [x], F32, (Dim.of("n") // "k",))
    graph = g.graph()
    assert not fits(graph, {"n": 4, "k": 0})
    assert cells(graph, {"n": 4, "k": 0}) == 0
    assert fits(graph, {"n": 4, "k": 2})
    assert all(case.inputs[1].size for case in made(graph, {"n": 4, "k": 2}))


def test_a_place_modulo_a_size_leaves_out_size_zero():
    g = Group()
    g.input("x", F32, "n")
    g.add(Iota((Dim.of("#0") + 1) % "n"), [], DType.I64, shape_of(["n"]))
    assert not fits(g.graph(), {"n": 0})
    assert fits(g.graph(), {"n": 1})


def test_pieces_lie_in_order():
    g = Group()
    parts = [g.input("a", F32, "n"), g.input("b", F32, Dim.of("m") - Dim.of("n")), g.input("c", F32, "m")]
    g.add(Select(0, shape_of([0, "n"])), parts[:2], F32, ("m",))
    graph = g.graph()
    assert fits(graph, {"n": 3, "m": 5})
    assert not fits(graph, {"n": 5, "m": 3})


def test_updates_of_a_scatter_stay_inside():
    g = Group()
    table, ids, updates = g.input("t", F32, 6, "n"), g.input("i", DType.I64, "k"), g.input("u", F32, "k", "w")
    g.add(Scatter((Lookup(1, indices(1)), indices(2)[1]), None), [table, ids, updates], F32, (6, "n"))
    graph = g.graph()
    assert fits(graph, {"n": 4, "k": 3, "w": 4})
    assert not fits(graph, {"n": 4, "k": 3, "w": 5})


def test_what_a_demand_moves_stays_small():
    x, y = (Node(name, Input(), (), DType.F32, (Dim.of("n"), Dim.of("m"))) for name in "xy")
    demand = Demand(Dim.of("n"), Dim.of("m"), "equal")
    every = list(fitting(Graph((x, y), ("y",), (demand,)), [{"n": 4099, "m": 5}, {"n": 33, "m": 7}, {"n": 3, "m": 3}]))
    assert every == [{"n": 5, "m": 5}, {"n": 33, "m": 33}, {"n": 3, "m": 3}]


def test_values_of_one_shape_are_measured_once(monkeypatch):
    measured = []

    def counted(sizes, shape, extents_at=awkward_sizes.extents_at):
        measured.append(shape)
        return extents_at(sizes, shape)

    monkeypatch.setattr(awkward_sizes, "extents_at", counted)
    graph = trace_shapes(lambda x: ((x + 1) * 2 - x) * x, {"x": (DType.F32, (3, 5))}, {}).graph
    assert len(graph.nodes) > len(graph.shapes)
    assert cells(graph, {"x_0": 3, "x_1": 5}) == 15
    assert len(measured) == len({node.shape for node in graph.nodes})
