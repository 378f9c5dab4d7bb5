"""The meaning of the words of Numba-CUDA, Numba, Triton and CUDA C++ to the abstract interpreter."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from noyau.codegen.language import Grid, Language
from noyau.kernels.user_kernel import Three
from noyau.sanitizer.lint.abstract_interpreter import Walk
from noyau.sanitizer.lint.values import UNSIGNED, Float, Interval, Pointer, Value, cell_of

_AXES = "xyz"
_FLOATS = {"float16": 16, "float32": 32, "float64": 64, "half": 16, "float": 32, "double": 64}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "intp": 64, "int": 64}
_WIDE = frozenset({"long", "size_t", "int64_t", "ptrdiff_t", "ssize_t", "uint64_t"})  # words of C
_FOLDS = frozenset({"sum", "max", "min"})


def geometry(name: str, grid: Three, block: Three) -> Interval | None:
    """`threadIdx.x` and its like, of 32 bits; None for other words."""
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
    """`int32(x)`, `np.float32(x)`: a number of another type; None for other calls."""
    word = name.rpartition(".")[2]
    if word in _FLOATS and word != "float":
        return Float(_FLOATS[word])
    if word in _INTEGERS and isinstance(value, Interval):
        return value.with_bits(_INTEGERS[word]).with_overflow(node.lineno, ast.unparse(node))
    return None


class _LaunchLanguage:
    """A language whose words may be of a launch; whole numbers have 32 bits where they fit."""

    def __init__(self, grid: Three, block: Three, names: Mapping[str, object]) -> None:
        self.grid, self.block, self.names = grid, block, names

    def width(self, left: Interval, right: Interval) -> int:
        return max(left.bits, right.bits) or 32


class Numba(_LaunchLanguage):
    """Numba, on the CPU and on a GPU: whole numbers compute in 64 bits, except where they are cast to fewer."""

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
        """An atomic sum in one cell by every thread of the grid, or as many as there are cells."""
        array, at, added = values
        is_one_cell = all(isinstance(p, Interval) and p.is_one for p in (at if isinstance(at, tuple) else (at,)))
        if walk.fewer or not isinstance(array, np.ndarray) or not is_one_cell:
            return
        most = max(each.size for each in walk.names.values() if isinstance(each, np.ndarray))
        threads = int(np.prod([*self.grid, *self.block], dtype=object))
        if isinstance(cell := cell_of(array), Float):
            walk.add_sum(ast.unparse(node.args[0]), cell, added, min(threads, most) * walk.rounds(0), node.lineno)


class Triton(_LaunchLanguage):
    """Triton: what is added to a pointer is added in 64 bits."""

    literal_bits = 0

    def word(self, name: str, walk: Walk) -> Value:
        value = getattr(self.names.get(name), "value", self.names.get(name))  # of a tl.constexpr
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
    """C, C++ and CUDA C++: the built-in variables have 32 bits, and so has what is computed from two such numbers."""

    literal_bits = 64  # a double; an f behind it is not told apart

    def word(self, name: str, walk: Walk) -> Value:
        value = self.names.get(name)
        if isinstance(value, int):
            return Interval.of(value, 0)
        builtin = geometry(name, self.grid, self.block)
        return builtin and builtin.with_bits(UNSIGNED)

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        """`cast` is what a cast and the type of a declaration are written as."""
        if name == "cast":
            kind = node.args[0]
            return as_type(str(kind.value) if isinstance(kind, ast.Constant) else "", walk.value(node.args[1]), node)
        values = [walk.value(each) for each in node.args]
        if name == "atomicAdd" and isinstance(node.args[0], ast.Call) and ast.unparse(node.args[0].func) == "address":
            return None
        for each in values:
            if isinstance(each, Pointer):  # whoever gets it looks there
                walk.touch(each.array, each.offset, node.lineno)
        return values[0] if name in ("address", "__ldg") and values else None


def as_type(kind: str, value: Value, node: ast.AST) -> Value:
    """A number as a type of C has it."""
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


def dialect_of(language: Language) -> type[Numba | Triton | C]:
    """The dialect that a kernel of a language is read in."""
    if language.grid is Grid.PROGRAMS:
        return Triton
    return C if language.is_text else Numba
