"""A function of C, C++ or CUDA C++ as statements of Python with the same lines, as far as arithmetic goes: loops,
branches, declarations (`int i = e` is `i = cast("int", e)`), assignments. What is not read is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from noyau.errors import UnsupportedError
from noyau.kernels.c.prototypes import blanked

N = TypeVar("N", bound=ast.AST)
_TOKEN = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+\.\d*(?:[eE][+-]?\d+)?[fF]?|\.\d+(?:[eE][+-]?\d+)?[fF]?"
    r"|\d+[eE][+-]?\d+[fF]?|\d+[uUlL]*)|(?P<name>[A-Za-z_]\w*(?:::\w+)*)"
    r"|(?P<op><<=|>>=|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|->|[-+*/%<>=!&|^~?:;,.(){}\[\]])|(?P<skip>\s+|.)"
)
_TYPES = frozenset(
    "void bool char short int long float double unsigned signed size_t int32_t int64_t uint32_t uint64_t int8_t "
    "uint8_t int16_t uint16_t ptrdiff_t ssize_t half __half dim3".split()
)
_LINE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b(?:\\\n|[^\n])*\bfor\b(?:\\\n|[^\n])*\n", re.MULTILINE)
_MARKS = frozenset("const static constexpr volatile register __shared__ __restrict__ restrict extern".split())
_LEVELS = tuple(
    tuple(level.split()) for level in ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
)
_BINARY: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.FloorDiv,
    "%": ast.Mod,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
}
_COMPARED = {"==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE}


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text, and its line."""

    text: str
    line: int
    kind: str


def statements(text: str, entry: str) -> list[ast.stmt]:
    """The body of a function. UnsupportedError where it is not found or not read to its end."""
    clean = blanked(text)
    found = re.search(rf"\b{re.escape(entry)}\s*\([^;{{}}]*\)\s*\{{", clean)
    if found is None:
        raise UnsupportedError(f"no function {entry} is found in its text")
    dealt = {clean.count("\n", 0, each.end()) + 1 for each in _PRAGMA.finditer(clean)}
    bare = _LINE.sub(lambda line: "\n" * line[0].count("\n"), clean)
    start = _place(bare, entry)
    return _Reading(_tokens(bare[start:], bare.count("\n", 0, start) + 1), dealt).block()


def _place(text: str, entry: str) -> int:
    """Where the body of a function begins."""
    found = re.search(rf"\b{re.escape(entry)}\s*\([^;{{}}]*\)\s*\{{", text)
    return found.end() - 1 if found else 0


def types_of(text: str, entry: str) -> dict[str, str]:
    """The types of the parameters of a function, by name."""
    found = re.search(rf"\b{re.escape(entry)}\s*\(([^;{{}}]*)\)\s*\{{", blanked(text))
    parts = [each.split() for each in found[1].replace("*", " * ").split(",")] if found else []
    return {words[-1].strip(): " ".join(words[:-1]) for words in parts if len(words) > 1}


def _tokens(text: str, line: int) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            found.append(Token(match[0], line, str(match.lastgroup)))
        line += match[0].count("\n")
    return found


class _Reading:
    """Reads tokens from left to right."""

    def __init__(self, tokens: Sequence[Token], dealt: set[int]) -> None:
        self.tokens, self.at, self.dealt = tokens, 0, dealt

    @property
    def text(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line

    def taken(self, *wanted: str) -> bool:
        if self.text in wanted:
            self.at += 1
            return True
        return False

    def need(self, wanted: str) -> None:
        if not self.taken(wanted):
            raise UnsupportedError(f"line {self.line} is not read: {self.text!r} where {wanted!r} is expected")

    # Statements.

    def block(self) -> list[ast.stmt]:
        self.need("{")
        made: list[ast.stmt] = []
        while not self.taken("}"):
            made += self.statement()
        return made

    def statement(self) -> list[ast.stmt]:
        line = self.line
        match self.text:
            case "{":
                return self.block()
            case "":
                raise UnsupportedError("the text ends within a function")
            case "if":
                return [self.branch(line)]
            case "for":
                return self.loop(line)
            case "while":
                self.at += 1
                test = self.grouped()
                return [_at(ast.While(test, self.statement() or [ast.Pass()], []), line)]
            case "return" | "break" | "continue":
                return [self.ended(line)]
            case ";":
                self.at += 1
                return []
        made = self.simple()
        self.need(";")
        return made

    def ended(self, line: int) -> ast.stmt:
        word = self.text
        while not self.taken(";"):
            self.at += 1
        return _at({"return": ast.Return(None), "break": ast.Break(), "continue": ast.Continue()}[word], line)

    def branch(self, line: int) -> ast.stmt:
        self.at += 1
        test, body = self.grouped(), self.statement()
        orelse = self.statement() if self.taken("else") else []
        return _at(ast.If(test, body or [_at(ast.Pass(), line)], orelse), line)

    def grouped(self) -> ast.expr:
        self.need("(")
        made = self.expression()
        self.need(")")
        return made

    def loop(self, line: int) -> list[ast.stmt]:
        """`for (int i = a; i < b; i += c)` is `for i in range(a, b, c)`; another one a while loop."""
        self.at += 1
        self.need("(")
        first = [] if self.text == ";" else self.simple()
        self.need(";")
        test = _at(ast.Constant(True), line) if self.text == ";" else self.expression()
        self.need(";")
        step = [] if self.text == ")" else self.simple()
        self.need(")")
        body = self.statement()
        match first, test, step:
            case (
                [ast.Assign(targets=[ast.Name(id=name)], value=start)],
                ast.Compare(left=ast.Name(id=tested), ops=[ast.Lt() | ast.LtE() as op], comparators=[end]),
                [ast.AugAssign(target=ast.Name(id=stepped), op=ast.Add(), value=by)],
            ) if name == tested == stepped:
                last = end if isinstance(op, ast.Lt) else _at(ast.BinOp(end, ast.Add(), _number(1, line)), line)
                word = "prange" if line in self.dealt else "range"  # loops of OpenMP
                called = _at(ast.Call(_name(word, line), [start, last, by], []), line)
                target = _at(ast.Name(name, ast.Store()), line)
                return [_at(ast.For(target, called, body or [_at(ast.Pass(), line)], []), line)]
        return [*first, _at(ast.While(test, [*body, *step], []), line)]

    def simple(self) -> list[ast.stmt]:
        """A declaration, an assignment or a call, up to what ends it."""
        if self.tokens[self.at].kind == "name" and self.is_type():
            return self.declared()
        made = [self.assigned()]
        while self.taken(","):
            made.append(self.assigned())
        return made

    def is_type(self) -> bool:
        return self.text in _TYPES or self.text in _MARKS or self.text == "auto"

    def kind(self) -> str:
        words = []
        while self.is_type():
            words.append(self.text)
            self.at += 1
        while self.text in ("*", "&", "const", "__restrict__"):
            words.append(self.text)
            self.at += 1
        return " ".join(word for word in words if word not in _MARKS)

    def declared(self) -> list[ast.stmt]:
        kind, made = self.kind(), list[ast.stmt]()
        while True:
            line, name = self.line, self.text
            self.at += 1
            while self.taken("["):  # an array of its own, of which nothing is said
                self.expression()
                self.need("]")
            if self.taken("="):
                made.append(_assign(_name(name, line, is_stored=True), _cast(kind, self.initial(), line), line))
            if not self.taken(","):
                return made
            kind = kind.replace(" *", "")
            while self.taken("*"):
                kind += " *"

    def initial(self) -> ast.expr:
        if not self.taken("{"):
            return self.ternary()
        depth = 1
        while depth:
            depth += (self.text == "{") - (self.text == "}")
            self.at += 1
        return _at(ast.Constant(None), self.line)

    def assigned(self) -> ast.stmt:
        line = self.line
        if self.taken("++", "--"):
            kind = ast.Add() if self.tokens[self.at - 1].text == "++" else ast.Sub()
            return _at(ast.AugAssign(_stored(self.unary()), kind, _number(1, line)), line)
        target = self.ternary()
        if self.taken("++", "--"):
            kind = ast.Add() if self.tokens[self.at - 1].text == "++" else ast.Sub()
            return _at(ast.AugAssign(_stored(target), kind, _number(1, line)), line)
        if self.taken("="):
            return _assign(_stored(target), self.ternary(), line)
        if self.text.endswith("=") and self.text[:-1] in _BINARY:
            op = _BINARY[self.text[:-1]]()
            self.at += 1
            return _at(ast.AugAssign(_stored(target), op, self.ternary()), line)
        return _at(ast.Expr(target), line)

    # Expressions.

    def expression(self) -> ast.expr:
        made = self.ternary()
        while self.taken(","):
            made = self.ternary()
        return made

    def ternary(self) -> ast.expr:
        line, test = self.line, self.binary(0)
        if not self.taken("?"):
            return test
        body = self.ternary()
        self.need(":")
        return _at(ast.IfExp(test, body, self.ternary()), line)

    def binary(self, level: int) -> ast.expr:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.text in _LEVELS[level]:
            line, op = self.line, self.text
            self.at += 1
            right = self.binary(level + 1)
            if op in _COMPARED:
                left = _at(ast.Compare(left, [_COMPARED[op]()], [right]), line)
            elif op in ("&&", "||"):
                left = _at(ast.BoolOp(ast.And() if op == "&&" else ast.Or(), [left, right]), line)
            else:
                left = _at(ast.BinOp(left, _BINARY[op](), right), line)
        return left

    def unary(self) -> ast.expr:
        line = self.line
        if self.taken("-"):
            return _at(ast.UnaryOp(ast.USub(), self.unary()), line)
        if self.taken("+"):
            return self.unary()
        if self.taken("!", "~"):
            return _at(ast.UnaryOp(ast.Not(), self.unary()), line)
        if self.taken("&"):
            return _at(ast.Call(_name("address", line), [self.unary()], []), line)
        if self.taken("*"):
            return _at(ast.Subscript(self.unary(), _number(0, line), ast.Load()), line)
        if self.text == "(" and self.tokens[self.at + 1].text in _TYPES | _MARKS:
            self.at += 1
            kind = self.kind()
            self.need(")")
            return _cast(kind, self.unary(), line)
        return self.postfix()

    def postfix(self) -> ast.expr:
        made, line = self.primary(), self.line
        while True:
            if self.taken("["):
                index = self.expression()
                self.need("]")
                made = _at(ast.Subscript(made, index, ast.Load()), line)
            elif self.taken(".", "->"):
                made = _at(ast.Attribute(made, self.text, ast.Load()), line)
                self.at += 1
            elif self.taken("("):
                made = _at(ast.Call(made, self.arguments(), []), line)
            else:
                return made

    def arguments(self) -> list[ast.expr]:
        given: list[ast.expr] = []
        while not self.taken(")"):
            given.append(self.ternary())
            self.taken(",")
        return given

    def primary(self) -> ast.expr:
        token = self.tokens[self.at] if self.at < len(self.tokens) else Token("", self.line, "op")
        if token.text == "(":
            return self.grouped()
        self.at += 1
        if token.kind == "number":
            return _literal(token.text, token.line)
        if token.kind == "name" and token.text in _TYPES and self.text == "(":  # float(x)
            return _cast(token.text, self.grouped(), token.line)
        if token.kind == "name":
            return _name(token.text.rpartition("::")[2], token.line)
        raise UnsupportedError(f"line {token.line} is not read: {token.text!r}")


def _literal(text: str, line: int) -> ast.expr:
    if re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", text):
        digits = text.rstrip("uUlL")
        made = _number(int(digits, 16 if digits[:2] in ("0x", "0X") else 10), line)
        return _cast("long long", made, line) if text.lower().count("l") else made
    return _at(ast.Constant(float(text.rstrip("fF"))), line)


def _at(node: N, line: int) -> N:
    for each in ast.walk(node):
        if not hasattr(each, "lineno") and isinstance(each, ast.expr | ast.stmt):
            each.lineno = each.end_lineno = line
            each.col_offset = each.end_col_offset = 0
    return node


def _name(name: str, line: int, *, is_stored: bool = False) -> ast.expr:
    return _at(ast.Name(name, ast.Store() if is_stored else ast.Load()), line)


def _number(value: int, line: int) -> ast.expr:
    return _at(ast.Constant(value), line)


def _cast(kind: str, value: ast.expr, line: int) -> ast.expr:
    return value if kind == "auto" else _at(ast.Call(_name("cast", line), [ast.Constant(kind), value], []), line)


def _assign(target: ast.expr, value: ast.expr, line: int) -> ast.stmt:
    return _at(ast.Assign([target], value), line)


def _stored(node: ast.expr) -> ast.Name | ast.Subscript | ast.Attribute:
    if isinstance(node, ast.Name | ast.Subscript | ast.Attribute):
        node.ctx = ast.Store()
        return node
    raise UnsupportedError(f"line {node.lineno} assigns to what is no name and no cell")
