"""Sizes that have no number yet, for functions of a user that only calculate with them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.ir.dims import Dim, DimLike

Operation = Callable[[Any, Any], Any]


def _operation(apply: Callable[[Dim, Dim], Dim]) -> tuple[Operation, Operation]:
    """The methods of a Size that apply an operation of Dims, from the left and from the right."""

    def forwards(size: Any, other: Any) -> Any:
        return size.like(apply(size.dim, dim_of(other))) if is_whole(other) else NotImplemented

    def backwards(size: Any, other: Any) -> Any:
        return size.like(apply(dim_of(other), size.dim)) if is_whole(other) else NotImplemented

    return forwards, backwards


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """An integer of which only the Dim is known: it adds, subtracts, multiplies and divides downwards.

    Whoever compares it or asks for its number gets a TypeError: the answer would hold for one call alone. A subclass
    that knows better says what sizes made of it are in `like`."""

    dim: Dim

    def like(self, dim: Dim) -> Any:
        """Wrap a value that is calculated from this size."""
        return Size(dim)

    __add__, __radd__ = _operation(operator.add)
    __sub__, __rsub__ = _operation(operator.sub)
    __mul__, __rmul__ = _operation(operator.mul)
    __floordiv__, __rfloordiv__ = _operation(operator.floordiv)
    __mod__, __rmod__ = _operation(operator.mod)

    def __neg__(self) -> Any:
        return self.like(-self.dim)

    def __eq__(self, other: object) -> Any:
        raise TypeError(f"{self.dim} is compared, and it has no number yet")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> Any:
        raise TypeError(f"it is asked whether {self.dim} is 0, and it has no number yet")

    def __index__(self) -> Any:
        raise TypeError(f"{self.dim} is asked for its number, and it has none yet")

    __int__ = __float__ = __index__

    def __truediv__(self, other: Any) -> Any:
        if not is_whole(other) and not isinstance(other, float):
            return NotImplemented
        raise TypeError(f"{self.dim} is divided with /; use //")

    __rtruediv__ = __truediv__


def is_whole(value: Any) -> bool:
    """Whether it is an integer, or a Size."""
    return isinstance(value, int | Size | np.integer) and not isinstance(value, bool)


def size_of(dim: DimLike) -> int | Size:
    """A Dim as its number, or as a Size where it has none."""
    size = Dim.of(dim)
    return Size(size) if size.constant is None else size.constant


def dim_of(value: Any) -> Dim:
    """The Dim of what a function of a user calculated. TypeError for what is no integer."""
    if isinstance(value, Size):
        return value.dim
    if not is_whole(value):
        raise TypeError(f"{value!r} is no integer")
    return Dim.of(value)
