"""The reference of a reduction along any axes, with a plan for each dtype of its numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from noyau import functions
from noyau.errors import SignatureError
from noyau.ops.higher_order.closures import Scalar
from noyau.ops.higher_order.reduction_plan import ReductionPlan, state_dtype, way_of
from noyau.ops.higher_order.signature_forms import elements_of, reduce_signatures


class Ways:
    """The plans of a reduction, by the dtype of its numbers."""

    def __init__(self, step: FunctionType, start: float, called: str) -> None:
        self.step, self.start, self.called = step, start, called
        self.known: dict[np.dtype, ReductionPlan] = {}

    def over(self, dtype: np.dtype) -> ReductionPlan:
        """UnsupportedError where the function cannot be traced for numbers of this dtype."""
        if dtype not in self.known:
            self.known[dtype] = way_of(self.step, self.start, dtype, self.called)
        return self.known[dtype]

    def axes(self, axis: Any, rank: int) -> tuple[int, ...]:
        """The axes that a call names, in order. SignatureError for one that there is not."""
        if axis is None:
            return tuple(range(rank))
        axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
        known = [isinstance(each, int | np.integer) and not isinstance(each, bool) for each in axes]
        if not axes or not all(known) or any(not -rank <= each < rank for each in axes):
            raise SignatureError(f"{self.called}: axis={axis!r} names no axis of {rank}")
        places = sorted(operator.index(each) % rank for each in axes)
        if len(set(places)) < len(places):
            raise SignatureError(f"{self.called}: axis={axis!r} names an axis twice")
        return tuple(places)

    def texts(self) -> dict[str, Mapping[str, Any]]:
        """Signatures of it, with the arguments that they are of."""
        elements = next(elements_of(lambda dtype: state_dtype(self.over(dtype.numpy).dtype, self.called)), None)
        return reduce_signatures(*elements, "x") if elements else {}


def reduction_along(whole: Scalar, axis: int | None, keepdims: bool) -> Scalar:
    """A reduction along one axis, or along all."""

    def along(x: Any) -> Any:
        return whole(x, axis=axis, keepdims=keepdims)

    return along


def reduction_over(ways: Ways) -> Scalar:
    """The reference of a reduction."""
    step, start, join = ways.step, ways.start, functions.reduce

    def reduction(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        if not x.ndim:
            return step(start, x)
        way = ways.over(x.dtype)
        cells = x if way.neutral is None else step(way.neutral, x)
        merged = join(way.monoid, cells.astype(way.dtype), ways.axes(axis, x.ndim), keepdims=keepdims)
        return way.joined(start, merged) if way.closes else merged

    return reduction
