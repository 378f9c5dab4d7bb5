from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.ir.sizes import Size, dim_of, size_of

N = Size(dim_of(0) + "n")


@given(st.integers(0, 50), st.integers(1, 9))
def test_a_size_calculates_as_its_number_does(n, k):
    formulas = [
        lambda n: n + k, lambda n: k + n, lambda n: n - k, lambda n: k - n, lambda n: n * k, lambda n: k * n,
        lambda n: n // k, lambda n: n % k, lambda n: -n, lambda n: (n + k - 1) // k * k, lambda n: k // (n + 1),
        lambda n: k % (n + 1), lambda n: n * n + n * k,
    ]  # fmt: skip
    for formula in formulas:
        assert dim_of(formula(N)).evaluate({"n": n}) == formula(n)


@pytest.mark.parametrize(
    "question",
    [
        lambda n: n == 4, lambda n: n != 4, lambda n: n < 4, lambda n: n >= 4, bool, int, float, range,
        lambda n: n / 2, lambda n: 2 / n, lambda n: n + 0.5, lambda n: n + True, lambda n: max(n, 4),
        lambda n: [0][n], lambda n: {n: 0},
    ],
)  # fmt: skip
def test_what_would_hold_for_one_call_alone_is_a_type_error(question):
    with pytest.raises(TypeError):
        question(N)


def test_known_extents_are_numbers():
    assert size_of(4) == 4
    assert isinstance(size_of("n"), Size)
