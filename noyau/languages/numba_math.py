"""The scalar functions of language `numba`: those of languages/cmath, translated from their C text, so that both
languages compute by one algorithm and keep one promise.

The C of that folder is small: declarations, assignments and a return, over scalars; a result through a pointer becomes
one more value that is returned. Numba widens integers, and a float32 beside an integer to float64: so every
conversion that C makes silently is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from noyau.errors import UnsupportedError
from noyau.languages import cmath
from noyau.languages.numba_c import Call, Name, Node, Parser, Translation

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
INTRINSICS = {"noyau_bits_f32", "noyau_bits_f64", "noyau_from_bits_f32", "noyau_from_bits_f64"}
SCALAR = """\
# Always inlined: a call that is left in a loop keeps it from being vectorised.
scalar = numba.njit(
    error_model="numpy", fastmath={"contract"}, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)"""
BITS = """\
def _bits(kind, result):
    \"\"\"The bits of a scalar as another type of the same width.\"\"\"

    @intrinsic
    def cast(context, x):
        return result(kind), lambda target, builder, signature, args: builder.bitcast(
            args[0], target.get_value_type(result)
        )

    return cast"""
BIT_CASTS = {
    "noyau_bits_f32": "noyau_bits_f32 = _bits(types.float32, types.uint32)",
    "noyau_bits_f64": "noyau_bits_f64 = _bits(types.float64, types.uint64)",
    "noyau_from_bits_f32": "noyau_from_bits_f32 = _bits(types.uint32, types.float32)",
    "noyau_from_bits_f64": "noyau_from_bits_f64 = _bits(types.uint64, types.float64)",
}
_HEAD = re.compile(r"NOYAU_INLINE (\w+) (\w+)\((.*?)\) \{\n(.*)\n\}", re.DOTALL)
_DECLARED = re.compile(rf"(?:const )?({'|'.join(KINDS)}) (?=\w)")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of languages/cmath: the kinds of its parameters, of its result, and of what it gives by pointer."""

    name: str
    parameters: Mapping[str, str]
    result: str
    given: Mapping[str, str]
    body: str
    comment: str


@cache
def function(name: str) -> Function:
    """What the C text of a function says of it."""
    snippet = cmath.SNIPPETS[name]
    found = _HEAD.search(snippet.text)
    assert found is not None
    result, _, parameters, body = found.groups()
    taken: dict[str, str] = {}
    given: dict[str, str] = {}
    for parameter in parameters.split(", "):
        kind, _, own = parameter.rpartition(" ")
        (given if own.startswith("*") else taken)[own.lstrip("*")] = KINDS[kind]
    comment = snippet.text[: found.start()].partition("*/")[0].strip().removeprefix("/*").strip()
    return Function(name, MappingProxyType(taken), KINDS[result], MappingProxyType(given), body, comment)


def text(names: Iterable[str]) -> str:
    """The Python text of the named functions ("noyau_exp_f32") and of all that they call, callees first; no text for
    no names. UnsupportedError for a name that languages/cmath does not have."""
    order: dict[str, None] = {}
    for name in sorted(set(names)):
        _add(name, order)
    casts = [BIT_CASTS[name] for name in sorted(INTRINSICS & order.keys())]
    parts = [BITS, "\n".join(casts)] if casts else []
    parts += [python(name) for name in order if name not in INTRINSICS]
    return "\n\n\n".join(parts)


def _add(name: str, order: dict[str, None]) -> None:
    if name in order:
        return
    if name not in cmath.SNIPPETS:
        raise UnsupportedError(f"numba has no function {name}; noyau.languages.cmath.NAMES lists those it has")
    for called in cmath.SNIPPETS[name].calls:
        _add(called, order)
    order[name] = None


@cache
def python(name: str) -> str:
    """One function as Python."""
    made = function(name)
    body = "\n".join(f"    {line}" for line in _body(made))
    comment = "\n".join(f"# {line.strip()}" for line in made.comment.splitlines())
    return f"{comment}\n@scalar\ndef {name}({', '.join(made.parameters)}):\n{body}"


def _body(made: Function) -> Iterator[str]:
    kinds = {**made.parameters, **made.given}
    for statement, comment in _statements(made.body):
        tail = f"  # {comment}" if comment else ""
        for line in _statement(statement, made, kinds):
            yield line + tail


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Each statement with the comment in it or after it."""
    for line in re.findall(r"[^;]*;(?:[ ]*/\*.*?\*/)?", body, re.DOTALL):
        comment = " ".join(part.strip() for part in re.findall(r"/\*(.*?)\*/", line, re.DOTALL))
        yield " ".join(re.sub(r"/\*.*?\*/", "", line, flags=re.DOTALL).split()).removesuffix(";"), comment


def _statement(statement: str, made: Function, kinds: dict[str, str]) -> Iterator[str]:
    translation = Translation(kinds, _signature)
    if statement.startswith("return "):
        result = translation.text_as(Parser(statement[7:]).expression(), made.result)
        yield ", ".join([f"return {result}", *made.given])
        return
    declared = _DECLARED.match(statement)
    for name, value in Parser(statement[declared.end() :] if declared else statement).assignments():
        kinds[name] = KINDS[declared[1]] if declared else kinds[name]
        if value is not None:
            if kinds[name] == "i32" and translation.kind(value) == "bool":
                kinds[name] = "bool"  # C has no other type for what it compares
            yield f"{', '.join([name, *_pointed(value)])} = {translation.text_as(value, kinds[name])}"


def _pointed(value: Node) -> list[str]:
    """The variables that a call sets through pointers."""
    arguments = value.arguments if isinstance(value, Call) else ()
    return [argument.name for argument in arguments if isinstance(argument, Name) and argument.pointer]


def _signature(name: str) -> tuple[tuple[str, ...], str]:
    """The kinds of the parameters of a function of languages/cmath, and of its result."""
    made = function(name)
    return tuple(made.parameters.values()), made.result
