"""Walks over statements and expressions, shared by schedules, costs and printers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from noyau.ir import loops as ir
from noyau.ir.dims import Dim, product
from noyau.ir.intrinsics import loops_of
from noyau.ir.operators import OPERATORS


def expressions(statement: ir.Statement) -> tuple[ir.Expr, ...]:
    """The expressions that stand directly in a statement."""
    match statement:
        case ir.Let(_, value, _):
            return (value,)
        case ir.Store(_, _, values, _):
            return values
        case ir.If(condition, _):
            return (condition,)
        case ir.Loop() | ir.Alloc() | ir.Prefetch() | ir.Require():
            return ()
        case ir.Zero() | ir.MergeLanes() | ir.TransposeTile() | ir.StreamStore():
            return ()
        case _:
            assert_never(statement)


def operands(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expressions that stand directly in an expression, not those in the body of a Fold."""
    match expr:
        case ir.Call(_, inner, _):
            return inner
        case ir.Load(_, _, _, where, _):
            return () if where is None else (where,)
        case ir.Fold(_, _, _, value, _, _):
            return (value,)
        case ir.Const() | ir.Var() | ir.Index() | ir.InWholeLines():
            return ()
        case _:
            assert_never(expr)


def flops_of(expr: ir.Expr) -> int:
    """The flops of an expression, without those of its operands."""
    return OPERATORS[expr.function].flops if isinstance(expr, ir.Call) else 0


def every_expression(statements: Iterable[ir.Statement]) -> Iterator[ir.Expr]:
    """Every expression, in loops and in the bodies of folds too, each before its operands."""
    for statement in every_statement(statements):
        waiting = list(expressions(statement))
        while waiting:
            expr = waiting.pop()
            yield expr
            waiting += operands(expr)


def every_statement(statements: Iterable[ir.Statement]) -> Iterator[ir.Statement]:
    """Every statement, in loops and in the bodies of folds too, in order; after an intrinsic the loops that it is."""
    for statement in statements:
        yield statement
        if isinstance(statement, ir.Loop | ir.If):
            yield from every_statement(statement.body)
        elif isinstance(statement, ir.Intrinsic):
            yield from every_statement(loops_of(statement))
        waiting = [*expressions(statement)]
        while waiting:
            expr = waiting.pop(0)
            yield from every_statement(expr.body) if isinstance(expr, ir.Fold) else ()
            waiting[:0] = operands(expr)


def on_threads(
    body: tuple[ir.Statement, ...],
) -> tuple[tuple[ir.Statement, ...], list[ir.Loop], tuple[ir.Statement, ...]]:
    """Split a launch into the statements before its loops on threads, these loops, outermost first, and their body."""
    before, loops, inner = body[:-1], list[ir.Loop](), body[-1:]
    while len(inner) == 1 and isinstance(inner[0], ir.Loop) and inner[0].axis is ir.Axis.THREADS:
        loops.append(inner[0])
        inner = inner[0].body
    return (before, loops, inner) if loops else ((), [], body)


def extent_of(launch: ir.Launch) -> Dim:
    """The items of a launch: the product of its loops on threads."""
    return product(loop.extent for loop in on_threads(launch.body)[1])


def tiles_of(statements: Sequence[ir.Statement]) -> list[ir.Tile]:
    """The tiles that loops and folds are over, and those that indices are aligned to, each once."""
    tiles: list[ir.Tile | None] = [s.tile for s in every_statement(statements) if isinstance(s, ir.Loop)]
    for expr in every_expression(statements):
        tiles += [expr.tile] if isinstance(expr, ir.Fold) else [expr.alignment] if isinstance(expr, ir.Index) else []
    return list(dict.fromkeys(tile for tile in tiles if tile is not None))


def dims_in(statements: Sequence[ir.Statement]) -> Iterator[Dim]:
    """Every index that statements use."""
    for statement in every_statement(statements):
        if isinstance(statement, ir.Store | ir.Prefetch):
            yield from statement.index
        elif isinstance(statement, ir.Require):
            yield statement.index
    for expr in every_expression(statements):
        match expr:
            case ir.Load(_, index, _, _, _):
                yield from index
            case ir.Index(dim, _):
                yield dim
            case ir.InWholeLines(length, _, places):
                yield from (length, *(dim for _, index in places for dim in index))
            case _:
                pass


def is_fold(statement: ir.Statement) -> bool:
    return isinstance(statement, ir.Let) and isinstance(statement.value, ir.Fold)


def fold_of(statement: ir.Statement) -> ir.Fold:
    """The fold that a Let gives a name."""
    assert isinstance(statement, ir.Let) and isinstance(statement.value, ir.Fold)
    return statement.value


def folds_in(statements: Iterable[ir.Statement]) -> list[ir.Fold]:
    """Every fold, also those in others."""
    return [expr for expr in every_expression(statements) if isinstance(expr, ir.Fold)]


def loads_of(statements: Iterable[ir.Statement]) -> list[ir.Load]:
    return [expr for expr in every_expression(statements) if isinstance(expr, ir.Load)]


def touched(statements: Sequence[ir.Statement]) -> frozenset[str]:
    """The buffers and the memory that statements load from or store in."""
    stored = [name for s in every_statement(statements) if isinstance(s, ir.Store) for name in s.buffers]
    return frozenset([*stored, *(load.buffer for load in loads_of(statements))])


def all_dims(statements: Sequence[ir.Statement]) -> list[Dim]:
    """Every index, and every extent, that statements name."""
    extents = [s.extent for s in every_statement(statements) if isinstance(s, ir.Loop | ir.Require)]
    shapes = [dim for s in every_statement(statements) if isinstance(s, ir.Alloc) for dim in s.shape]
    folds = [dim for fold in folds_in(statements) for dim in (*(n for _, n in fold.loops), fold.at) if dim is not None]
    return [*dims_in(statements), *extents, *shapes, *folds]
