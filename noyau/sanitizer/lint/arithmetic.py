"""Lint of a kernel's arithmetic at sizes at which nothing is run: offsets beyond 32 bits, and sums of float32 of more
terms than float32 can count."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, Language
from noyau.errors import FindingKind, UnsupportedError
from noyau.kernels.c.functions import prototype
from noyau.kernels.c.syntax import plain_name
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.sanitizer.lint.abstract_interpreter import Dialect, Walk
from noyau.sanitizer.lint.c_text import statements
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.dialects import Numba, Triton, as_type, dialect_of
from noyau.sanitizer.lint.kernel_sizes import Situation, Three
from noyau.sanitizer.lint.values import INT32_END, Float, Interval, Sum, Touch, Value

SATURATED = 2**24  # from which on float32 does not hold every whole number


@dataclass(frozen=True, slots=True)
class KernelBody:
    """The body of a kernel's function, and the file that its lines are of. `names`: what its globals are; `types`: of
    its parameters, where it is in C."""

    body: tuple[ast.stmt, ...]
    file: str
    line: int
    names: Mapping[str, Any]
    types: Mapping[str, str]


def text_of(kernel: UserKernel) -> KernelBody | None:
    """The text of a kernel, None where it is not read."""
    try:
        return _in_c(kernel) if kernel.function is None else of_function(kernel.function)
    except (UnsupportedError, OSError, SyntaxError, TypeError):
        return None


@lru_cache(maxsize=64)
def of_function(function: Callable[..., Any]) -> KernelBody:
    """The text of a function of Python. OSError, SyntaxError or TypeError where there is none."""
    plain = python_function(function)
    lines, first = inspect.getsourcelines(plain)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError(f"{plain!r} is no function with a name")
    return KernelBody(tuple(definition.body), inspect.getsourcefile(plain) or "", definition.lineno, _names(plain), {})


def _names(function: Any) -> dict[str, Any]:
    """The globals of a function, and what its closure holds."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}


def _in_c(kernel: UserKernel) -> KernelBody:
    body = statements(kernel.text, plain_name(kernel.entry), kernel.language)
    types = {each.name: f"{each.type}{' *' if each.is_pointer else ''}" for each in prototype(kernel).parameters}
    return KernelBody(tuple(body), kernel.place, body[0].lineno if body else 1, {}, types)


def walk_kernel(text: KernelBody, situation: Situation) -> Walk:
    """A walk over a kernel as it is called."""
    names = {**text.names, **situation.kernel.numbers()}
    language = LANGUAGES[situation.kernel.language]
    dialect: Dialect = dialect_of(language)(situation.grid, situation.block, names)
    arguments = {
        name: _argument_value(each, language, text.types.get(name, "")) for name, each in situation.arguments.items()
    }
    walk = Walk(dialect, arguments)
    walk.walk(text.body)
    return walk


def sums_of_call(function: Callable[..., Any], args: Sequence[Any]) -> list[Diagnostic]:
    """Diagnose a call of a function of Numba: sums of float32 of more terms than it can count."""
    if max((each.size for each in args if isinstance(each, np.ndarray)), default=0) <= SATURATED:
        return []
    try:
        text = of_function(function)
    except (OSError, SyntaxError, TypeError):
        return []
    parameters = inspect.signature(python_function(function)).parameters
    values = {name: _argument_value(each, LANGUAGES["numba"], "") for name, each in zip(parameters, args, strict=False)}
    walk = Walk(Numba((1, 1, 1), (1, 1, 1), text.names), values)
    walk.walk(text.body)
    return [saturation(text.file, each, "") for each in walk.sums if each.terms > SATURATED]


def offsets_of_launch(
    function: Callable[..., Any], grid: Three, arguments: Mapping[str, Any], constants: Mapping[str, Any], size: str
) -> list[Diagnostic]:
    """Diagnose a launch of a kernel of Triton: offsets into its arrays that overflow 32 bits on the way.
    `constants`: those of its arguments that the compiler knows."""
    if max((each.size for each in arguments.values() if isinstance(each, np.ndarray)), default=0) <= INT32_END:
        return []
    try:
        text = of_function(function)
    except (OSError, SyntaxError, TypeError):
        return []
    values = {
        name: _argument_value(each, LANGUAGES["triton"], "")
        for name, each in arguments.items()
        if name not in constants
    }
    walk = Walk(Triton(grid, (1, 1, 1), {**text.names, **constants}), values)
    walk.walk(text.body)
    overflows = {each.overflow.line: each for each in walk.touches if each.array.size > INT32_END}
    return [_overflow_diagnostic(text, line, each, size, "", LANGUAGES["triton"]) for line, each in overflows.items()]


def _argument_value(value: Any, language: Language, kind: str) -> Value:
    """The abstract value of an argument."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        return Float(language.scalar_bits)
    if kind:
        return as_type(kind, Interval.of(value), ast.Pass())
    return Interval.of(value, language.scalar_bits if abs(value) < INT32_END else 64)


def diagnose_arithmetic(
    situation: Situation, again: Callable[[Mapping[str, int]], Situation | None]
) -> list[Diagnostic]:
    """Diagnose the arithmetic of a kernel; `again` gives it at other sizes, to find the smallest that overflows."""
    text = _text(situation.kernel)
    if text is None:
        return []
    touches = overflows(text, situation)
    diagnostics = [_overflow(text, situation, line, each, again) for line, each in touches.items()]
    sums = {each.line: each for each in walk_kernel(text, situation).sums if each.terms > SATURATED}
    return [*diagnostics, *(saturation(text.file, each, situation.told) for each in sums.values())]


@lru_cache(maxsize=64)
def _text(kernel: UserKernel) -> KernelBody | None:
    return text_of(kernel)


def overflows(text: KernelBody, situation: Situation) -> dict[int, Touch]:
    """Accesses to arrays of more than 2^31 cells at offsets that overflow on the way, by the line where they do."""
    walk = walk_kernel(text, situation)
    return {each.overflow.line: each for each in walk.touches if each.array.size > INT32_END}


def _overflow(
    text: KernelBody,
    situation: Situation,
    line: int,
    touch: Touch,
    again: Callable[[Mapping[str, int]], Situation | None],
) -> Diagnostic:
    least = _least(text, situation, line, again)
    where = f"; it overflows from {least} on" if least else ""
    return _overflow_diagnostic(text, line, touch, situation.told, where, LANGUAGES[situation.kernel.language])


def _overflow_diagnostic(
    text: KernelBody, line: int, touch: Touch, size: str, where: str, language: Language
) -> Diagnostic:
    message = (
        f"{touch.overflow.text} reaches {touch.overflow.value} for {size}, and int32 ends at {INT32_END - 1}{where}"
    )
    other = touch.line if touch.line != line else 0
    return Diagnostic(FindingKind.PRECISION, text.file, line, message, language.widening, size=size, other_line=other)


def _least(
    text: KernelBody, situation: Situation, line: int, again: Callable[[Mapping[str, int]], Situation | None]
) -> str:
    """From which size on the line overflows, the others as they are: the largest of those that it hangs on."""

    def is_lost(name: str, size: int) -> bool:
        smaller = again({**situation.sizes, name: size})
        return smaller is not None and line in {each.overflow.line for each in walk_kernel(text, smaller).touches}

    for name in sorted(situation.sizes, key=lambda each: -situation.sizes[each]):
        low, high = 1, situation.sizes[name]
        if high > 1 and not is_lost(name, low):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if is_lost(name, middle) else (middle, high)
            return f"{name} = {high}"
    return ""


def saturation(file: str, total: Sum, size: str) -> Diagnostic:
    """A sum of float32 of more terms than float32 can count."""
    at = f" for {size}" if size else ""
    message = f"{total.name} adds {total.terms} numbers in float32, one after the other{at}: past {SATURATED} of one"
    mend = "sum in float64, or sum blocks and then their sums"
    return Diagnostic(FindingKind.PRECISION, file, total.line, f"{message} size a sum stays as it is", mend, size=size)
