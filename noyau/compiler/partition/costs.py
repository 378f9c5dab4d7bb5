"""Costs of a kernel before it is scheduled: its cells, its flops and the bytes that it must move."""

import contextlib
from collections.abc import Iterable, Iterator

from noyau.dtypes import DType
from noyau.ir.dims import Dim, maximum, product
from noyau.ir.graph import Node
from noyau.ir.loops import Call, Expr, Fold, If, Index, Kernel, Let, Load, Loop, Require, Role, Statement
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_statement, expressions, flops_of, operands

USUAL = 61  # the assumed value of every size


def cells(node: Node) -> float:
    """Count the cells of a value where every size is `USUAL`."""
    return float(usual(product(node.shape)))


def usual(dim: Dim) -> float:
    """A Dim where every size is `USUAL`, or a multiple where that would divide by zero (by n // 64)."""
    for size in (USUAL, USUAL * 64, USUAL * 4096):
        with contextlib.suppress(ZeroDivisionError):
            return max(0.0, float(dim.evaluate(dict.fromkeys(dim.names, size))))
    return 1.0


def flops_within(expr: Expr) -> float:
    """The flops of an expression, including those of its operands."""
    return float(flops_of(expr)) + sum(map(flops_within, operands(expr)))


def flops_of_value(expr: Expr) -> float:
    """The same without conditions on indices: these are known for all cells but a few at the edges."""
    match expr:
        case Load():
            return 0.0
        case Call("where", (condition, *cases)) if _is_place(condition):
            return sum(map(flops_of_value, cases))
        case _:
            return 0.0 if _is_place(expr) else float(flops_of(expr)) + sum(map(flops_of_value, operands(expr)))


def _is_place(expr: Expr) -> bool:
    """Whether an expression is an index, or a condition on indices and sizes alone."""
    is_condition = isinstance(expr, Call) and expr.dtype is DType.BOOL
    return isinstance(expr, Index) or (is_condition and all(map(_is_place, operands(expr))))


def flops(kernel: Kernel) -> Dim:
    """The flops of a kernel before it is scheduled, as a polynomial of its sizes."""
    return sum((_work(launch.body) for launch in kernel.launches), Dim.of(0))


def _work(statements: Iterable[Statement]) -> Dim:
    total = Dim.of(0)
    for statement in statements:
        match statement:
            case Loop(_, extent, _, body):
                total = total + _work(body) * extent
            case Let(_, Fold(monoid, loops, body, _, _, _), _):
                total = total + (_work(body) + MONOIDS[monoid].flops) * product(extent for _, extent in loops)
            case Let(_, value, _):
                total = total + int(flops_within(value))
            case _:
                pass
    return total


def bytes_moved(kernel: Kernel) -> Dim:
    """The bytes that must move: inputs and outputs once; of a looked-up table as much as its longest read takes."""
    gathered, total = _gathered_inputs(kernel), Dim.of(0)
    for buffer in (*kernel.of(Role.INPUT), *kernel.of(Role.OUTPUT)):
        whole = product(buffer.shape)
        moved = -maximum(-whole, -gathered[buffer.name]) if buffer.name in gathered else whole
        total = total + moved * buffer.dtype.bytes
    return total


def _gathered_inputs(kernel: Kernel) -> dict[str, Dim]:
    """The inputs that are read at looked-up indices alone, each with the most cells that one of its loads reads."""
    looked_up, cells = set[str](), dict[str, Dim]()
    plain = {buffer.name for buffer in kernel.of(Role.OUTPUT)}
    for launch in kernel.launches:
        looked_up.update(*(s.index.names for s in every_statement(launch.body) if isinstance(s, Require)))
        for load, count in _loads(launch.body, Dim.of(1)):
            if not any(dim.names & looked_up for dim in load.index):
                plain.add(load.buffer)
            cells[load.buffer] = maximum(cells.get(load.buffer, 0), count)
    return {name: count for name, count in cells.items() if name not in plain}


def _loads(statements: Iterable[Statement], count: Dim) -> Iterator[tuple[Load, Dim]]:
    """Every load, with the number of times that it runs."""
    for statement in statements:
        if isinstance(statement, Loop | If):
            extent = statement.extent if isinstance(statement, Loop) else Dim.of(1)
            yield from _loads(statement.body, count * extent)
        for expr in expressions(statement):
            yield from _loads_of(expr, count)


def _loads_of(expr: Expr, count: Dim) -> Iterator[tuple[Load, Dim]]:
    if isinstance(expr, Load):
        yield expr, count
    if isinstance(expr, Fold):
        count = count * product(extent for _, extent in expr.loops)
        yield from _loads(expr.body, count)
    for operand in operands(expr):
        yield from _loads_of(operand, count)
