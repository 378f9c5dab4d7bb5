"""Sizes of arrays that are traced, and the numbers that are made of them: both behave as numbers of Python do."""

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


@dataclass(frozen=True, slots=True, eq=False)
class TracedSize(Size):
    """A size of which a trace is made: it can be compared, which becomes a demand, and asked for its number, with which
    the trace begins again; both if the tape knows the sizes of a call. Divided it is a `Number`."""

    tape: Tape
    strong: bool = False  # one of NumPy's int64, as np.prod gives, which is not weak beside arrays

    def like(self, dim: Dim) -> Any:
        return as_size(self.tape, dim, self.strong)

    def __eq__(self, other: object) -> Any:
        if not is_whole(other):
            return NotImplemented
        left, right = self.dim, dim_of(other)
        answer = equal(left, right)
        if answer is not None:
            return answer
        return self.tape.at_most(left, right) and self.tape.at_most(right, left)

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
        return self

    __pos__ = __round__

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __add__(self, other: Any) -> Any:
        return calculate_number(np.add, self, other) if _is_part(other) else Size.__add__(self, other)

    def __radd__(self, other: Any) -> Any:
        return calculate_number(np.add, other, self) if _is_part(other) else Size.__radd__(self, other)

    def __sub__(self, other: Any) -> Any:
        return calculate_number(np.subtract, self, other) if _is_part(other) else Size.__sub__(self, other)

    def __rsub__(self, other: Any) -> Any:
        return calculate_number(np.subtract, other, self) if _is_part(other) else Size.__rsub__(self, other)

    def __mul__(self, other: Any) -> Any:
        return calculate_number(np.multiply, self, other) if _is_part(other) else Size.__mul__(self, other)

    def __rmul__(self, other: Any) -> Any:
        return calculate_number(np.multiply, other, self) if _is_part(other) else Size.__rmul__(self, other)

    def __floordiv__(self, other: Any) -> Any:
        return calculate_number(np.floor_divide, self, other) if _is_part(other) else Size.__floordiv__(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return calculate_number(np.floor_divide, other, self) if _is_part(other) else Size.__rfloordiv__(self, other)

    def __mod__(self, other: Any) -> Any:
        return calculate_number(np.remainder, self, other) if _is_part(other) else Size.__mod__(self, other)

    def __rmod__(self, other: Any) -> Any:
        return calculate_number(np.remainder, other, self) if _is_part(other) else Size.__rmod__(self, other)

    def __truediv__(self, other: Any) -> Any:
        return calculate_number(np.divide, self, other) if _is_number(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return calculate_number(np.divide, other, self) if _is_number(other) else NotImplemented

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


_WHOLE: dict[np.ufunc, Callable[..., Any]] = {  # ufuncs whose results are sizes again, as NumPy's int64
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


FUNCTIONS["sized"] = as_size  # what the shape of a traced array is made of


class Number(TracedArray):
    """A number of Python that is only known when the graph runs: calculated from sizes, or counted. Beside an array it
    takes the array's dtype, as NumPy has it of Python's numbers; by itself it is an i64 or an f64.

    `names` are the sizes that it follows from; None where it depends on what is in an array."""

    def __init__(self, tape: Tape, node: Any, names: frozenset[str] | None) -> None:
        super().__init__(tape, node, scalar=True)
        self.names = names

    @property
    def weak(self) -> type:
        return float if self.node.dtype is DType.F64 else int

    def __eq__(self, other: Any) -> Any:
        self._compared(other)
        return super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        self._compared(other)
        return super().__ne__(other)

    def __lt__(self, other: Any) -> Any:
        self._compared(other)
        return super().__lt__(other)

    def __le__(self, other: Any) -> Any:
        self._compared(other)
        return super().__le__(other)

    def __gt__(self, other: Any) -> Any:
        self._compared(other)
        return super().__gt__(other)

    def __ge__(self, other: Any) -> Any:
        self._compared(other)
        return super().__ge__(other)

    def _compared(self, other: Any) -> None:
        """A comparison with a number is asked for at once, where it follows from sizes."""
        if _is_number(other) and self.names is not None:
            self._settled()

    def _settled(self, *_: Any) -> Any:
        """Ask for the number: the trace begins again with numbers for the sizes that it follows from."""
        if self.names is None:
            self._no_number()
        for name in sorted(self.names or ()):
            self.tape.settle(Dim.of(name))

    def __add__(self, other: Any) -> Any:
        return calculate_number(np.add, self, other) if _is_number(other) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return calculate_number(np.add, other, self) if _is_number(other) else super().__radd__(other)

    def __sub__(self, other: Any) -> Any:
        return calculate_number(np.subtract, self, other) if _is_number(other) else super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        return calculate_number(np.subtract, other, self) if _is_number(other) else super().__rsub__(other)

    def __mul__(self, other: Any) -> Any:
        return calculate_number(np.multiply, self, other) if _is_number(other) else super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return calculate_number(np.multiply, other, self) if _is_number(other) else super().__rmul__(other)

    def __floordiv__(self, other: Any) -> Any:
        return calculate_number(np.floor_divide, self, other) if _is_number(other) else super().__floordiv__(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return calculate_number(np.floor_divide, other, self) if _is_number(other) else super().__rfloordiv__(other)

    def __mod__(self, other: Any) -> Any:
        return calculate_number(np.remainder, self, other) if _is_number(other) else super().__mod__(other)

    def __rmod__(self, other: Any) -> Any:
        return calculate_number(np.remainder, other, self) if _is_number(other) else super().__rmod__(other)

    def __truediv__(self, other: Any) -> Any:
        return calculate_number(np.divide, self, other) if _is_number(other) else super().__truediv__(other)

    def __rtruediv__(self, other: Any) -> Any:
        return calculate_number(np.divide, other, self) if _is_number(other) else super().__rtruediv__(other)

    def __pow__(self, other: Any) -> Any:
        return calculate_number(np.power, self, other) if _is_number(other) else super().__pow__(other)

    def __rpow__(self, other: Any) -> Any:
        return calculate_number(np.power, other, self) if _is_number(other) else super().__rpow__(other)

    def __neg__(self) -> Any:
        return calculate_number(np.subtract, 0, self)

    __bool__ = __int__ = __float__ = __index__ = __floor__ = __ceil__ = __trunc__ = __round__ = _settled
    __hash__ = object.__hash__


def _is_part(value: Any) -> bool:
    """Whether it makes a Number of a size: one itself, or a float."""
    return isinstance(value, Number | float)


def _is_number(value: Any) -> bool:
    return _is_part(value) or is_whole(value)


def calculate_number(ufunc: np.ufunc, *operands: Any) -> TracedArray:
    """A function of Python's numbers, at least one of them of a tape: whole where Python's result is. With an int64 of
    NumPy among them, a scalar of NumPy."""
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
    if any(isinstance(each, TracedSize) and each.strong for each in operands):
        return TracedArray(tape, number.node, scalar=True)
    return Number(tape, number.node, names)


def _demand_divisor(ufunc: np.ufunc, operands: tuple[Any, ...]) -> None:
    """Python divides no number by a size of 0: calls with one are told apart. NumPy's int64 may be divided by it."""
    if any(isinstance(each, TracedSize) and each.strong for each in operands):
        return
    inverted = ufunc is np.power and isinstance(operands[1], int | float) and operands[1] < 0
    divisor = operands[0] if inverted else operands[-1] if ufunc in _DIVIDING else None
    if isinstance(divisor, TracedSize) and not divisor.tape.at_most(1, divisor.dim, usual=True):
        divisor.tape.demand_at_most(divisor.dim, -1)


_DIVIDING = (np.divide, np.floor_divide, np.remainder)
