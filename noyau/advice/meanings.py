"""What a walk over a kernel's text knows of a value, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from noyau.advice.spans import Overflow, Span, joined

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
