"""Extents that the shapes of a group's inputs do not take apart are sizes of its own; equal sizes are one."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower, unbound
from noyau.compiler.passes.normal_form import own_sizes
from noyau.ir.dims import Dim, maximum, shape_of
from noyau.ir.graph import Graph, Map, Select
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import Demand
from tests.compiler.passes.cases import changed_bits
from tests.nodes import F32, at, given, graph, value, view

N, M, K = map(Dim.of, "nmk")


def owned(*shapes, demands=()):
    """The shapes of inputs in the group's own sizes, as text, and the sizes that nothing tells."""
    nodes = tuple(given(f"x{k}", F32, *shape) for k, shape in enumerate(shapes))
    found = own_sizes(Graph(nodes, ("x0",), tuple(Demand(Dim.of(a), Dim.of(b), how) for a, b, how in demands)))
    names = {name for node in found.nodes for dim in node.shape for name in dim.names}
    return [", ".join(map(str, node.shape)) for node in found.nodes], sorted(names), sorted(unbound(found))


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((N, M + K), "k + m"),
        ((N, M * K), "k*m"),
        ((N, M * K * 2), "k*m"),
        ((N, (M + 1) // 2), "(m + 1)//(2)"),
        ((N, maximum(M, K)), "max(k, m)"),
        ((N, M * K + M), "k*m + m"),
        ((N, 9 - M), "-1*m + 9"),
    ],
    ids=str,
)
def test_a_formula_of_unknown_sizes_is_one_size(shape, name):
    _, names, unknown = owned(shape)
    assert names == [name, "n"]
    assert unknown == []


def test_what_the_shapes_tell_is_left_alone():
    for shapes in ([(N, M)], [(N + M, M)], [(N * 2 + 1,)], [(N * M, N, M)], [()], [(3, 4)]):
        assert owned(*shapes)[0] == [", ".join(map(str, shape)) for shape in shapes]


def test_a_size_that_another_input_tells_stays_what_it_is():
    texts, names, unknown = owned((N, M + K), (K,))
    assert (texts, names, unknown) == (["n, k + m", "k"], ["k", "m", "n"], [])


def test_one_formula_is_one_size_wherever_it_stands():
    _, names, _ = owned((N, M + K), (M + K,), ((M + K) * 2, 5))
    assert names == ["k + m", "n"]


def test_formulas_within_formulas():
    _, names, unknown = owned((N * (M // 2),), (M // 2,))
    assert unknown == []
    assert "(m)//(2)" in names


def test_index_maps_and_demands_follow():
    whole = M + K
    made = graph(
        "y",
        given("x", F32, "n", whole),
        value("a", view(at(0), whole - 1 - at(1)), "x", F32, "n", whole),
        value("y", Select(1, shape_of([0, whole])), "a x", F32, "n", whole * 2),
    )
    found = check(own_sizes(Graph(made.nodes, made.outputs, (Demand(whole, Dim.of("n") + 2, "at most"),))))
    size = Dim.of("k + m")
    assert found["a"].kind == view(at(0), size - 1 - at(1))
    assert found["y"].kind == Select(1, shape_of([0, size]))
    assert found.demands == (Demand(size, Dim.of("n") + 2, "at most"),)


def test_what_stands_alone_as_well_is_still_unknown():
    """The kernel would need m by itself, and only m + k can be seen."""
    made = graph("y", given("x", F32, M + K), value("y", view(at(0) + M), "x", F32, K))
    assert unbound(own_sizes(made)) != {}


def test_sizes_that_must_be_equal_are_one_and_their_shapes_are_compared():
    texts, names, _ = owned((N, 8), (M, 8), demands=[("n", "m", "equal")])
    assert (texts, len(names)) == ([texts[0], texts[0]], 1)
    assert owned((N, M), demands=[("m", 8, "equal")])[0] == ["n, 8"]


def test_other_demands_stay():
    for how in ("broadcast", "at most"):
        made = Graph((given("x", F32, "n", "m"),), ("x",), (Demand(N, M, how),))
        assert own_sizes(made) == made


def test_a_group_behind_a_concat_has_a_kernel():
    made = graph("y", given("x", F32, "n", M + K), value("y", Map("exp"), "x", F32, "n", M + K))
    found = own_sizes(made)
    kernel = lower(found, "k")
    assert [binding.size for binding in kernel.binding] == ["n", "k + m"]
    x = np.float32([[0, 1, 2]])
    assert np.array_equal(evaluate(found, {"x": x})["y"], np.exp(x))


def test_random_graphs_compute_the_same_bits():
    assert changed_bits(own_sizes) == []
