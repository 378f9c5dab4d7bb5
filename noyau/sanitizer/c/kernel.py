"""A kernel in C, C++ or CUDA C++, on an op or called on one's own arguments, run with every access observed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.c.spellings import TYPES
from noyau.codegen.language import LANGUAGES
from noyau.dtypes import from_numpy
from noyau.errors import FindingKind, SignatureError
from noyau.kernels.c.parameters import TextFunction, prototype, roles_of
from noyau.kernels.c.syntax import Parameter, blanked
from noyau.kernels.user_kernel import UserKernel, number_text
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.c import calls
from noyau.sanitizer.c.build import InstrumentedProgram, Source, build_program, rewrite
from noyau.sanitizer.c.calls import EntryCall
from noyau.sanitizer.c.reports import ReportContext, findings_of_runs, maps_of, site_of
from noyau.sanitizer.c.run import BLOCKS, RANDOM, ROUND_ROBIN, ArrayArgument, LaunchConfig, RunResult, WorkSharing, run
from noyau.sanitizer.lint.launches import LaunchFacts, of_cells
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.verify.findings import Finding

Array = np.ndarray
_TEAMS = (WorkSharing(4, BLOCKS), WorkSharing(2, ROUND_ROBIN), WorkSharing(3, ROUND_ROBIN), WorkSharing(7, RANDOM))
_THREADS = (WorkSharing(4, BLOCKS), WorkSharing(4, ROUND_ROBIN))
_ALONE = (WorkSharing(1, BLOCKS),)
_RESULT = "what it returns"  # as no parameter is called


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Run a kernel on arrays and tell what it does wrong with memory. Maps of the first run are put into `maps`.

    A program with threads runs several times, its work dealt otherwise each time. `outputs` are the results of the
    first run, where it came to its end. SignatureError where the call does not fit, UnsupportedError for what cannot be
    watched, BuildError where the text does not compile."""
    return watch_together([case], maps)[0]


def watch_together(cases: Sequence[KernelCase], maps: list[AccessMap] | None = None) -> list[WatchedRun]:
    """As `watch`, for cases of which all kernels are of one text, which is built once."""
    entries = [calls.call_of(c.kernel, c.instance, c.arrays, c.constants, number) for number, c in enumerate(cases)]
    program = build_program(_source(cases[0], entries))
    pairs = enumerate(zip(cases, entries, strict=True))
    return [_run(case, entry, program, number, maps) for number, (case, entry) in pairs]


def _run(
    case: KernelCase, call: EntryCall, program: InstrumentedProgram, number: int, maps: list[AccessMap] | None
) -> WatchedRun:
    kernel = case.kernel
    is_drawn = maps is not None
    runs = [run(program, call.arguments, plan, call.launch, number, maps=is_drawn) for plan in plans_of(kernel)]
    shapes = {each.name: each.shape for each in call.arguments if not isinstance(each, int | float)}
    names = kernel.target.op, kernel.name, kernel.entry, kernel.language
    context = ReportContext(*names, kernel.place, kernel.text, shapes, case.size)
    watched = _watched(runs, program, context)
    if maps is not None:
        maps += maps_of(runs[0], program.lines, replace(context, kernel=kernel.called))
    ends = runs[0].arrays
    changed = [] if ends is None else _changed_inputs(call, ends, context)
    outputs = None if ends is None else tuple(ends[place] for place in call.outputs)
    wasted = _idle_threads(runs[0], call, context) if callable(kernel.usage.launch) else []
    return replace(watched, findings=(*watched.findings, *changed, *wasted), outputs=outputs)


def _watched(runs: Sequence[RunResult], program: InstrumentedProgram, context: ReportContext) -> WatchedRun:
    """The findings of the runs of a call, with a note on their concurrency."""
    findings, allowed = findings_of_runs(runs, program.lines, context)
    note = runs[0].concurrency or (f"with other numbers of threads: {len(runs)} runs" if len(runs) > 1 else "")
    sites = (site_of(program.lines.at(address), context) for each in runs for address in each.accessed_at)
    seen = frozenset((site.file, site.line) for site in sites if site is not None)
    return WatchedRun(findings, sum(each.accesses for each in runs), allowed, (note,) if note else (), lines=seen)


def _source(case: KernelCase, entries: Sequence[EntryCall]) -> Source:
    """The text that is built: the user's, on its own lines, and the calls below."""
    kernel = case.kernel
    parameters, numbers = {each.name for each in prototype(kernel).parameters}, kernel.numbers(case.constants)
    constants = [name for name in kernel.usage.constants if name not in parameters]
    macros = "".join(f"#define {name} {number_text(numbers[name])}\n" for name in constants)
    text = calls.with_calls(rewrite(kernel.text, kernel.language, kernel.called), entries, kernel.language)
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
            changes.append(context.finding(FindingKind.MUTATED_INPUT, f"changed its input {argument.name}"))
    return changes


def _idle_threads(run: RunResult, call: EntryCall, context: ReportContext) -> list[Finding]:
    """A warning where a grid has a block for each cell, and most of its threads have nothing to do."""
    shape = max((each.shape for each in call.arguments if isinstance(each, ArrayArgument)), key=math.prod, default=())
    advice = of_cells(LaunchFacts(call.launch.grid, call.launch.block, shape, idle=run.idle))
    if advice is None or run.launches != 1:
        return []
    message, mend = advice
    return [replace(context.finding(FindingKind.LAUNCH, message), severity="warning", mend=mend)]


def call(function: TextFunction, args: Sequence[Any], launch: Any, size: str, name: str) -> tuple[WatchedRun, Any]:
    """Call it as sanitizer/routes.py has it: pointers take packed arrays of their type, other parameters numbers.

    SignatureError where they do not, or for a kernel of a grid without a launch; BuildError where the text does not
    compile."""
    entry_call = _call_of(function, args, launch)
    text = calls.with_calls(rewrite(function.text, function.language, name), [entry_call], function.language)
    program = build_program(Source(text, function.language, (), function.path.resolve().parent, function.path.name))
    runs = [run(program, entry_call.arguments, plan, entry_call.launch) for plan in plans_for(function.text)]
    shapes = {each.name: each.shape for each in entry_call.arguments if isinstance(each, ArrayArgument)}
    names = name, function.name, function.entry, function.language
    context = ReportContext(*names, str(function.path), function.text, shapes, size)
    returned = None
    if runs[0].arrays is not None:
        arrays = (each for each in entry_call.arguments if isinstance(each, ArrayArgument))
        for each, end in zip(arrays, runs[0].arrays, strict=True):
            if each.name == _RESULT:
                returned = end
            elif each.contents is not None and each.contents.flags.writeable:
                each.contents[...] = end
    return _watched(runs, program, context), None if returned is None else returned[()]


def _call_of(function: TextFunction, args: Sequence[Any], launch: Any) -> EntryCall:
    signature = function.prototype()
    names = ", ".join(each.name for each in signature.parameters)
    if len(args) != len(signature.parameters):
        raise SignatureError(f"{function.name} takes {names or 'nothing'}; it was given {len(args)} arguments")
    is_launched = LANGUAGES[function.language].on_gpu and calls.is_global(function.text, function.entry)
    if is_launched and launch is None:
        call = f"noyau.check({function.path.name + '::' + function.entry!r}, args, launch=(grid, block))"
        raise SignatureError(f"{function.name} needs a launch: {call}")
    if launch is not None and not is_launched:
        raise SignatureError(f"{function.name} is called, not launched: it takes no launch=")
    arguments: list[ArrayArgument | int | float] = []
    pairs = zip(signature.parameters, args, strict=True)
    texts = [_argument(each, value, function, arguments) for each, value in pairs]
    statement = calls.call_line(function.entry, texts, is_launched=is_launched)
    if signature.result:
        dtype = signature.result[0]
        arguments.append(ArrayArgument(_RESULT, (), dtype.numpy, np.zeros((), dtype.numpy)))
        kind = TYPES.get(dtype, "bool" if LANGUAGES[function.language].is_cpp else "_Bool")
        statement = calls.keeping_result(statement, kind, len(arguments) - 1)
    configuration = calls.launch_of(launch, f"launch= of {function.name}") if is_launched else LaunchConfig()
    return EntryCall(calls.entry_text(0, statement), tuple(arguments), configuration, (), ())


def _argument(each: Parameter, value: Any, function: TextFunction, arguments: list[ArrayArgument | int | float]) -> str:
    """The text of an argument in the call."""
    where = f"{function.name} takes {each}"
    if not each.is_pointer:
        number = _number(each, value, where)
        arguments.append(number)
        return f"*(const {'double' if isinstance(number, float) else 'long long'} *)a[{len(arguments) - 1}]"
    if not isinstance(value, np.ndarray):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no array of NumPy")
    if each.is_known and from_numpy(value.dtype) not in each.dtypes:
        raise SignatureError(f"{where}; it was given an array of {value.dtype}")
    if not value.flags.c_contiguous:
        raise SignatureError(f"{where}, which is packed; give numpy.ascontiguousarray({each.name})")
    return calls.pointer_text(_place(each.name, value, arguments, where), function.language)


def _number(each: Parameter, value: Any, where: str) -> int | float:
    """The number for a parameter that is no pointer; an unsigned one as the signed one of its bits."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, bool | int | float):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no number")
    kinds = [dtype.numpy for dtype in each.dtypes[:1]]
    whole = next((np.iinfo(dtype) for dtype in kinds if dtype.kind in "iu"), None)
    if kinds and whole is None and kinds[0].kind != "b":
        return float(number)
    if isinstance(number, float) and (whole is None or not number.is_integer()):
        if whole is None:
            return number
        raise SignatureError(f"{where}; it was given {number}, which is no integer")
    number = int(number)
    least, most = (whole.min, whole.max) if whole else (-(1 << 63), (1 << 63) - 1)
    if not least <= number <= most:
        raise SignatureError(f"{where}; it was given {number}, which is not within {least} to {most}")
    return number - (1 << 64) if number >= 1 << 63 else number


def _place(name: str, value: np.ndarray, arguments: list[ArrayArgument | int | float], where: str) -> int:
    """The position of an array among the arguments: an array that is passed twice is one memory."""
    for place, other in enumerate(arguments):
        if not isinstance(other, ArrayArgument) or other.contents is None:
            continue
        if not np.may_share_memory(other.contents, value):
            continue
        if (other.contents.ctypes.data, other.bytes) != (value.ctypes.data, value.nbytes):
            overlap = f"which shares a part of its memory with {other.name}"
            raise SignatureError(f"{where}, {overlap}; give both the same array, or arrays of their own")
        return place
    arguments.append(ArrayArgument(name, value.shape, value.dtype, value))
    return len(arguments) - 1
