"""Abstract values of a kernel's text: intervals of integers with their widths, floats, pointers, arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

INT32_END = 2**31
UNSIGNED, WIDE = 33, 64  # the widths of unsigned 32 bits, and of integers that do not overflow
Value: TypeAlias = "Interval | Float | Pointer | np.ndarray | tuple[Any, ...] | None"


@dataclass(frozen=True, slots=True)
class Overflow:
    """An overflow of 32 bits: the line and the text of the expression, and the farthest value."""

    line: int
    text: str
    value: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Integers from `low` to `high`, inclusive, of so many bits (0: a literal, which takes the other operand's).

    `overflow`: an overflow on the way; the interval is then the intended one, without wrap-around."""

    low: int
    high: int
    bits: int = WIDE
    overflow: Overflow | None = None

    @staticmethod
    def of(value: int, bits: int = WIDE) -> Interval:
        return Interval(value, value, bits)

    @property
    def is_one(self) -> bool:
        return self.low == self.high

    @property
    def is_beyond(self) -> bool:
        """Whether it exceeds its width."""
        if self.bits == UNSIGNED:
            return self.high >= 2 * INT32_END
        return 0 < self.bits <= 32 and (self.high >= INT32_END or self.low < -INT32_END)

    def with_overflow(self, line: int, text: str) -> Interval:
        """Return the interval; if it exceeds its width, with the overflow recorded."""
        if not self.is_beyond or self.overflow is not None:
            return self
        far = self.high if self.high >= INT32_END else self.low
        return replace(self, overflow=Overflow(line, text, far))

    def with_bits(self, bits: int) -> Interval:
        return replace(self, bits=bits)

    def below(self, end: int) -> Interval:
        """Restrict the interval to numbers of at most `end`."""
        return replace(self, high=max(self.low, min(self.high, end)))

    def above(self, start: int) -> Interval:
        return replace(self, low=min(self.high, max(self.low, start)))


_CORNERS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "FloorDiv": operator.floordiv,
    "LShift": lambda a, b: a << min(max(b, 0), 63), "RShift": lambda a, b: a >> min(max(b, 0), 63),
}  # fmt: skip


def combine(kind: str, left: Interval, right: Interval, bits: int) -> Interval | None:
    """Return the interval of an operation (by the name of its node) on two intervals; None if it is unknown."""
    lost = left.overflow or right.overflow
    if kind == "Mod" and right.low > 0:
        high = right.high - 1 if left.high >= right.low or left.low < 0 else left.high
        return Interval(0, max(high, 0), bits, lost)
    if kind == "BitAnd" and right.low >= 0:
        return Interval(0, right.high, bits, lost)
    if kind not in _CORNERS or (kind == "FloorDiv" and right.low <= 0):
        return None
    ends = [_CORNERS[kind](a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(min(ends), max(ends), bits, lost)


def union(one: Interval, other: Interval) -> Interval:
    """Return the least interval that contains both."""
    bits = max(one.bits, other.bits)
    return Interval(min(one.low, other.low), max(one.high, other.high), bits, one.overflow or other.overflow)


@dataclass(frozen=True, slots=True)
class Float:
    """A float of so many bits; 0 for a literal, which takes the other operand's width."""

    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """An address: an array, and an offset in cells."""

    array: np.ndarray
    offset: Interval


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """An access to an array, on a line, whose offset overflowed."""

    array: np.ndarray
    overflow: Overflow
    line: int


@dataclass(frozen=True, slots=True)
class Sum:
    """A float32 to which one owner adds `terms` numbers in sequence."""

    name: str
    line: int
    terms: int


def merge(one: Value, other: Value) -> Value:
    """Join two possible values. Arrays are compared by identity only, since they have no cells."""
    match one, other:
        case Interval(), Interval():
            return union(one, other)
        case Float(), Float():
            return Float(max(one.bits, other.bits))
    return one if one is other else None


def cell_of(array: np.ndarray) -> Value:
    """Return the abstract value of a cell; None unless it is a float."""
    return Float(8 * array.dtype.itemsize) if array.dtype.kind == "f" else None
