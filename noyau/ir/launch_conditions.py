"""Conditions of launches: the sizes of a kernel choose between its launches for short and for long rows.

A condition is a bool where a schedule can decide it, else an expression that the launch evaluates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Call, Const, Expr, Index, Kernel
from noyau.ir.operators import OPERATORS

Sizes = Mapping[str, int]
Asked = Expr | bool


def at_most(left: Dim, right: Dim) -> Asked:
    """Whether a size is at most another one."""
    difference = (right - left).constant
    return Call("less_equal", (Index(left), Index(right)), DType.BOOL) if difference is None else difference >= 0


def all_of(conditions: Iterable[Asked]) -> Asked:
    """Whether all hold; True of none."""
    distinct = dict.fromkeys(conditions)
    if False in distinct:
        return False
    unknown = [each for each in distinct if not isinstance(each, bool)]
    return reduce(lambda one, other: Call("logical_and", (one, other), DType.BOOL), unknown) if unknown else True


def opposite(condition: Asked) -> Asked:
    """Whether it does not hold."""
    return not condition if isinstance(condition, bool) else Call("logical_not", (condition,), DType.BOOL)


def when(condition: Asked) -> Expr | None:
    """The condition of a launch that runs where it holds: None where that is sure."""
    if condition is False:
        raise ValueError("it never runs")
    return None if condition is True else condition


def conditions_of(kernel: Kernel) -> list[Expr]:
    """The conditions of the launches that have one, bools of sizes."""
    return [launch.when for launch in kernel.launches if launch.when is not None]


def runs(when: Expr, sizes: Sizes) -> bool:
    """Whether a launch of this condition runs at these sizes; not where they do not say it."""
    try:
        return bool(_value(when, sizes))
    except (KeyError, ZeroDivisionError):
        return False


def _value(expr: Expr, sizes: Sizes) -> Any:
    match expr:
        case Index(dim):
            return dim.evaluate(sizes)
        case Const(value):
            return value
        case Call(function, operands) if function in OPERATORS:
            return OPERATORS[function].evaluate(*(_value(operand, sizes) for operand in operands))
        case _:
            raise KeyError(expr)
