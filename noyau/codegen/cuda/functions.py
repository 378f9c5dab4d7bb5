"""Scalar functions of language `c` in CUDA C++: what a compiler of a host alone knows is left out, and what one
instruction of a GPU does is that instruction there."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import partial

from noyau.codegen import cmath
from noyau.codegen.statements import INDENT

# What no compiler of the host may know, so that a sum is not fused with a product, has a word of its own here.
UNFUSED = (
    ("x + noyau_minus_zero_f32", "__fadd_rn(x, -0.0f)"),
    ("x + noyau_minus_zero_f64", "__dadd_rn(x, -0.0)"),
)
# Functions that one instruction does: the result, its constraint, the instruction, its operands.
PTX = {
    "noyau_f32_to_bf16": ("uint16_t", "h", "cvt.rn.bf16.f32 %0, %1", '"f"(x)'),
    "noyau_f32_to_f16": ("uint16_t", "h", "cvt.rn.f16.f32 %0, %1", '"f"(x)'),
    "noyau_f16_to_f32": ("float", "f", "cvt.f32.f16 %0, %1", '"h"(x)'),
    "noyau_maximum_f32": ("float", "f", "max.NaN.f32 %0, %1, %2", '"f"(x), "f"(y)'),
    "noyau_minimum_f32": ("float", "f", "min.NaN.f32 %0, %1, %2", '"f"(x), "f"(y)'),
}
HOSTS_OWN = re.compile(r"^__attribute__.*\n", re.MULTILINE)


def functions_of(names: Set[str]) -> str:
    """The text of functions, by their names, and of those that they call."""
    functions = HOSTS_OWN.sub("", "\n\n".join(cmath.snippets(names)))
    for spelling, own in UNFUSED:
        functions = functions.replace(spelling, own)
    for name, instruction in PTX.items():
        whole = re.compile(rf"^(NOYAU_INLINE \S+ {name}\(.*?\) {{\n)(.*?)^}}", re.MULTILINE | re.DOTALL)
        functions = whole.sub(partial(_in_ptx, instruction), functions)
    return functions


def _in_ptx(own: tuple[str, str, str, str], function: re.Match[str]) -> str:
    """A function by one instruction, where a GPU runs it that has it."""
    (head, body), (kind, constraint, instruction, operands) = function.groups(), own
    lines = [
        "#if !defined(NOYAU_WATCHED) && __CUDA_ARCH__ >= 800",
        f"{INDENT}{kind} result;",
        f'{INDENT}asm("{instruction};" : "={constraint}"(result) : {operands});',
        f"{INDENT}return result;",
        "#else",
    ]
    return "\n".join([head.rstrip("\n"), *lines, f"{body}#endif", "}"])
