"""Conditions on rows as texts, `price > 3 and shop in ('a', 'b')`: read as Python's syntax, never run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from noyau.errors import InputError

_NODES = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.And, ast.Or)
_NAMES = "add sub mul truediv lt le gt ge eq ne and_ or_".split()
_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    **{node: getattr(operator, name) for node, name in zip(_NODES, _NAMES, strict=True)},
    ast.In: lambda value, choices: value.isin(choices),
    ast.NotIn: lambda value, choices: ~value.isin(choices),
    ast.Is: lambda value, other: value.is_null() if other is None else value.no_comparison,
    ast.IsNot: lambda value, other: value.is_valid() if other is None else value.no_comparison,
}
_USAGE = "compare columns with numbers or texts, as in \"price > 3 and shop in ('a', 'b') and day is not None\""


def condition(text: str) -> Any:
    """The expression of pyarrow's that a text is: names are columns. InputError for what is no comparison."""
    try:
        expression = _expression(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, KeyError, AttributeError, RecursionError, pa.ArrowException) as fault:
        raise InputError(f"where={text!r} is no condition: {_USAGE}") from fault
    if not isinstance(expression, ds.Expression):
        raise InputError(f"where={text!r} names no column: {_USAGE}")
    return expression


def _expression(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            return ds.field(name)
        case ast.Constant(value=value):
            return value
        case ast.Tuple() | ast.List():
            return ast.literal_eval(node)
        case ast.UnaryOp(op=ast.USub()):
            return _expression(node.operand) * -1
        case ast.UnaryOp(op=ast.Not()):
            return ~_expression(node.operand)
        case ast.BoolOp():
            return reduce(_BINARY[type(node.op)], map(_expression, node.values))
        case ast.BinOp():
            left = _expression(node.left)
            left = left if isinstance(left, ds.Expression) else ds.scalar(left)  # a number adds none
            return _BINARY[type(node.op)](left, _expression(node.right))
        case ast.Compare():
            sides = [_expression(each) for each in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides, sides[1:], strict=False)
            return reduce(operator.and_, [_BINARY[type(each)](left, right) for each, left, right in pairs])
        case _:
            raise ValueError(f"{type(node).__name__} is no part of a condition")
