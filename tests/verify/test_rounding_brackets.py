"""Chains of products in other brackets."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.graph import Contract
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.failures import Case
from noyau.verify.rounding import BRACKETS, rebracket, three_terms
from noyau.verify.trial import certify
from tests.jobs.check.groups import Group


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
        made = rebracket(graph, turn, sizes)
        assert np.array_equal(evaluate(made, given)[graph.outputs[0]], wanted)
        products = sum(isinstance(node.kind, Contract) for node in graph.nodes)
        assert (made is graph) == (turn % BRACKETS == 0 or products < 2)


def test_what_has_an_axis_twice_or_too_many_stays():
    assert three_terms("aa,ab->b", "b,c->bc") is None
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert three_terms("ab,bc->ac", f"ac,b{letters[3:]}->a{letters[2:]}") is None
    assert three_terms("ij,jk->ik", "ab,bj->aj") == ("ac", "cb", "bj", "aj")


@pytest.mark.parametrize("graph", [chain("ij", "jk", "kl", kept="il", dtype=DType.F16), from_the_right(DType.F16)])
def test_short_floats_keep_their_brackets(graph):
    """(a b) c is finite and b c is not: a kernel of which nothing is a number is wrong."""
    given = tuple(np.full((64, 64), value, np.float16) for value in (1e-3, 60, 60))
    assert rebracket(graph, 1, dict.fromkeys("ijkl", 64)) is graph
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
    assert rebracket(graph, 1, sizes) is graph, kept
