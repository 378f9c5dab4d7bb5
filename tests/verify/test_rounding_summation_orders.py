from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.graph import Contract
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.floats import kind
from noyau.verify.rounding import BRACKETS, CELLS, TURNS, bracketed, contracted, summed, three_terms
from noyau.verify.values import Case, certify
from tests.jobs.check.groups import Group

LARGE = np.array([1e308, -1e308, np.inf, -np.inf, np.nan, 1.0, -3.0, 0.0])
OVERFLOWS = np.full((1, 2), 1e200)  # whose product with itself is beyond the range


def kinds(values):
    """Which of inf, -inf and NaN are among some numbers."""
    return int(np.bitwise_or.reduce(kind(np.array(values, float)))) & ~1


def chain(*terms, kept, dtype=DType.F64):
    """A graph that multiplies inputs from the left; each is named by the letters of its axes."""
    g = Group()
    made, letters = g.input(terms[0], dtype, *terms[0]), terms[0]
    for at, term in enumerate(terms[1:], 2):
        after = set("".join(terms[at:]) + kept)
        left = (
            "".join(letter for letter in dict.fromkeys(letters + term) if letter in after) if at < len(terms) else kept
        )
        made = g.add(Contract(f"{letters},{term}->{left}"), [made, g.input(term, dtype, *term)], dtype, left)
        letters = left
    return g.graph()


def from_the_right(dtype=DType.F64):
    """a (b c) as a graph."""
    g = Group()
    a, b, c = (g.input(axes, dtype, *axes) for axes in ("ij", "jk", "kl"))
    g.add(Contract("ij,jl->il"), [a, g.add(Contract("jk,kl->jl"), [b, c], dtype, "jl")], dtype, "il")
    return g.graph()


def test_sums_end_as_in_any_order_of_their_terms():
    rng = np.random.default_rng(0)
    for turn in range(200):
        terms = rng.choice(LARGE if turn % 2 else LARGE[[0, 1]], 4)
        with np.errstate(all="ignore"):
            wanted = kinds([float(np.add.accumulate(order)[-1]) for order in permutations(terms)])
            above, below = terms[terms > 0].sum(), terms[terms < 0].sum()
            found = [summed(np.array([terms.sum()]), terms[None], np.isinf(terms)[None], k)[0] for k in range(TURNS)]
        apart = kinds([np.nan]) if np.isinf(above) and np.isinf(below) else 0  # each by itself, then both
        assert kinds(found) == wanted | apart, terms
        assert np.isnan(found[3]) == bool(apart) or np.isnan(terms).any(), terms


def test_an_infinity_alone_is_one_in_every_order_and_finite_sums_stay():
    for terms in ([np.inf, 1.0, -2.0], [1.0, 2.0, -4.0], [1e307, 1e307, -1e307]):
        row = np.array([terms])
        for turn in range(TURNS):
            assert summed(row.sum(-1), row, np.isinf(row), turn) == row.sum(-1)


def test_products_overflow_both_ways_and_large_ones_are_left():
    x, y = OVERFLOWS, np.array([[1e200], [-1e200]])
    with np.errstate(all="ignore"):
        result = np.einsum("ij,jk->ik", x, y)
        found = [contracted("ij,jk->ik", result, (x, y), turn)[0, 0] for turn in range(TURNS)]
        spoilt = [contracted("ij,jk->ik", result, (x * [1, np.inf], y), turn)[0, 0] for turn in range(1, TURNS)]
    assert kinds(found[1:]) == kinds([np.inf, -np.inf, np.nan])
    assert kinds(spoilt) == kinds([-np.inf, np.nan])
    wide = np.full((1, CELLS + 1), 1e308)
    assert contracted("ij,ij->i", np.array([7.0]), (wide, wide), 1) == 7


@pytest.mark.parametrize(
    "graph",
    [
        chain("ab", "bc", "cd", "de", kept="ae"),
        chain("zab", "bc", "zcd", kept="zad"),
        chain("ab", "ba", "b", "c", "cd", kept="ad"),
        chain("ab", "bc", kept="ca"),
        from_the_right(),
    ],
)
def test_other_brackets_are_the_same_product(graph):
    rng, sizes = np.random.default_rng(1), dict(zip("abcdezijkl", (2, 3, 4, 5, 6, 2, 2, 3, 4, 5), strict=True))
    given = {node.output: rng.integers(-9, 9, [sizes[str(d)] for d in node.shape]) * 1.0 for node in graph.inputs}
    wanted = evaluate(graph, given)[graph.outputs[0]]
    for turn in range(2 * BRACKETS):
        made = bracketed(graph, turn, sizes)
        assert np.array_equal(evaluate(made, given)[graph.outputs[0]], wanted)
        products = sum(isinstance(node.kind, Contract) for node in graph.nodes)
        assert (made is graph) == (turn % BRACKETS == 0 or products < 2)


def test_what_has_an_axis_twice_or_too_many_stays():
    assert three_terms("aa,ab->b", "b,c->bc") is None
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert three_terms("ab,bc->ac", f"ac,b{letters[3:]}->a{letters[2:]}") is None
    assert three_terms("ij,jk->ik", "ab,bj->aj") == ("ac", "cb", "bj", "aj")


def test_a_kernel_may_end_as_some_order_does_and_no_otherwise():
    """-inf where the library multiplies and adds at once, NaN where a kernel rounds between."""
    graph = chain("ab", "bc", kept="ac")
    case = Case("huge", (np.array([[-1e200, 1e200], [1.0, 2.0]]), np.full((2, 1), 1e200)))
    for ends, is_right in ((np.nan, True), (np.inf, True), (-np.inf, True), (0.0, False)):
        found = certify(graph, lambda _, ends=ends: [np.array([[ends], [3e200]])], [case], name="product")
        assert found.ok is is_right, ends
    alone = Case("an infinity", (np.array([[np.inf, 1.0], [1.0, 2.0]]), np.ones((2, 1))))
    assert not certify(graph, lambda _: [np.array([[np.nan], [3.0]])], [alone], name="product").ok


@pytest.mark.parametrize("graph", [chain("ij", "jk", "kl", kept="il", dtype=DType.F16), from_the_right(DType.F16)])
def test_short_floats_keep_their_brackets(graph):
    """(a b) c is finite and b c is not: a kernel of which nothing is a number is wrong."""
    given = tuple(np.full((64, 64), value, np.float16) for value in (1e-3, 60, 60))
    assert bracketed(graph, 1, dict.fromkeys("ijkl", 64)) is graph
    if graph.nodes[-1].inputs[1] == "kl":
        unfused = evaluate(graph, dict(zip(("ij", "jk", "kl"), given, strict=True)))[graph.outputs[0]]
        assert np.isfinite(unfused).all()
        for ends in (np.nan, np.inf):
            got = np.full_like(unfused, ends)
            assert not certify(graph, lambda _, got=got: [got], [Case("it", given)], name="k").ok


def test_a_product_that_begins_on_the_right_may_overflow_as_from_the_left():
    graph, big = from_the_right(), np.full((2, 2), 1e200)
    case = Case("huge", (big, big, np.full((2, 2), 1e-200)))
    for ends, is_right in ((4e200, True), (np.inf, True), (-1e200, False)):
        found = certify(graph, lambda _, ends=ends: [np.full((2, 2), ends)], [case], name="product")
        assert found.ok is is_right, ends


@pytest.mark.parametrize(
    ("kept", "sizes"),
    [
        ("an inner product of many cells", {"a": 2, "b": 60_000, "c": 1, "d": 60_000}),
        ("an inner product of much work", {"a": 1, "b": 2048, "c": 2048, "d": 2048}),
        ("an outer product of much work", {"a": 10_000, "b": 400, "c": 1, "d": 10_000}),
        ("a size that no input tells", {"a": 2, "b": 3, "c": 4}),
    ],
)
def test_what_other_brackets_make_too_large_stays(kept, sizes):
    graph = chain("ab", "bc", "cd", kept="ad")
    assert bracketed(graph, 1, sizes) is graph, kept
