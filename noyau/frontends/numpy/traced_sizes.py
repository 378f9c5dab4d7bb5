"""Sizes of traced arrays, and numbers that are calculated from them: both behave as Python numbers do."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.traced_array import FUNCTIONS, TracedArray, ufunc_call
from noyau.ir.dims import Dim, equal, maximum
from noyau.ir.sizes import Size, dim_of, is_whole


def _is_part(value: Any) -> bool:
    """Whether an operand makes the result of an operation with a size a Number: a Number or a float."""
    return isinstance(value, Number | float)


def _is_number(value: Any) -> bool:
    return _is_part(value) or is_whole(value)


def _operators(ufunc: np.ufunc, fits: Callable[[Any], bool], plain: Any, swapped: Any) -> tuple[Any, Any]:
    """An operator and its reflected form: calculated by `ufunc` if the other operand `fits`, else `plain`/`swapped`."""

    def operate(self: Any, other: Any) -> Any:
        return calculate_number(ufunc, self, other) if fits(other) else plain(self, other)

    def operate_swapped(self: Any, other: Any) -> Any:
        return calculate_number(ufunc, other, self) if fits(other) else swapped(self, other)

    return operate, operate_swapped


def _no_operator(size: Any, other: Any) -> Any:
    return NotImplemented


def _comparison(name: str) -> Any:
    """A comparison; a Number that follows from sizes settles them before it is compared with a number."""

    def compare(self: Any, other: Any) -> Any:
        if _is_number(other) and self.names is not None:
            self._settle()
        return getattr(TracedArray, name)(self, other)

    return compare


@dataclass(frozen=True, slots=True, eq=False)
class TracedSize(Size):
    """A size in a trace. A comparison becomes a demand, and a conversion to a number restarts the trace with it; both
    need a tape that knows the sizes of a call. True division gives a `Number`."""

    tape: Tape
    strong: bool = False  # a NumPy int64, as np.prod returns, which is not weak beside arrays

    def like(self, dim: Dim) -> Any:
        return as_size(self.tape, dim, self.strong)

    def __eq__(self, other: object) -> Any:
        if not is_whole(other):
            return NotImplemented
        left, right = self.dim, dim_of(other)
        answer = equal(left, right)
        return self.tape.at_most(left, right) and self.tape.at_most(right, left) if answer is None else answer

    def __ne__(self, other: object) -> Any:
        return not self == other if is_whole(other) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return self.tape.at_most(self.dim, dim_of(other)) if is_whole(other) else self._number_to(operator.le, other)

    def __ge__(self, other: Any) -> Any:
        return self.tape.at_most(dim_of(other), self.dim) if is_whole(other) else self._number_to(operator.ge, other)

    def __lt__(self, other: Any) -> Any:
        return not self >= other if is_whole(other) else self._number_to(operator.lt, other)

    def __gt__(self, other: Any) -> Any:
        return not self <= other if is_whole(other) else self._number_to(operator.gt, other)

    def _number_to(self, compare: Callable[[Any, Any], Any], other: Any) -> Any:
        return compare(self.tape.settle(self.dim), other) if isinstance(other, float) else NotImplemented

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.tape.settle(self.dim))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        return self.tape.settle(self.dim)

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __float__(self) -> float:
        return float(self.tape.settle(self.dim))

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None or digits >= 0 else round(self.tape.settle(self.dim), digits)

    __pos__ = __round__

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    __add__, __radd__ = _operators(np.add, _is_part, Size.__add__, Size.__radd__)
    __sub__, __rsub__ = _operators(np.subtract, _is_part, Size.__sub__, Size.__rsub__)
    __mul__, __rmul__ = _operators(np.multiply, _is_part, Size.__mul__, Size.__rmul__)
    __floordiv__, __rfloordiv__ = _operators(np.floor_divide, _is_part, Size.__floordiv__, Size.__rfloordiv__)
    __mod__, __rmod__ = _operators(np.remainder, _is_part, Size.__mod__, Size.__rmod__)
    __truediv__, __rtruediv__ = _operators(np.divide, _is_number, _no_operator, _no_operator)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and 0 <= other < 5:
            return math.prod([self] * other)
        return calculate_number(np.power, self, other) if _is_number(other) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        return other ** self.tape.settle(self.dim)

    def number(self) -> Number:
        """This size as a number of the graph."""
        return Number(self.tape, self.tape.size(self.dim, DType.I64), self.dim.names)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc in _WHOLE and method == "__call__" and not options and all(map(is_whole, inputs)):
            whole = _WHOLE[ufunc](*inputs)
            return as_size(self.tape, whole if isinstance(whole, Dim) else dim_of(whole), strong=True)
        return ufunc_call(ufunc, method, inputs, options)


_WHOLE: dict[np.ufunc, Callable[..., Any]] = {  # ufuncs whose results are sizes again, strong as NumPy's int64
    np.absolute: abs,
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.maximum: lambda a, b: maximum(dim_of(a), dim_of(b)),
    np.minimum: lambda a, b: -maximum(-dim_of(a), -dim_of(b)),
}


def as_size(tape: Tape, dim: Dim, strong: bool = False) -> Any:
    """A Dim as its number, or as a size of the tape; `strong`: as NumPy's int64."""
    if dim.constant is None:
        return TracedSize(dim, tape, strong)
    return np.int64(dim.constant) if strong else dim.constant


FUNCTIONS["sized"] = as_size  # makes the extents of a traced array's shape


class Number(TracedArray):
    """A Python number that is only known when the graph runs: calculated from sizes, or counted. Beside an array it
    takes the array's dtype, as Python numbers do in NumPy; by itself it is an i64 or an f64.

    `names`: the sizes that it follows from; None where it depends on cells of an array."""

    def __init__(self, tape: Tape, node: Any, names: frozenset[str] | None) -> None:
        super().__init__(tape, node, scalar=True)
        self.names = names

    @property
    def weak(self) -> type:
        return float if self.node.dtype is DType.F64 else int

    def _settle(self, *_: Any) -> Any:
        """Settle the sizes that the number follows from: the trace restarts with their numbers."""
        if self.names is None:
            self._no_number()
        for name in sorted(self.names or ()):
            self.tape.settle(Dim.of(name))

    __eq__, __ne__ = _comparison("__eq__"), _comparison("__ne__")
    __lt__, __le__ = _comparison("__lt__"), _comparison("__le__")
    __gt__, __ge__ = _comparison("__gt__"), _comparison("__ge__")
    __add__, __radd__ = _operators(np.add, _is_number, TracedArray.__add__, TracedArray.__radd__)
    __sub__, __rsub__ = _operators(np.subtract, _is_number, TracedArray.__sub__, TracedArray.__rsub__)
    __mul__, __rmul__ = _operators(np.multiply, _is_number, TracedArray.__mul__, TracedArray.__rmul__)
    __truediv__, __rtruediv__ = _operators(np.divide, _is_number, TracedArray.__truediv__, TracedArray.__rtruediv__)
    __pow__, __rpow__ = _operators(np.power, _is_number, TracedArray.__pow__, TracedArray.__rpow__)
    __mod__, __rmod__ = _operators(np.remainder, _is_number, TracedArray.__mod__, TracedArray.__rmod__)
    __floordiv__, __rfloordiv__ = _operators(
        np.floor_divide, _is_number, TracedArray.__floordiv__, TracedArray.__rfloordiv__
    )

    def __neg__(self) -> Any:
        return calculate_number(np.subtract, 0, self)

    __bool__ = __int__ = __float__ = __index__ = __floor__ = __ceil__ = __trunc__ = __round__ = _settle
    __hash__ = object.__hash__


def calculate_number(ufunc: np.ufunc, *operands: Any) -> TracedArray:
    """A ufunc of Python numbers, at least one on a tape: an i64 or f64 as in Python; a NumPy scalar beside an int64."""
    _demand_divisor(ufunc, operands)
    known = [each.number() if isinstance(each, TracedSize) else each for each in operands]
    numbers = [each for each in known if isinstance(each, Number)]
    broken = any(isinstance(each, float) or (isinstance(each, Number) and each.weak is float) for each in known)
    dtype = DType.F64 if broken or ufunc.nin == 1 or ufunc in (np.divide, np.power) else DType.I64
    tape = numbers[0].tape
    nodes = [tape.cast(each.node, dtype) if isinstance(each, Number) else tape.constant(each, dtype) for each in known]
    number = ufunc_call(ufunc, "__call__", [TracedArray(tape, node) for node in nodes], {})
    sources = [each.names for each in numbers]
    names = None if None in sources else frozenset(name for each in sources for name in each or ())
    if any(isinstance(each, np.generic) or (isinstance(each, TracedSize) and each.strong) for each in operands):
        return TracedArray(tape, number.node, scalar=True)  # a NumPy number among the operands makes it one
    return Number(tape, number.node, names)


def _demand_divisor(ufunc: np.ufunc, operands: tuple[Any, ...]) -> None:
    """Demand a divisor above or below 0, as in this call: Python refuses to divide by 0, a NumPy int64 does not."""
    if any(isinstance(each, TracedSize) and each.strong for each in operands):
        return
    inverted = ufunc is np.power and isinstance(operands[1], int | float) and operands[1] < 0
    divisor = operands[0] if inverted else operands[-1] if ufunc in _DIVIDING else None
    if isinstance(divisor, TracedSize) and not divisor.tape.at_most(1, divisor.dim, usual=True):
        divisor.tape.demand_at_most(divisor.dim, -1)


_DIVIDING = (np.divide, np.floor_divide, np.remainder)
