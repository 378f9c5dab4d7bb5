"""The parameters of a C function, read from its text.

A small reader of declarations: what it does not know (a typedef, a macro) it leaves to the compiler, who checks the
call that noyau writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from noyau.dtypes import HALVES, DType
from noyau.errors import SignatureError

_NOISE = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_BODY = re.compile(r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?\{")
_QUALIFIERS = frozenset("const restrict __restrict __restrict__ volatile register static inline extern".split())
_KEYWORDS = frozenset("if for while switch return sizeof do else defined".split())
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
    """A parameter of a C function: `dtypes` are those that its type holds, none where the reader does not know it."""

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


def prototype_of(text: str, entry: str, called: str) -> Prototype:
    """The prototype of a function that a text defines. SignatureError where it does not, or cannot be read."""
    found = [each for each in _definitions(text) if each[1] == entry]
    if not found:
        known = ", ".join(name for _, name, _ in _definitions(text)) or "none"
        raise SignatureError(f"{called} defines no function {entry}; those it defines: {known}")
    head, _, inside = found[0]
    words = [word for word in re.findall(r"\w+|\*", head) if word not in _QUALIFIERS]
    if "*" in words:
        raise SignatureError(
            f"{called}: {entry} returns a pointer; it may return nothing, a status, or a scalar result"
        )
    parts = [part.strip() for part in _split(inside)]
    parameters = () if parts in ([""], ["void"]) else tuple(_parameter(part, called, k) for k, part in enumerate(parts))
    return Prototype(entry, _spell(words), parameters)


def functions_of(text: str) -> list[str]:
    """The functions that a text defines, but for static ones."""
    return [name for head, name, _ in _definitions(text) if "static" not in head.split()]


def _definitions(text: str) -> Iterator[tuple[str, str, str]]:
    """Of each function that is defined: what stands before its name, the name, what stands in its parentheses."""
    clean = _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    at = 0
    while match := _CALLED.search(clean, at):
        start = max(at, *(clean.rfind(mark, at, match.start()) + 1 for mark in ";{}()"))
        head = clean[start : match.start()].strip()
        end = _closing(clean, match.end() - 1)
        after = _BODY.match(clean, end)
        if after is None:
            at = end
            continue
        if head and match[1] not in _KEYWORDS:
            yield head, match[1], clean[match.end() : end - 1]
        at = _closing(clean, after.end() - 1)


def _closing(text: str, at: int) -> int:
    """The place after what closes the parenthesis or brace at a place; the end where nothing does."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "({") - (text[place] in ")}")
        if depth == 0:
            return place + 1
    return len(text)


def _split(text: str) -> list[str]:
    """At the commas that are in no parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _parameter(text: str, called: str, position: int) -> Parameter:
    where = f"{called}: the parameter {' '.join(text.split())!r}"
    if "(" in text or text.endswith("..."):
        raise SignatureError(f"{where} is no pointer to cells and no number")
    arrays = text.count("[")
    plain = re.sub(r"\[[^\]]*\]", " ", text)
    words = re.findall(r"\w+|\*", plain)
    stars = words.count("*")
    kinds = [word for word in words if word not in _QUALIFIERS and word != "*"]
    if stars + bool(arrays) > 1:
        raise SignatureError(f"{where} points to pointers; arrays come packed, as one pointer each")
    if len(kinds) > 1 and kinds[-1] not in _WORDS:
        name, kinds = kinds[-1], kinds[:-1]
    else:
        raise SignatureError(f"{where}, number {position + 1}, has no name")
    return Parameter(
        name, _spell(kinds), bool(stars or arrays), "const" in words[: words.index("*")] if stars else "const" in words
    )


def _spell(words: list[str]) -> str:
    kinds = [word for word in words if word not in _QUALIFIERS and word != "__attribute__"]
    return " ".join(sorted(kinds))


_COMMENTS = re.compile(r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""", re.DOTALL | re.VERBOSE)


def blanked(text: str) -> str:
    """The text without comments and strings; what is left stays where it was."""
    return _COMMENTS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
