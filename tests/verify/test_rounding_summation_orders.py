from __future__ import annotations

from itertools import permutations

import numpy as np

from noyau.verify.failures import Case
from noyau.verify.floats import kind
from noyau.verify.rounding import CELLS, TURNS, reorder_contraction, reorder_sum
from noyau.verify.trial import certify
from tests.verify.test_rounding_brackets import chain

LARGE = np.array([1e308, -1e308, np.inf, -np.inf, np.nan, 1.0, -3.0, 0.0])
OVERFLOWS = np.full((1, 2), 1e200)  # whose product with itself is beyond the range


def kinds(values):
    """Which of inf, -inf and NaN are among some numbers."""
    return int(np.bitwise_or.reduce(kind(np.array(values, float)))) & ~1


def test_sums_end_as_in_any_order_of_their_terms():
    rng = np.random.default_rng(0)
    for turn in range(200):
        terms = rng.choice(LARGE if turn % 2 else LARGE[[0, 1]], 4)
        with np.errstate(all="ignore"):
            wanted = kinds([float(np.add.accumulate(order)[-1]) for order in permutations(terms)])
            above, below = terms[terms > 0].sum(), terms[terms < 0].sum()
            found = [
                reorder_sum(np.array([terms.sum()]), terms[None], np.isinf(terms)[None], k)[0] for k in range(TURNS)
            ]
        apart = kinds([np.nan]) if np.isinf(above) and np.isinf(below) else 0  # each by itself, then both
        assert kinds(found) == wanted | apart, terms
        assert np.isnan(found[3]) == bool(apart) or np.isnan(terms).any(), terms


def test_an_infinity_alone_is_one_in_every_order_and_finite_sums_stay():
    for terms in ([np.inf, 1.0, -2.0], [1.0, 2.0, -4.0], [1e307, 1e307, -1e307]):
        row = np.array([terms])
        for turn in range(TURNS):
            assert reorder_sum(row.sum(-1), row, np.isinf(row), turn) == row.sum(-1)


def test_products_overflow_both_ways_and_large_ones_are_left():
    x, y = OVERFLOWS, np.array([[1e200], [-1e200]])
    with np.errstate(all="ignore"):
        result = np.einsum("ij,jk->ik", x, y)
        found = [reorder_contraction("ij,jk->ik", result, (x, y), turn)[0, 0] for turn in range(TURNS)]
        spoilt = [
            reorder_contraction("ij,jk->ik", result, (x * [1, np.inf], y), turn)[0, 0] for turn in range(1, TURNS)
        ]
    assert kinds(found[1:]) == kinds([np.inf, -np.inf, np.nan])
    assert kinds(spoilt) == kinds([-np.inf, np.nan])
    wide = np.full((1, CELLS + 1), 1e308)
    assert reorder_contraction("ij,ij->i", np.array([7.0]), (wide, wide), 1) == 7


def test_a_kernel_may_end_as_some_order_does_and_no_otherwise():
    """-inf where the library multiplies and adds at once, NaN where a kernel rounds between."""
    graph = chain("ab", "bc", kept="ac")
    case = Case("huge", (np.array([[-1e200, 1e200], [1.0, 2.0]]), np.full((2, 1), 1e200)))
    for ends, is_right in ((np.nan, True), (np.inf, True), (-np.inf, True), (0.0, False)):
        found = certify(graph, lambda _, ends=ends: [np.array([[ends], [3e200]])], [case], name="product")
        assert found.ok is is_right, ends
    alone = Case("an infinity", (np.array([[np.inf, 1.0], [1.0, 2.0]]), np.ones((2, 1))))
    assert not certify(graph, lambda _: [np.array([[np.nan], [3.0]])], [alone], name="product").ok
