"""Translation of a function's body in C, C++ or CUDA C++ to Python statements on the same lines, for arithmetic."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from noyau.errors import UnsupportedError
from noyau.kernels.c.syntax import leaves, plain_name, syntax, words

if TYPE_CHECKING:
    from tree_sitter import Node

N = TypeVar("N", bound=ast.AST)
_TYPES = frozenset(
    "void bool char short int long float double unsigned signed size_t int32_t int64_t uint32_t uint64_t int8_t "
    "uint8_t int16_t uint16_t ptrdiff_t ssize_t half __half dim3 auto".split()
)
_MARKS = frozenset("const static constexpr volatile register restrict extern".split())
_CASTS = ("static_cast", "reinterpret_cast")
_BINARY: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.FloorDiv, "%": ast.Mod,
    "<<": ast.LShift, ">>": ast.RShift, "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
_COMPARED = {"==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE}
_ENDS = {"return_statement": ast.Return, "break_statement": ast.Break, "continue_statement": ast.Continue}
_UNKNOWN = frozenset("initializer_list string_literal char_literal sizeof_expression true false null".split())


def statements(text: str, entry: str, language: str = "c") -> list[ast.stmt]:
    """Translate the body of a function. UnsupportedError, with the line, for what has no translation."""
    function = next((each for each in syntax(text, language).functions if each.name == entry), None)
    if function is None:
        raise UnsupportedError(f"no function {entry} is found in its text")
    if function.body is None:
        raise UnsupportedError("the text ends within a function")
    for token, behind in pairwise(leaves(function.body)):
        if token.is_missing and not token.type.isidentifier():
            line, word = _line(behind), _word(behind)
            raise UnsupportedError(f"line {line} is not read: {word!r} where {token.type!r} is expected")
        if token.is_missing or token.type == "ERROR":
            raise _unread(token)
    return _block(function.body)


def _unread(node: Node) -> UnsupportedError:
    return UnsupportedError(f"line {_line(node)} is not read: {next(words(node), '')!r}")


def _line(node: Node) -> int:
    return node.start_point.row + 1


def _word(node: Node) -> str:
    return (node.text or b"").decode("ascii")


def _field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise _unread(node)
    return child


def _block(node: Node) -> list[ast.stmt]:
    """Translate the statements in a node; the condition of an #if or #ifdef is left out."""
    conditions = {child.id for name in ("condition", "name") if (child := node.child_by_field_name(name)) is not None}
    return [statement for each in node.named_children if each.id not in conditions for statement in _statement(each)]


def _body(node: Node) -> list[ast.stmt]:
    """Translate the statements under a condition or a loop, at least one, as Python requires."""
    return _statement(node) or [_at(ast.Pass(), node)]


def _statement(node: Node) -> list[ast.stmt]:
    match node.type:
        case "compound_statement" | "preproc_ifdef" | "preproc_if" | "preproc_elif" | "preproc_else" | "else_clause":
            return _block(node)
        case "if_statement":
            other = node.child_by_field_name("alternative")
            test, then = _expression(_field(node, "condition")), _body(_field(node, "consequence"))
            return [_at(ast.If(test, then, _block(other) if other else []), node)]
        case "for_statement":
            return _loop(node)
        case "while_statement":
            test, body = _expression(_field(node, "condition")), _body(_field(node, "body"))
            return [_at(ast.While(test, body, []), node)]
        case "return_statement" | "break_statement" | "continue_statement":
            return [_at(_ENDS[node.type](), node)]
        case "declaration":
            return list(_declarations(node))
        case "expression_statement":
            return [statement for each in node.named_children for statement in _simple(each)]
        case "preproc_call" | "preproc_def" | "preproc_function_def" | "preproc_include":
            return []
    raise _unread(node)


def _loop(node: Node) -> list[ast.stmt]:
    """Translate `for (int i = a; i < b; i += c)` to `for i in range(a, b, c)`, and other loops to while."""
    initializer, condition, update = (node.child_by_field_name(n) for n in ("initializer", "condition", "update"))
    first: list[ast.stmt] = []
    if initializer is not None:
        first = list(_declarations(initializer)) if initializer.type == "declaration" else _simple(initializer)
    test = _expression(condition) if condition else _at(ast.Constant(True), node)
    step = _simple(update) if update else []
    body = _body(_field(node, "body"))
    match first, test, step:
        case (
            [ast.Assign(targets=[ast.Name(id=name)], value=start)],
            ast.Compare(left=ast.Name(id=tested), ops=[ast.Lt() | ast.LtE() as op], comparators=[end]),
            [ast.AugAssign(target=ast.Name(id=stepped), op=ast.Add(), value=by)],
        ) if name == tested == stepped:
            last = end if isinstance(op, ast.Lt) else ast.BinOp(end, ast.Add(), ast.Constant(1))
            iterated = ast.Call(_name("prange" if _is_dealt(node) else "range"), [start, last, by], [])
            return [_at(ast.For(ast.Name(name, ast.Store()), iterated, body, []), node)]
    return [*first, _at(ast.While(test, [*body, *step], []), node)]


def _is_dealt(loop: Node) -> bool:
    """Whether an OpenMP pragma distributes a loop."""
    before = loop.prev_named_sibling
    return before is not None and re.match(r"#\s*pragma\s+omp\b.*\bfor\b", _word(before), re.DOTALL) is not None


def _declarations(node: Node) -> Iterator[ast.stmt]:
    """Yield an assignment for each variable that has an initial value."""
    declarators = node.children_by_field_name("declarator")
    if not any(each.child_by_field_name("value") for each in declarators):
        return
    kind = _kind([each for each in node.children if each.end_byte <= declarators[0].start_byte], node)
    for each in declarators:
        value = each.child_by_field_name("value")
        if value is None:
            continue
        declarator, stars = _field(each, "declarator"), ""
        while declarator.type != "identifier":
            stars += " *" * (declarator.type == "pointer_declarator")
            is_array = declarator.type == "array_declarator"
            declarator = declarator.children[0] if is_array else _last_named_child(declarator)
        if value.type == "argument_list":
            raise _unread(value)
        target = ast.Name(_word(declarator), ast.Store())
        yield _at(ast.Assign([target], _cast(kind + stars, _expression(value))), declarator)


def _last_named_child(node: Node) -> Node:
    if not node.named_children:
        raise _unread(node)
    return node.named_children[-1]


def _kind(nodes: list[Node], node: Node) -> str:
    """Join the words of a type. UnsupportedError for an unknown type."""
    kinds = [word for each in nodes for word in words(each) if word not in _MARKS and word != ","]
    if not kinds or not {*kinds} <= _TYPES | {"*", "&"}:
        raise _unread(node)
    return " ".join(kinds)


def _simple(node: Node) -> list[ast.stmt]:
    """Translate an assignment, an increment, or an expression statement."""
    match node.type:
        case "comma_expression":
            return [*_simple(_field(node, "left")), *_simple(_field(node, "right"))]
        case "update_expression":
            op = ast.Add() if "++" in (child.type for child in node.children) else ast.Sub()
            return [_at(ast.AugAssign(_store_target(_field(node, "argument")), op, ast.Constant(1)), node)]
        case "assignment_expression":
            target, value = _store_target(_field(node, "left")), _expression(_field(node, "right"))
            sign = node.children[1].type
            if sign == "=":
                return [_at(ast.Assign([target], value), node)]
            return [_at(ast.AugAssign(target, _BINARY[sign[:-1]](), value), node)]
    return [_at(ast.Expr(_expression(node)), node)]


def _store_target(node: Node) -> ast.Name | ast.Subscript | ast.Attribute:
    target = _expression(node)
    if isinstance(target, ast.Name | ast.Subscript | ast.Attribute):
        target.ctx = ast.Store()
        return target
    raise UnsupportedError(f"line {_line(node)} assigns to what is no name and no cell")


def _expression(node: Node) -> ast.expr:
    """Translate an expression; a constant None stands for a value that is not tracked."""
    return _at(_value(node), node)


def _value(node: Node) -> ast.expr:  # a case for each kind of expression
    match node.type:
        case "parenthesized_expression" | "condition_clause":
            return _expression(_last_named_child(node))
        case "comma_expression":
            return _expression(_field(node, "right"))
        case "conditional_expression":
            test, other = _expression(_field(node, "condition")), _expression(_field(node, "alternative"))
            return ast.IfExp(test, _expression(_field(node, "consequence")), other)
        case "binary_expression":
            return _binary(node)
        case "unary_expression" | "pointer_expression":
            return _unary(_word(node.children[0]), _expression(_field(node, "argument")), node)
        case "cast_expression":
            return _cast(_kind([_field(node, "type")], node), _expression(_field(node, "value")))
        case "call_expression":
            return _call(node)
        case "subscript_expression":
            inner = _last_named_child(node)
            index = _expression(_last_named_child(inner) if inner.type == "subscript_argument_list" else inner)
            return _at(ast.Subscript(_expression(_field(node, "argument")), index, ast.Load()), node.children[1])
        case "field_expression":
            return ast.Attribute(_expression(_field(node, "argument")), _word(_field(node, "field")), ast.Load())
        case "number_literal":
            return _number(_word(node))
        case "identifier" | "qualified_identifier":
            return _name(plain_name(_word(node)))
        case kind if kind in _UNKNOWN:
            return ast.Constant(None)
    raise _unread(node)


def _binary(node: Node) -> ast.expr:
    sign = node.children[1]
    left, right = _expression(_field(node, "left")), _expression(_field(node, "right"))
    if sign.type in _COMPARED:
        return _at(ast.Compare(left, [_COMPARED[sign.type]()], [right]), sign)
    if sign.type in ("&&", "||"):
        return _at(ast.BoolOp(ast.And() if sign.type == "&&" else ast.Or(), [left, right]), sign)
    if sign.type not in _BINARY:
        raise _unread(node)
    return _at(ast.BinOp(left, _BINARY[sign.type](), right), sign)


def _unary(sign: str, operand: ast.expr, node: Node) -> ast.expr:
    match sign:
        case "-":
            return ast.UnaryOp(ast.USub(), operand)
        case "+":
            return operand
        case "!" | "~":
            return ast.UnaryOp(ast.Not(), operand)
        case "&":
            return ast.Call(_name("address"), [operand], [])
        case "*":
            return ast.Subscript(operand, ast.Constant(0), ast.Load())
    raise _unread(node)


def _call(node: Node) -> ast.expr:
    """Translate a call; `float(x)` and `static_cast<float>(x)` are casts."""
    callee, arguments = _field(node, "function"), _field(node, "arguments")
    values = [_expression(each) for each in arguments.named_children]
    name = plain_name(_word(callee))
    if name in _TYPES and len(values) == 1:
        return _cast(name, values[0])
    if callee.type == "template_function" and name in _CASTS and len(values) == 1:
        kinds = [*words(_field(callee, "arguments"))][1:-1]
        return _cast(" ".join(kinds), values[0]) if {*kinds} <= _TYPES | {"*"} else ast.Constant(None)
    function = _name(name) if callee.type == "template_function" else _expression(callee)
    return _at(ast.Call(function, values, []), arguments)


def _number(text: str) -> ast.expr:
    """Translate a literal, which may include its sign."""
    if text.startswith(("-", "+")):
        return _number(text[1:]) if text[0] == "+" else ast.UnaryOp(ast.USub(), _number(text[1:]))
    if re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", text):
        digits = text.rstrip("uUlL")
        number = ast.Constant(int(digits, 16 if digits[:2] in ("0x", "0X") else 10))
        return _cast("long long", number) if text.lower().count("l") else number
    return ast.Constant(float.fromhex(text.rstrip("fFlL")) if "p" in text.lower() else float(text.rstrip("fFlL")))


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _cast(kind: str, value: ast.expr) -> ast.expr:
    return value if kind == "auto" else ast.Call(_name("cast"), [ast.Constant(kind), value], [])


def _at(tree: N, node: Node) -> N:
    """Set the line of `node` on each part of a tree that has none."""
    for each in ast.walk(tree):
        if not hasattr(each, "lineno") and isinstance(each, ast.expr | ast.stmt):
            each.lineno = each.end_lineno = _line(node)
            each.col_offset = each.end_col_offset = 0
    return tree
