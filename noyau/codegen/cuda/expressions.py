"""Names and expressions of language `cuda`, and its scalar functions: those of language `c`, without attributes for
host compilers, and with instructions of the GPU where one does the work."""

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
from noyau.ir.dims import Shape

OWN = frozenset((*MATH, "exp2", "cbrt", "rsqrt", "floor", "ceil", "trunc"))  # with the suffix f for float
# Fast functions for launches that may have a relative error of 2**-17.
LOOSE = {"exp": "noyau_near_exp({0})", "divide": "__fdividef({0}, {1})"}
# Beside the words of C: keywords of C++, and names of CUDA and of the text itself.
RESERVED = frozenset(
    """and and_eq asm bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield compl concept
    const_cast consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept
    not not_eq operator or or_eq private protected public reinterpret_cast requires static_cast template this throw try
    typeid typename using virtual wchar_t xor xor_eq threadIdx blockIdx blockDim gridDim warpSize lane stream
    items item rank meeting met""".split()
)


class CudaNames(Scopes):
    """The map from names of a kernel to identifiers of CUDA C++."""

    def fits(self, name: str) -> bool:
        return name not in RESERVED


WORDS = re.compile(r"noyau_bf16_to_f32\((\w+(?:\[\w+\])?)\.at\[([a-z]\w*)\]\)")


class CudaExpressions(ThreadExpressions, CExpressions):
    """Printer of the expressions of one kernel in CUDA C++. `vector`: the variable of the enclosing loop over the cells
    of vectors; `vectors`: the name of each vector, by its place; `is_loose`: the launch may have a relative error of
    2**-17; `ints`: the 32-bit indices, or None if the launch has none."""

    language, both = "cuda", " && "

    def __init__(self, kernel: ir.Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.vector, self.vectors = "", dict[Place, str]()
        self.is_loose = False
        self.ints: set[str] | None = None

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
        """The vector that contains a cell, or an empty text."""
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
        """A 16-bit float as float32; the upper bfloat16 of a word of two needs no shift."""
        return WORDS.sub(r"noyau_bf16_of(\1, \2)", super().widen(cell, stored))

    def cell_text(self, name: str, value: ir.Expr) -> str:
        """The text to store; a 16-bit float is copied as bits, and a value is rounded to it only once."""
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


# CUDA's own functions for additions that must not be fused with products, in place of a trick for host compilers.
UNFUSED = {"x + noyau_minus_zero_f32": "__fadd_rn(x, -0.0f)", "x + noyau_minus_zero_f64": "__dadd_rn(x, -0.0)"}
# Functions of one or two instructions: the result type, its constraint, the instruction, its operands.
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
    """The text of the named functions and of all that they call."""
    functions = HOSTS_OWN.sub("", "\n\n".join(cmath.snippets(names)))
    for spelling, own in UNFUSED.items():
        functions = functions.replace(spelling, own)
    for name, instruction in PTX.items():
        whole = re.compile(rf"^(NOYAU_INLINE \S+ {name}\(.*?\) {{\n)(.*?)^}}", re.MULTILINE | re.DOTALL)
        functions = whole.sub(partial(_in_ptx, instruction), functions)
    return functions


def _in_ptx(own: tuple[str, str, str, str], function: re.Match[str]) -> str:
    """The function with a body of inline PTX for GPUs that have the instruction, else with its own body."""
    (head, body), (kind, constraint, instruction, operands) = function.groups(), own
    return f"""{head}#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800
{INDENT}{kind} result;
{INDENT}asm("{instruction}" : "={constraint}"(result) : {operands});
{INDENT}return result;
#else
{body}#endif
}}"""
