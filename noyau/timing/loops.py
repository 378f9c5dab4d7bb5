"""C loops of which the rates are measured: copies, reads, and each scalar function over an array."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files

from noyau.codegen import cmath
from noyau.toolchain.c import compiler as c_compiler

_SIGNATURE = r"^NOYAU_INLINE (\w+) {}\(([^)]*)\)"
C_TYPES = {"float": "f4", "double": "f8", "uint32_t": "u4", "uint16_t": "u2", "uint8_t": "u1"}


@dataclass(frozen=True, slots=True)
class Loops:
    """The built loops. BuildError where there is no compiler."""

    library: ctypes.CDLL

    def call(self, name: str) -> Callable[..., None]:
        function = getattr(self.library, name)
        function.restype, function.argtypes = None, None
        return lambda *numbers: function(*(ctypes.c_int64(each) for each in numbers))


def loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> Loops:
    """The loops for this machine, from the cache or built."""
    texts = [_memory_text(), *_scalar_texts()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: c_compiler.compile_object(text, replace(options, export=True)), texts))
    return Loops(ctypes.CDLL(str(c_compiler.compile_library(texts, options))))


def memory_loops(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> Loops:
    """The loops that copy and read; they are built at once. BuildError where there is no compiler."""
    return Loops(ctypes.CDLL(str(c_compiler.compile_library([_memory_text()], options))))


def _memory_text() -> str:
    """The loops, after what they share with the kernels."""
    around, loops = (files("noyau").joinpath(*path) for path in (("codegen", "c", "around.h"), ("timing", "loops.c")))
    return f"#include <stddef.h>\n#include <stdint.h>\n{around.read_text('ascii')}\n{loops.read_text('ascii')}"


def signature(name: str) -> tuple[str, tuple[str, ...]]:
    """The C types of a function's result and operands."""
    match = re.search(_SIGNATURE.format(name), cmath.SNIPPETS[name].text, re.MULTILINE)
    assert match is not None
    kinds = tuple(re.sub(r"\b(const|\w+$)", "", each.strip()).strip() for each in match[2].split(","))
    return match[1], kinds


def _scalar_texts() -> list[str]:
    """A text for each width, so that two compilers can work at once: every function in a plain loop."""
    texts = []
    for suffixes in (("_f32",), ("_f64",), ("16", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")):
        names = sorted(name for name in cmath.NAMES if name.endswith(suffixes))
        texts.append("\n".join([cmath.text(names), *map(_loop_text, names)]))
    return texts


def _loop_text(name: str) -> str:
    result, operands = signature(name)
    parameters = "".join(f"const {kind} *restrict x{k}, " for k, kind in enumerate(operands))
    arguments = ", ".join(f"x{k}[i]" for k in range(len(operands)))
    return f"""
NOYAU_EXPORT void {name}_loop({parameters}{result} *restrict y, int64_t count, int64_t rounds) {{
    for (int64_t round = 0; round < rounds; round++) {{
        for (int64_t i = 0; i < count; i++) {{
            y[i] = {name}({arguments});
        }}
        __asm__ volatile("" ::: "memory");
    }}
}}
"""
