"""Dims as text: the text means what the Dim does, in C's order of operations, and depends on names alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.codegen.tables import as_operand, dim_text, is_closed, short_float32, unwrap
from noyau.ir.dims import Dim, maximum
from tests.polynomials import NAMES, Meant, dims, polynomials, sizes

N, M, K, AT = map(Dim.of, ("n", "m", "k", "#i"))


def operate(op, left, right):
    """As Python, whose divisions are those of Dims."""
    signs = {"floordiv": "//", "mod": "%"}
    return (
        f"({as_operand(left)} {signs[op.kind]} {as_operand(right)})"
        if op.kind in signs
        else f"{op.kind}({left}, {right})"
    )


def text(dim):
    return dim_text(dim, lambda name: name.removeprefix("#"), operate)


@pytest.mark.parametrize(
    ("dim", "spelt"),
    [
        (Dim.of(0), "0"),
        (Dim.of(-3), "-3"),
        (N, "n"),
        (-N, "-n"),
        (N + 1, "n + 1"),
        (N - 1, "n - 1"),
        (1 - N, "1 - n"),
        (N * 2, "n * 2"),
        (N * N, "n * n"),
        (AT * N + AT, "i * n + i"),
        ((AT * N + "#j") * M + "#k", "(i * n + j) * m + k"),
        (N * M - N, "(m - 1) * n"),
        (-N * M - N, "-(m + 1) * n"),
        (N // M, "(n // m)"),
        ((N + 1) // 2 * 4, "((n + 1) // 2) * 4"),
        (N % 2 - M, "(n % 2) - m"),
        (maximum(N, M), "max(m, n)"),
        (-maximum(-N, -M), "min(m, n)"),
        (K - maximum(N, M), "k + min(-m, -n)"),
        (-maximum(-N, -32) * 2, "min(32, n) * 2"),
    ],
)
def test_dims_are_nested_as_horner_has_it(dim, spelt):
    assert text(dim) == spelt


@given(dims, sizes)
def test_the_text_means_what_the_dim_does(meant: Meant, sizes):
    try:
        wanted = meant.value(sizes)
        spelt = eval(text(meant.dim), {"max": max, "min": min}, dict(sizes))
    except ZeroDivisionError:
        return
    assert spelt == wanted


@given(polynomials, st.permutations(["x", "y", "z"]))
def test_polynomials_that_are_equal_up_to_names_are_spelled_alike(meant: Meant, fresh):
    """Whatever the names do to the normal form: the words are the same, and so is the text."""
    back = dict(zip(fresh, NAMES, strict=True))
    renamed = meant.dim.replace(dict(zip(NAMES, fresh, strict=True)))
    assert dim_text(renamed, back.__getitem__, operate) == dim_text(meant.dim, str, operate)


@pytest.mark.parametrize("word", ["n", "n2", "12", "f(a + b)", "(a + b)", "max(a, (b))"])
def test_what_is_closed_stays_as_it_is(word):
    assert as_operand(word) == word


@pytest.mark.parametrize("loose", ["a + b", "-n", "-3", "(a) + (b)", "f(a) + g(b)", "a[0]", "!f(x)", "(a)(b)"])
def test_what_is_loose_gets_parentheses_and_loses_them(loose):
    assert as_operand(loose) == f"({loose})"
    assert unwrap(as_operand(loose)) == loose
    assert unwrap(loose) == loose


def test_only_one_pair_of_parentheses_is_taken_off():
    assert unwrap("((a))") == "(a)"
    assert [is_closed(each) for each in ("()", "(a)(b)", "(a", "", "a")] == [True, False, False, False, False]


@given(st.floats(width=32))
def test_few_digits_are_the_same_float32(number):
    np.testing.assert_array_equal(np.float32(short_float32(number)), np.float32(number))


def test_a_float32_has_few_digits_and_ends():
    assert [short_float32(number) for number in (0.1, np.float32(0.1), 1e39)] == [0.1, 0.1, np.inf]
