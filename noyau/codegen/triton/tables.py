"""The spellings of language `triton`: types, operators, functions, sizes, identifiers.

Float32 results keep the error that the operator table promises: where a function of CUDA's libdevice has a larger one,
it is computed in float64 and rounded. No identifier is a Python keyword, or a name that the text itself uses."""

import math
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from noyau.codegen import tables as codegen_tables
from noyau.codegen.identifiers import Scopes
from noyau.codegen.tables import dim_text, short_float32, snippets, unwrap
from noyau.dtypes import CELLS, DType
from noyau.ir.dims import Dim, DimOp
from noyau.ir.loops import Kernel

# Reserved beyond those that fitting() knows: names that the text uses or defines and, in the last two lines, names in
# the function that Triton generates for a kernel's parameters, and options of a launch.
RESERVED = frozenset(
    """tl triton torch libdevice range min max abs float int sum len tuple match case type print exit item programs
    tiles index_type step_of warps_of warps are_aligned at_once block_of stages_of registers ValueError _
    options params specialization specialize_impl backend JITCallable JITFunction
    num_warps maxnreg enable_fp_fusion debug instrumentation_mode fpsan_homomorphic_casts""".split()
)


class TritonNames(Scopes):
    """Gives the names of a kernel identifiers in one Python function; none is used twice."""

    def __init__(self, kernel: Kernel) -> None:
        self.reserved = RESERVED | {f"{kernel.name}_{number}" for number in range(len(kernel.launches))} | {kernel.name}
        super().__init__(kernel)

    def fresh(self, stem: str) -> str:
        """An unused identifier; not `n_STEP`, which the text itself uses for a size `n`."""
        stem = stem.lower() if stem.endswith("_STEP") else stem
        return super().fresh(f"v_{stem}" if stem in self.reserved or stem.startswith("noyau") else stem)

    def alias(self, name: str, text: str) -> None:
        """Give a name of the kernel a text that is already defined."""
        self.blocks[-1]["index" if name.startswith("#") else "value", name] = text


class SizeText(ABC):
    """Dims as text. `words`: texts for names that have no variable; `CDIV`: the function that divides rounding up."""

    CDIV: ClassVar[str]

    def __init__(self, names: TritonNames) -> None:
        self.names = names
        self.words: dict[str, str] = {}

    def dim(self, dim: Dim) -> str:
        """An index or an extent, without parentheses around it."""
        return unwrap(dim_text(self._with_ceilings(dim), self.word, self.operate))

    def _with_ceilings(self, dim: Dim) -> Dim:
        """The Dim with one (n - 1) // step + 1, if it has any, replaced by a word for the division rounding up."""
        for atoms, factor in dim.terms:
            match atoms:
                case (DimOp("floordiv", left, right),) if (
                    factor == 1 and left.constant is None and constant_in(left) in (-1, -2)
                ):
                    name = f"#ceiling {left} / {right}"
                    self.words[name] = f"{self.CDIV}({self.dim(left + 1)}, {self.dim(right)})"
                    return dim - Dim(((atoms, factor),)) - 1 + Dim.of(name)
                case _:
                    pass
        return dim

    def word(self, name: str) -> str:
        return self.words[name] if name in self.words else self.names.atom(name)

    @abstractmethod
    def operate(self, op: DimOp, left: str, right: str) -> str:
        """The text of the floordiv, mod, max or min `op` of two texts."""


def constant_in(dim: Dim) -> int:
    return dict(dim.terms).get((), 0)


TORCH = {dtype: f"torch.{dtype.numpy.name}" for dtype in CELLS if not dtype.is_float8}
TYPES = {dtype: word.replace("torch", "tl") for dtype, word in TORCH.items()} | {DType.BOOL: "tl.int1"}
# Unlike in C, division is a function, for its rounding, and bools are single bits.
INFIX = {name: sign for name, sign in codegen_tables.INFIX.items() if name != "divide"} | {"logical_xor": "^"}

# Functions of floats: the text, with places for the operands.
FLOATS = {
    "identity": "{0}",
    "rounded": "{0}",
    "negative": "(-{0})",
    "abs": "tl.abs({0})",
    "exp": "libdevice.exp({0})",
    "log": "libdevice.log({0})",
    "log2": "libdevice.log2({0})",
    "cos": "libdevice.cos({0})",
    "acos": "libdevice.acos({0})",
    "truncate": "libdevice.trunc({0})",
    "round_even": "libdevice.rint({0})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
    "is_nan": "({0} != {0})",
    "is_inf": '(tl.abs({0}) == float("inf"))',
}
_IN_DOUBLE = ("exp2", "log10", "cbrt", "tan", "sinh", "cosh", "asinh", "acosh", "atanh")
_WIDE = "{0}.to(tl.float64), {1}.to(tl.float64)"
_OF_TWO = {"power": "pow", "atan2": "atan2", "fmod": "fmod"}
_AS_IT_IS_NEAR_0 = ("expm1", "log1p", "sin", "asin", "atan")  # f(x) = x near 0: libdevice treats a denormal as 0
OF_F32 = {
    "divide": "tl.div_rn({0}, {1})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "sqrt": "tl.sqrt_rn({0})",
    **{name: f"libdevice.{name}({{0}}.to(tl.float64)).to(tl.float32)" for name in _IN_DOUBLE},
    **{name: f"tl.where(tl.abs({{0}}) < 2.0**-60, {{0}}, libdevice.{name}({{0}}))" for name in _AS_IT_IS_NEAR_0},
    "erf": "tl.where(tl.abs({0}) < 2.0**-60, 1.1283792 * {0}, libdevice.erf({0}))",
    "floor": "tl.where(({0} < 0) & ({0} > -(2.0**-60)), -1.0, tl.floor({0}))",
    "ceil": "tl.where(({0} > 0) & ({0} < 2.0**-60), 1.0, tl.ceil({0}))",
    **{name: f"libdevice.{word}({_WIDE}).to(tl.float32)" for name, word in _OF_TWO.items()},
}
OF_F64 = {
    "divide": "({0} / {1})",
    "reciprocal": "(1.0 / {0})",
    "sqrt": "tl.sqrt({0})",
    **{name: f"libdevice.{name}({{0}})" for name in (*_IN_DOUBLE, *_AS_IT_IS_NEAR_0, "erf", "rsqrt", "tanh")},
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    **{name: f"libdevice.{word}({{0}}, {{1}})" for name, word in _OF_TWO.items()},
}
# Relative error 2**-17: for results that are rounded to halves.
LOOSE = {"exp": "tl.exp({0})", "divide": "({0} / {1})", "reciprocal": "(1.0 / {0})"}
BY_EXP = ("sigmoid", "softplus", "tanh")  # the functions of `OWN` that call exp
BOOLS = {"identity": "{0}", "logical_not": "({0} == 0)", "maximum": "({0} | {1})", "minimum": "({0} & {1})"}
INTEGERS = {
    "identity": "{0}",
    "negative": "(0 - {0})",
    "bitwise_not": "(~{0})",
    "abs": "tl.where({0} < 0, 0 - {0}, {0})",
    **dict.fromkeys(("maximum", "fmax"), "tl.maximum({0}, {1})"),
    **dict.fromkeys(("minimum", "fmin"), "tl.minimum({0}, {1})"),
}
UNSIGNED = {"abs": "{0}", "negative": "(0 - {0})"}

# Functions defined in the text, with parameters x, or a and b. One definition serves all dtypes of a kind.
OWN = snippets(Path(__file__).with_name("functions.txt"))


def call_text(function: str, dtype: DType) -> str | None:
    """The text of a call, with places for operands, of a function that Triton has; None for others."""
    tables = {
        "bool": (BOOLS,),
        "int": (INTEGERS,),
        "uint": (UNSIGNED, INTEGERS),
        "float": (FLOATS, OF_F32 if dtype is DType.F32 else OF_F64),
    }[dtype.kind]
    return next((table[function] for table in tables if function in table), None)


def is_own(function: str, dtype: DType) -> bool:
    """Whether the text itself defines the function for a dtype."""
    return f"{function}_{dtype.kind.removeprefix('u')}" in OWN and call_text(function, dtype) is None


def own_function(function: str, dtype: DType, loose: bool) -> str:
    """The definition of a function that Triton does not have."""
    text = OWN[f"{function}_{dtype.kind.removeprefix('u')}"]
    _, parameters, body = re.split(r"^def \w+|:\n", text, maxsplit=2, flags=re.MULTILINE)
    if dtype.is_float:
        body = body.replace("DIVIDE", "tl.div_rn" if dtype is DType.F32 else "tl.fdiv")
        body = body.replace("INVERSE(", "libdevice.fast_dividef(1.0, " if dtype is DType.F32 else "1.0 / (")
    body = body.replace("(a < 0) != (b < 0)", "False") if dtype.kind == "uint" else body
    body = body.replace("libdevice.exp(", "tl.exp(") if loose else body
    body = body.replace("WIDTH", str(8 * dtype.bytes))
    return f"@triton.jit\ndef {own_name(function, dtype, loose)}{parameters}:\n{body}"


def own_name(function: str, dtype: DType, loose: bool = False) -> str:
    return f"noyau_{'near_' * loose}{function}_{dtype.value}"


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number as an operand beside another operand of the same dtype."""
    if dtype is DType.BOOL:
        return "True" if value else "False"
    if not dtype.is_float:
        return f"({int(value)})" if value < 0 else str(int(value))
    number = short_float32(value) if dtype is DType.F32 else float(value)
    if math.isnan(number) or math.isinf(number):
        return f'float("{number}")'
    return f"({number!r})" if math.copysign(1, number) < 0 else repr(number)


def typed_number(value: float | int | bool, dtype: DType) -> str:
    """A number that carries its dtype."""
    return f"tl.full((), {const_text(value, dtype)}, {TYPES[dtype]})"
