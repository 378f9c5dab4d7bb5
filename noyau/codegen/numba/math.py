"""The scalar functions of language `numba`: those of codegen/cmath, translated from their C text, so that both
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

from noyau.codegen import cmath
from noyau.codegen.numba.c_reader import Call, Name, Node, Number, Parser, Translation, replaced
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
    """A function of codegen/cmath: the kinds of its parameters, of its result, and of what it gives by pointer."""

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
    no names. UnsupportedError for a name that codegen/cmath does not have."""
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
    for called in _called(name):
        _add(called, order)
    order[name] = None


@cache
def _called(name: str) -> tuple[str, ...]:
    """What the Python text of a function calls."""
    if name not in cmath.SNIPPETS:
        raise UnsupportedError(f"numba has no function {name}; noyau.codegen.cmath.NAMES lists those it has")
    calls = cmath.SNIPPETS[name].calls
    return tuple(other for each in calls for other in (_called(each) if is_inlined(each) else (each,)))


def is_inlined(name: str) -> bool:
    """Whether a function is written out where it is called: each that Numba compiles apart takes it as long as ten
    statements more."""
    return name.startswith("noyau_") and name not in INTRINSICS and not function(name).given


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
        super().__init__({**made.parameters, **made.given}, _signature)
        self.lines: list[str] = []
        for name, value, kind, tail in _assignments(made):
            if name:
                self.assign(name, value, kind or self.kinds[name], tail)
            elif value is not None:
                result = self.text_as(value, made.result)
                self.lines.append(f"{', '.join([f'return {result}', *made.given])}{tail}")

    def assign(self, name: str, value: Node | None, kind: str, tail: str = "") -> None:
        if value is not None and kind == "i32" and self.kind(value) == "bool":
            kind = "bool"  # C has no other type for what it compares
        self.kinds[name] = kind
        if isinstance(value, Call) and is_inlined(value.function) and self.kind(value) == kind:
            value = self.inlined(value, name)
        if value is not None and value != Name(name):
            text = self.text_as(value, kind)  # what it calls is told before
            self.lines.append(f"{', '.join([name, *_pointed(value)])} = {text}{tail}")

    def call(self, name: str, arguments: tuple[Node, ...]) -> str:
        if not is_inlined(name):
            return super().call(name, arguments)
        return self.inlined(Call(name, arguments)).name

    def inlined(self, call: Call, into: str = "") -> Name:
        """The variable that has the result of a function, once its statements are told; `into` where one is given,
        unless another has it anyway."""
        made = function(call.function)
        own = self.given(made, call.arguments)
        self.lines += [line for line in _comment(made).splitlines() if line not in self.lines]
        for target, value, kind, tail in _assignments(made):
            told = None if value is None else replaced(value, own)
            if target:
                own[target] = Name(self.fresh(target)) if kind else own[target]
                variable = own[target]
                assert isinstance(variable, Name)
                self.assign(variable.name, told, kind or self.kinds[variable.name], tail)
            elif isinstance(told, Name) and self.kinds[told.name] == made.result:
                return told
            else:
                into = into or self.fresh(re.sub(r"^noyau_|_f(?:32|64)$", "", call.function))
                self.assign(into, told, made.result, tail)
        return Name(into)

    def given(self, made: Function, arguments: tuple[Node, ...]) -> dict[str, Node]:
        """What the parameters of a function are here: numbers and variables themselves, unless it changes them."""
        found: dict[str, Node] = {}
        changed = {name for name, *_ in _assignments(made)}
        for (name, kind), value in zip(made.parameters.items(), arguments, strict=True):
            match value:
                case Number(number) if name not in changed:
                    found[name] = Number(number, kind)
                case Name(variable) if name not in changed and self.kinds[variable] == kind:
                    found[name] = value
                case _:
                    own = self.fresh(name)
                    self.assign(own, value, kind)
                    found[name] = Name(own)
        return found

    def fresh(self, name: str) -> str:
        """A name that no variable has."""
        made, count = name, 1
        while made in self.kinds:
            count += 1
            made = f"{name}_{count}"
        self.kinds[made] = ""
        return made


def _assignments(made: Function) -> Iterator[tuple[str, Node | None, str, str]]:
    """The variables that a function sets in order, what to, their kinds where they are declared, and a comment; last
    what it returns, which has no name."""
    for statement, comment in _statements(made.body):
        tail = f"  # {comment}" if comment else ""
        if statement.startswith("return "):
            yield "", Parser(statement[7:]).expression(), "", tail
            continue
        declared = _DECLARED.match(statement)
        kind = KINDS[declared[1]] if declared else ""
        for name, value in Parser(statement[declared.end() :] if declared else statement).assignments():
            yield name, value, kind, tail


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Each statement with the comment in it or after it."""
    for line in re.findall(r"[^;]*;(?:[ ]*/\*.*?\*/)?", body, re.DOTALL):
        comment = " ".join(part.strip() for part in re.findall(r"/\*(.*?)\*/", line, re.DOTALL))
        yield " ".join(re.sub(r"/\*.*?\*/", "", line, flags=re.DOTALL).split()).removesuffix(";"), comment


def _pointed(value: Node) -> list[str]:
    """The variables that a call sets through pointers."""
    arguments = value.arguments if isinstance(value, Call) else ()
    return [argument.name for argument in arguments if isinstance(argument, Name) and argument.pointer]


def _signature(name: str) -> tuple[tuple[str, ...], str]:
    """The kinds of the parameters of a function of codegen/cmath, and of its result."""
    made = function(name)
    return tuple(made.parameters.values()), made.result
