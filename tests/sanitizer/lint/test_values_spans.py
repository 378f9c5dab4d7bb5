from __future__ import annotations

import itertools

import pytest

from noyau.sanitizer.lint.values import UNSIGNED, Interval, Overflow, combine, union

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
            made = combine(kind, Interval(low, high), Interval(start, end), 64)
            values = [OPERATIONS[kind](a, b) for a in range(low, high + 1) for b in range(start, end + 1)]
            assert made is not None
            assert made.low <= min(values)
            assert made.high >= max(values)


def test_what_is_not_known():
    assert combine("BitXor", Interval.of(1), Interval.of(2), 64) is None
    assert combine("FloorDiv", Interval.of(1), Interval(-1, 2), 64) is None
    assert combine("Mod", Interval.of(1), Interval(0, 2), 64) is None


def test_where_a_number_goes_beyond_its_bits():
    wide = Interval(0, 2**31)
    assert wide.with_overflow(3, "i").overflow is None
    assert wide.with_bits(32).with_overflow(3, "i").overflow == Overflow(3, "i", 2**31)
    assert wide.with_bits(UNSIGNED).with_overflow(3, "i").overflow is None
    assert Interval(0, 2**32, UNSIGNED).with_overflow(3, "i").overflow is not None
    assert Interval(-(2**31) - 1, 0, 32).with_overflow(3, "i").overflow == Overflow(3, "i", -(2**31) - 1)
    first = wide.with_bits(32).with_overflow(3, "i")
    assert combine("Sub", first, Interval.of(5), 32).overflow.line == 3
    assert union(Interval.of(1), first).overflow.line == 3


def test_ranges_are_narrowed_and_never_empty():
    assert (Interval(0, 10).below(4).high, Interval(0, 10).above(4).low) == (4, 4)
    assert Interval(5, 10).below(2) == Interval(5, 5)
    assert Interval.of(4).is_one
