from __future__ import annotations

from itertools import product as grid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.ir import ranges
from noyau.ir.dims import Dim, index_name, indices, shape_of, strides_of
from noyau.ir.ranges import at_least_one, highest, lowest, simplify, within
from tests.polynomials import ALL, Meant, leaf, number, over, times

EXTENTS = st.sampled_from(["n", "m", 1, 4, 6, Dim.of("n") * "m", Dim.of("n") * 4, Dim.of("n") + "m", Dim.of("n") + 1])
SIZES = [{"n": n, "m": m} for n, m in grid(range(4), repeat=2)]
LEAVES = st.one_of(st.sampled_from(["#0", "#1", "#0", "#1", "n", "m"]).map(leaf), st.integers(-2, 6).map(number))
NATURAL = st.one_of(st.sampled_from(["#0", "#1", "n", "m"]).map(leaf), st.integers(1, 8).map(number))


def flat(first: Meant, step: Meant, second: Meant) -> Meant:
    """An index as a reshape makes it."""
    made = times(first, step)
    return Meant(made.dim + second.dim, lambda at: made.value(at) + second.value(at))


INDICES = st.one_of(
    over(ALL, 7, LEAVES),
    st.builds(flat, NATURAL, NATURAL, NATURAL).flatmap(
        lambda index: st.builds(
            lambda by, kind: Meant(
                index.dim // by.dim if kind else index.dim % by.dim,
                lambda at: index.value(at) // by.value(at) if kind else index.value(at) % by.value(at),
            ),
            over((times,), 2, NATURAL),
            st.booleans(),
        )
    ),
)


def places(extents: tuple[Dim, Dim]):
    """Every index within the extents, for a few sizes."""
    for sizes in SIZES:
        for at in grid(*(range(dim.evaluate(sizes)) for dim in extents)):
            yield {**sizes, **{index_name(axis): value for axis, value in enumerate(at)}}


def loops(extents):
    return {index_name(axis): Dim.of(dim) for axis, dim in enumerate(extents)}


@settings(max_examples=80)
@given(INDICES, EXTENTS, EXTENTS)
def test_simplify_keeps_the_value(index, first, second):
    extents = loops((first, second))
    simple = simplify(index.dim, extents)
    for at in places(tuple(extents.values())):
        try:
            want = index.value(at)
        except ZeroDivisionError:
            continue
        assert simple.evaluate(at) == want, (str(index.dim), str(simple), at)


@settings(max_examples=80)
@given(INDICES, st.one_of(EXTENTS.map(Dim.of), INDICES.map(lambda index: index.dim)), EXTENTS, EXTENTS)
def test_bounds_hold(index, end, first, second):
    extents = loops((first, second))
    low, high, inside = lowest(index.dim, extents), highest(index.dim, extents), within(index.dim, end, extents)
    for at in places(tuple(extents.values())):
        try:
            value, bound = index.dim.evaluate(at), end.evaluate(at)
            assert low is None or low.evaluate(at) <= value
            assert high is None or value <= high.evaluate(at)
        except ZeroDivisionError:
            continue
        assert not inside or 0 <= value < bound, (str(index.dim), str(end), at)


@given(st.lists(st.tuples(st.sampled_from(["n", "m", "k"]), st.integers(-2, 3), st.integers(0, 2)), max_size=3))
def test_what_is_at_least_one(terms):
    extent = sum((Dim.of(name) * factor + more for name, factor, more in terms), Dim.of(0))
    for sizes in ({"n": n, "m": m, "k": k} for n, m, k in grid(range(3), repeat=3)):
        if extent.evaluate(sizes) >= 1:
            assert all(sizes[name] for name in at_least_one(extent))


@pytest.mark.parametrize(
    ("extent", "names"),
    [
        (Dim.of("n"), "n"),
        (Dim.of("n") * "m", "nm"),
        (Dim.of("n") * "m" + "n", "n"),
        (Dim.of("n") - 1, "n"),
        (Dim.of("n") + "m", ""),
        (Dim.of("n") + 1, ""),
        (Dim.of(4), ""),
    ],
)
def test_sizes_that_a_loop_needs(extent, names):
    assert at_least_one(extent) == frozenset(names)


def reshaped(source, target):
    """The index map of a reshape, simplified."""
    shape, wanted = shape_of(source), shape_of(target)
    at = sum((i * stride for i, stride in zip(indices(len(wanted)), strides_of(wanted), strict=True)), Dim.of(0))
    index = [at // stride % dim for stride, dim in zip(strides_of(shape), shape, strict=True)]
    return [str(simplify(dim, loops(wanted))) for dim in index]


B, S, H, D = map(Dim.of, "BSHD")


@pytest.mark.parametrize(
    ("source", "target", "index"),
    [
        ((B, S, H * D), (B, S, H, D), ["#0", "#1", "#2*D + #3"]),
        ((B, S, H, D), (B, S, H * D), ["#0", "#1", "(#2)//(D)", "(#2)%(D)"]),
        ((B * S, H), (B, S, H), ["#0*S + #1", "#2"]),
        ((B, S, H), (B * S, H), ["(#0)//(S)", "(#0)%(S)", "#1"]),
        ((B, S, 16), (B, S, 2, 8), ["#0", "#1", "8*#2 + #3"]),
        ((B, S, 2, 8), (B, S, 16), ["#0", "#1", "(#2)//(8)", "(#2)%(8)"]),
        ((B, 1, S), (B, S), ["#0", "0", "#1"]),
        ((B, S), (1, B, 1, S), ["#1", "#3"]),
        ((12,), (3, 4), ["4*#0 + #1"]),
        ((B, H, S, S), (B * H, S, S), ["(#0)//(H)", "(#0)%(H)", "#1", "#2"]),
        ((2, B), (B, 2), ["(2*#0 + #1)//(B)", "(2*#0 + #1)%(B)"]),
    ],
)
def test_reshapes_come_out_clean(source, target, index):
    assert reshaped(source, target) == index


def test_a_loop_over_a_sum_does_not_make_its_terms_positive():
    assert not within(Dim.of(0), Dim.of("n"), {"#0": Dim.of("n") + "m"})
    assert not within(Dim.of("#0") * 0 + "n" - 1, Dim.of("n"), {"#0": Dim.of("n") + "m"})
    assert within(Dim.of("#0") - "#0" + Dim.of("#0"), Dim.of("n"), {"#0": Dim.of("n")})


def test_what_is_forgotten_is_found_again():
    n = Dim.of("n")
    once = simplify((Dim.of("#0") + n * 4) // 4, {"#0": Dim.of(4)}), n * 2 + n, (n + 1) // 2
    ranges.forget()
    assert once == (simplify((Dim.of("#0") + n * 4) // 4, {"#0": Dim.of(4)}), n * 2 + n, (n + 1) // 2)
    assert once[0] == n
