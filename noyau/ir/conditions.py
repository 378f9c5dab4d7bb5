"""Which launches of a kernel run: of several for short rows and for long ones, its sizes say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noyau.ir.loops import Call, Const, Expr, Index, Kernel
from noyau.ir.operators import OPERATORS

Sizes = Mapping[str, int]


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
