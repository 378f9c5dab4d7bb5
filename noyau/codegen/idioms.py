"""Statements that a text joins, and expressions that it names."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.codegen.expressions import is_variable
from noyau.ir.loops import Alloc, Call, Expr, If, Let, Load, Statement, Store, Var
from noyau.ir.walk import every_expression, operands

LONG = 7  # parts of an expression that gets a name of its own in a merge


def steps_of(values: Sequence[Expr]) -> list[Expr]:
    """The calls in expressions that deserve a name, each after those in it: those that occur twice, and long ones."""
    counts: dict[Expr, int] = {}

    def count(expr: Expr) -> None:
        if isinstance(expr, Call):
            counts[expr] = counts.get(expr, 0) + 1
            if counts[expr] > 1:
                return
        for operand in operands(expr):
            count(operand)

    for value in values:
        count(value)
    found = [expr for expr, times in counts.items() if times > 1 or (size_of(expr) >= LONG and expr not in values)]
    return sorted(found, key=size_of)


def one_by_one(buffers: Sequence[str], values: Sequence[Expr]) -> bool:
    """Whether no value reads what an earlier one has changed, and none is long."""
    for position, value in enumerate(values):
        read = {expr.buffer for expr in every_expression((Let("", value),)) if isinstance(expr, Load)}
        if read & set(buffers[:position]):
            return False
    return True


def size_of(expr: Expr) -> int:
    return 1 + sum(map(size_of, operands(expr)))


def is_only_stored(let: Let, after: Sequence[Statement]) -> bool:
    """Whether a value is stored by the next statement, and nothing else reads it."""
    store, *rest = after
    if not isinstance(store, Store) or store.merge or store.values != (Var(let.name, let.value.dtype),):
        return False
    return not any(isinstance(expr, Var) and expr.name == let.name for expr in every_expression(rest))


def begun_by(statements: Sequence[Statement]) -> int:
    """The number of variables that are allocated at once and then set, all by one Store; 0 where there are none."""
    count = next((at for at, s in enumerate(statements) if not (isinstance(s, Alloc) and is_variable(s))), 0)
    names = tuple(s.name for s in statements[:count] if isinstance(s, Alloc))
    store = statements[count] if count else None
    return count if isinstance(store, Store) and store.buffers == names and not store.merge else 0


def inlined(let: Let, store: Statement) -> Store:
    assert isinstance(store, Store)
    return Store(store.buffers, store.index, (let.value,))


def otherwise(this: Statement, after: Statement) -> tuple[Statement, ...]:
    """The body of the next statement, if that runs where this one, whose condition reads no memory, does not."""
    match this, after:
        case If(condition), If(Call("logical_not", (opposite,)), body) if condition == opposite:
            loads = any(isinstance(expr, Load) for expr in every_expression((Let("", condition),)))
            return () if loads else body
        case _:
            return ()
