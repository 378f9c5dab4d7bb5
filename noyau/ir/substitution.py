"""Statements with other expressions, or with other Dims for the names of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import is_
from typing import assert_never

from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike
from noyau.ir.walk import fold_of


def rewrite(statements: Iterable[ir.Statement], change: Callable[[ir.Expr], ir.Expr]) -> tuple[ir.Statement, ...]:
    """The statements with `change` applied to every expression, operands first."""
    return tuple(_rewrite_statement(statement, change) for statement in statements)


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
        case ir.Zero() | ir.MergeLanes() | ir.TransposeTile() | ir.StreamStore():
            return statement
        case _:
            assert_never(statement)


def rewrite_expression(expr: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The expression with `change` applied to it and all in it, operands first."""
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

    def dim(old: Dim) -> Dim:
        return old.replace(values)

    def change(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Load(_, index, _, _, _):
                return replace(expr, index=tuple(map(dim, index)))
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
    result: list[ir.Statement] = []
    for statement in statements:
        match statement:
            case ir.Store(index=index) | ir.Prefetch(index=index):
                result.append(replace(statement, index=tuple(map(dim, index))))
            case ir.Require(at, extent):
                result.append(ir.Require(dim(at), dim(extent)))
            case ir.Loop(_, extent, _, body):
                result.append(replace(statement, extent=dim(extent), body=_substitute_dims(body, dim)))
            case ir.If(_, body):
                result.append(replace(statement, body=_substitute_dims(body, dim)))
            case ir.Alloc(_, _, shape, _):
                result.append(replace(statement, shape=tuple(map(dim, shape))))
            case ir.Zero(extent=extent):
                result.append(replace(statement, extent=dim(extent)))
            case ir.TransposeTile(to=to, start=start, step=step):
                result.append(replace(statement, to=dim(to), start=dim(start), step=dim(step)))
            case ir.StreamStore(_, index, _, start, extent):
                there = tuple(map(dim, index))
                result.append(replace(statement, index=there, start=dim(start), extent=dim(extent)))
            case ir.Let() | ir.MergeLanes():
                result.append(statement)
            case _:
                assert_never(statement)
    return tuple(result)


def substitute_in(fold: ir.Fold, values: dict[str, DimLike]) -> ir.Fold:
    """The fold with index names replaced by Dims."""
    return fold_of(substitute((ir.Let("", fold),), values)[0])
