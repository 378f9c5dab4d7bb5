"""Whole numbers that a kernel computes with, as the range that they lie in and the width that they have.

What a walk over a kernel's text knows of a value, and what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

INT32_END = 2**31
UNSIGNED, WIDE = 33, 64  # the width of 32 bits without a sign, and of what does not overflow


@dataclass(frozen=True, slots=True)
class Overflow:
    """Where a number of 32 bits goes beyond what they hold: the line, the text and the farthest value."""

    line: int
    text: str
    value: int


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `low` to `high`, both met, of so many bits (0: a literal, which takes the other's). `lost`:
    where it has overflowed on the way; its range is then what was meant."""

    low: int
    high: int
    bits: int = WIDE
    lost: Overflow | None = None

    @staticmethod
    def of(value: int, bits: int = WIDE) -> Span:
        return Span(value, value, bits)

    @property
    def is_one(self) -> bool:
        return self.low == self.high

    @property
    def is_beyond(self) -> bool:
        """Whether it does not fit into its bits."""
        if self.bits == UNSIGNED:
            return self.high >= 2 * INT32_END
        return 0 < self.bits <= 32 and (self.high >= INT32_END or self.low < -INT32_END)

    def noting(self, line: int, text: str) -> Span:
        """The same, where it goes beyond its bits with that noted."""
        if not self.is_beyond or self.lost is not None:
            return self
        far = self.high if self.high >= INT32_END else self.low
        return replace(self, lost=Overflow(line, text, far))

    def widened(self, bits: int) -> Span:
        return replace(self, bits=bits)

    def below(self, end: int) -> Span:
        """Where it is known to be at most `end`."""
        return replace(self, high=max(self.low, min(self.high, end)))

    def above(self, start: int) -> Span:
        return replace(self, low=min(self.high, max(self.low, start)))


Combine = Callable[[int, int], int]
_CORNERS: dict[str, Combine] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "LShift": lambda a, b: a << min(max(b, 0), 63),
    "RShift": lambda a, b: a >> min(max(b, 0), 63),
    "FloorDiv": lambda a, b: a // b,
}


def combined(kind: str, left: Span, right: Span, bits: int) -> Span | None:
    """What an operation (by the name of its node) makes of two ranges; None where that is not known."""
    lost = left.lost or right.lost
    if kind == "Mod" and right.low > 0:
        high = right.high - 1 if left.high >= right.low or left.low < 0 else left.high
        return Span(0, max(high, 0), bits, lost)
    if kind == "BitAnd" and right.low >= 0:
        return Span(0, right.high, bits, lost)
    if kind not in _CORNERS or (kind == "FloorDiv" and right.low <= 0):
        return None
    ends = [_CORNERS[kind](a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Span(min(ends), max(ends), bits, lost)


def joined(one: Span, other: Span) -> Span:
    """What is one or the other."""
    bits = max(one.bits, other.bits)
    return Span(min(one.low, other.low), max(one.high, other.high), bits, one.lost or other.lost)


Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Float:
    """A float of so many bits, 0 for a literal that takes the other's."""

    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """An address: an array, and how many cells from its start."""

    array: Array
    offset: Span


Value: TypeAlias = "Span | Float | Pointer | Array | tuple[Any, ...] | None"


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """An access to an array by an index, on a line."""

    array: Array
    lost: Overflow
    line: int


@dataclass(frozen=True, slots=True)
class Sum:
    """A float of 32 bits to which one owner adds `terms` numbers, one after the other."""

    name: str
    line: int
    terms: int


@dataclass(slots=True)
class Loop:
    """A loop that is walked: how often it runs, and the names that differ from one round to the next."""

    trips: int
    names: set[str] = field(default_factory=set)
    is_shared: bool = False  # its rounds are dealt to threads


def either(one: Value, other: Value) -> Value:
    """What is one or the other. Arrays are never compared: they have no cells."""
    match one, other:
        case Span(), Span():
            return joined(one, other)
        case Float(), Float():
            return Float(max(one.bits, other.bits))
        case _:
            return one if one is other else None


def cell_of(array: Array) -> Value:
    """What is read from an array: whole numbers of it are not known."""
    return Float(8 * array.dtype.itemsize) if array.dtype.kind == "f" else None
