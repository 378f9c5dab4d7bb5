"""Diagnostics of a launch of a script's kernel: its number of programs, and offsets that 32 bits do not hold."""

from __future__ import annotations

import inspect
import linecache
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from noyau import errors
from noyau.errors import FindingKind, MissingExtraError
from noyau.kernels.buffers import GPU
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.lint.arithmetic import offsets_of_launch
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.kernel_sizes import Three, phantom
from noyau.sanitizer.lint.launches import LaunchFacts, advise
from noyau.sanitizer.triton.run import LANGUAGE
from noyau.verify.findings import Finding

try:
    import torch
    import triton
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau[triton]'") from error

_FOLDERS = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (triton, errors))  # Triton, and noyau
_ASKED = "multiprocessor_count"  # in a script: it sizes its grids by the machine, which is a small one here


def lint_launch(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], grid: Any, op: str, size: str
) -> list[Finding]:
    """Warnings on a launch that a script is about to make, at the line that makes it; of offsets at the kernel's own.
    `args`, `named`: tensors and numbers; `grid`: as the script gives it."""
    plain, (file, line) = python_function(function), launching_line()
    name, bound = plain.__name__, inspect.signature(plain).bind_partial(*args, **named)
    bound.apply_defaults()
    arguments = bound.arguments
    programs = three(grid(dict(arguments)) if callable(grid) else grid)
    with torch._C.DisableTorchFunction():
        arrays = {key: _flat(each) for key, each in arguments.items() if isinstance(each, torch.Tensor)}
    shape = max((each.shape for each in arrays.values()), key=math.prod, default=())
    count = 0 if _ASKED in "".join(linecache.getlines(file)).lower() else GPU.sm_count
    launch = LaunchFacts(programs, (1, 1, 1), shape, sm_count=count, is_of_programs=True)
    remarks = [Diagnostic(FindingKind.LAUNCH, file, line, *each, name, size) for each in advise(launch)]
    remarks += offsets_of_launch(function, programs, {**arguments, **arrays}, constants_of(function, arguments), size)
    return [each.finding(op, name, LANGUAGE) for each in remarks if not each.is_allowed]


def _flat(tensor: torch.Tensor) -> np.ndarray:
    """As many cells as a pointer to it reaches: a kernel knows no shapes."""
    steps = (step * (extent - 1) for step, extent in zip(tensor.stride(), tensor.shape, strict=True))
    return phantom([sum(steps) + 1 if tensor.numel() else 0], np.dtype(f"u{min(tensor.element_size(), 8)}"))


def constants_of(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the compiler knows: their parameters are marked so."""
    parameters = inspect.signature(python_function(function)).parameters
    constants = {name for name, each in parameters.items() if "constexpr" in str(each.annotation)}
    return {name: value for name, value in arguments.items() if name in constants}


def launching_line() -> tuple[str, int]:
    """The innermost line that is neither Triton's nor noyau's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_FOLDERS):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def three(grid: Any) -> Three:
    """A grid of one to three extents, as three."""
    x, y, z = (*map(int, grid if isinstance(grid, tuple | list) else (grid,)), 1, 1)[:3]
    return x, y, z
