"""The door: a kernel in C, C++ or CUDA C++, run on arrays with every access watched."""

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
from noyau.sanitizer.access_map import Map
from noyau.sanitizer.c.build import Program, Source, built
from noyau.sanitizer.c.calls import Call, call_of, with_calls
from noyau.sanitizer.c.findings import Told, findings, maps_of
from noyau.sanitizer.c.rewrite import rewritten
from noyau.sanitizer.c.run import BLOCKS, DRAWN, TURNS, Given, Plan, Ran, run
from noyau.sanitizer.lint.launches import Launch, of_cells
from noyau.sanitizer.records import Watched
from noyau.sanitizer.routes import Case
from noyau.verify.findings import Finding

Array = np.ndarray
_TEAMS = (Plan(4, BLOCKS), Plan(2, TURNS), Plan(3, TURNS), Plan(7, DRAWN))
_THREADS = (Plan(4, BLOCKS), Plan(4, TURNS))
_ALONE = (Plan(1, BLOCKS),)


def watch(case: Case, maps: list[Map] | None = None) -> Watched:
    """Run a kernel on arrays and tell what it does wrong with memory. Maps of the first run are put into `maps`.

    A program with threads runs several times, its work dealt otherwise each time. `outputs` are the results of the
    first run, where it came to its end. SignatureError where the call does not fit, UnsupportedError for what cannot be
    watched, BuildError where the text does not compile."""
    return watch_together([case], maps)[0]


def watch_together(cases: Sequence[Case], maps: list[Map] | None = None) -> list[Watched]:
    """As `watch`, for cases of which all kernels are of one text, which is built once."""
    calls = [
        call_of(each.kernel, each.instance, each.arrays, each.constants, number) for number, each in enumerate(cases)
    ]
    program = built(_source(cases[0], calls))
    return [
        _run(case, call, program, number, maps) for number, (case, call) in enumerate(zip(cases, calls, strict=True))
    ]


def _run(case: Case, call: Call, program: Program, number: int, maps: list[Map] | None) -> Watched:
    kernel = case.kernel
    is_drawn = maps is not None
    runs = [run(program, call.given, plan, call.launch, number, maps=is_drawn) for plan in plans_of(kernel)]
    shapes = {each.name: each.shape for each in call.given if not isinstance(each, int | float)}
    told = Told(
        kernel.target.op, kernel.name, kernel.entry, kernel.language, kernel.place, kernel.text, shapes, case.size
    )
    found, allowed = findings(runs, program.lines, told)
    if maps is not None:
        maps += maps_of(runs[0], program.lines, replace(told, kernel=kernel.called))
    ends = runs[0].arrays
    changed = [] if ends is None else _changed(call, ends, told)
    outputs = None if ends is None else tuple(ends[place] for place in call.outputs)
    wasted = _wasted(runs[0], call, told) if callable(kernel.usage.launch) else []
    return Watched(
        (*found, *changed, *wasted), sum(each.accesses for each in runs), allowed, launches_noted(runs), outputs
    )


def _source(case: Case, calls: Sequence[Call]) -> Source:
    """The text that is built: the user's, on its own lines, and the calls below."""
    kernel = case.kernel
    named = {each.name for each in prototype(kernel).parameters}
    numbers = kernel.numbers(case.constants)
    macros = "".join(
        f"#define {name} {number_text(numbers[name])}\n" for name in kernel.usage.constants if name not in named
    )
    text = with_calls(rewritten(kernel.text, kernel.language, kernel.called), calls, kernel.language)
    folder = None if kernel.place == "a text" else Path(kernel.place).parent
    return Source(macros + text, kernel.language, tuple(kernel.usage.options.get("flags", ())), folder)


def plans_of(kernel: UserKernel) -> tuple[Plan, ...]:
    """How a kernel is run: as its text has threads of OpenMP, of its own, or none."""
    if LANGUAGES[kernel.language].on_gpu:
        return _ALONE
    pieces = roles_of(prototype(kernel), kernel.usage, kernel.target, kernel.called).in_pieces
    return _TEAMS if pieces else plans_for(kernel.text)


def plans_for(text: str) -> tuple[Plan, ...]:
    """How a text is run: the first is how it would run by itself, the last one most unlike it."""
    clean = blanked(text)
    if re.search(r"#\s*pragma\s+omp\b|\b_Pragma\b", clean):
        return _TEAMS
    is_threaded = re.search(r"\bpthread_create\b|\bstd\s*::\s*(?:j?thread|async)\b|\bthrd_create\b", clean)
    return _THREADS if is_threaded else _ALONE


def _changed(call: Call, ends: Sequence[Array], told: Told) -> list[Finding]:
    """Inputs that do not hold what they held."""
    found = []
    for place in call.inputs:
        given = call.given[place]
        if isinstance(given, int | float) or given.holds is None:
            continue
        before = np.ascontiguousarray(given.holds, given.dtype)
        if before.tobytes() != ends[place].tobytes():
            message = f"changed its input {given.name}"
            found.append(
                Finding(
                    told.op, told.kernel, told.language, FindingKind.MUTATED_INPUT, told.entry_place, told.size, message
                )
            )
    return found


def _wasted(run: Ran, call: Call, told: Told) -> list[Finding]:
    """A warning where a grid has a block for each cell, and most of its threads have nothing to do."""
    shape = max((each.shape for each in call.given if isinstance(each, Given)), key=math.prod, default=())
    said = of_cells(Launch(call.launch.grid, call.launch.block, shape, idle=run.idle))
    if said is None or run.launches != 1:
        return []
    message, mend = said
    warning = Finding(told.op, told.kernel, told.language, FindingKind.LAUNCH, told.entry_place, told.size, message)
    return [replace(warning, severity="warning", mend=mend)]


def launches_noted(runs: Sequence[Ran]) -> tuple[str, ...]:
    """How much ran side by side, in words."""
    if runs[0].turns:
        return (runs[0].turns,)
    return (f"with other numbers of threads: {len(runs)} runs",) if len(runs) > 1 else ()
