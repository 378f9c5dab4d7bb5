"""Names and expressions of language `cuda`; and its scalar functions, those of language `c`: what a compiler of a host
alone knows is left out, and what one instruction of a GPU does is that instruction there."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import partial

from noyau.codegen import cmath
from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import INDENT
from noyau.codegen.tables import SCALARS
from noyau.codegen.thread_memory import MATH, ThreadExpressions
from noyau.compiler.schedules.gpu.vectors import Place
from noyau.dtypes import HALVES, DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape

OWN = frozenset((*MATH, "exp2", "cbrt", "rsqrt", "floor", "ceil", "trunc"))  # for float with an f at the end
# What is near enough where a launch may be wrong by 2**-17 of a value.
LOOSE = {"exp": "noyau_near_exp({0})", "divide": "__fdividef({0}, {1})"}
# Beyond the words of C: those of C++, and what CUDA and the text call their own.
RESERVED = frozenset(
    """and and_eq asm bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield compl concept
    const_cast consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept
    not not_eq operator or or_eq private protected public reinterpret_cast requires static_cast template this throw try
    typeid typename using virtual wchar_t xor xor_eq threadIdx blockIdx blockDim gridDim warpSize lane stream
    items item rank meeting met""".split()
)


class CudaNames(Scopes):
    """Names of a kernel to identifiers of CUDA C++."""

    def fits(self, name: str) -> bool:
        return name not in RESERVED


WORDS = re.compile(r"noyau_bf16_to_f32\((\w+(?:\[\w+\])?)\.at\[([a-z]\w*)\]\)")


class CudaExpressions(ThreadExpressions, CExpressions):
    """The expressions of one kernel in CUDA C++. `vector`: the variable of the loop over the cells of vectors that is
    open; `vectors`: the name of each vector, by its place; `is_loose`: whether a launch may be wrong by
    2**-17 of a value; `ints`: the indices of 32 bits, or None where a launch has none."""

    language, both = "cuda", " && "

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.vector, self.vectors = "", dict[Place, str]()
        self.is_loose = False
        self.ints: set[str] | None = None

    def are_ints(self, *dims: Dim) -> bool:
        """Whether indices are of 32 bits."""
        return self.ints is not None and all(dim.names <= self.ints for dim in dims)

    def cell(self, name: str, index: Shape) -> str:
        if own := self.vector_of(name, index):
            return f"{own}.at[{self.names.atom(self.vector)}]"
        memory = self.memory[name]
        if isinstance(memory, ir.Alloc) and memory.space is ir.Space.BLOCK:
            return f"{self.names.value(name)}[{self.dim(index[-1])}]"
        match memory:
            case ir.Alloc(space=ir.Space.CLUSTER):
                return self.names.value(name)
            case ir.Alloc(space=ir.Space.LANE):
                *_, vector, cell = index
                return f"{self.names.value(name)}[{self.dim(vector)}].at[{self.dim(cell)}]"
            case _:
                return self.own_cell(name, index) if name in self.lanes else super().cell(name, index)

    def vector_of(self, name: str, index: Shape) -> str:
        """The vector that a cell is one of, or nothing."""
        if not self.vector or not any(self.vector in dim.names for dim in index):
            return ""
        return self.vectors.get((name, tuple(dim.replace({self.vector: 0}) for dim in index)), "")

    def own(self, function: str, operands: tuple[ir.Expr, ...]) -> str | None:
        name, dtype = SCALARS.get(function), operands[0].dtype
        if self.is_loose and dtype is DType.F32 and function in LOOSE:
            return LOOSE[function].format(*map(self.top, operands))
        if name in OWN and dtype in (DType.F32, DType.F64):
            return f"{name}{'f' * (dtype is DType.F32)}({self.top(operands[0])})"
        return super().own(function, operands)

    def widen(self, cell: str, stored: DType) -> str:
        """As of language `c`; of two cells at once the upper one needs no shift."""
        return WORDS.sub(r"noyau_bf16_of(\1, \2)", super().widen(cell, stored))

    def cell_text(self, name: str, value: ir.Expr) -> str:
        """As of language `c`; the bits of a half go from memory to memory, and what is rounded to it is so once."""
        match value:
            case ir.Call("cast", (ir.Call("cast", (exact,), half),)) if (
                exact.dtype is DType.F32 and half is self.memory[name].dtype in HALVES
            ):
                return super().cell_text(name, exact)
            case ir.Load(buffer, index, _, None) if self.memory[buffer].dtype is self.memory[name].dtype in HALVES:
                return self.cell(buffer, index)
            case _:
                return super().cell_text(name, value)

    def until_aligned(self, place: ir.CellsToAlignment) -> str:
        at = f"&{self.cell(place.buffer, place.index)}"
        return f"noyau_until_aligned<{place.cells}>({at}, {self.dim(place.length)})"


# What no compiler of the host may know, so that a sum is not fused with a product, has a word of its own here.
UNFUSED = {"x + noyau_minus_zero_f32": "__fadd_rn(x, -0.0f)", "x + noyau_minus_zero_f64": "__dadd_rn(x, -0.0)"}
# Functions that one instruction does, or two: the result, its constraint, the instruction, its operands.
PTX = {
    "noyau_f32_to_bf16": ("uint16_t", "h", "cvt.rn.bf16.f32 %0, %1;", '"f"(x)'),
    "noyau_f32_to_f16": ("uint16_t", "h", "cvt.rn.f16.f32 %0, %1;", '"f"(x)'),
    "noyau_f16_to_f32": ("float", "f", "cvt.f32.f16 %0, %1;", '"h"(x)'),
    "noyau_f32_to_f16_to_f32": ("float", "f", "{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h;}", '"f"(x)'),
    "noyau_maximum_f32": ("float", "f", "max.NaN.f32 %0, %1, %2;", '"f"(x), "f"(y)'),
    "noyau_minimum_f32": ("float", "f", "min.NaN.f32 %0, %1, %2;", '"f"(x), "f"(y)'),
}
HOSTS_OWN = re.compile(r"^__attribute__.*\n", re.MULTILINE)


def functions_of(names: Set[str]) -> str:
    """The text of functions, by their names, and of those that they call."""
    functions = HOSTS_OWN.sub("", "\n\n".join(cmath.snippets(names)))
    for spelling, own in UNFUSED.items():
        functions = functions.replace(spelling, own)
    for name, instruction in PTX.items():
        whole = re.compile(rf"^(NOYAU_INLINE \S+ {name}\(.*?\) {{\n)(.*?)^}}", re.MULTILINE | re.DOTALL)
        functions = whole.sub(partial(_in_ptx, instruction), functions)
    return functions


def _in_ptx(own: tuple[str, str, str, str], function: re.Match[str]) -> str:
    """A function by one instruction, where a GPU runs it that has it."""
    (head, body), (kind, constraint, instruction, operands) = function.groups(), own
    return f"""{head}#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
{INDENT}{kind} result;
{INDENT}asm("{instruction}" : "={constraint}"(result) : {operands});
{INDENT}return result;
#else
{body}#endif
}}"""
