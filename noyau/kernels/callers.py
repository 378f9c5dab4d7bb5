"""The callers of user kernels: how a kernel of each language that runs here is built, and which arrays it takes.

A language without a caller, such as CUDA C++, runs under the sanitizer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import BuildError
from noyau.kernels.c.text import c_source
from noyau.kernels.guarded_run import LAYOUTS
from noyau.kernels.triton.parameters import asks_strides
from noyau.kernels.user_kernel import UserKernel
from noyau.signatures.types import Instance
from noyau.toolchain.c import compiler as c_compiler

Array = np.ndarray
Constants = tuple[tuple[str, Any], ...]
Launch = Callable[[UserKernel, Instance, Mapping[str, Any], Sequence[Array], Sequence[Array]], None]
SYMBOL = "noyau_hand"  # of the one kernel in a library of its own


@dataclass(frozen=True, slots=True, eq=False)
class KernelCaller:
    """The calling convention of user kernels of a language.

    `prepare` builds one for an instance and the op's constants: BuildError as the compiler says, SignatureError where
    it does not take the instance; `layouts`: of the arrays that it takes beside packed ones; `compiler`: the version of
    what builds it, as far as a check depends on it; `launch` runs it on arrays, where Python does not call it."""

    prepare: Callable[[UserKernel, Instance, Mapping[str, Any]], object] = lambda kernel, instance, constants: None
    layouts: Callable[[UserKernel], tuple[str, ...]] = lambda kernel: tuple(LAYOUTS)
    compiler: Callable[[], str] = lambda: ""
    launch: Launch | None = None


def library_of(kernel: UserKernel, instance: Instance, constants: Mapping[str, Any]) -> tuple[Path, str]:
    """The library of a kernel in C, from the cache or built, and the symbol of its table. BuildError as the compiler
    says, SignatureError where it does not take the instance."""
    return cached_library(kernel, instance, tuple(sorted(constants.items())))


@lru_cache(maxsize=256)
def cached_library(kernel: UserKernel, instance: Instance, constants: Constants) -> tuple[Path, str]:
    """As `library_of`, of constants that are sorted."""
    text = c_source(kernel, instance, SYMBOL, dict(constants))
    flags = tuple(kernel.usage.options.get("flags", ()))
    return c_compiler.compile_library([text], c_compiler.CompilerOptions(extra=flags)), f"{SYMBOL}_kernel"


def _c_compiler() -> str:
    try:
        return c_compiler.find_compiler().version
    except BuildError:
        return ""


def _open_triton(kernel: UserKernel, instance: Instance, constants: Mapping[str, Any]) -> None:
    from noyau.kernels.triton.arrays import open_kernel

    open_kernel(kernel, instance, constants)


def _triton_layouts(kernel: UserKernel) -> tuple[str, ...]:
    # torch has no strides below 0
    return tuple(name for name in LAYOUTS if name != "flipped") if asks_strides(kernel) else ()


def _triton_compiler() -> str:
    from noyau.kernels.triton.calls import where

    return where()


def _launch_triton(
    kernel: UserKernel,
    instance: Instance,
    constants: Mapping[str, Any],
    arrays: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    from noyau.kernels.triton.arrays import launch_on_arrays

    launch_on_arrays(kernel, instance, constants, arrays, outputs)


CALLERS: Mapping[str, KernelCaller] = MappingProxyType(
    {
        "c": KernelCaller(prepare=library_of, layouts=lambda kernel: (), compiler=_c_compiler),
        "numba": KernelCaller(),
        "python": KernelCaller(),
        "triton": KernelCaller(_open_triton, _triton_layouts, _triton_compiler, _launch_triton),
    }
)


def caller_of(kernel: UserKernel, *, gpu: bool = False) -> KernelCaller | None:
    """The caller of a kernel on arrays of NumPy, or on tensors of a GPU; None where it takes none."""
    return CALLERS.get(kernel.language) if LANGUAGES[kernel.language].on_gpu is gpu else None
