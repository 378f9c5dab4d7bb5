"""What words of Numba-CUDA, Numba, Triton and CUDA C++ mean to a walk over the ranges of numbers."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from noyau.codegen.language import Grid, Language
from noyau.sanitizer.lint.abstract_interpreter import Walk
from noyau.sanitizer.lint.kernel_sizes import Three
from noyau.sanitizer.lint.values import UNSIGNED, Float, Pointer, Span, Value, cell_of

_AXES = "xyz"
_FLOATS = {"float16": 16, "float32": 32, "float64": 64, "half": 16, "float": 32, "double": 64}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "intp": 64, "int": 64}
_FOLDS = frozenset({"sum", "max", "min"})


def geometry(name: str, grid: Three, block: Three) -> Span | None:
    """`threadIdx.x` and its like, of 32 bits; None for other words."""
    word, _, axis = name.rpartition(".")
    if axis not in _AXES or not word:
        return None
    number = _AXES.index(axis)
    match word.rpartition(".")[2]:
        case "threadIdx":
            return Span(0, block[number] - 1, 32)
        case "blockIdx":
            return Span(0, max(grid[number] - 1, 0), 32)
        case "blockDim":
            return Span.of(block[number], 32)
        case "gridDim":
            return Span.of(grid[number], 32)
        case _:
            return None


def cast(name: str, value: Value, walk: Walk, node: ast.Call) -> Value:
    """`int32(x)`, `np.float32(x)`: a number of another type; None for other calls."""
    word = name.rpartition(".")[2]
    if word in _FLOATS and word != "float":
        return Float(_FLOATS[word])
    if word in _INTEGERS and isinstance(value, Span):
        return value.widened(_INTEGERS[word]).noting(node.lineno, ast.unparse(node))
    return None


class Numba:
    """Numba, on the CPU and on a GPU: whole numbers compute in 64 bits, except where they are cast to fewer."""

    literal_bits = 64

    def __init__(self, grid: Three, block: Three, names: Mapping[str, object]) -> None:
        self.grid, self.block, self.names = grid, block, names

    def width(self, left: Span, right: Span) -> int:
        return 64

    def word(self, name: str, walk: Walk) -> Value:
        known = self.names.get(name)
        if isinstance(known, int) and not isinstance(known, bool):
            return Span.of(known)
        return Float(64) if isinstance(known, float) else geometry(name, self.grid, self.block)

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        given = [walk.value(each) for each in node.args]
        word = name.rpartition(".")[2]
        if word in ("grid", "gridsize") and len(given) == 1 and isinstance(given[0], Span):
            return self.places(word, given[0].low)
        if word == "len" and given and isinstance(given[0], np.ndarray):
            return Span.of(given[0].shape[0])
        if ".atomic." in f".{name}" and word == "add" and len(given) == 3:
            self.merged(given, node, walk)
            return None
        return cast(name, given[0], walk, node) if len(given) == 1 else None

    def places(self, word: str, axes: int) -> Value:
        threads = [blocks * size for blocks, size in zip(self.grid, self.block, strict=True)][:axes]
        spans = tuple(Span.of(each) if word == "gridsize" else Span(0, max(each - 1, 0)) for each in threads)
        return spans[0] if axes == 1 else spans

    def merged(self, given: list[Value], node: ast.Call, walk: Walk) -> None:
        """An atomic sum in one cell by every thread of the grid, or as many as there are cells."""
        held, at, added = given
        places = at if isinstance(at, tuple) else (at,)
        if walk.fewer or not isinstance(held, np.ndarray) or not all(isinstance(p, Span) and p.is_one for p in places):
            return
        sizes = [each.size for each in walk.names.values() if isinstance(each, np.ndarray)]
        threads = int(np.prod([*self.grid, *self.block], dtype=object))
        cell = cell_of(held)
        if isinstance(cell, Float):
            terms = min(threads, max(sizes)) * walk.rounds(0)
            walk.summed(ast.unparse(node.args[0]), cell, added, terms, node.lineno)


class Triton:
    """Triton: whole numbers have 32 bits where they fit; what is added to a pointer is added in 64."""

    literal_bits = 0

    def __init__(self, grid: Three, block: Three, names: Mapping[str, object]) -> None:
        self.grid, self.names = grid, names

    def width(self, left: Span, right: Span) -> int:
        return max(left.bits, right.bits) or 32

    def word(self, name: str, walk: Walk) -> Value:
        known = self.names.get(name)
        known = getattr(known, "value", known)  # of a tl.constexpr
        return Span.of(known, 0) if isinstance(known, int) and not isinstance(known, bool) else None

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        word = name.rpartition(".")[2]
        if word == "to" and isinstance(node.func, ast.Attribute):
            return self.converted(walk.value(node.func.value), node)
        given = [walk.value(each) for each in node.args]
        for each in node.keywords:
            walk.value(each.value)
        match word:
            case "program_id" | "num_programs":
                return self.program(word, given or [walk.value(each.value) for each in node.keywords])
            case "arange":
                start, end = given
                fits = isinstance(start, Span) and isinstance(end, Span)
                return Span(start.low, max(end.high - 1, start.low), 32) if fits else None  # type: ignore[union-attr]
            case "cdiv" if len(given) == 2:
                return _quotient(*given)
            case "load" | "store" | "atomic_add":
                return self.accessed(given[0], node, walk)
            case "zeros" | "full" | "zeros_like":
                return Float(_bits_in(node))
            case _ if word in _FOLDS or word in ("dot", "where"):
                return next((each for each in given if isinstance(each, Float)), None)
            case "expand_dims" | "broadcast_to" | "max_contiguous" | "multiple_of":
                return given[0]
        return None

    def program(self, word: str, given: list[Value]) -> Value:
        axis = given[0].low if given and isinstance(given[0], Span) else 0
        extent = self.grid[axis] if axis < 3 else 1
        return Span.of(extent, 32) if word == "num_programs" else Span(0, max(extent - 1, 0), 32)

    @staticmethod
    def converted(value: Value, node: ast.Call) -> Value:
        text = " ".join(map(ast.unparse, node.args))
        if isinstance(value, Span):
            return value.widened(64) if "int64" in text else value
        bits = next((bits for name, bits in _FLOATS.items() if text.endswith(name)), 0)
        return Float(bits) if bits else value

    @staticmethod
    def accessed(pointer: Value, node: ast.Call, walk: Walk) -> Value:
        if isinstance(pointer, np.ndarray):
            return cell_of(pointer)
        if isinstance(pointer, Pointer):
            walk.touch(pointer.array, pointer.offset, node.lineno)
            return cell_of(pointer.array)
        return None


def _quotient(one: Value, other: Value) -> Value:
    if isinstance(one, Span) and isinstance(other, Span) and other.low > 0:
        return Span(-(-one.low // other.high), -(-one.high // other.low), max(one.bits, other.bits) or 32)
    return None


def _bits_in(node: ast.Call) -> int:
    text = ast.unparse(node)
    return next((bits for name, bits in _FLOATS.items() if f".{name}" in text), 0)


class C:
    """C, C++ and CUDA C++: the built-in variables have 32 bits, and so has what is computed from two such numbers."""

    literal_bits = 64  # a double; an f behind it is not told apart

    def __init__(self, grid: Three, block: Three, names: Mapping[str, object]) -> None:
        self.grid, self.block, self.names = grid, block, names

    def width(self, left: Span, right: Span) -> int:
        return max(left.bits, right.bits) or 32

    def word(self, name: str, walk: Walk) -> Value:
        known = self.names.get(name)
        if isinstance(known, int):
            return Span.of(known, 0)
        found = geometry(name, self.grid, self.block)
        return found and found.widened(UNSIGNED)

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        """`cast` is what a cast and the type of a declaration are written as."""
        if name == "cast":
            kind = node.args[0]
            return as_type(str(kind.value) if isinstance(kind, ast.Constant) else "", walk.value(node.args[1]), node)
        given = [walk.value(each) for each in node.args]
        if name == "atomicAdd" and isinstance(node.args[0], ast.Call) and ast.unparse(node.args[0].func) == "address":
            return None
        for each in given:
            if isinstance(each, Pointer):  # whoever gets it looks there
                walk.touch(each.array, each.offset, node.lineno)
        return given[0] if name in ("address", "__ldg") and given else None


def as_type(kind: str, value: Value, node: ast.AST) -> Value:
    """A number as a type of C has it."""
    words = kind.split()
    if "*" in kind or not words:
        return value
    if words[-1] in ("float", "double", "half"):
        return Float(_FLOATS[words[-1]])
    if not isinstance(value, Span):
        return None
    is_wide = words.count("long") or any(w in ("size_t", "int64_t", "ptrdiff_t", "ssize_t", "uint64_t") for w in words)
    text = ast.unparse(node.args[1]) if isinstance(node, ast.Call) else ""
    made = value.widened(64 if is_wide else 32)
    is_unsigned = "unsigned" in words or "uint32_t" in words
    if is_unsigned and not is_wide:
        made = made.widened(UNSIGNED)
    return made.noting(getattr(node, "lineno", 0), text)


def dialect_of(language: Language) -> type[Numba | Triton | C]:
    """The dialect that a kernel of a language is read in."""
    if language.grid is Grid.PROGRAMS:
        return Triton
    return C if language.is_text else Numba
