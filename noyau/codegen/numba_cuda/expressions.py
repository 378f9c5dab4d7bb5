"""Expressions of the loop IR in Python for Numba-CUDA, and the scalar functions that its texts call.

Numba-CUDA has float16 of its own; bfloat16 is its bits. A function of CUDA's is called by its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from noyau.codegen.numba import intrinsics
from noyau.codegen.numba.expressions import NumbaExpressions
from noyau.codegen.numba.spellings import KINDS, NUMPY, RESERVED, NumbaNames
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape

TYPES = KINDS | {DType.F16: "f16"}
LONG_NAMES = NUMPY | {"f16": "np.float16"}
# Names of the text itself, beyond those of language numba.
OWN = RESERVED | frozenset("f16 cuda libdevice thread across down all_across all_down half inside stream".split())
# Functions that CUDA has itself, within 2 ulp or so: those of Python's math, and those of libdevice, where math has none
# or gives an integer.
MATH = frozenset(
    """exp expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf sqrt""".split()
)
DEVICE = {"exp2": "exp2", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "truncate": "trunc", "round_even": "rint"}
_LIBRARY = re.compile(r"\bnp\.(?=(?:trunc|rint|fmod|floor|ceil|cbrt|exp2)\()")  # of float64, in other functions
_BITS = {
    "noyau_bits_f32": "u32(libdevice.float_as_int(x))",
    "noyau_bits_f64": "u64(libdevice.double_as_longlong(x))",
    "noyau_from_bits_f32": "libdevice.int_as_float(i32(x))",
    "noyau_from_bits_f64": "libdevice.longlong_as_double(i64(x))",
}


class CudaNames(NumbaNames):
    """Names of a kernel to identifiers of a text for Numba-CUDA."""

    def fits(self, name: str) -> bool:
        return name not in OWN and super().fits(name)


class CudaExpressions(NumbaExpressions):
    """The expressions of one kernel in Python for Numba-CUDA.

    `own_cells`: the memory that is a variable of each thread of a block; `lane`: the loop in lanes that is open;
    `inside`: whether an index that was looked up is inside, by its name."""

    language = "numba_cuda"

    def __init__(self, kernel: ir.Kernel, names: NumbaNames) -> None:
        super().__init__(kernel, names)
        self.own_cells: set[str] = set()
        self.lane = ""
        self.inside: dict[str, str] = {}

    # Memory.

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if name in self.own_cells:
            if index != (Dim.of(self.lane or 0),):
                raise UnsupportedError(f"numba_cuda: a thread cannot reach the cell {index[0]} of {name}, another one's")
            return self.names.value(name)
        if isinstance(memory, ir.Buffer) and not memory.shape:
            return f"{self.names.value(name)}[0]"
        return super().cell(name, index)

    def place(self, dim: Dim, *, last: bool) -> str:
        return self.dim(dim)

    def load(self, load: ir.Load) -> str:
        """As of language numba; what lies outside is not read, and is 0."""
        cell = super().load(load)
        inside = dict.fromkeys(self.inside[name] for dim in load.index for name in dim.names if name in self.inside)
        return self.chosen(" and ".join(inside), cell, self.const(0, load.dtype)) if inside else cell

    def widened(self, cell: str, stored: DType) -> str:
        return f"f32({cell})" if stored is DType.F16 else super().widened(cell, stored)

    def stored_as(self, target: DType, value: ir.Expr) -> str:
        return f"f16({self.top(value)})" if target is DType.F16 else super().stored_as(target, value)

    # Calls.

    def own(self, function: str, operands: tuple[ir.Expr, ...]) -> str | None:
        source = operands[0].dtype
        if source not in (DType.F32, DType.F64):
            return super().own(function, operands)
        single = "f" * (source is DType.F32)
        if function in MATH or function == "abs":
            return f"{'math.' * (function in MATH)}{function}({self.top(operands[0])})"
        if function in DEVICE:
            return f"libdevice.{DEVICE[function]}{single}({self.top(operands[0])})"
        if function == "rounded":  # a sum that is fused with nothing
            return f"libdevice.{single or 'd'}add_rn({self.top(operands[0])}, {self.const(-0.0, source)})"
        return super().own(function, operands)


def scalar_texts(names: Iterable[str]) -> list[str]:
    """The functions of the device of these names ("noyau_maximum_f32"), and of all that they call, callees first."""
    bits = {name: f"@scalar\ndef {name}(x):\n    return {text}" for name, text in _BITS.items()}
    texts = intrinsics.functions() | bits
    return [on_device(_LIBRARY.sub("libdevice.", texts[name])) for name in intrinsics.order_of(names)]


def on_device(text: str) -> str:
    """A function of language numba as one of the device."""
    return text.replace("@scalar\n", "@cuda.jit(device=True)\n")
