from __future__ import annotations

from itertools import product as grid

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noyau.ir.dims import Dim, equal, exact_part, maximum, never_negative, same_shape, shape_of, strides_of
from tests.polynomials import NAMES, Meant, Sizes, dims, over, plus, polynomials, sizes, times

HW = Dim.of("h") * "w"

GRID = [dict(zip(NAMES, values, strict=True)) for values in grid(range(5), repeat=3)]


def meaning(meant: Meant, at: Sizes) -> int:
    try:
        return meant.value(at)
    except ZeroDivisionError:
        assume(False)
        raise


def defined(meant: Meant) -> list[tuple[Sizes, int]]:
    """Its values over a grid of sizes, where nothing is divided by 0."""
    found = []
    for at in GRID:
        try:
            found.append((at, meant.value(at)))
        except ZeroDivisionError:
            continue
    return found


@given(dims, sizes)
def test_a_dim_is_what_its_operations_make(meant, at):
    want = meaning(meant, at)
    assert meant.dim.evaluate(at) == want


@given(dims, sizes)
def test_arrays_of_sizes_are_evaluated_cell_by_cell(meant, at):
    want = meaning(meant, at)
    arrays = {name: np.full((2, 1), value) for name, value in at.items()}
    assert np.all(meant.dim.evaluate(arrays) == want)


@given(polynomials, polynomials, polynomials)
def test_the_normal_form_of_polynomials_is_one(a, b, c):
    assert (a.dim + b.dim) * c.dim == b.dim * c.dim + c.dim * a.dim
    assert a.dim - a.dim == Dim.of(0)
    assert (a.dim - b.dim) * (a.dim + b.dim) == a.dim * a.dim - b.dim * b.dim


@given(polynomials, polynomials)
def test_polynomials_that_agree_everywhere_are_equal(a, b):
    agree = all(a.value(at) == b.value(at) for at in GRID)
    assert (a.dim == b.dim) == agree or sum(map(len, (m for m, _ in a.dim.terms))) > 4


@given(dims, st.dictionaries(st.sampled_from(NAMES), dims, min_size=1), sizes)
def test_replacing_names_is_evaluating_them_first(meant, values, at):
    inner = {**at, **{name: meaning(value, at) for name, value in values.items()}}
    assume(all(value >= 0 for value in inner.values()))
    want = meaning(meant, inner)
    replaced = meant.dim.replace({name: value.dim for name, value in values.items()})
    assert replaced.evaluate(at) == want


@given(dims)
def test_the_text_means_the_same(meant):
    for at, want in defined(meant):
        assert eval(str(meant.dim), {"max": max}, dict(at)) == want


@given(dims, dims)
def test_equal_never_lies(a, b):
    said = equal(a.dim, b.dim)
    if said is not None:
        right = {tuple(at.values()): value for at, value in defined(b)}
        for at, value in defined(a):
            key = tuple(at.values())
            assert key not in right or (value == right[key]) == said


@given(dims)
def test_never_negative_is_never_wrong(meant):
    for positive in ((), ("a",), NAMES):
        if never_negative(meant.dim, positive):
            assert all(value >= 0 for at, value in defined(meant) if all(at[name] for name in positive))


@given(polynomials, over((plus, times), 3))
def test_exact_part_is_a_quotient_and_a_rest(left, right):
    quotient, rest = exact_part(left.dim, right.dim)
    assert quotient * right.dim + rest == left.dim


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim.of("n") // 2 * 2 + Dim.of("n") % 2, "n"),
        (Dim.of("n") // HW * HW + Dim.of("n") // "w" % "h" * "w" + Dim.of("n") % "w", "n"),
        ((Dim.of("n") * 6 + 4) // 2, "3*n + 2"),
        (Dim.of("n") * "m" // "m", "n"),
        (Dim.of("n") * "m" % "m", "0"),
        (Dim.of("n") // 2 // 3, "(n)//(6)"),
        ((Dim.of("n") + 7) // 4, "(n + 3)//(4) + 1"),
        (maximum(Dim.of("n") + 2, "n"), "n + 2"),
        (maximum("n", "m"), "max(m, n)"),
        (Dim.of("n") - "n", "0"),
        (Dim.of(-7) // 2, "-4"),
        (Dim.of(-7) % 2, "1"),
    ],
)
def test_normal_forms(dim, text):
    assert str(dim) == text


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("n", "n", True),
        (Dim.of("n") + 1, "n", False),
        ("n", "m", None),
        (Dim.of("n") * 2, Dim.of("n") + "n", True),
        ("n", 0, None),
        (Dim.of("n") + 1, 0, False),
        (-Dim.of("n"), 1, False),
        (maximum("n", "m"), -1, False),
        (maximum(-Dim.of("n"), -Dim.of("m")), 1, False),
        (maximum(-Dim.of("n"), -Dim.of("m")), -1, None),
        (Dim.of("n") // "m", -1, False),
        ((Dim.of("n") - 3) // "m", -1, None),
        ((Dim.of("n") - 3) % 4, -1, False),
    ],
)
def test_equal(left, right, said):
    assert equal(left, right) is said


def test_what_a_quotient_and_a_maximum_are_at_most():
    n, m = Dim.of("n"), Dim.of("m")
    half = n // 2
    for dim in (n - half, n - half * 2, n * m - half * m, half * 2 - maximum(half * 2 - 1, 0), n - (n + 1) // 2 + 1):
        assert never_negative(dim), dim
    for dim in (n - half * 3, half - n // 3, n - (n + 1) // 2 - 1, m - maximum(n, 0)):
        assert not never_negative(dim), dim


def test_shapes():
    assert strides_of(shape_of(["b", 3, "n"])) == shape_of([Dim.of("n") * 3, "n", 1])
    assert same_shape(shape_of(["n", 2]), shape_of([Dim.of("n") * 2 - "n", 2]))
    assert not same_shape(shape_of(["n"]), shape_of(["m"]))
    assert not same_shape(shape_of(["n"]), shape_of(["n", 1]))


def test_names_are_found_within_operations():
    assert (maximum("a", Dim.of("b") // "c") + 1).names == {"a", "b", "c"}


def test_the_work_of_a_sign_does_not_double_with_each_maximum():
    whole = Dim.of(0)
    for number in range(40):
        whole = whole - maximum(f"a{number}", Dim.of(f"b{number}") // 2)
    assert not never_negative(whole + "n")
