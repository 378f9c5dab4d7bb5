"""Kernels as operators of onnxruntime: the library that registers them."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from noyau.errors import GraphError
from noyau.hosts.onnxruntime.function_bodies import DOMAIN
from noyau.toolchain.c import compiler as c_compiler

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def shim_text(operators: Sequence[str], domain: str = DOMAIN) -> str:
    """The C text that registers operators of a domain with onnxruntime; compile it for the oldest CPU of the machine.

    Each operator NAME is defined by an object that has `const noyau_kernel NAME_kernel`, visible in the library."""
    for name in (*operators, *domain.split(".")):
        if not IDENTIFIER.fullmatch(name):
            raise GraphError(f"{name!r} cannot name an operator: letters, digits and _ alone make a C name")
    if not operators or len(set(operators)) < len(operators):
        raise GraphError("a library needs one operator or more, each once")
    table = [f'#define NOYAU_DOMAIN "{domain}"']
    table += [f'extern __attribute__((visibility("hidden"))) const noyau_kernel {name}_kernel;' for name in operators]
    table += ["static const noyau_kernel *const noyau_kernels[] = {", *(f"    &{name}_kernel," for name in operators)]
    own = "hosts/onnxruntime"
    headers = ("codegen/c/noyau.h", "hosts/shares.h", f"{own}/onnxruntime.h", f"{own}/cpu_check.h")
    return "\n".join([*map(_text, headers), *table, "};", "", _text(f"{own}/onnxruntime.c")])


def cached_library(
    kernels: Mapping[str, str], options: c_compiler.CompilerOptions = c_compiler.DEFAULTS, domain: str = DOMAIN
) -> Path:
    """Path in the disk cache of the shared library that gives onnxruntime these kernels: operator name -> C text.

    BuildError where the compiler is missing or refuses a text, OutputError where the cache cannot be written."""
    return c_compiler.shared_library(objects(kernels, options, shim_text(tuple(kernels), domain)), options)


def objects(kernels: Mapping[str, str], options: c_compiler.CompilerOptions, shim: str) -> list[Path]:
    """The objects of such a library; `shim`: the text that registers the operators, for the oldest CPU."""
    oldest = replace(options, target=c_compiler.level_of(platform.machine(), frozenset()), export=False)
    needs = _text("hosts/onnxruntime/cpu_needs.c")  # it records what the compiler of the kernels may use
    compiled = [c_compiler.compile_object(text, options) for text in (*kernels.values(), needs)]
    return [*compiled, c_compiler.compile_object(shim, oldest)]


def _text(path: str) -> str:
    return files("noyau").joinpath(*path.split("/")).read_text(encoding="utf-8")
