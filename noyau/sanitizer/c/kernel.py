"""A kernel in C, C++ or CUDA C++, run on arrays with every access observed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import FindingKind
from noyau.kernels.c.functions import prototype
from noyau.kernels.c.parameters import roles_of
from noyau.kernels.c.syntax import blanked
from noyau.kernels.user_kernel import UserKernel, number_text
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.c.build import InstrumentedProgram, Source, build_program
from noyau.sanitizer.c.calls import EntryCall, call_of, with_calls
from noyau.sanitizer.c.findings import ReportContext, findings_of_runs, maps_of
from noyau.sanitizer.c.rewrite import rewrite
from noyau.sanitizer.c.run import BLOCKS, RANDOM, ROUND_ROBIN, ArrayArgument, RunResult, WorkSharing, run
from noyau.sanitizer.lint.launches import LaunchFacts, of_cells
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.verify.findings import Finding

Array = np.ndarray
_TEAMS = (WorkSharing(4, BLOCKS), WorkSharing(2, ROUND_ROBIN), WorkSharing(3, ROUND_ROBIN), WorkSharing(7, RANDOM))
_THREADS = (WorkSharing(4, BLOCKS), WorkSharing(4, ROUND_ROBIN))
_ALONE = (WorkSharing(1, BLOCKS),)


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Run a kernel on arrays and tell what it does wrong with memory. Maps of the first run are put into `maps`.

    A program with threads runs several times, its work dealt otherwise each time. `outputs` are the results of the
    first run, where it came to its end. SignatureError where the call does not fit, UnsupportedError for what cannot be
    watched, BuildError where the text does not compile."""
    return watch_together([case], maps)[0]


def watch_together(cases: Sequence[KernelCase], maps: list[AccessMap] | None = None) -> list[WatchedRun]:
    """As `watch`, for cases of which all kernels are of one text, which is built once."""
    calls = [
        call_of(each.kernel, each.instance, each.arrays, each.constants, number) for number, each in enumerate(cases)
    ]
    program = build_program(_source(cases[0], calls))
    return [
        _run(case, call, program, number, maps) for number, (case, call) in enumerate(zip(cases, calls, strict=True))
    ]


def _run(
    case: KernelCase, call: EntryCall, program: InstrumentedProgram, number: int, maps: list[AccessMap] | None
) -> WatchedRun:
    kernel = case.kernel
    is_drawn = maps is not None
    runs = [run(program, call.arguments, plan, call.launch, number, maps=is_drawn) for plan in plans_of(kernel)]
    shapes = {each.name: each.shape for each in call.arguments if not isinstance(each, int | float)}
    context = ReportContext(
        kernel.target.op, kernel.name, kernel.entry, kernel.language, kernel.place, kernel.text, shapes, case.size
    )
    findings, allowed = findings_of_runs(runs, program.lines, context)
    if maps is not None:
        maps += maps_of(runs[0], program.lines, replace(context, kernel=kernel.called))
    ends = runs[0].arrays
    changed = [] if ends is None else _changed_inputs(call, ends, context)
    outputs = None if ends is None else tuple(ends[place] for place in call.outputs)
    wasted = _idle_threads(runs[0], call, context) if callable(kernel.usage.launch) else []
    return WatchedRun(
        (*findings, *changed, *wasted), sum(each.accesses for each in runs), allowed, concurrency_notes(runs), outputs
    )


def _source(case: KernelCase, calls: Sequence[EntryCall]) -> Source:
    """The text that is built: the user's, on its own lines, and the calls below."""
    kernel = case.kernel
    named = {each.name for each in prototype(kernel).parameters}
    numbers = kernel.numbers(case.constants)
    macros = "".join(
        f"#define {name} {number_text(numbers[name])}\n" for name in kernel.usage.constants if name not in named
    )
    text = with_calls(rewrite(kernel.text, kernel.language, kernel.called), calls, kernel.language)
    folder = None if kernel.place == "a text" else Path(kernel.place).parent
    return Source(macros + text, kernel.language, tuple(kernel.usage.options.get("flags", ())), folder)


def plans_of(kernel: UserKernel) -> tuple[WorkSharing, ...]:
    """The distributions of work that a kernel is run with."""
    if LANGUAGES[kernel.language].on_gpu:
        return _ALONE
    pieces = roles_of(prototype(kernel), kernel.usage, kernel.target, kernel.called).in_pieces
    return _TEAMS if pieces else plans_for(kernel.text)


def plans_for(text: str) -> tuple[WorkSharing, ...]:
    """The distributions for a text with threads of OpenMP, of its own, or none.

    The first is the one that it would run with by itself, the last one differs from it most."""
    clean = blanked(text)
    if re.search(r"#\s*pragma\s+omp\b|\b_Pragma\b", clean):
        return _TEAMS
    is_threaded = re.search(r"\bpthread_create\b|\bstd\s*::\s*(?:j?thread|async)\b|\bthrd_create\b", clean)
    return _THREADS if is_threaded else _ALONE


def _changed_inputs(call: EntryCall, ends: Sequence[Array], context: ReportContext) -> list[Finding]:
    """Inputs that do not hold what they held."""
    changes = []
    for place in call.inputs:
        argument = call.arguments[place]
        if isinstance(argument, int | float) or argument.contents is None:
            continue
        before = np.ascontiguousarray(argument.contents, argument.dtype)
        if before.tobytes() != ends[place].tobytes():
            message = f"changed its input {argument.name}"
            changes.append(
                Finding(
                    context.op,
                    context.kernel,
                    context.language,
                    FindingKind.MUTATED_INPUT,
                    context.entry_place,
                    context.size,
                    message,
                )
            )
    return changes


def _idle_threads(run: RunResult, call: EntryCall, context: ReportContext) -> list[Finding]:
    """A warning where a grid has a block for each cell, and most of its threads have nothing to do."""
    shape = max((each.shape for each in call.arguments if isinstance(each, ArrayArgument)), key=math.prod, default=())
    advice = of_cells(LaunchFacts(call.launch.grid, call.launch.block, shape, idle=run.idle))
    if advice is None or run.launches != 1:
        return []
    message, mend = advice
    warning = Finding(
        context.op, context.kernel, context.language, FindingKind.LAUNCH, context.entry_place, context.size, message
    )
    return [replace(warning, severity="warning", mend=mend)]


def concurrency_notes(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """Notes on the concurrency of the runs."""
    if runs[0].concurrency:
        return (runs[0].concurrency,)
    return (f"with other numbers of threads: {len(runs)} runs",) if len(runs) > 1 else ()
