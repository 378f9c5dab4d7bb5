"""Walks over statements and expressions, their substitution, and the loops that implement intrinsics."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import TypeAlias, assert_never

from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, product
from noyau.ir.operators import OPERATORS

# Expressions without operands.
_LEAVES = frozenset({ir.Const, ir.Var, ir.Index, ir.InWholeLines, ir.CellsToAlignment})

CELL = "#cell_of_tile"
Statements: TypeAlias = tuple[ir.Statement, ...]


@lru_cache(maxsize=1024)  # every walk asks for them
def loops_of(intrinsic: ir.Intrinsic) -> tuple[ir.Statement, ...]:
    """The loops that compute the same as an intrinsic."""
    cell = Dim.of(CELL)
    match intrinsic:
        case ir.Zero(memory, dtype, extent, var):
            zero = ir.Const(0.0 if dtype.is_float else 0, dtype)
            return (ir.Loop(var, extent, ir.Axis.LANES, (ir.Store((memory,), (Dim.of(var),), (zero,)),)),)
        case ir.MergeLanes(lanes=lanes, var=var):
            halves = [lanes >> level for level in range(1, lanes.bit_length() - 1)]
            loops = (ir.Loop(var, Dim.of(n), ir.Axis.LANES, (merge_of(intrinsic, var, n),)) for n in halves)
            return (*loops, merge_of(intrinsic, 0, 1))
        case ir.StreamStore(buffer, index, memory, start, extent, dtype):
            *outer, last = index
            copied = ir.Store((buffer,), (*outer, last + cell), (ir.Load(memory, (start + cell,), dtype),))
            return (ir.Loop(CELL, extent, ir.Axis.LANES, (copied,)),)
        case _:
            assert_never(intrinsic)


def merge_of(merge: ir.MergeLanes, lane: DimLike, half: DimLike) -> ir.Store:
    """The merge of a lane of the upper half into its lane of the lower one."""
    upper = (Dim.of(lane) + half,)
    values = tuple(ir.Load(name, upper, dtype) for name, dtype in zip(merge.buffers, merge.dtypes, strict=True))
    return ir.Store(merge.buffers, (Dim.of(lane),), values, merge.monoid)


def expressions(statement: ir.Statement) -> tuple[ir.Expr, ...]:
    """The expressions that stand directly in a statement."""
    match statement:  # without patterns of fields: all walks pass here, and each pattern reads every field
        case ir.Let():
            return (statement.value,)
        case ir.Store():
            return statement.values
        case ir.If():
            return (statement.condition,)
        case ir.Loop() | ir.Alloc() | ir.Prefetch() | ir.Require():
            return ()
        case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
            return ()
        case _:
            assert_never(statement)


def operands(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expressions that stand directly in an expression, not those in the body of a Fold."""
    match expr:
        case ir.Call():
            return expr.operands
        case ir.Load():
            return () if expr.where is None else (expr.where,)
        case ir.Fold():
            return (expr.value,)
        case ir.Const() | ir.Var() | ir.Index() | ir.InWholeLines() | ir.CellsToAlignment():
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
            waiting += () if type(expr) in _LEAVES else operands(expr)


def every_statement(statements: Iterable[ir.Statement]) -> Iterator[ir.Statement]:
    """Every statement, in loops and in the bodies of folds too, in order; each intrinsic is followed by its loops."""
    waiting = [*statements][::-1]
    while waiting:
        statement = waiting.pop()
        yield statement
        if type(statement) is ir.Loop:  # not isinstance, which takes longer: all walks pass here
            waiting += statement.body[::-1]
            continue
        inner: list[ir.Statement] = [*statement.body] if type(statement) is ir.If else []
        if isinstance(statement, ir.Intrinsic):
            inner += loops_of(statement)
        exprs = [*expressions(statement)][::-1]
        while exprs:
            if type(expr := exprs.pop()) in _LEAVES:
                continue
            if type(expr) is ir.Fold:
                inner += expr.body
            exprs += operands(expr)[::-1]
        waiting += inner[::-1]


def on_threads(body: Statements) -> tuple[Statements, list[ir.Loop], Statements]:
    """Split a launch into the statements before its loops on threads, these loops, outermost first, and their body."""
    before, loops, inner = body[:-1], list[ir.Loop](), body[-1:]
    while len(inner) == 1 and isinstance(inner[0], ir.Loop) and inner[0].axis is ir.Axis.THREADS:
        loops.append(inner[0])
        inner = inner[0].body
    return (before, loops, inner) if loops else ((), [], body)


def extent_of(launch: ir.Launch) -> Dim:
    """The number of work items of a launch: the product of its loops on threads."""
    return product(loop.extent for loop in on_threads(launch.body)[1])


def tiles_of(statements: Sequence[ir.Statement]) -> list[ir.Tile]:
    """The tiles of loops and folds, and those that indices are aligned to, each once."""
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
            case ir.Load(_, index):
                yield from index
            case ir.CellsToAlignment(_, _, index, length):
                yield from (*index, length)
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
    """Every fold, including nested ones."""
    return [expr for expr in every_expression(statements) if isinstance(expr, ir.Fold)]


def loads_of(statements: Iterable[ir.Statement]) -> list[ir.Load]:
    return [expr for expr in every_expression(statements) if isinstance(expr, ir.Load)]


def targets_of(statements: Iterable[ir.Statement]) -> frozenset[str]:
    """The buffers and the memory that statements store in."""
    return frozenset(name for s in every_statement(statements) if isinstance(s, ir.Store) for name in s.buffers)


def memory_of(statements: Sequence[ir.Statement]) -> frozenset[str]:
    """The buffers and the memory that statements load from or store in."""
    return targets_of(statements) | {load.buffer for load in loads_of(statements)}


def all_dims(statements: Sequence[ir.Statement]) -> list[Dim]:
    """Every index, and every extent, that statements name."""
    every = [*every_statement(statements)]
    extents = [s.extent for s in every if isinstance(s, ir.Loop | ir.Require)]
    starts = [s.start for s in every if isinstance(s, ir.Loop)]
    shapes = [dim for s in every if isinstance(s, ir.Alloc) for dim in s.shape]
    folds = [dim for fold in folds_in(statements) for dim in (*(n for _, n in fold.loops), fold.at) if dim is not None]
    return [*dims_in(statements), *extents, *starts, *shapes, *folds]


def rewrite(statements: Iterable[ir.Statement], change: Callable[[ir.Expr], ir.Expr]) -> tuple[ir.Statement, ...]:
    """The statements with `change` applied to every expression, operands first."""
    return tuple(_rewrite_statement(statement, change) for statement in statements)


def rewrite_all(
    statements: Iterable[ir.Statement],
    of_statement: Callable[[ir.Statement], ir.Statement],
    of_expression: Callable[[ir.Expr], ir.Expr],
) -> tuple[ir.Statement, ...]:
    """The statements with each statement and expression changed; of loops, conditions and folds only the contents."""

    def change(statement: ir.Statement) -> ir.Statement:
        if isinstance(statement, ir.Loop | ir.If):
            return replace(statement, body=tuple(map(change, statement.body)))
        return of_statement(statement)

    def change_expression(expr: ir.Expr) -> ir.Expr:
        return replace(expr, body=tuple(map(change, expr.body))) if isinstance(expr, ir.Fold) else of_expression(expr)

    return tuple(map(change, rewrite(statements, change_expression)))


def _rewrite_statement(statement: ir.Statement, change: Callable[[ir.Expr], ir.Expr]) -> ir.Statement:
    match statement:
        case ir.Let(_, value, _):
            new = rewrite_expression(value, change)
            return statement if new is value else replace(statement, value=new)
        case ir.Store(_, _, values, _):
            news = tuple(rewrite_expression(value, change) for value in values)
            return statement if all(map(is_, news, values)) else replace(statement, values=news)
        case ir.Loop(_, _, _, body):
            return replace(statement, body=rewrite(body, change))
        case ir.If(condition, body):
            return ir.If(rewrite_expression(condition, change), rewrite(body, change))
        case ir.Alloc() | ir.Prefetch() | ir.Require():
            return statement
        case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
            return statement
        case _:
            assert_never(statement)


def rewrite_expression(expr: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The expression with `change` applied to it and to all its parts, operands first."""
    match expr:
        case ir.Call(_, inner, _):
            news = tuple(rewrite_expression(operand, change) for operand in inner)
            expr = expr if all(map(is_, news, inner)) else replace(expr, operands=news)
        case ir.Load(_, _, _, where, _) if where is not None:
            expr = replace(expr, where=rewrite_expression(where, change))
        case ir.Fold(_, _, body, value, _, _):
            expr = replace(expr, body=rewrite(body, change), value=rewrite_expression(value, change))
        case _:
            pass
    return change(expr)


def substitute(statements: Iterable[ir.Statement], values: dict[str, DimLike]) -> tuple[ir.Statement, ...]:
    """The statements with index names replaced by Dims, everywhere."""
    return with_dims(statements, lambda old: old.replace(values))


def with_dims(statements: Iterable[ir.Statement], dim: Callable[[Dim], Dim]) -> tuple[ir.Statement, ...]:
    """The statements with each Dim changed."""

    def change(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Load(index=index):
                return replace(expr, index=tuple(map(dim, index)))
            case ir.CellsToAlignment(_, _, index, length):
                return replace(expr, index=tuple(map(dim, index)), length=dim(length))
            case ir.Index(at, _):
                return replace(expr, dim=dim(at))
            case ir.InWholeLines(length, _, places):
                moved = tuple((name, tuple(map(dim, index))) for name, index in places)
                return replace(expr, length=dim(length), places=moved)
            case ir.Fold(_, loops, body, _, _, at):
                loops = tuple((variable, dim(extent)) for variable, extent in loops)
                return replace(expr, loops=loops, body=_substitute_dims(body, dim), at=None if at is None else dim(at))
            case ir.Const() | ir.Var() | ir.Call():
                return expr
            case _:
                assert_never(expr)

    return _substitute_dims(rewrite(statements, change), dim)


def _substitute_dims(statements: Iterable[ir.Statement], dim: Callable[[Dim], Dim]) -> tuple[ir.Statement, ...]:
    def change(statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.Store(index=index) | ir.Prefetch(index=index):
                return replace(statement, index=tuple(map(dim, index)))
            case ir.Require(at, extent):
                return ir.Require(dim(at), dim(extent))
            case ir.Loop(_, extent, _, body, _, start):
                return replace(statement, extent=dim(extent), start=dim(start), body=_substitute_dims(body, dim))
            case ir.If(_, body):
                return replace(statement, body=_substitute_dims(body, dim))
            case ir.Alloc(_, _, shape, _):
                return replace(statement, shape=tuple(map(dim, shape)))
            case ir.Zero(extent=extent):
                return replace(statement, extent=dim(extent))
            case ir.StreamStore(_, index, _, start, extent):
                return replace(statement, index=tuple(map(dim, index)), start=dim(start), extent=dim(extent))
            case ir.Let() | ir.MergeLanes():
                return statement
            case _:
                assert_never(statement)

    return tuple(map(change, statements))


def substitute_in(fold: ir.Fold, values: dict[str, DimLike]) -> ir.Fold:
    """The fold with index names replaced by Dims."""
    return fold_of(substitute((ir.Let("", fold),), values)[0])
