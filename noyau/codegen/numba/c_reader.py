"""Expressions of the C of codegen/cmath: read, and spelled in Python with the types that C gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import numpy as np

from noyau.errors import UnsupportedError

_TOKEN = re.compile(
    r"\s*(?:(0x[0-9a-f.]+p[+-]?\d+f?|0x[0-9a-f]+|\d+\.?\d*(?:e[+-]?\d+)?f?|\.\d+f?)|(\w+)|(<<|>>|[<>=!]=|[-+*/%&|^~!<>=?:(),]))"
)
_CASTS = {"float": "f32", "double": "f64", "int": "i32", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64"}
_CASTS |= {"uint64_t": "u64", "uint16_t": "u16", "uint8_t": "u8"}
_LEVELS = (("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_COMPARED = ("==", "!=", "<", ">", "<=", ">=")
_RANK = ("bool", "u8", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
_CONSTANTS = {"INFINITY": math.inf, "NAN": math.nan, "noyau_minus_zero_f32": -0.0, "noyau_minus_zero_f64": -0.0}
_FLOATS = {"f32": np.float32, "f64": np.float64}

# What the C library is called in Python; those of float have an f more in C.
_LIBRARY = {
    **{name: f"math.{name}" for name in "copysign exp expm1 log log2 log10 log1p sqrt sin cos tan".split()},
    **{name: f"math.{name}" for name in "asin acos atan atan2 sinh cosh tanh asinh acosh atanh pow".split()},
    **{name: f"math.{name}" for name in "erf erfc".split()},
    **{name: f"np.{name}" for name in "rint floor ceil trunc exp2 cbrt fmod".split()},
    "fabs": "abs",
}


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; `kind` is that which C gives it."""

    value: float | int
    kind: str = "i32"


@dataclass(frozen=True, slots=True)
class Name:
    """A variable; `pointer`: its address."""

    name: str
    pointer: bool = False


@dataclass(frozen=True, slots=True)
class Unary:
    """-x, !x or ~x."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """left sign right."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Cast:
    """(kind)operand."""

    kind: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """condition ? yes : no."""

    condition: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class Call:
    """function(arguments)."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Number | Name | Unary | Binary | Cast | Choice | Call


def replaced(node: Node, by: Mapping[str, Node]) -> Node:
    """The expression with others in the place of some variables."""
    match node:
        case Number():
            return node
        case Name(name, pointer):
            other = by.get(name, node)
            return Name(other.name, pointer) if isinstance(other, Name) else other
        case Unary(sign, operand):
            return Unary(sign, replaced(operand, by))
        case Binary(sign, left, right):
            return Binary(sign, replaced(left, by), replaced(right, by))
        case Cast(kind, operand):
            return Cast(kind, replaced(operand, by))
        case Choice(condition, yes, no):
            return Choice(replaced(condition, by), replaced(yes, by), replaced(no, by))
        case Call(called, arguments):
            return Call(called, tuple(replaced(each, by) for each in arguments))
        case _:
            assert_never(node)


class Parser:
    """One expression, or a list of assignments."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0

    def assignments(self) -> Iterator[tuple[str, Node | None]]:
        """Names with what is assigned to each; None for one that is only declared."""
        while self.at < len(self.tokens):
            self.takes("*")
            name, value = self.take(), None
            if self.takes("="):
                value = self.expression()
            yield name, value
            self.takes(",")

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.takes("?"):
            return condition
        yes = self.expression()
        self.take()
        return Choice(condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            left = Binary(self.take(), left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        sign = self.take()
        if sign == "-" and (self.peek()[0].isdigit() or self.peek() in _CONSTANTS):
            made = self.unary()
            assert isinstance(made, Number)
            return Number(-made.value, made.kind)
        if sign in ("-", "!", "~"):
            return Unary(sign, self.unary())
        if sign == "&":
            return Name(self.take(), pointer=True)
        if sign == "*":  # what a pointer points to is a variable here
            return self.unary()
        if sign == "(":
            if self.peek() in _CASTS:
                kind = _CASTS[self.take()]
                self.take()
                return Cast(kind, self.unary())
            inner = self.expression()
            self.take()
            return inner
        return self.atom(sign)

    def atom(self, word: str) -> Node:
        if word[0].isdigit() or word[0] == ".":
            return _number(word)
        if word in _CONSTANTS:
            return Number(_CONSTANTS[word], "f32")
        if not self.takes("("):
            return Name(word)
        arguments = [self.expression()]
        while self.takes(","):
            arguments.append(self.expression())
        self.take()
        return Call(word, tuple(arguments))

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ";"

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UnsupportedError(f"numba cannot read the C text {text[at:]!r}")
        yield found[0].strip()
        at = found.end()


def _number(token: str) -> Number:
    if "p" in token:
        return Number(float.fromhex(token.removesuffix("f")), "f32" if token.endswith("f") else "f64")
    if token.startswith("0x"):
        value = int(token, 16)
        return Number(value, "i32" if value < 2**31 else "u32" if value < 2**32 else "i64" if value < 2**63 else "u64")
    if re.fullmatch(r"\d+", token):
        return Number(int(token))
    return Number(float(token.removesuffix("f")), "f32" if token.endswith("f") else "f64")


def spelled(number: Number, kind: str) -> str:
    """A number of a kind in Python: float64 and int64 are its own, the others are made."""
    value = number.value
    if kind == "bool":
        return str(bool(value))
    if kind not in _FLOATS:
        return str(int(value)) if kind == "i64" else f"{kind}({int(value)})"
    wide = float(value)
    if kind == "f32":
        with np.errstate(over="ignore"):
            single = np.float32(wide)
        short = float(str(single))  # a few digits, that mean the same number
        wide = short if np.float32(short) == single else float(single)
    text = "np.nan" if math.isnan(wide) else f"{'-' * (wide < 0)}np.inf" if math.isinf(wide) else repr(wide)
    return text if kind == "f64" else f"f32({text})"


class Translation:
    """Expressions over variables of these kinds; `signature` gives a function's parameters and its result."""

    def __init__(self, kinds: Mapping[str, str], signature: Callable[[str], tuple[tuple[str, ...], str]]) -> None:
        self.kinds, self.signature = kinds, signature

    def kind(self, node: Node) -> str:
        """The type that C gives an expression; comparisons are bool, which C has as int."""
        match node:
            case Number(_, kind) | Cast(kind):
                return kind
            case Name(name):
                return self.kinds[name]
            case Unary(sign, operand):
                return "bool" if sign == "!" else _promoted(self.kind(operand))
            case Binary(sign, left, right):
                return self.kind_of(sign, self.kind(left), self.kind(right))
            case Choice(_, yes, no):
                return _common(self.kind(yes), self.kind(no))
            case Call(name):
                return self.signature(name)[1] if name.startswith("noyau_") else _library(name)[1]
            case _:
                assert_never(node)

    def kind_of(self, sign: str, left: str, right: str) -> str:
        if sign in _COMPARED or (sign in "&|^" and left == right == "bool"):
            return "bool"
        return _promoted(left) if sign in ("<<", ">>") else _promoted(_common(left, right))

    def text_as(self, node: Node, kind: str) -> str:
        """The expression, converted to a kind."""
        match node:
            case Number():
                return spelled(node, kind)
            case Choice(condition, yes, no):
                return f"{self.operand_as(yes, kind)} if {self.text(condition)} else {self.tail_as(no, kind)}"
            case _:
                text = self.text(node)
                return text if self.kind(node) == kind else f"{kind}({text})"

    def tail_as(self, node: Node, kind: str) -> str:
        """What stands after else, where another choice needs no parentheses."""
        return self.text_as(node, kind) if isinstance(node, Choice) else self.operand_as(node, kind)

    def operand_as(self, node: Node, kind: str) -> str:
        """The expression, converted to a kind, as an operand of anything."""
        text = self.text_as(node, kind)
        return f"({text})" if isinstance(node, Binary | Unary | Choice) and not _is_called(text) else text

    def text(self, node: Node) -> str:
        """The expression in its own kind."""
        match node:
            case Number(_, kind):
                return spelled(node, kind)
            case Name(name):
                return name
            case Unary(sign, operand):
                return self.unary(sign, operand)
            case Binary(sign, left, right):
                return self.binary(sign, left, right, self.kind(node))
            case Cast(kind, operand):
                return self.text_as(operand, kind)
            case Choice():
                return self.text_as(node, self.kind(node))
            case Call(name, arguments):
                return self.call(name, arguments)
            case _:
                assert_never(node)

    def unary(self, sign: str, operand: Node) -> str:
        kind = _promoted(self.kind(operand))
        if sign == "!":
            return f"not {self.operand_as(operand, 'bool')}"
        if sign == "-" and kind in _FLOATS:
            return f"-{self.operand_as(operand, kind)}"
        zero = spelled(Number(0), kind)
        text = self.operand_as(operand, kind)
        return f"{kind}({zero} - {text})" if sign == "-" else f"{kind}(~{text})"

    def binary(self, sign: str, left: Node, right: Node, kind: str) -> str:
        """Both sides in one kind; integers are cut back to it, for Numba has computed in 64 bits."""
        both = _common(self.kind(left), self.kind(right)) if kind == "bool" else kind
        text = f"{self.side(left, both, sign)} {sign} {self.side(right, both, sign, last=True)}"
        return f"{kind}({text})" if kind in ("i32", "u32", "u16", "u8") else text

    def side(self, node: Node, kind: str, sign: str, *, last: bool = False) -> str:
        """One side of an operation, in parentheses where it binds less."""
        text = self.text_as(node, kind)
        if not isinstance(node, Binary | Unary | Choice) or _is_called(text):
            return text
        tight = isinstance(node, Binary) and node.sign not in _COMPARED and sign in "+-*/"
        if isinstance(node, Binary) and tight and _level(node.sign) >= _level(sign) + last:
            return text
        if isinstance(node, Unary) and node.sign == "-" and not last:
            return text
        return f"({text})"

    def call(self, name: str, arguments: tuple[Node, ...]) -> str:
        if name.startswith("noyau_"):
            called, parameters = name, self.signature(name)[0]
        else:
            called, kind = _library(name)
            parameters = (kind,) * len(arguments)
        values = [node for node in arguments if not (isinstance(node, Name) and node.pointer)]
        return f"{called}({', '.join(map(self.text_as, values, parameters))})"


def _level(sign: str) -> int:
    return next(at for at, signs in enumerate(_LEVELS) if sign in signs)


def _is_called(text: str) -> bool:
    """Whether it is one call, that needs no parentheses."""
    if not re.match(r"[\w.]+\(", text):
        return False
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and char == ")":
            return at == len(text) - 1
    return False


def _library(name: str) -> tuple[str, str]:
    """The Python name of a function of the C library, and the kind that it takes and gives."""
    if name in _LIBRARY:
        return _LIBRARY[name], "f64"
    if name.removesuffix("f") in _LIBRARY:
        return _LIBRARY[name.removesuffix("f")], "f32"
    raise UnsupportedError(f"numba has no spelling of the C function {name}")


def _promoted(kind: str) -> str:
    return "i32" if kind in ("bool", "u8", "u16") else kind


def _common(left: str, right: str) -> str:
    """The kind that C computes in."""
    return max(left, right, key=_RANK.index)
