"""Diagnostics of an op's kernels at the sizes that it is meant for; nothing is run there."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid
from noyau.errors import FindingKind, NoyauError
from noyau.jobs.check.attempts import Array, Attempt, Sizes
from noyau.jobs.check.candidates import ByHand, KernelCandidate, place_of
from noyau.kernels.c.text import constant_macros
from noyau.kernels.reference import bind_sizes
from noyau.kernels.user_kernel import EXTENTS_MOST, GPU, UserKernel, python_function
from noyau.sanitizer.lint import launches
from noyau.sanitizer.lint.arithmetic import Situation, diagnose_arithmetic, situation_or_none, text_of
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.false_sharing import diagnose_false_sharing
from noyau.sanitizer.lint.values import INT32_END
from noyau.sanitizer.scripts.lint import uncalled_methods
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance
from noyau.text import collect, sizes_text
from noyau.toolchain.cuda.compiler import cubin_of, resources_in, symbol_of
from noyau.verify.checks import KernelCheck
from noyau.verify.findings import Finding

Arrays = Sequence[Array]
ARCHITECTURE = f"sm_{GPU.capability[0]}{GPU.capability[1]}"
LARGE = 1 << 20  # cells that a launch is asked for where nobody says how large arrays are
COMMON = 1024  # cells along an axis, where another one grows


def with_lint(
    check: KernelCheck, candidate: KernelCandidate, first: Attempt | None, declared: Sizes, *, is_usual: bool
) -> KernelCheck:
    """Add diagnostics to the check of a kernel; `first`: usual inputs of it."""
    arrays = None if first is None else first.make(first.sizes)
    if not isinstance(candidate, ByHand) or first is None or arrays is None:
        return check
    remarks = lint_op(candidate.kernel, first.instance, arrays, declared, is_usual=is_usual)
    places = {(each.kind, each.place) for each in check.findings}
    others = (each for each in remarks if (each.kind, each.place) not in places)
    return replace(check, findings=(*check.findings, *others))


def lint_op(
    kernel: UserKernel, instance: Instance, arrays: Arrays, declared: Sizes, *, is_usual: bool
) -> list[Finding]:
    """Warnings on a kernel of an op: its launch and its arithmetic at `declared` sizes, which stand in for those of
    the arrays that are given (`is_usual`: as they stand those are meant too), and methods that it does not call."""
    sizes = bind_sizes(instance, arrays)
    names = {*sizes, *(value.name for value in instance.inputs if value.scalar)}
    meant_sizes = {**sizes, **{name: size for name, size in declared.items() if name in names}}
    fixed = not any(dim.names for value in instance.inputs for dim in value.shape)
    remarks = _at(kernel, instance, meant_sizes, arrays, is_meant=True) if is_usual or declared or fixed else []
    if not (declared or fixed):
        rank = max((len({name for dim in value.shape for name in dim.names}) for value in instance.inputs), default=1)
        grown = dict.fromkeys(sizes, 1 << (LARGE.bit_length() - 1) // max(rank, 1))  # the largest array has about LARGE
        remarks += _at(kernel, instance, grown, arrays, is_meant=False)
        remarks += offsets_beyond(kernel, instance, sizes, arrays)
    text = text_of(kernel) if kernel.function is not None else None
    methods = [] if text is None else uncalled_methods(ast.Module([*text.body], []), text.file)
    by_line = collect(((each.line, each.mend), each) for each in [*methods, *remarks, *diagnose_false_sharing(kernel)])
    diagnostics = [each for each, *_ in by_line.values() if not each.is_allowed]
    return [each.finding(kernel.target.op, kernel.name, kernel.language) for each in diagnostics]


def _at(kernel: UserKernel, instance: Instance, sizes: Sizes, arrays: Arrays, *, is_meant: bool) -> list[Diagnostic]:
    again = partial(situation_or_none, kernel, instance, inputs=arrays)
    if (situation := again(sizes)) is None:
        return []
    is_launched = LANGUAGES[kernel.language].on_gpu and kernel.usage.launch is not None
    diagnostics = _launch(situation, is_meant=is_meant) if is_launched else []
    return diagnostics + (diagnose_arithmetic(situation, again) if is_meant else [])


def _launch(situation: Situation, *, is_meant: bool) -> list[Diagnostic]:
    """Diagnostics of the launch; of the machine only at sizes that are meant."""
    kernel, grid, block = situation.kernel, situation.grid, situation.block
    if not math.prod(grid) or not 0 < math.prod(block) <= GPU.max_threads:
        return []
    arrays = [each for each in situation.arguments.values() if isinstance(each, np.ndarray)]
    shape = max((each.shape for each in arrays), key=lambda each: int(np.prod(each, dtype=object)), default=())
    held = _resources(kernel) if is_meant and kernel.function is None else (0, 0)
    is_of_programs, sm_count = LANGUAGES[kernel.language].grid is Grid.PROGRAMS, GPU.sm_count * is_meant
    launch = launches.LaunchFacts(grid, block, shape, _source(kernel), None, sm_count, is_of_programs, *held)
    place, size, advice = place_of(kernel), sizes_text(situation.sizes), launches.advise(launch)
    return [Diagnostic(FindingKind.LAUNCH, *place, f"{text}, for {size}", mend) for text, mend in advice]


def _resources(kernel: UserKernel) -> tuple[int, int]:
    """Registers and bytes of shared memory of a kernel in CUDA C++; 0 where neither NVRTC nor nvcc is there."""
    text, flags = constant_macros(kernel, {}) + kernel.text, tuple(kernel.usage.options.get("flags", ()))
    try:
        cubin = cubin_of(text, ARCHITECTURE, flags)
        return resources_in(cubin)[symbol_of(cubin, kernel.entry)]
    except NoyauError:  # it is told by who compiles it for a call
        return 0, 0


def _source(kernel: UserKernel) -> str:
    with suppress(OSError, TypeError):
        return kernel.text if kernel.function is None else inspect.getsource(python_function(kernel.function))
    return ""


def offsets_beyond(kernel: UserKernel, instance: Instance, sizes: Sizes, arrays: Arrays) -> list[Diagnostic]:
    """Offsets that overflow int32 once an array has more cells than it counts, though no extent has: each size in turn
    grows, the others are common ones; then all grow. What the launch does not take is no such size."""
    again = partial(situation_or_none, kernel, instance, inputs=arrays)
    for grows in (*({name} for name in sizes), set(sizes)):
        own = dict.fromkeys(sizes, COMMON)
        while max(own.values()) < INT32_END // 4:
            own |= {name: 2 * own[name] for name in grows}
            if _most_cells(instance, own) > INT32_END:
                break
        situation = again(own) if _most_cells(instance, own) > INT32_END else None
        takes = situation is not None and all(a <= b for a, b in zip(situation.grid, EXTENTS_MOST["grid"], strict=True))
        if situation is not None and takes and (overflows := diagnose_arithmetic(situation, again, sums=False)):
            return list({each.message: each for each in reversed(overflows)}.values())
    return []


def _most_cells(instance: Instance, sizes: Mapping[str, int]) -> int:
    """The cells of the largest array."""
    return max(math.prod(shape) for shape in shapes_of((*instance.inputs, *instance.outputs), sizes))
