from __future__ import annotations

import itertools

import pytest

from noyau.sanitizer.lint.values import UNSIGNED, Overflow, Span, combined, joined

OPERATIONS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
    "BitAnd": lambda a, b: a & b,
}


@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_range_holds_every_value(kind):
    for low, high in itertools.combinations(range(-3, 9, 3), 2):
        for start, end in ((1, 3), (2, 5), (4, 4)):
            made = combined(kind, Span(low, high), Span(start, end), 64)
            values = [OPERATIONS[kind](a, b) for a in range(low, high + 1) for b in range(start, end + 1)]
            assert made is not None
            assert made.low <= min(values)
            assert made.high >= max(values)


def test_what_is_not_known():
    assert combined("BitXor", Span.of(1), Span.of(2), 64) is None
    assert combined("FloorDiv", Span.of(1), Span(-1, 2), 64) is None
    assert combined("Mod", Span.of(1), Span(0, 2), 64) is None


def test_where_a_number_goes_beyond_its_bits():
    wide = Span(0, 2**31)
    assert wide.noting(3, "i").lost is None
    assert wide.widened(32).noting(3, "i").lost == Overflow(3, "i", 2**31)
    assert wide.widened(UNSIGNED).noting(3, "i").lost is None
    assert Span(0, 2**32, UNSIGNED).noting(3, "i").lost is not None
    assert Span(-(2**31) - 1, 0, 32).noting(3, "i").lost == Overflow(3, "i", -(2**31) - 1)
    first = wide.widened(32).noting(3, "i")
    assert combined("Sub", first, Span.of(5), 32).lost.line == 3
    assert joined(Span.of(1), first).lost.line == 3


def test_ranges_are_narrowed_and_never_empty():
    assert (Span(0, 10).below(4).high, Span(0, 10).above(4).low) == (4, 4)
    assert Span(5, 10).below(2) == Span(5, 5)
    assert Span.of(4).is_one
