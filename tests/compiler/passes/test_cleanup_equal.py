"""Equal values are one; operands whose order does not matter get one order, however they were spelt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noyau.compiler.passes.cleanup import drop_unused, merge_equal
from noyau.compiler.passes.normal_form import contexts, order_operands, roles_of_sizes, structure
from noyau.ir.dims import shape_of
from noyau.ir.graph import Iota, Map, Reduce, Select, constant
from noyau.ir.graph_verifier import check
from noyau.ir.operators import Fact, has
from tests.compiler.passes.cases import changed_bits
from tests.nodes import F32, F64, I64, at, given, graph, value, view


def names(made):
    return [node.output for node in drop_unused(made).nodes]


def test_equal_values_are_one_at_any_remove():
    made = graph(
        "y",
        given("x", F32, "n"),
        value("a", Map("exp"), "x", F32, "n"),
        value("b", Map("exp"), "x", F32, "n"),
        value("c", Map("sqrt"), "a", F32, "n"),
        value("d", Map("sqrt"), "b", F32, "n"),
        value("y", Map("add"), "c d", F32, "n"),
    )
    found = check(merge_equal(made))
    assert names(found) == ["x", "a", "c", "y"]
    assert found["y"].inputs == ("c", "c")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (value("a", Map("exp"), "x", F32, "n"), value("b", Map("sqrt"), "x", F32, "n")),
        (value("a", Map("exp"), "x", F32, "n"), value("b", Map("exp"), "z", F32, "n")),
        (value("a", Map("subtract"), "x z", F32, "n"), value("b", Map("subtract"), "z x", F32, "n")),
        (value("a", Map("cast"), "x", F64, "n"), value("b", Map("cast"), "x", I64, "n")),
        (value("a", view(at(0)), "x", F32, "n"), value("b", view(at(1)), "x", F32, 3, "n")),
        (value("a", Reduce("sum", (0,)), "x", F32), value("b", Reduce("max", (0,)), "x", F32)),
        (constant("a", np.float32(0.0)), constant("b", np.float32(-0.0))),
        (constant("a", np.float32([1, 1])), constant("b", np.float32([[1, 1]]))),
        (constant("a", np.float32(1)), constant("b", np.float64(1))),
        (value("a", Iota(at(0)), "", I64, 3), value("b", Iota(at(0) + 1), "", I64, 3)),
        (given("a", F32, "n"), given("b", F32, "n")),
    ],
)
def test_what_differs_stays_two(one, other):
    made = graph("a b", given("x", F32, "n"), given("z", F32, "n"), one, other)
    assert merge_equal(made) == made


def test_equal_outputs_keep_their_names():
    made = graph(
        "y z", given("x", F32, "n"), value("y", Map("exp"), "x", F32, "n"), value("z", Map("exp"), "x", F32, "n")
    )
    found = check(merge_equal(made))
    assert (found["z"].kind, found["z"].inputs) == (view(at(0)), ("y",))


def test_equal_constants_are_one_nan_included():
    nodes = [constant(name, np.float32(np.nan)) for name in "ab"]
    assert merge_equal(graph("a", *nodes)).nodes == (nodes[0],)


def shape_of_walk(made):
    """A graph without its names: each node's kind, and its operands by number."""
    numbers = {}
    waiting = list(made.outputs)
    while waiting:
        name = waiting.pop(0)
        if name not in numbers:
            numbers[name] = len(numbers)
            waiting += made[name].inputs
    return [(made[name].kind, [numbers[other] for other in made[name].inputs], made[name].shape) for name in numbers]


def two_orders(*steps):
    """The walks of all graphs that are the same up to the order of operands."""
    found = []
    for turned in itertools.product([False, True], repeat=len(steps)):
        nodes = [given(name, F32, "n") for name in "abc"]
        for step, turn in zip(steps, turned, strict=True):
            name, function, *operands = step.split()
            operands = operands[::-1] if turn and has(function, Fact.COMMUTATIVE) else operands
            nodes.append(value(name, Map(function), " ".join(operands), F32, "n"))
        found.append(shape_of_walk(order_operands(graph(nodes[-1].output, *nodes))))
    return found


@pytest.mark.parametrize(
    "steps",
    [
        ("s sigmoid a", "m multiply s a", "y multiply m b"),
        ("m multiply a b", "e exp b", "y add m e"),  # a and b differ in what is made of them alone
        ("p multiply a b", "q negative a", "r multiply q c", "y add p r"),
        ("d subtract a b", "m multiply d a", "y maximum m d"),
        ("y add a a",),
    ],
)
def test_the_order_in_which_operands_were_spelt_does_not_matter(steps):
    first, *others = two_orders(*steps)
    assert all(other == first for other in others)


def test_operands_that_have_an_order_keep_it():
    made = graph(
        "y z",
        *(given(name, F32, "n") for name in "ab"),
        value("y", Map("subtract"), "b a", F32, "n"),
        value("z", Map("divide"), "b a", F32, "n"),
    )
    assert order_operands(made) == made


def test_pieces_of_one_value_are_ordered_by_where_they_lie():
    def halves(operands):
        nodes = [given("x", F32, 8), value("p", view(at(0)), "x", F32, 4), value("q", view(at(0) + 4), "x", F32, 4)]
        return order_operands(graph("y", *nodes, value("y", Map("multiply"), operands, F32, 4)))["y"].inputs

    assert halves("p q") == halves("q p")


def test_structure_knows_neither_names_nor_views():
    one = graph("y", given("x", F32, "n"), value("y", Map("exp"), "x", F32, "n"))
    other = graph(
        "w",
        given("u", F32, "n"),
        value("v", view(at(1)), "u", F32, 1, "n"),
        value("w", Map("exp"), "v", F32, 1, "n"),
    )
    assert structure(one)["y"] == structure(other)["w"] != structure(one)["x"]


def test_contexts_tell_what_is_made_of_a_value():
    made = graph(
        "y",
        *(given(name, F32, "n") for name in "abc"),
        value("s", Map("add"), "a b", F32, "n"),
        value("y", Map("subtract"), "s c", F32, "n"),
    )
    found = contexts(made, structure(made))
    assert found["a"] == found["b"] != found["c"]
    assert len({found[name] for name in "acsy"}) == 4


def test_a_piece_knows_its_place():
    made = graph("y", given("a", F32, 1), given("b", F32, 1), value("y", Select(0, shape_of([0, 1])), "a b", F32, 2))
    found = contexts(made, structure(made))
    assert found["a"] != found["b"]


def test_random_graphs_compute_the_same_bits():
    assert changed_bits(merge_equal) == []
    assert changed_bits(order_operands, signed_zeros=False) == []  # of 0 and -0 either is the larger


def test_sizes_have_roles_that_do_not_depend_on_their_names():
    def roles(n, m):
        found = roles_of_sizes(graph("x", given("x", F32, n, m), given("b", F32, m), given("c", F32, n, 1)))
        return found[n], found[m]

    assert roles("n", "m") == roles("m", "n") == roles("zz", "a")
    assert len(set(roles("n", "m"))) == 2


def test_names_of_sizes_do_not_order_operands():
    def products(n, m):
        return order_operands(
            graph(
                "y",
                given("x", F32, n),
                given("z", F32, n, m),
                value("w", view(at(0)), "x", F32, n, m),
                value("y", Map("multiply"), "w z", F32, n, m),
            )
        )["y"].inputs

    assert len({products(n, m) for n, m in itertools.permutations(["a", "b", "n", "batch"], 2)}) == 1
