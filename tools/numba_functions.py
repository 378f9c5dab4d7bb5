"""Write noyau/codegen/numba/functions.txt: the scalar functions of codegen/cmath, translated from C to Python.

`python tools/numba_functions.py` writes it; a test compares. The C of that folder is small: declarations, assignments
and a return, over scalars; a result through a pointer becomes one more value that is returned. Numba widens integers,
and a float32 beside an integer to float64: so every conversion that C makes silently is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TypeAlias, assert_never

import tree_sitter
import tree_sitter_c

from noyau.codegen import cmath
from noyau.codegen.numba.printer import BIT_CASTS, FILE
from noyau.codegen.numba.spellings import literal_text
from noyau.errors import UnsupportedError

KINDS = {
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "uint16_t": "u16",
    "uint8_t": "u8",
}
_LEVELS = (("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_COMPARED = ("==", "!=", "<", ">", "<=", ">=")
_RANK = ("bool", "u8", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
_CONSTANTS = {"INFINITY": math.inf, "NAN": math.nan, "noyau_minus_zero_f32": -0.0, "noyau_minus_zero_f64": -0.0}
_FLOATS = ("f32", "f64")

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


def expression(node: tree_sitter.Node) -> Node:
    """An expression of C."""
    match node.type, [each for each in node.named_children if each.type != "comment"]:
        case "number_literal", _:
            return _number(_text(node))
        case "identifier", _:
            constant = _CONSTANTS.get(_text(node))
            return Name(_text(node)) if constant is None else Number(constant, "f32")
        case "parenthesized_expression", [inner]:
            return expression(inner)
        case "pointer_expression", [operand]:
            return Name(_text(operand), pointer=_text(node).startswith("&"))  # what *x points to is a variable here
        case "unary_expression", [operand]:
            sign, value = _text(node)[0], expression(operand)
            return Number(-value.value, value.kind) if sign == "-" and isinstance(value, Number) else Unary(sign, value)
        case "binary_expression", [left, right]:
            return Binary(_text(node.children[1]), expression(left), expression(right))
        case "conditional_expression", [condition, yes, no]:
            return Choice(expression(condition), expression(yes), expression(no))
        case "cast_expression", [kind, operand]:
            return Cast(KINDS[_text(kind)], expression(operand))
        case "call_expression", [called, arguments]:
            return Call(_text(called), tuple(map(expression, arguments.named_children)))
    raise UnsupportedError(f"numba cannot read the C text {_text(node)!r}")


def _field(node: tree_sitter.Node, name: str) -> tree_sitter.Node:
    """The child of a node that the grammar of C calls so."""
    child = node.child_by_field_name(name)
    assert child is not None, (node.type, name)
    return child


def parsed(text: str) -> tree_sitter.Node:
    """The syntax tree of C."""
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language())).parse(text.encode()).root_node


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode()


def _number(token: str) -> Number:
    """A literal, which the grammar reads with its sign."""
    if token.startswith("-"):
        positive = _number(token[1:])
        return Number(-positive.value, positive.kind)
    if "p" in token:
        return Number(float.fromhex(token.removesuffix("f")), "f32" if token.endswith("f") else "f64")
    if token.startswith("0x"):
        value = int(token, 16)
        return Number(value, "i32" if value < 2**31 else "u32" if value < 2**32 else "i64" if value < 2**63 else "u64")
    if re.fullmatch(r"\d+", token):
        return Number(int(token))
    return Number(float(token.removesuffix("f")), "f32" if token.endswith("f") else "f64")


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
                return literal_text(node.value, kind)
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
            case Number(value, kind):
                return literal_text(value, kind)
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
        zero = literal_text(0, kind)
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


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable and its new value, None where it is only declared; `kind`: where it is declared; `tail`: a comment.

    The result of a function is assigned to no name."""

    name: str
    value: Node | None
    kind: str
    tail: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of codegen/cmath: the kinds of its parameters, of its result, and of its results by pointer."""

    name: str
    parameters: Mapping[str, str]
    result: str
    pointed: Mapping[str, str]
    assignments: tuple[Assignment, ...]
    comment: str


@cache
def function(name: str) -> Function:
    """A function of codegen/cmath, read from its C text."""
    comment, _, text = cmath.SNIPPETS[name].text.partition("NOYAU_INLINE")
    definition = next(each for each in parsed(f"static inline{text}").children if each.type == "function_definition")
    parameters: dict[str, str] = {}
    pointed: dict[str, str] = {}
    for each in _field(_field(definition, "declarator"), "parameters").named_children:
        declared = _text(_field(each, "declarator"))
        (pointed if declared.startswith("*") else parameters)[declared.lstrip("*")] = KINDS[_text(_field(each, "type"))]
    result = KINDS[_text(_field(definition, "type"))]
    body = () if name in BIT_CASTS else tuple(_assignments(_field(definition, "body")))
    comment = comment.partition("*/")[0].strip().removeprefix("/*").strip()
    return Function(name, MappingProxyType(parameters), result, MappingProxyType(pointed), body, comment)


def _assignments(body: tree_sitter.Node) -> Iterator[Assignment]:
    """The assignments of a function in order. A comment is of the statement around it, before it or behind it."""
    comments: list[tree_sitter.Node] = []
    nodes = list(body.named_children)
    for at, node in enumerate(nodes):
        comments += _comments(node)
        if node.type == "comment":
            continue
        behind = nodes[at + 1] if at + 1 < len(nodes) else None
        if behind is not None and behind.type == "comment" and behind.start_point.row == node.end_point.row:
            comments.append(nodes.pop(at + 1))
        comment = " ".join(_text(each)[2:-2].strip() for each in comments)
        comments = []
        for name, value, kind in _values(node):
            yield Assignment(name, value, kind, f"  # {comment}" if comment else "")


def _comments(node: tree_sitter.Node) -> list[tree_sitter.Node]:
    return [node] if node.type == "comment" else [comment for each in node.children for comment in _comments(each)]


def _values(statement: tree_sitter.Node) -> Iterator[tuple[str, Node | None, str]]:
    """The names that a statement assigns to, with the values, and the kinds of those that it declares."""
    match statement.type:
        case "return_statement":
            yield "", expression(statement.named_children[0]), ""
        case "declaration":
            kind = KINDS[_text(_field(statement, "type"))]
            for each in statement.children_by_field_name("declarator"):
                if each.type == "init_declarator":
                    yield _text(_field(each, "declarator")), expression(_field(each, "value")), kind
                else:
                    yield _text(each), None, kind
        case _:
            (each,) = statement.named_children
            yield _text(_field(each, "left")).lstrip("*"), expression(_field(each, "right")), ""


def is_inlined(name: str) -> bool:
    """Whether a function is written out where it is called: each that Numba compiles apart takes it as long as ten
    statements more."""
    return name.startswith("noyau_") and name not in BIT_CASTS and not function(name).pointed


@cache
def python(name: str) -> str:
    """One function as Python."""
    made = function(name)
    body = "\n".join(f"    {line}" for line in _Body(made).lines)
    return f"{_comment(made)}\n@scalar\ndef {name}({', '.join(made.parameters)}):\n{body}"


def _comment(made: Function) -> str:
    return "\n".join(f"# {line.strip()}" for line in made.comment.splitlines())


class _Body(Translation):
    """The statements of a function in Python, those of what it calls among them."""

    kinds: dict[str, str]

    def __init__(self, made: Function) -> None:
        super().__init__({**made.parameters, **made.pointed}, _signature)
        self.lines: list[str] = []
        for each in made.assignments:
            if each.name:
                self.assign(each.name, each.value, each.kind or self.kinds[each.name], each.tail)
            elif each.value is not None:
                result = self.text_as(each.value, made.result)
                self.lines.append(f"{', '.join([f'return {result}', *made.pointed])}{each.tail}")

    def assign(self, name: str, value: Node | None, kind: str, tail: str = "") -> None:
        if value is not None and kind == "i32" and self.kind(value) == "bool":
            kind = "bool"  # C has no other type for what it compares
        self.kinds[name] = kind
        if isinstance(value, Call) and is_inlined(value.function) and self.kind(value) == kind:
            value = self.inlined(value, name)
        if value is not None and value != Name(name):
            text = self.text_as(value, kind)  # the statements of what it calls come before
            self.lines.append(f"{', '.join([name, *_pointed(value)])} = {text}{tail}")

    def call(self, name: str, arguments: tuple[Node, ...]) -> str:
        if not is_inlined(name):
            return super().call(name, arguments)
        return self.inlined(Call(name, arguments)).name

    def inlined(self, call: Call, into: str = "") -> Name:
        """Add the statements of a function; the variable that has its result: `into`, unless another has it anyway."""
        made = function(call.function)
        own = self.arguments(made, call.arguments)
        self.lines += [line for line in _comment(made).splitlines() if line not in self.lines]
        for each in made.assignments:
            value = None if each.value is None else replaced(each.value, own)
            if each.name:
                own[each.name] = Name(self.fresh(each.name)) if each.kind else own[each.name]
                variable = own[each.name]
                assert isinstance(variable, Name)
                self.assign(variable.name, value, each.kind or self.kinds[variable.name], each.tail)
            elif isinstance(value, Name) and self.kinds[value.name] == made.result:
                return value
            else:
                into = into or self.fresh(re.sub(r"^noyau_|_f(?:32|64)$", "", call.function))
                self.assign(into, value, made.result, each.tail)
        return Name(into)

    def arguments(self, made: Function, values: tuple[Node, ...]) -> dict[str, Node]:
        """The parameters of a function in terms of the caller: numbers and variables, unless it changes them."""
        own: dict[str, Node] = {}
        changed = {each.name for each in made.assignments}
        for (name, kind), value in zip(made.parameters.items(), values, strict=True):
            match value:
                case Number(number) if name not in changed:
                    own[name] = Number(number, kind)
                case Name(variable) if name not in changed and self.kinds[variable] == kind:
                    own[name] = value
                case _:
                    variable = self.fresh(name)
                    self.assign(variable, value, kind)
                    own[name] = Name(variable)
        return own

    def fresh(self, name: str) -> str:
        """A name that no variable has."""
        made, count = name, 1
        while made in self.kinds:
            count += 1
            made = f"{name}_{count}"
        self.kinds[made] = ""
        return made


def _pointed(value: Node) -> list[str]:
    """The variables that a call sets through pointers."""
    arguments = value.arguments if isinstance(value, Call) else ()
    return [argument.name for argument in arguments if isinstance(argument, Name) and argument.pointer]


def _signature(name: str) -> tuple[tuple[str, ...], str]:
    """The kinds of the parameters of a function of codegen/cmath, and of its result."""
    made = function(name)
    return tuple(made.parameters.values()), made.result


def document() -> str:
    """The text of all functions, in the order of codegen/cmath."""
    return "\n\n\n".join(python(name) for name in cmath.SNIPPETS if name not in BIT_CASTS) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), "ascii")
