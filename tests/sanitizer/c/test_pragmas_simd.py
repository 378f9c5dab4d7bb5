from __future__ import annotations

import pytest

from noyau.sanitizer.c.build import with_own_calls
from noyau.sanitizer.c.pragmas import simd_calls

LOOP = "void f(int *a, int n) {{\n    n += 1;\n#pragma omp {}\n    for (int i = 1; i < n; ++i) {}\n}}\n"


def test_a_loop_of_simd_says_where_iterations_begin_on_the_same_lines():
    text = LOOP.format("simd safelen(4)", "a[i] = a[i - 1];")
    rewritten = with_own_calls(text, is_cpp=False)
    assert rewritten.count("\n") == text.count("\n")
    second, fourth = (rewritten.splitlines()[number] for number in (1, 3))
    assert "noyau_simd(4);" in second
    assert (
        fourth.index("noyau_simd_iteration();") < fourth.index("a[i] = a[i - 1];") < fourth.index("noyau_simd_end();")
    )


def test_loops_that_collapse_are_one():
    text = LOOP.format("for simd collapse(2)", "for (int j = 0; j < n; ++j) { a[j] = i; }")
    ((_, begin), (place, _), (end, _)) = simd_calls(text)
    assert "1L << 31" in begin
    assert text[place:end] == "{ a[j] = i; }"


@pytest.mark.parametrize(
    ("clauses", "body"),
    [
        ("simd reduction(+ : a[:4])", "a[0] += i;"),
        ("simd linear(n)", "a[i] = n;"),
        ("simd safelen(2 * 4)", "a[i] = i;"),
        ("taskloop simd", "a[i] = i;"),
        ("simd", "if (i) a[i] = i;"),
        ("simd collapse(2)", "a[i] = i;"),
        ("simd", "a[i] = i"),
    ],
)
def test_a_loop_that_is_not_read_is_left(clauses, body):
    assert not list(simd_calls(LOOP.format(clauses, body)))


def test_a_loop_under_a_condition_is_left():
    assert not list(simd_calls("if (n)\n#pragma omp simd\n    for (int i = 0; i < n; ++i) { a[i] = i; }\n"))
