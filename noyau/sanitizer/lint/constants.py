"""Numbers at which a kernel's behaviour may change, as its author wrote them: blocks and tiles, loop bounds, operands
of comparisons, shapes of shared arrays, extents of its launch."""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from noyau.kernels.c.syntax import blank_comments, plain_name, syntax
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.sanitizer.compiled_numbers import names_of
from noyau.sanitizer.lint.arithmetic import text_of

LEAST, MOST = 4, 1 << 16  # smaller ones are among the tried sizes anyway; larger ones are masks and limits
_DEPTH = 2  # of nested callees
_NAMED = re.compile(r"#\s*define\s+(\w+)\s+\(?(\d+)\b|\b(?:const\w*|enum)\b[\w\s{]*?\b(\w+)\s*=\s*(\d+)\b")
_WORD = re.compile(r"[^\W\d]\w*")
_WHOLE = re.compile(r"(?<![\w.])(\d+)[uUlL]*(?![\w.])")
_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul, ast.LShift: lambda left, right: left << min(right, 32),
}  # fmt: skip


def constants_of(kernel: UserKernel) -> dict[int, str]:
    """Return the numbers with their texts for reports: `BLOCK = 512`, or only `512`."""
    numbers = dict[int, str]()
    for number, name in _each(kernel):
        if LEAST <= number <= MOST and not numbers.get(number):
            numbers[number] = name
    rounding = {number - 1 for number in numbers}  # (n + 63) // 64 rounds up to 64
    return {
        number: f"{name} = {number}" if name else str(number)
        for number, name in sorted(numbers.items())
        if name or number not in rounding
    }


def _each(kernel: UserKernel) -> Iterator[tuple[int, str]]:
    """Yield each number with its name, first the constants that the author names beside the kernel's text."""
    own = [kernel.usage.constants, *(config.kwargs for config in configs_of(kernel.function))]
    for name, values in (pair for each in own for pair in each.items()):
        yield from ((v, name) for v in (values if isinstance(values, list) else [values]) if _is_whole(v))
    if kernel.function is None:
        yield from _in_c(kernel)
    elif (text := text_of(kernel)) is not None:
        yield from _in_python(ast.Module([*text.body], []), text.names, _DEPTH)
    yield from _of_launch(kernel.usage.launch)


def _of_launch(launch: Any) -> Iterator[tuple[int, str]]:
    if callable(launch):
        if hasattr(plain := python_function(launch), "__code__"):
            names = names_of(plain)
            yield from ((names[name], name) for name in plain.__code__.co_names if _is_whole(names.get(name)))
            yield from ((names[name], name) for name in plain.__code__.co_freevars if _is_whole(names[name]))
            yield from ((value, "") for value in plain.__code__.co_consts if _is_whole(value))
        return
    parts = [each if isinstance(each, tuple) else (each,) for each in (launch if isinstance(launch, tuple) else ())]
    extents = [number for part in parts[:2] for number in part if _is_whole(number)]
    yield from ((extent, "") for extent in extents)
    if extents:
        yield math.prod(extents), "threads"


def _in_python(tree: ast.AST, names: Mapping[str, Any], depth: int) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if (number := _value(node, names)) is not None:
            yield number, node.id if isinstance(node, ast.Name) else ""
        callee = names.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if depth and callable(callee) and (text := text_of(python_function(callee))) is not None:
            yield from _in_python(ast.Module([*text.body], []), text.names, depth - 1)


def _value(node: ast.AST, names: Mapping[str, Any]) -> int | None:
    """Evaluate an expression that is an integer constant; None for others."""
    match node:
        case ast.Constant(value=int(value)) if _is_whole(value):
            return value
        case ast.Name(id=name):
            named: Any = getattr(names.get(name), "value", names.get(name))  # the name may be a tl.constexpr
            return named if _is_whole(named) else None
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _FOLDED:
            one, two = _value(left, names), _value(right, names)
            return None if one is None or two is None else _FOLDED[type(op)](one, two)
        case _:
            return None


def _in_c(kernel: UserKernel) -> Iterator[tuple[int, str]]:
    """Yield numbers in a C function and its callees, those of macros and constants with their names."""
    bodies = {
        each.name: blank_comments((each.body.text or b"").decode("utf-8", "replace"))
        for each in syntax(kernel.text, kernel.language).functions
        if each.body is not None
    }
    own = bodies.get(plain_name(kernel.entry), "")
    text = " ".join([own, *(bodies[name] for name in sorted({*_WORD.findall(own)} & bodies.keys()))])
    named = named_numbers(blank_comments(kernel.text))
    yield from ((named[name], name) for name in sorted({*_WORD.findall(text)} & named.keys()))
    yield from ((int(match[1]), "") for match in _WHOLE.finditer(text))


def named_numbers(text: str) -> dict[str, int]:
    """Return the integers of macros, constants and enumerators in a C text without comments."""
    return {match[1] or match[3]: int(match[2] or match[4]) for match in _NAMED.finditer(text)}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
