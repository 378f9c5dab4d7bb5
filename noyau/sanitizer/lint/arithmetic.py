"""Lint of a kernel's arithmetic at sizes that are never run: offsets beyond 32 bits, and float32 sums of more terms
than float32 can count. A situation is a kernel with its launch and parameters at such sizes, without memory."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid, Language
from noyau.errors import FindingKind, NoyauError, UnsupportedError
from noyau.ir.sizes import Sizes
from noyau.kernels.c.parameters import prototype, roles_of
from noyau.kernels.c.syntax import plain_name
from noyau.kernels.call import FunctionKernel
from noyau.kernels.user_kernel import GPU, Buffer, Three, UserKernel, ask, python_function, three
from noyau.sanitizer.compiled_numbers import names_of
from noyau.sanitizer.lint.abstract_interpreter import Dialect, Walk
from noyau.sanitizer.lint.c_text import statements
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.values import INT32_END, UNSIGNED, Float, Interval, Pointer, Sum, Touch, Value, cell_of
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance
from noyau.text import sizes_text

SATURATED = 2**24  # from here on float32 does not hold every integer
_AXES = "xyz"
_FLOATS = {"float16": 16, "float32": 32, "float64": 64, "half": 16, "float": 32, "double": 64}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "intp": 64, "int": 64}
_WIDE = frozenset({"long", "size_t", "int64_t", "ptrdiff_t", "ssize_t", "uint64_t"})  # words of C
_FOLDS = frozenset({"sum", "max", "min"})


@dataclass(frozen=True, slots=True)
class KernelBody:
    """The body of a kernel's function and its file. `names`: its globals; `types`: its parameters' types in C."""

    body: tuple[ast.stmt, ...]
    file: str
    names: Mapping[str, Any]
    types: Mapping[str, str]


@lru_cache(maxsize=64)
def text_of(kernel: UserKernel | Callable[..., Any]) -> KernelBody | None:
    """Parse the text of a kernel or of a Python function; None if it cannot be read."""
    function = kernel.function if isinstance(kernel, UserKernel) else kernel
    try:
        if function is not None:
            return _in_python(function)
        return _in_c(kernel) if isinstance(kernel, UserKernel) else None
    except (UnsupportedError, OSError, SyntaxError, TypeError):
        return None


def _in_python(function: Callable[..., Any]) -> KernelBody:
    plain = python_function(function)
    lines, first = inspect.getsourcelines(plain)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError(f"{plain!r} is no function with a name")
    return KernelBody(tuple(definition.body), inspect.getsourcefile(plain) or "", names_of(plain), {})


def _in_c(kernel: UserKernel) -> KernelBody:
    body = statements(kernel.padded, plain_name(kernel.entry), kernel.language)
    types = {each.name: f"{each.type}{' *' if each.is_pointer else ''}" for each in prototype(kernel).parameters}
    return KernelBody(tuple(body), kernel.place, {}, types)


def _walk(text: KernelBody, dialect: Dialect, language: Language, arguments: Mapping[str, Any]) -> Walk:
    """Walk a text with the values of its parameters."""
    values = {name: _argument_value(each, language, text.types.get(name, "")) for name, each in arguments.items()}
    walk = Walk(dialect, values)
    walk.walk(text.body)
    return walk


def _walk_kernel(text: KernelBody, situation: Situation) -> Walk:
    """Walk a kernel with the arguments of its call."""
    language = LANGUAGES[situation.kernel.language]
    kind = Triton if language.grid is Grid.PROGRAMS else C if language.is_text else Numba
    dialect = kind(situation.grid, situation.block, {**text.names, **situation.kernel.numbers()})
    return _walk(text, dialect, language, situation.arguments)


def _overflows(walk: Walk) -> dict[int, Touch]:
    """Return accesses to arrays of more than 2^31 cells whose offset overflows, by the line of the overflow."""
    return {each.overflow.line: each for each in walk.touches if each.array.size > INT32_END}


def _largest(values: Iterable[Any]) -> int:
    """Return the number of cells of the largest array."""
    return max((each.size for each in values if isinstance(each, np.ndarray)), default=0)


def sums_of_call(function: Callable[..., Any], args: Sequence[Any]) -> list[Diagnostic]:
    """Diagnose a call of a Numba function: float32 sums of more terms than float32 can count."""
    text = text_of(function) if _largest(args) > SATURATED else None
    if text is None:
        return []
    arguments = dict(zip(inspect.signature(python_function(function)).parameters, args, strict=False))
    walk = _walk(text, Numba((1, 1, 1), (1, 1, 1), text.names), LANGUAGES["numba"], arguments)
    return [_saturation(text.file, each, "") for each in walk.sums if each.terms > SATURATED]


def offsets_of_launch(
    function: Callable[..., Any], grid: Three, arguments: Mapping[str, Any], constants: Mapping[str, Any], size: str
) -> list[Diagnostic]:
    """Diagnose a launch of a Triton kernel: offsets into its arrays that overflow 32 bits on the way. `constants`:
    arguments that the compiler knows."""
    text = text_of(function) if _largest(arguments.values()) > INT32_END else None
    if text is None:
        return []
    language, variables = LANGUAGES["triton"], {n: each for n, each in arguments.items() if n not in constants}
    walk = _walk(text, Triton(grid, (1, 1, 1), {**text.names, **constants}), language, variables)
    return [_overflow_diagnostic(text, line, each, size, "", language) for line, each in _overflows(walk).items()]


def _argument_value(value: Any, language: Language, kind: str) -> Value:
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
    situation: Situation, again: Callable[[Sizes], Situation | None], *, sums: bool = True
) -> list[Diagnostic]:
    """Diagnose the offsets and `sums` of a kernel; `again` makes it at other sizes, to find the first overflow."""
    text, size, language = text_of(situation.kernel), sizes_text(situation.sizes), LANGUAGES[situation.kernel.language]
    if text is None:
        return []
    walk, diagnostics = _walk_kernel(text, situation), list[Diagnostic]()
    for line, touch in _overflows(walk).items():
        least = _least(text, situation, line, again)
        where = f"; it overflows from {least} on" if least else ""
        diagnostics.append(_overflow_diagnostic(text, line, touch, size, where, language))
    long = {each.line: each for each in walk.sums if each.terms > SATURATED and sums}
    return [*diagnostics, *(_saturation(text.file, each, size) for each in long.values())]


def _overflow_diagnostic(
    text: KernelBody, line: int, touch: Touch, size: str, where: str, language: Language
) -> Diagnostic:
    reach = f"{touch.overflow.text} reaches {touch.overflow.value} for {size}"
    message, other = f"{reach}, and int32 ends at {INT32_END - 1}{where}", touch.line if touch.line != line else 0
    return Diagnostic(FindingKind.PRECISION, text.file, line, message, language.widening, size=size, other_line=other)


def _least(text: KernelBody, situation: Situation, line: int, again: Callable[[Sizes], Situation | None]) -> str:
    """Return the size at which the line begins to overflow, others unchanged: the largest that it depends on."""

    def is_lost(name: str, size: int) -> bool:
        smaller = again({**situation.sizes, name: size})
        return smaller is not None and line in {each.overflow.line for each in _walk_kernel(text, smaller).touches}

    for name in sorted(situation.sizes, key=lambda each: -situation.sizes[each]):
        low, high = 1, situation.sizes[name]
        if high > 1 and not is_lost(name, low):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if is_lost(name, middle) else (middle, high)
            return f"{name} = {high}"
    return ""


def _saturation(file: str, total: Sum, size: str) -> Diagnostic:
    """Diagnose a float32 sum of more terms than float32 can count."""
    at = f" for {size}" if size else ""
    message = f"{total.name} adds {total.terms} numbers in float32, one after the other{at}: past {SATURATED} of one"
    mend = "sum in float64, or sum blocks and then their sums"
    return Diagnostic(FindingKind.PRECISION, file, total.line, f"{message} size a sum stays as it is", mend, size=size)


@dataclass(frozen=True, slots=True)
class Situation:
    """A kernel at `sizes`, on arrays with shapes but no cells. `arguments`: by parameter; `grid`, `block`: of the
    launch, in threads; a Triton program is a block of one thread."""

    kernel: UserKernel
    sizes: Sizes
    arguments: Mapping[str, Any]
    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)


def situation_or_none(kernel: UserKernel, instance: Instance, sizes: Sizes, inputs: Sequence[Any]) -> Situation | None:
    """Return a kernel of an op at sizes by signature name; `inputs`: arrays at other sizes, of which only scalars are
    used. None if there is no such call: a run reports what does not fit."""
    try:
        scalars = {v.name: np.asarray(a) for v, a in zip(instance.inputs, inputs, strict=True) if v.scalar}
        scalars |= {n: np.asarray(sizes[n], scalars[n].dtype) for n in scalars.keys() & sizes.keys()}
        values = instance.ends
        pairs = zip(values, shapes_of(values, sizes), strict=True)
        ends = [scalars[v.name] if v.name in scalars else phantom(shape, v.dtype.numpy) for v, shape in pairs]
        arrays, outputs = ends[: len(instance.inputs)], ends[len(instance.inputs) :]
        run = FunctionKernel(kernel, instance, {})
        offers = {**run.offers(arrays, outputs), **{name: each.item() for name, each in scalars.items()}}
        offers["device"] = GPU if LANGUAGES[kernel.language].on_gpu else offers["device"]
        known = {**offers, **{v.name: a for v, a in zip(values, ends, strict=True) if not v.scalar}}
        grid, block = _launch(kernel, offers)
        return Situation(kernel, dict(sizes), _arguments(kernel, offers, known), grid, block)
    except (NoyauError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return None


def phantom(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return a contiguous array of any shape over a single cell of memory; its elements must not be accessed."""
    cells = [math.prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), tuple(shape), [dtype.itemsize * each for each in cells])


def _arguments(kernel: UserKernel, offers: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each kernel parameter, as far as it is known."""
    if kernel.function is None:
        parameters = [each.name for each in prototype(kernel).parameters]
    else:
        parameters = list(inspect.signature(python_function(kernel.function)).parameters)
    if kernel.usage.args is not None:
        answer = ask(kernel.usage.args, offers, f"args= of {kernel.title}")
        arguments = [values[each.name] if isinstance(each, Buffer) else each for each in answer]
    elif kernel.function is None:
        usage = replace(kernel.usage, launch=None) if LANGUAGES[kernel.language].on_gpu else kernel.usage
        roles = roles_of(prototype(kernel), usage, kernel.target, kernel.title)
        arguments = [values.get(name) for name in roles.names or ()]
    else:
        arguments = [values.get(term.name) for term in (*kernel.target.inputs, *kernel.target.outputs)]
    by_name = dict(zip(parameters, arguments, strict=False))
    if LANGUAGES[kernel.language].grid is Grid.PROGRAMS:
        return {name: by_name.get(name, values.get(name)) for name in parameters}
    return by_name


def _launch(kernel: UserKernel, offers: Mapping[str, Any]) -> tuple[Three, Three]:
    launch = kernel.usage.launch
    if not LANGUAGES[kernel.language].on_gpu or launch is None or isinstance(launch, str):
        return (1, 1, 1), (1, 1, 1)
    answer = ask(launch, offers, f"launch= of {kernel.title}") if callable(launch) else launch
    if LANGUAGES[kernel.language].grid is Grid.PROGRAMS:
        return three(answer), (1, 1, 1)
    return three(answer[0]), three(answer[1])


def geometry(name: str, grid: Three, block: Three) -> Interval | None:
    """Return the interval of `threadIdx.x` and similar words, of 32 bits; None for other words."""
    word, _, axis = name.rpartition(".")
    if axis not in _AXES or not word:
        return None
    threads, blocks = (extents[_AXES.index(axis)] for extents in (block, grid))
    intervals = {
        "threadIdx": Interval(0, threads - 1, 32),
        "blockIdx": Interval(0, max(blocks - 1, 0), 32),
        "blockDim": Interval.of(threads, 32),
        "gridDim": Interval.of(blocks, 32),
    }
    return intervals.get(word.rpartition(".")[2])


def cast(name: str, value: Value, walk: Walk, node: ast.Call) -> Value:
    """Apply a cast such as `int32(x)` or `np.float32(x)`; None for other calls."""
    word = name.rpartition(".")[2]
    if word in _FLOATS and word != "float":
        return Float(_FLOATS[word])
    if word in _INTEGERS and isinstance(value, Interval):
        return value.with_bits(_INTEGERS[word]).with_overflow(node.lineno, ast.unparse(node))
    return None


class _LaunchLanguage:
    """A language with words for a launch; an operation has its wider operand's width, for literals 32 bits."""

    def __init__(self, grid: Three, block: Three, names: Mapping[str, object]) -> None:
        self.grid, self.block, self.names = grid, block, names

    def width(self, left: Interval, right: Interval) -> int:
        return max(left.bits, right.bits) or 32


class Numba(_LaunchLanguage):
    """Numba, on the CPU and on a GPU: integers compute in 64 bits unless they are cast."""

    literal_bits = 64

    def width(self, left: Interval, right: Interval) -> int:
        return 64

    def word(self, name: str, walk: Walk) -> Value:
        value = self.names.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return Interval.of(value)
        return Float(64) if isinstance(value, float) else geometry(name, self.grid, self.block)

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        values = [walk.value(each) for each in node.args]
        word = name.rpartition(".")[2]
        if word in ("grid", "gridsize") and len(values) == 1 and isinstance(values[0], Interval):
            return self.places(word, values[0].low)
        if word == "len" and values and isinstance(values[0], np.ndarray):
            return Interval.of(values[0].shape[0])
        if ".atomic." in f".{name}" and word == "add" and len(values) == 3:
            self.add_atomically(values, node, walk)
            return None
        return cast(name, values[0], walk, node) if len(values) == 1 else None

    def places(self, word: str, axes: int) -> Value:
        threads = [blocks * size for blocks, size in zip(self.grid, self.block, strict=True)][:axes]
        spans = tuple(Interval.of(each) if word == "gridsize" else Interval(0, max(each - 1, 0)) for each in threads)
        return spans[0] if axes == 1 else spans

    def add_atomically(self, values: list[Value], node: ast.Call, walk: Walk) -> None:
        """Record an atomic sum in one cell by every thread of the grid, at most as many as there are cells."""
        array, at, added = values
        is_one_cell = all(isinstance(p, Interval) and p.is_one for p in (at if isinstance(at, tuple) else (at,)))
        if walk.fewer or not isinstance(array, np.ndarray) or not is_one_cell:
            return
        most = max(each.size for each in walk.names.values() if isinstance(each, np.ndarray))
        threads = int(np.prod([*self.grid, *self.block], dtype=object))
        if isinstance(cell := cell_of(array), Float):
            walk.add_sum(ast.unparse(node.args[0]), cell, added, min(threads, most) * walk.rounds(0), node.lineno)


class Triton(_LaunchLanguage):
    """Triton: an offset is added to a pointer in 64 bits."""

    literal_bits = 0

    def word(self, name: str, walk: Walk) -> Value:
        value = getattr(self.names.get(name), "value", self.names.get(name))  # the name may be a tl.constexpr
        return Interval.of(value, 0) if isinstance(value, int) and not isinstance(value, bool) else None

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        word = name.rpartition(".")[2]
        if word == "to" and isinstance(node.func, ast.Attribute):
            return self.convert(walk.value(node.func.value), node)
        values = [walk.value(each) for each in node.args]
        for each in node.keywords:
            walk.value(each.value)
        match word:
            case "program_id" | "num_programs":
                return self.program(word, values or [walk.value(each.value) for each in node.keywords])
            case "arange":
                start, end = values
                fits = isinstance(start, Interval) and isinstance(end, Interval)
                return Interval(start.low, max(end.high - 1, start.low), 32) if fits else None  # type: ignore[union-attr]
            case "cdiv" if len(values) == 2:
                return _quotient(*values)
            case "load" | "store" | "atomic_add":
                return self.access(values[0], node, walk)
            case "zeros" | "full" | "zeros_like":
                text = ast.unparse(node)
                return Float(next((bits for name, bits in _FLOATS.items() if f".{name}" in text), 0))
            case _ if word in _FOLDS or word in ("dot", "where"):
                return next((each for each in values if isinstance(each, Float)), None)
            case "expand_dims" | "broadcast_to" | "max_contiguous" | "multiple_of":
                return values[0]
        return None

    def program(self, word: str, values: list[Value]) -> Value:
        axis = values[0].low if values and isinstance(values[0], Interval) else 0
        extent = self.grid[axis] if axis < 3 else 1
        return Interval.of(extent, 32) if word == "num_programs" else Interval(0, max(extent - 1, 0), 32)

    @staticmethod
    def convert(value: Value, node: ast.Call) -> Value:
        text = " ".join(map(ast.unparse, node.args))
        if isinstance(value, Interval):
            return value.with_bits(64) if "int64" in text else value
        bits = next((bits for name, bits in _FLOATS.items() if text.endswith(name)), 0)
        return Float(bits) if bits else value

    @staticmethod
    def access(pointer: Value, node: ast.Call, walk: Walk) -> Value:
        if isinstance(pointer, np.ndarray):
            return cell_of(pointer)
        if isinstance(pointer, Pointer):
            walk.touch(pointer.array, pointer.offset, node.lineno)
            return cell_of(pointer.array)
        return None


def _quotient(one: Value, other: Value) -> Value:
    if isinstance(one, Interval) and isinstance(other, Interval) and other.low > 0:
        return Interval(-(-one.low // other.high), -(-one.high // other.low), max(one.bits, other.bits) or 32)
    return None


class C(_LaunchLanguage):
    """C, C++ and CUDA C++: built-in variables, and results of operations on 32-bit numbers, have 32 bits."""

    literal_bits = 64  # a double; the suffix f is ignored

    def word(self, name: str, walk: Walk) -> Value:
        value = self.names.get(name)
        if isinstance(value, int):
            return Interval.of(value, 0)
        builtin = geometry(name, self.grid, self.block)
        return builtin and builtin.with_bits(UNSIGNED)

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        """Evaluate a call; casts and the types of declarations are calls of `cast`."""
        if name == "cast":
            kind = node.args[0]
            return as_type(str(kind.value) if isinstance(kind, ast.Constant) else "", walk.value(node.args[1]), node)
        values = [walk.value(each) for each in node.args]
        if name == "atomicAdd" and isinstance(node.args[0], ast.Call) and ast.unparse(node.args[0].func) == "address":
            return None
        for each in values:
            if isinstance(each, Pointer):  # the callee accesses it
                walk.touch(each.array, each.offset, node.lineno)
        return values[0] if name in ("address", "__ldg") and values else None


def as_type(kind: str, value: Value, node: ast.AST) -> Value:
    """Convert a value to a C type."""
    words = kind.split()
    if "*" in kind or not words:
        return value
    if words[-1] in ("float", "double", "half"):
        return Float(_FLOATS[words[-1]])
    if not isinstance(value, Interval):
        return None
    bits = UNSIGNED if {"unsigned", "uint32_t"} & {*words} else 32
    number = value.with_bits(64 if _WIDE & {*words} else bits)
    text = ast.unparse(node.args[1]) if isinstance(node, ast.Call) else ""
    return number.with_overflow(getattr(node, "lineno", 0), text)
