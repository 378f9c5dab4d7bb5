from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.errors import InputError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.sizes import Binding, bind, extend, plan

N, M = Dim.of("n"), Dim.of("m")


def test_a_size_is_bound_where_it_stands_alone():
    assert plan([shape_of(["n", 4])]) == (Binding("n", 0, 0, Dim.of(0), 1),)
    assert plan([shape_of([N * 2 + 3])]) == (Binding("n", 0, 0, Dim.of(3), 2),)


def test_sizes_are_solved_one_after_the_other():
    shapes = [shape_of([N + M]), shape_of([M * 4]), shape_of([N // 2])]
    assert plan(shapes) == (Binding("m", 1, 0, Dim.of(0), 4), Binding("n", 0, 0, M, 1))


@pytest.mark.parametrize("dim", [N * M, N * N, N // 2, N % 3, 7 - N, N + N // 2])
def test_what_cannot_be_solved(dim):
    assert plan([shape_of([dim])]) == ()


def test_sizes_from_shapes():
    shapes = [shape_of([N + 1, M]), shape_of([M * 3, 5])]
    assert bind(shapes, [(4, 2), (6, 5)], "xy") == {"n": 3, "m": 2}


@given(st.integers(0, 50), st.integers(0, 50))
def test_binding_finds_what_made_the_shapes(n, m):
    shapes = [shape_of([N * 3 + M + 2, 7]), shape_of([N * M, M * 2])]
    actual = [tuple(dim.evaluate({"n": n, "m": m}) for dim in shape) for shape in shapes]
    assert bind(shapes, actual, "xy") == {"n": n, "m": m}


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ([(4,), (2, 5)], "x has rank 1 (4,), but its shape is [n + 1, m]"),
        ([(4, 2), (2, 5)], "y has shape (2, 5), which does not fit [3*m, 5] where n=3, m=2"),
        ([(4, 2), (6, 4)], "y has shape (6, 4), which does not fit [3*m, 5] where n=3, m=2"),
    ],
)
def test_shapes_that_do_not_fit(actual, message):
    with pytest.raises(InputError) as caught:
        bind([shape_of([N + 1, M]), shape_of([M * 3, 5])], actual, "xy")
    assert str(caught.value) == message


def test_an_extent_that_no_size_divides():
    with pytest.raises(InputError, match=r"x has shape \(5,\), which does not fit \[2\*n\] where n=2"):
        bind([shape_of([N * 2])], [(5,)], "x")


def test_a_negative_size():
    with pytest.raises(InputError):
        bind([shape_of([N + 3])], [(2,)], "x")


def test_one_more_value_binds_more_sizes():
    assert extend({"n": 3}, shape_of(["n", M + "k", "k"]), (3, 7, 2), "y") == {"n": 3, "k": 2, "m": 5}
    with pytest.raises(InputError, match=r"y has shape \(4,\), which does not fit \[n\] where n=3"):
        extend({"n": 3}, shape_of(["n"]), (4,), "y")
    with pytest.raises(InputError, match="y has rank 2"):
        extend({"n": 3}, shape_of(["n"]), (4, 1), "y")
