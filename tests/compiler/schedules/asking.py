"""Whether a kernel asks of each index that it looks up that it is inside, before it loads or stores there."""

from __future__ import annotations

from collections.abc import Iterable

from noyau.ir.loops import Fold, If, Index, Kernel, Let, Load, Loop, Require, Statement, Store
from noyau.ir.walk import expressions, operands


def unasked(kernel: Kernel) -> list[str]:
    """The buffers that are loaded from, or stored in, where nothing before in the same launch has asked."""
    return [name for launch in kernel.launches for name in _unasked(launch.body, set(), set())]


def _unasked(body: Iterable[Statement], looked_up: set[str], asked: set[str]) -> Iterable[str]:
    for statement in body:
        for expr in expressions(statement):
            yield from _in_expression(expr, looked_up, asked)
        match statement:
            case Let(name, value) if name.startswith("#") and not isinstance(value, Index):
                looked_up.add(name)
            case Require(index):
                asked |= index.names
            case Store(buffers, index) if _names(index) & looked_up - asked:
                yield buffers[0]
            case Loop() | If():
                yield from _unasked(statement.body, looked_up, asked)
            case _:
                pass


def _in_expression(expr: object, looked_up: set[str], asked: set[str]) -> Iterable[str]:
    match expr:
        case Fold():
            yield from _unasked((*expr.body, Let("", expr.value)), looked_up, asked)
            return
        case Load(buffer, index) if _names(index) & looked_up - asked:
            yield buffer
        case _:
            pass
    for operand in operands(expr):  # type: ignore[arg-type]
        yield from _in_expression(operand, looked_up, asked)


def _names(index: Iterable[object]) -> set[str]:
    return {name for dim in index for name in dim.names}  # type: ignore[attr-defined]
