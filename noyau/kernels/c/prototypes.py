"""The parameters of a C function, read from its text.

What is not known here (a typedef, a macro) is left to the compiler, who checks the call that noyau writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noyau.dtypes import HALVES, DType
from noyau.errors import SignatureError
from noyau.kernels.c.syntax import FunctionSyntax, blanked, syntax, words

if TYPE_CHECKING:
    from tree_sitter import Node

_QUALIFIERS = frozenset(
    "const restrict __restrict __restrict__ volatile register static inline __inline__ __inline extern".split()
)
_WORDS = frozenset("void char short int long float double signed unsigned bool _Bool _Float16 __bf16".split())

# C's types, their words sorted, and the dtypes whose cells they hold; `char` and `void` hold any.
_TYPES = {
    "float": (DType.F32,),
    "double": (DType.F64,),
    "_Float16": (DType.F16,),
    "__bf16": (DType.BF16,),
    "bool": (DType.BOOL,),
    "_Bool": (DType.BOOL,),
    "char signed": (DType.I8,),
    "int8_t": (DType.I8,),
    "char unsigned": (DType.U8, DType.BOOL),
    "uint8_t": (DType.U8, DType.BOOL),
    **dict.fromkeys(("short", "short signed", "int short", "int16_t"), (DType.I16,)),
    **dict.fromkeys(("short unsigned", "int short unsigned", "uint16_t"), (DType.U16, *HALVES)),
    **dict.fromkeys(("int", "signed", "int signed", "int32_t"), (DType.I32,)),
    **dict.fromkeys(("unsigned", "int unsigned", "uint32_t"), (DType.U32,)),
    **dict.fromkeys(
        ("long", "int long", "long long", "int long long", "int64_t", "ssize_t", "ptrdiff_t", "intptr_t"), (DType.I64,)
    ),
    **dict.fromkeys(("long unsigned", "long long unsigned", "uint64_t", "size_t", "uintptr_t"), (DType.U64,)),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a C function: `dtypes` are those that its type holds, none where that is not known."""

    name: str
    type: str
    is_pointer: bool
    is_const: bool

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return _TYPES.get(self.type, ())

    @property
    def is_known(self) -> bool:
        return self.type in _TYPES

    def __str__(self) -> str:
        return f"{'const ' if self.is_const else ''}{self.type} {'*' if self.is_pointer else ''}{self.name}".strip()


@dataclass(frozen=True, slots=True)
class Prototype:
    """A C function: its name, the type of what it returns, its parameters."""

    entry: str
    returns: str
    parameters: tuple[Parameter, ...]

    @property
    def result(self) -> tuple[DType, ...]:
        """The dtypes that its result holds."""
        return _TYPES.get(self.returns, ())


def prototype_of(text: str, entry: str, label: str, language: str = "c") -> Prototype:
    """Read the prototype of a function that a text defines. SignatureError where it does not, or cannot be read."""
    defined = _definitions(text, language)
    function = next((each for each in defined if each.name == entry), None)
    if function is None:
        names = ", ".join(each.name for each in defined) or "none"
        raise SignatureError(f"{label} defines no function {entry}; those it defines: {names}")
    if "*" in function.head:
        raise SignatureError(f"{label}: {entry} returns a pointer; it may return nothing, a status, or a scalar result")
    groups = [(_words(group), _plain(text, group)) for group in _groups(function.parameters)]
    parameters = [
        _parameter(group, f"{label}: the parameter {plain!r}", number)
        for number, (group, plain) in enumerate(groups, 1)
        if plain != "void"
    ]
    return Prototype(entry, _type(function.head), tuple(parameters))


def functions_of(text: str, language: str = "c") -> list[str]:
    """List the functions that a text defines, but for static ones."""
    return [each.name for each in _definitions(text, language) if "static" not in each.head]


def _definitions(text: str, language: str) -> list[FunctionSyntax]:
    """The functions of a text that return something: others are macros, or constructors."""
    return [each for each in syntax(text, language).functions if each.head]


def _groups(parameters: Node) -> Iterator[list[Node]]:
    """The nodes of each parameter, between the parentheses and the commas of their list."""
    group: list[Node] = []
    for node in parameters.children[1:]:
        if node.type not in (",", ")"):
            group.append(node)
        elif group or node.type == ",":
            yield group
            group = []


def _words(group: Sequence[Node]) -> list[str]:
    return [word for node in group for word in words(node)]


def _plain(text: str, group: Sequence[Node]) -> str:
    """A parameter as it is written, on one line."""
    return " ".join(blanked(text[group[0].start_byte : group[-1].end_byte]).split()) if group else ""


def _parameter(group: list[str], where: str, number: int) -> Parameter:
    """A parameter by its words, some of which the grammar may not know, such as macros."""
    if "(" in group or group[-1:] == ["..."]:
        raise SignatureError(f"{where} is no pointer to cells and no number")
    end = next((at for at, word in enumerate(group) if word in ("[", "=")), len(group))
    is_array, plain = "[" in group, group[:end]
    stars = plain.count("*")
    if stars + is_array > 1:
        raise SignatureError(f"{where} points to pointers; arrays come packed, as one pointer each")
    kinds = [word for word in plain if word not in _QUALIFIERS and re.fullmatch(r"\w+", word)]
    if len(kinds) < 2 or kinds[-1] in _WORDS:
        raise SignatureError(f"{where}, number {number}, has no name")
    is_const = "const" in (plain[: plain.index("*")] if stars else plain)
    return Parameter(kinds[-1], _type(kinds[:-1]), bool(stars or is_array), is_const)


def _type(kinds: Sequence[str]) -> str:
    return " ".join(sorted(kind for kind in kinds if kind not in _QUALIFIERS))
