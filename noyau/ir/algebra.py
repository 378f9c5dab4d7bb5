"""The algebra of expressions: what lets the table of monoids write loop IR."""

from __future__ import annotations

from noyau.dtypes import DType
from noyau.ir.loops import Call, Const, Expr
from noyau.ir.operators import dtype_of


class Symbolic:
    """Applies a scalar function by writing the call down."""

    def call(self, name: str, *operands: Expr) -> Expr:
        return Call(name, operands, dtype_of(name, tuple(operand.dtype for operand in operands)))

    def like(self, value: float, other: Expr) -> Expr:
        return Const(value, other.dtype)

    def cast(self, value: Expr, dtype: DType) -> Expr:
        return Call("cast", (value,), dtype)
