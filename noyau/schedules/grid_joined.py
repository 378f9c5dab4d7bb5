"""Two kernels that `grid_both` makes one of: rows, and sums over them, which read the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from noyau.ir.binding import plan
from noyau.ir.loops import Expr, Fold, If, Kernel, Launch, Let, Load, Loop, Role, Statement, Store, Var
from noyau.ir.walk import every_statement, rewrite
from noyau.schedules.grid_both import both_in
from noyau.schedules.steps import Statements


def joined(one: Kernel, other: Kernel, wanted: Collection[str]) -> Kernel | None:
    """A kernel that computes rows, and one that sums over them, as one of two launches; None where they are no such
    pair. The results of the first that are not `wanted`, by their sources, become scratch."""
    if len(one.launches) != 1 or len(other.launches) != 1 or any(b.strides for b in (*one.buffers, *other.buffers)):
        return None
    names = {b.source: b.name for b in one.buffers}
    taken = {*names.values(), *_values_in(one)}
    calls = {b.name: names.get(b.source) or _fresh(b.name, taken) for b in other.buffers}
    calls |= {name: _fresh(name, {*taken, *calls.values()}) for name in _values_in(other)}
    own = [replace(b, name=calls[b.name]) for b in other.buffers if b.source not in names]
    outputs = [b for b in one.buffers if b.role is Role.OUTPUT]
    buffers = [
        *(b for b in (*one.buffers, *own) if b.role is Role.INPUT),
        *(b for b in outputs if b.source in wanted),
        *(b for b in own if b.role is Role.OUTPUT),
        *(replace(b, role=Role.SCRATCH) for b in outputs if b.source not in wanted),
    ]
    body = _under(other.launches[0].body, calls)
    if both_in(one.launches[0].body, body) is None:
        return None
    binding = plan([b.shape for b in buffers if b.role is Role.INPUT])
    guards = tuple(dict.fromkeys((*one.guards, *other.guards)))
    return replace(one, buffers=tuple(buffers), binding=binding, launches=(*one.launches, Launch(body)), guards=guards)


def _values_in(kernel: Kernel) -> list[str]:
    """The names of its values."""
    statements = [s for launch in kernel.launches for s in every_statement(launch.body)]
    return [s.name for s in statements if isinstance(s, Let) and not s.name.startswith("#")]


def _fresh(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{name}_b"
    return name


def _under(statements: Statements, names: Mapping[str, str]) -> Statements:
    """Statements with their values and buffers under other names."""

    def in_expression(expr: Expr) -> Expr:
        match expr:
            case Var(name, dtype):
                return Var(names.get(name, name), dtype)
            case Load(buffer):
                return replace(expr, buffer=names.get(buffer, buffer))
            case Fold(body=body):
                return replace(expr, body=tuple(map(in_statement, body)))
            case _:
                return expr

    def in_statement(statement: Statement) -> Statement:
        match statement:
            case Let(name):
                return replace(statement, name=names.get(name, name))
            case Store(buffers):
                return replace(statement, buffers=tuple(names.get(b, b) for b in buffers))
            case Loop(body=body) | If(body=body):
                return replace(statement, body=tuple(map(in_statement, body)))
            case _:
                return statement

    return tuple(map(in_statement, rewrite(statements, in_expression)))
