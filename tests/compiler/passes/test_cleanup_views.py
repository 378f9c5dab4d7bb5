"""A view of a view is one view; what they give stays the same."""

from __future__ import annotations

import numpy as np

from noyau.compiler.passes import cleanup
from noyau.compiler.passes.cleanup import compose_views
from noyau.ir.dims import Dim
from noyau.ir.graph import Map, Select
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.passes.cases import changed_bits
from tests.nodes import F32, at, given, graph, value, view


def composed(*nodes):
    made = graph(nodes[-1].output, *nodes)
    found = check(compose_views(made))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    last = nodes[-1].output
    assert np.array_equal(evaluate(made, {"x": x})[last], evaluate(found, {"x": x})[last])
    return found[last]


def test_a_transpose_undone_reads_the_input_in_its_own_order():
    found = composed(
        given("x", F32, "m", "n"),
        value("a", view(at(1), at(0)), "x", F32, "n", "m"),
        value("b", view(at(1), at(0)), "a", F32, "m", "n"),
    )
    assert (found.inputs, found.kind) == (("x",), view(at(0), at(1)))


def test_slices_add_up():
    found = composed(
        given("x", F32, "m", 6),
        value("a", view(at(0), at(1) * 2), "x", F32, "m", 3),
        value("b", view(at(0), at(1) + 1), "a", F32, "m", 2),
    )
    assert (found.inputs, found.kind) == (("x",), view(at(0), at(1) * 2 + 2))


def test_a_reshape_and_back_leaves_no_division():
    n = Dim.of("n")
    found = composed(
        given("x", F32, "m", "n"),
        value("a", view(at(0) // n, at(0) % n), "x", F32, n * "m"),
        value("b", view(at(0) * n + at(1)), "a", F32, "m", "n"),
    )
    assert (found.inputs, found.kind) == (("x",), view(at(0), at(1)))


def test_three_views_are_one_too():
    found = composed(
        given("x", F32, "m", "n"),
        value("a", view(at(1), at(0)), "x", F32, "n", "m"),
        value("b", view(at(0), at(2)), "a", F32, "n", 1, "m"),
        value("c", view(at(1), 0, at(0)), "b", F32, "m", "n"),
    )
    assert (found.inputs, found.kind) == (("x",), view(at(0), at(1)))


def test_a_view_of_what_is_computed_stays():
    made = graph(
        "b",
        given("x", F32, "m", "n"),
        value("a", Map("exp"), "x", F32, "m", "n"),
        value("b", view(at(1), at(0)), "a", F32, "n", "m"),
    )
    assert compose_views(made) == made


def test_random_graphs_compute_the_same_bits():
    assert changed_bits(compose_views) == []


def test_a_view_of_one_piece_of_a_select_reads_that_piece():
    n = Dim.of("n")
    found = composed(
        given("x", F32, "m", "n"),
        value("a", Map("negative"), "x", F32, "m", "n"),
        value("b", Select(1, (Dim.of(0), n)), "a x", F32, "m", n * 2),
        value("c", view(at(0), at(1) + n), "b", F32, "m", "n"),
        value("d", Select(0, (Dim.of(0), Dim.of("m"))), "c x", F32, Dim.of("m") * 2, "n"),
        value("e", view(at(0), at(1)), "d", F32, "m", "n"),
    )
    assert (found.inputs, found.kind) == (("x",), view(at(0), at(1)))


def test_a_view_across_pieces_of_a_select_stays():
    n = Dim.of("n")
    made = graph(
        "c",
        given("x", F32, "m", "n"),
        value("b", Select(1, (Dim.of(0), n)), "x x", F32, "m", n * 2),
        value("c", view(at(0), at(1) + 1), "b", F32, "m", "n"),
    )
    assert compose_views(made) == made


def test_a_view_of_a_long_chain_of_selects_reads_the_first_piece():
    """A loop that appends leaves one; each step was a call within a call."""
    steps = [
        value(f"a{k}", Select(0, (Dim.of(0), Dim.of(4 * k))), f"a{k - 1} a0", F32, 4 * k + 4) for k in range(1, 1200)
    ]
    made = graph("b", given("a0", F32, 4), *steps, value("b", view(at(0)), "a1199", F32, 4))
    assert compose_views(made)["b"].inputs == ("a0",)


def test_the_piece_that_a_view_reads_is_searched_by_halves(monkeypatch):
    """The number of comparisons of a view with a piece does not grow with the number of pieces."""
    compared = []

    def counted(*args, within=cleanup.within):
        compared.append(args)
        return within(*args)

    monkeypatch.setattr(cleanup, "within", counted)
    pieces = [given(f"x{k}", F32, 1) for k in range(100)]
    side_by_side = value(
        "s", Select(0, tuple(map(Dim.of, range(100)))), " ".join(node.output for node in pieces), F32, 100
    )
    views = [value(f"y{k}", view(at(0) + k), "s", F32, 1) for k in range(100)]
    total = value("z", Map("add"), "y0 y99", F32, 1)
    made = compose_views(graph("z", *pieces, side_by_side, *views, total))
    assert [made[f"y{k}"].inputs for k in range(100)] == [(f"x{k}",) for k in range(100)]
    assert len(compared) <= 200


def test_a_view_of_several_pieces_or_of_unknown_ones_stays_or_reads_its_own():
    nodes = given("a", F32, 3), given("b", F32, "n"), given("c", F32, 3)
    whole = value("s", Select(0, (Dim.of(0), Dim.of(3), Dim.of("n") + 3)), "a b c", F32, Dim.of("n") + 6)
    last = value("y", view(at(0) + "n" + 4), "s", F32, 2)
    both = value("z", view(at(0) + 2), "s", F32, 2)
    made = compose_views(graph("w", *nodes, whole, last, both, value("w", Map("add"), "y z", F32, 2)))
    assert (made["y"].inputs, made["y"].kind) == (("c",), view(at(0) + 1))
    assert made["z"].inputs == ("s",)
