"""Walks over statements and expressions, shared by schedules, costs and printers; and the loops that intrinsics stand
for: their meaning, and the text of languages that have no word for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import is_
from typing import assert_never

from noyau.ir.dims import Dim, DimLike, product
from noyau.ir.loops import (
    SIDE,
    Alloc,
    Axis,
    Call,
    Const,
    Expr,
    Fold,
    If,
    Index,
    Intrinsic,
    InWholeLines,
    Launch,
    Let,
    Load,
    Loop,
    MergeLanes,
    Prefetch,
    Require,
    Statement,
    Store,
    StreamStore,
    Tile,
    TransposeTile,
    Var,
    Zero,
)


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that stand directly in a statement."""
    match statement:
        case Let(_, value, _):
            return (value,)
        case Store(_, _, values, _):
            return values
        case If(condition, _):
            return (condition,)
        case Loop() | Alloc() | Prefetch() | Require() | Zero() | MergeLanes() | TransposeTile() | StreamStore():
            return ()
        case _:
            assert_never(statement)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that stand directly in an expression, not those in the body of a Fold."""
    match expr:
        case Call(_, inner, _):
            return inner
        case Load(_, _, _, where, _):
            return () if where is None else (where,)
        case Fold(_, _, _, value, _, _):
            return (value,)
        case Const() | Var() | Index() | InWholeLines():
            return ()
        case _:
            assert_never(expr)


def every_expression(statements: Iterable[Statement]) -> Iterator[Expr]:
    """Every expression, in loops and in the bodies of folds too, each before its operands."""
    for statement in every_statement(statements):
        waiting = list(expressions(statement))
        while waiting:
            expr = waiting.pop()
            yield expr
            waiting += operands(expr)


def every_statement(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, in loops and in the bodies of folds too, in order; after an intrinsic the loops that it is."""
    for statement in statements:
        yield statement
        if isinstance(statement, Loop | If):
            yield from every_statement(statement.body)
        elif isinstance(statement, Intrinsic):
            yield from every_statement(loops_of(statement))
        for expr in expressions(statement):
            yield from _in_folds(expr)


def on_threads(body: tuple[Statement, ...]) -> tuple[tuple[Statement, ...], list[Loop], tuple[Statement, ...]]:
    """Split a launch into the statements before its loops on threads, these loops, outermost first, and their body."""
    before, loops, inner = body[:-1], list[Loop](), body[-1:]
    while len(inner) == 1 and isinstance(inner[0], Loop) and inner[0].axis is Axis.THREADS:
        loops.append(inner[0])
        inner = inner[0].body
    return (before, loops, inner) if loops else ((), [], body)


def extent_of(launch: Launch) -> Dim:
    """The items of a launch: the product of its loops on threads."""
    return product(loop.extent for loop in on_threads(launch.body)[1])


def _in_folds(expr: Expr) -> Iterator[Statement]:
    if isinstance(expr, Fold):
        yield from every_statement(expr.body)
    for operand in operands(expr):
        yield from _in_folds(operand)


def tiles_of(statements: Sequence[Statement]) -> list[Tile]:
    """The tiles that loops and folds are over, and those that indices are aligned to, each once."""
    tiles: list[Tile | None] = [s.tile for s in every_statement(statements) if isinstance(s, Loop)]
    for expr in every_expression(statements):
        tiles += [expr.tile] if isinstance(expr, Fold) else [expr.alignment] if isinstance(expr, Index) else []
    return list(dict.fromkeys(tile for tile in tiles if tile is not None))


def dims_in(statements: Sequence[Statement]) -> Iterator[Dim]:
    """Every index that statements use."""
    for statement in every_statement(statements):
        match statement:
            case Store(_, index, _, _) | Prefetch(_, index):
                yield from index
            case Require(at, _):
                yield at
            case _:
                pass
    for expr in every_expression(statements):
        match expr:
            case Load(_, index, _, _, _):
                yield from index
            case Index(dim, _):
                yield dim
            case InWholeLines(length, _, places):
                yield from (length, *(dim for _, index in places for dim in index))
            case _:
                pass


def rewrite(statements: Iterable[Statement], change: Callable[[Expr], Expr]) -> tuple[Statement, ...]:
    """The statements with `change` applied to every expression, operands first."""
    return tuple(_rewrite_statement(statement, change) for statement in statements)


def _rewrite_statement(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    match statement:
        case Let(_, value, _):
            new = rewrite_expression(value, change)
            return statement if new is value else replace(statement, value=new)
        case Store(_, _, values, _):
            news = tuple(rewrite_expression(value, change) for value in values)
            return statement if all(map(is_, news, values)) else replace(statement, values=news)
        case Loop(_, _, _, body):
            return replace(statement, body=rewrite(body, change))
        case If(condition, body):
            return If(rewrite_expression(condition, change), rewrite(body, change))
        case Alloc() | Prefetch() | Require() | Zero() | MergeLanes() | TransposeTile() | StreamStore():
            return statement
        case _:
            assert_never(statement)


def rewrite_expression(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to it and all in it, operands first."""
    match expr:
        case Call(_, inner, _):
            news = tuple(rewrite_expression(operand, change) for operand in inner)
            expr = expr if all(map(is_, news, inner)) else replace(expr, operands=news)
        case Load(_, _, _, where, _) if where is not None:
            expr = replace(expr, where=rewrite_expression(where, change))
        case Fold(_, _, body, value, _, _):
            expr = replace(expr, body=rewrite(body, change), value=rewrite_expression(value, change))
        case _:
            pass
    return change(expr)


def substitute(statements: Iterable[Statement], values: dict[str, DimLike]) -> tuple[Statement, ...]:
    """The statements with index names replaced by Dims, everywhere."""

    def dim(old: Dim) -> Dim:
        return old.replace(values)

    def change(expr: Expr) -> Expr:
        match expr:
            case Load(_, index, _, _, _):
                return replace(expr, index=tuple(map(dim, index)))
            case Index(at, _):
                return replace(expr, dim=dim(at))
            case InWholeLines(length, _, places):
                moved = tuple((name, tuple(map(dim, index))) for name, index in places)
                return replace(expr, length=dim(length), places=moved)
            case Fold(_, loops, body, _, _, at):
                loops = tuple((variable, dim(extent)) for variable, extent in loops)
                return replace(expr, loops=loops, body=_substitute_dims(body, dim), at=None if at is None else dim(at))
            case Const() | Var() | Call():
                return expr
            case _:
                assert_never(expr)

    return _substitute_dims(rewrite(statements, change), dim)


def _substitute_dims(statements: Iterable[Statement], dim: Callable[[Dim], Dim]) -> tuple[Statement, ...]:
    result: list[Statement] = []
    for statement in statements:
        match statement:
            case Store(index=index) | Prefetch(index=index):
                result.append(replace(statement, index=tuple(map(dim, index))))
            case Require(at, extent):
                result.append(Require(dim(at), dim(extent)))
            case Loop(_, extent, _, body):
                result.append(replace(statement, extent=dim(extent), body=_substitute_dims(body, dim)))
            case If(_, body):
                result.append(replace(statement, body=_substitute_dims(body, dim)))
            case Alloc(_, _, shape, _):
                result.append(replace(statement, shape=tuple(map(dim, shape))))
            case Zero(extent=extent):
                result.append(replace(statement, extent=dim(extent)))
            case TransposeTile(to=to, start=start, step=step):
                result.append(replace(statement, to=dim(to), start=dim(start), step=dim(step)))
            case StreamStore(_, index, _, start, extent):
                there = tuple(map(dim, index))
                result.append(replace(statement, index=there, start=dim(start), extent=dim(extent)))
            case Let() | MergeLanes():
                result.append(statement)
            case _:
                assert_never(statement)
    return tuple(result)


LINE, CELL = "#line_of_tile", "#cell_of_tile"


def loops_of(intrinsic: Intrinsic) -> tuple[Statement, ...]:
    """Statements that compute the same."""
    line, cell = Dim.of(LINE), Dim.of(CELL)
    match intrinsic:
        case Zero(memory, dtype, extent, var):
            zero = Const(0.0 if dtype.is_float else 0, dtype)
            return (Loop(var, extent, Axis.LANES, (Store((memory,), (Dim.of(var),), (zero,)),)),)
        case MergeLanes(lanes=lanes, var=var):
            halves = [lanes >> level for level in range(1, lanes.bit_length())]
            loops = (Loop(var, Dim.of(n), Axis.LANES, (merge_of(intrinsic, Dim.of(var), n),)) for n in halves[:-1])
            return (*loops, merge_of(intrinsic, 0, 1))
        case TransposeTile(memory, to, to_step, buffer, start, step, dtype):
            value = Load(buffer, (start + line * step + cell,), dtype)
            turned = Loop(CELL, Dim.of(SIDE), Axis.LANES, (Store((memory,), (to + cell * to_step + line,), (value,)),))
            return (Loop(LINE, Dim.of(SIDE), Axis.SERIAL, (turned,)),)
        case StreamStore(buffer, index, memory, start, extent, dtype):
            *outer, last = index
            copied = Store((buffer,), (*outer, last + cell), (Load(memory, (start + cell,), dtype),))
            return (Loop(CELL, extent, Axis.LANES, (copied,)),)
        case _:
            assert_never(intrinsic)


def merge_of(merge: MergeLanes, lane: DimLike, half: DimLike) -> Store:
    """The merge of a lane of the upper half into its lane of the lower one."""
    upper = (Dim.of(lane) + half,)
    values = tuple(Load(name, upper, dtype) for name, dtype in zip(merge.buffers, merge.dtypes, strict=True))
    return Store(merge.buffers, (Dim.of(lane),), values, merge.monoid)


def substitute_in(fold: Fold, values: dict[str, DimLike]) -> Fold:
    """The fold with index names replaced by Dims."""
    return fold_of(substitute((Let("", fold),), values)[0])


def is_fold(statement: Statement) -> bool:
    return isinstance(statement, Let) and isinstance(statement.value, Fold)


def fold_of(statement: Statement) -> Fold:
    """The fold that a Let gives a name."""
    assert isinstance(statement, Let) and isinstance(statement.value, Fold)
    return statement.value


def folds_in(statements: Iterable[Statement]) -> list[Fold]:
    """Every fold, also those in others."""
    return [expr for expr in every_expression(statements) if isinstance(expr, Fold)]


def loads_of(statements: Iterable[Statement]) -> list[Load]:
    return [expr for expr in every_expression(statements) if isinstance(expr, Load)]


def touched(statements: Sequence[Statement]) -> frozenset[str]:
    """The buffers and the memory that statements load from or store in."""
    stored = [name for s in every_statement(statements) if isinstance(s, Store) for name in s.buffers]
    return frozenset([*stored, *(load.buffer for load in loads_of(statements))])


def all_dims(statements: Sequence[Statement]) -> list[Dim]:
    """Every index, and every extent, that statements name."""
    extents = [s.extent for s in every_statement(statements) if isinstance(s, Loop | Require)]
    shapes = [dim for s in every_statement(statements) if isinstance(s, Alloc) for dim in s.shape]
    folds = folds_in(statements)
    loops = [n for fold in folds for _, n in fold.loops] + [fold.at for fold in folds if fold.at is not None]
    return [*dims_in(statements), *extents, *shapes, *loops]
