"""A kernel in C, C++ or CUDA C++, on an op or called on a user's arguments, run with every access watched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.c.spellings import TYPES
from noyau.codegen.language import LANGUAGES
from noyau.dtypes import DType, from_numpy
from noyau.errors import FindingKind, SignatureError
from noyau.kernels import user_kernel
from noyau.kernels.c.parameters import RANGE, Roles, TextFunction, prototype, roles_of
from noyau.kernels.c.syntax import Parameter, blank_comments, plain_name, syntax
from noyau.kernels.c.text import constant_macros
from noyau.kernels.call import FunctionKernel
from noyau.kernels.reference import bind_sizes
from noyau.kernels.user_kernel import Buffer, LaunchConfig, UserKernel, ask, config_of
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.c.build import OWN, UNSEEN, InstrumentedProgram, Source, build_program, header_folders, rewrite
from noyau.sanitizer.c.reports import ReportContext, findings_of_runs, maps_of, site_of
from noyau.sanitizer.c.run import BLOCKS, RANDOM, ROUND_ROBIN, ArrayArgument, RunResult, WorkSharing, part_watched, run
from noyau.sanitizer.lint.launches import LaunchFacts, of_cells
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase
from noyau.signatures.instances import shapes_of
from noyau.verify.findings import Finding

Array = np.ndarray
_TEAMS = (WorkSharing(4, BLOCKS), WorkSharing(2, ROUND_ROBIN), WorkSharing(3, ROUND_ROBIN), WorkSharing(7, RANDOM))
_THREADS = (WorkSharing(4, BLOCKS), WorkSharing(4, ROUND_ROBIN))
_ALONE = (WorkSharing(1, BLOCKS),)
_RESULT = "what it returns"  # not a name of a parameter


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Run a kernel on arrays and report its memory errors; `maps` receives the maps of the first run.

    A program with threads runs several times, each time with another distribution of its work. `outputs` are the
    results of the first run, if it came to its end. SignatureError if the call does not fit, UnsupportedError for what
    cannot be watched, BuildError if the text does not compile."""
    return watch_together([case], maps)[0]


def watch_together(cases: Sequence[KernelCase], maps: list[AccessMap] | None = None) -> list[WatchedRun]:
    """Watch cases, as `watch` does, whose kernels are all of one text, which is built once."""
    entries = [_CallBuilder(case, number).call() for number, case in enumerate(cases)]
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
    context = ReportContext(*names, kernel.place, kernel.padded, shapes, case.size)
    watched = _collect_findings(runs, program, context)
    if maps is not None:
        maps += maps_of(runs[0], program.lines, replace(context, kernel=kernel.title))
    ends = runs[0].arrays
    changed = [] if ends is None else _changed_inputs(call, ends, context)
    outputs = None if ends is None else tuple(ends[place] for place in call.outputs)
    wasted = _idle_threads(runs[0], call, context) if callable(kernel.usage.launch) else []
    return replace(watched, findings=(*watched.findings, *changed, *wasted), outputs=outputs)


def _collect_findings(runs: Sequence[RunResult], program: InstrumentedProgram, context: ReportContext) -> WatchedRun:
    """Return the findings of the runs of a call, with a note on their concurrency."""
    findings, allowed = findings_of_runs(runs, program.lines, context)
    note = runs[0].concurrency or (f"with other numbers of threads: {len(runs)} runs" if len(runs) > 1 else "")
    sites = (site_of(program.lines.at(address), context) for each in runs for address in each.accessed_at)
    seen = frozenset((site.file, site.line) for site in sites if site is not None)
    part, accesses = part_watched(runs[0].grids), sum(each.accesses for each in runs)
    notes = tuple(each for each in (note, f"watched: {part}" * bool(part)) if each)
    return WatchedRun(findings, accesses, allowed, notes, lines=seen, is_cut=bool(part))


def _source(case: KernelCase, entries: Sequence[EntryCall]) -> Source:
    """Return the text to build: the user's, on its own lines, and the calls below."""
    kernel = case.kernel
    macros, flags = constant_macros(kernel, case.constants), tuple(kernel.usage.options.get("flags", ()))
    folder = None if kernel.place == "a text" else Path(kernel.place).parent
    own = rewrite(kernel.padded, kernel.language, kernel.title, header_folders(folder, flags))
    return Source(macros + with_calls(own, entries, kernel.language), kernel.language, flags, folder)


def plans_of(kernel: UserKernel) -> tuple[WorkSharing, ...]:
    """Return the distributions of work that a kernel is run with."""
    if LANGUAGES[kernel.language].on_gpu:
        return _ALONE
    pieces = roles_of(prototype(kernel), kernel.usage, kernel.target, kernel.title).in_pieces
    return _TEAMS if pieces else plans_for(kernel.text)


def plans_for(text: str) -> tuple[WorkSharing, ...]:
    """Return the distributions for a text with threads of OpenMP, of its own, or without threads.

    The first is the text's usual one; the last differs from it most."""
    clean = blank_comments(text)
    if re.search(r"#\s*pragma\s+omp\b|\b_Pragma\b", clean):
        return _TEAMS
    is_threaded = re.search(r"\bpthread_create\b|\bstd\s*::\s*(?:j?thread|async)\b|\bthrd_create\b", clean)
    return _THREADS if is_threaded else _ALONE


def _changed_inputs(call: EntryCall, ends: Sequence[Array], context: ReportContext) -> list[Finding]:
    pairs = [(call.arguments[place], ends[place]) for place in call.inputs]
    held = [(each, end) for each, end in pairs if isinstance(each, ArrayArgument) and each.contents is not None]
    changed = [each for each, end in held if np.asarray(each.contents, each.dtype).tobytes() != end.tobytes()]
    return [context.finding(FindingKind.MUTATED_INPUT, f"changed its input {each.name}") for each in changed]


def _idle_threads(run: RunResult, call: EntryCall, context: ReportContext) -> list[Finding]:
    """Warn about a grid with a block for each cell, most of whose threads have nothing to do."""
    shape = max((each.shape for each in call.arguments if isinstance(each, ArrayArgument)), key=math.prod, default=())
    advice = of_cells(LaunchFacts(call.launch.grid, call.launch.block, shape, idle=run.idle))
    if advice is None or run.launches != 1:
        return []
    message, mend = advice
    return [replace(context.finding(FindingKind.LAUNCH, message), severity="warning", mend=mend)]


def call(function: TextFunction, args: Sequence[Any], launch: Any, size: str, name: str) -> tuple[WatchedRun, Any]:
    """Call it, as sanitizer/routes.py specifies: pointers take packed arrays of their type, other parameters numbers.

    SignatureError if they do not, or for a kernel without a launch; BuildError if the text does not compile."""
    entry_call = _call_of(function, args, launch)
    folder = function.path.resolve().parent
    text = with_calls(rewrite(function.text, function.language, name, [folder]), [entry_call], function.language)
    program = build_program(Source(text, function.language, (), folder, function.path.name))
    runs = [run(program, entry_call.arguments, plan, entry_call.launch) for plan in plans_for(function.text)]
    shapes = {each.name: each.shape for each in entry_call.arguments if isinstance(each, ArrayArgument)}
    names = name, function.name, function.entry, function.language
    context = ReportContext(*names, str(function.path), function.text, shapes, size)
    returned, arrays = None, (each for each in entry_call.arguments if isinstance(each, ArrayArgument))
    for each, end in zip(arrays, runs[0].arrays or (), strict=False):
        if each.name == _RESULT:
            returned = end
        elif each.contents is not None and each.contents.flags.writeable:
            each.contents[...] = end
    return _collect_findings(runs, program, context), None if returned is None else returned[()]


def _call_of(function: TextFunction, args: Sequence[Any], launch: Any) -> EntryCall:
    signature = function.prototype()
    names = ", ".join(each.name for each in signature.parameters)
    if len(args) != len(signature.parameters):
        raise SignatureError(f"{function.name} takes {names or 'nothing'}; it was given {len(args)} arguments")
    is_launched = is_grid(function)
    if is_launched and launch is None:
        call = f"noyau.check({function.path.name + '::' + function.entry!r}, args, launch=(grid, block))"
        raise SignatureError(f"{function.name} needs a launch: {call}")
    if launch is not None and not is_launched:
        raise SignatureError(f"{function.name} is called, not launched: it takes no launch=")
    arguments: list[ArrayArgument | int | float] = []
    pairs = zip(signature.parameters, args, strict=True)
    texts = [_argument(each, value, function, arguments) for each, value in pairs]
    statement = call_line(function.entry, texts, is_launched=is_launched)
    if signature.result:
        dtype = signature.result[0]
        arguments.append(ArrayArgument(_RESULT, (), dtype.numpy, np.zeros((), dtype.numpy)))
        kind = TYPES.get(dtype, "bool" if LANGUAGES[function.language].is_cpp else "_Bool")
        statement = keeping_result(statement, kind, len(arguments) - 1)
    configuration = config_of(launch, f"launch= of {function.name}") if is_launched else LaunchConfig()
    return EntryCall(entry_text(0, statement), tuple(arguments), configuration, (), ())


def _argument(each: Parameter, value: Any, function: TextFunction, arguments: list[ArrayArgument | int | float]) -> str:
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
    return pointer_text(_place(each.name, value, arguments, where), function.language)


def _number(each: Parameter, value: Any, where: str) -> int | float:
    """Return the number for a scalar parameter; an unsigned one as the signed number of its bits."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, bool | int | float):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no number")
    kinds = [dtype.numpy for dtype in each.dtypes[:1]]
    whole = next((np.iinfo(dtype) for dtype in kinds if dtype.kind in "iu"), None)
    if kinds and whole is None and kinds[0].kind != "b":
        return float(number)
    if isinstance(number, float) and whole is None:
        return number
    if isinstance(number, float) and not number.is_integer():
        raise SignatureError(f"{where}; it was given {number}, which is no integer")
    number = int(number)
    least, most = (whole.min, whole.max) if whole else (-(1 << 63), (1 << 63) - 1)
    if not least <= number <= most:
        raise SignatureError(f"{where}; it was given {number}, which is not within {least} to {most}")
    return number - (1 << 64) if number >= 1 << 63 else number


def _place(name: str, value: np.ndarray, arguments: list[ArrayArgument | int | float], where: str) -> int:
    """Return the position of an array among the arguments: an array that is passed twice is one memory."""
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


_ANY = f"struct noyau_any {{ void *at; template <class T> {UNSEEN} operator T *() const {{ return (T *)at; }} }};"


@dataclass(frozen=True, slots=True)
class EntryCall:
    """A call to be made: the text of a function `noyau_entry_NUMBER` that makes it, its arguments, and the launch.

    `outputs`: the positions of the results, in order; `inputs`: those of arrays that it may not change."""

    text: str
    arguments: tuple[ArrayArgument | int | float, ...]
    launch: LaunchConfig
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def with_calls(text: str, calls: Sequence[EntryCall], language: str) -> str:
    """Return a user's text on its own lines, and below it these calls, of which a run chooses one."""
    is_cpp = LANGUAGES[language].is_cpp
    start = 'extern "C" ' if is_cpp else ""
    cases = " ".join(f"case {number}: noyau_entry_{number}(a); break;" for number in range(len(calls)))
    last = f"{start}void {UNSEEN} noyau_entry(void **a) {{ switch (noyau_chosen()) {{ {cases} }} }}"
    own = f'#line 1 "{OWN}"\n{text.rstrip()}\n\n#line 1 "noyau_call"'
    head = [f"{start}int noyau_{name}(void);" for name in ("chosen", "own_number", "team_size")]
    head += [f"{start}void noyau_parallel(void (*run)(void *), void *data);", *([_ANY] if is_cpp else [])]
    return "\n".join([own, "#include <stdint.h>", *head, *(call.text for call in calls), last, ""])


def is_grid(kernel: UserKernel | TextFunction) -> bool:
    """Whether it is launched over a grid, as a `__global__` function is, rather than called."""
    if not LANGUAGES[kernel.language].on_gpu:
        return False
    functions, name = syntax(kernel.text, "cuda").functions, plain_name(kernel.entry)
    return any(each.name == name and "__global__" in each.marks for each in functions)


def call_line(entry: str, arguments: Sequence[str], *, is_launched: bool) -> str:
    """Return a statement that calls a function, or launches it over the given grid."""
    if not is_launched:
        return f"{entry}({', '.join(arguments)});"
    lambda_text = f"[](auto... p) {UNSEEN} {{ {entry}(p...); }}"
    grid = "noyau_grid(noyau_given_grid(), noyau_given_block(), (size_t)noyau_given_shared())"
    return f"{grid}.call({', '.join([lambda_text, *arguments])});"


def keeping_result(statement: str, kind: str, place: int) -> str:
    """Return a statement that calls a function, and keeps its result in an array."""
    return f"{{ {kind} value = {statement} __builtin_memcpy(a[{place}], &value, sizeof value); }}"


def pointer_text(place: int, language: str) -> str:
    """Return an array as an argument of a call."""
    return f"noyau_any{{a[{place}]}}" if LANGUAGES[language].is_cpp else f"a[{place}]"


def entry_text(number: int, statement: str) -> str:
    """Return the function of a call, which a run chooses by its number."""
    return f"static void {UNSEEN} noyau_entry_{number}(void **a) {{ (void)a; {statement} }}"


class _CallBuilder:
    """A builder of a call. `arguments`: inputs, outputs, then numbers; `passed`, `places`: the text and the position of
    each input and output, by name."""

    def __init__(self, case: KernelCase, number: int) -> None:
        kernel, instance, self.number = case.kernel, case.instance, number
        self.kernel, self.instance, self.constants = kernel, instance, case.constants
        self.arrays = [np.asarray(array) for array in case.arrays]
        self.function = FunctionKernel(kernel, instance, self.constants)
        sizes = bind_sizes(instance, self.arrays)
        self.sizes = {name: int(dim.evaluate(sizes)) for name, dim in instance.sizes}
        shapes = shapes_of(instance.outputs, sizes)
        self.results = [np.zeros(s, v.dtype.numpy) for s, v in zip(shapes, instance.outputs, strict=True)]
        self.prototype = prototype(kernel)
        self.arguments: list[ArrayArgument | int | float] = []
        self.passed: dict[str, str] = {}
        self.places: dict[str, int] = {}

    @property
    def offers(self) -> dict[str, Any]:
        """The values that `launch=` and `args=` may name."""
        device = user_kernel.GPU if is_grid(self.kernel) else user_kernel.CPU
        return {**self.function.offers(self.arrays, self.results), "device": device}

    def call(self) -> EntryCall:
        """Return the call. SignatureError if it does not fit, or for a grid without a launch."""
        before, usage = self.function.prepare(self.arrays, self.results), self.kernel.usage
        usage = replace(usage, launch=None) if LANGUAGES[self.kernel.language].on_gpu else usage
        roles = roles_of(self.prototype, usage, self.kernel.target, self.kernel.title)
        self.place_arrays(before)
        text = self.text([self.argument(each, roles) for each in self.argument_values(roles)], roles)
        count = len(self.instance.inputs)
        constant = [k for k, v in enumerate(self.instance.inputs) if v.name not in usage.updates and not v.scalar]
        outputs = [self.places[name] for name in usage.updates] or range(count, count + len(self.results))
        return EntryCall(text, tuple(self.arguments), self.launch(), tuple(constant), tuple(outputs))

    def place_arrays(self, before: Sequence[Array]) -> None:
        """Add the inputs and the outputs to the arguments."""
        named = self.function.init(before, self.results)
        ends = [(v, a, False) for v, a in zip(self.instance.inputs, before, strict=True)]
        if not self.kernel.usage.updates:
            ends += [(v, a, True) for v, a in zip(self.instance.outputs, self.results, strict=True)]
        for value, array, is_output in ends:
            place = self.places[value.name] = len(self.arguments)
            is_number, language = value.scalar and not is_output, self.kernel.language
            text = f"*(const {_type(value.dtype)} *)a[{place}]" if is_number else pointer_text(place, language)
            self.passed[value.name] = text
            contents = array if not is_output or value.name in named else None
            self.arguments.append(ArrayArgument(value.name, np.shape(array), array.dtype, contents, is_output))

    def argument_values(self, roles: Roles) -> list[Any]:
        """Return the value of each parameter: a name, or the value from args=."""
        if roles.names is not None:
            return list(roles.names)
        arguments = user_kernel.arguments_by_author(self.kernel, self.offers)
        left = iter(arguments)
        parameters, places = self.prototype.parameters, RANGE if roles.in_pieces else ()
        if len(arguments) != sum(each.name not in places for each in parameters):
            takes = f"{self.kernel.entry} takes {len(parameters)}"
            raise SignatureError(f"args= of {self.kernel.title} gives {len(arguments)} arguments, and {takes}")
        return [each.name if each.name in places else next(left) for each in parameters]

    def argument(self, each: Any, roles: Roles) -> str:
        """Return the text of an argument in the call."""
        if isinstance(each, Buffer):
            return self.passed[each.name]
        if isinstance(each, str) and (roles.names is not None or each in RANGE):
            if roles.in_pieces and each in RANGE:
                return each
            if each in self.passed:
                return self.passed[each]
            each = {**self.sizes, **self.kernel.numbers(self.constants)}[each]
        number = each.item() if isinstance(each, np.generic) else each
        if not isinstance(number, bool | int | float):
            reason = "is no number and no array that a kernel can be given"
            raise SignatureError(f"{self.kernel.title}: {number!r} {reason}")
        if isinstance(number, float):
            return user_kernel.number_text(number)
        self.arguments.append(int(number))
        return f"*(const long long *)a[{len(self.arguments) - 1}]"

    def text(self, texts: Sequence[str], roles: Roles) -> str:
        """Return the call, as C or C++."""
        head: list[str] = []
        line = call_line(self.kernel.entry, texts, is_launched=is_grid(self.kernel))
        if roles.returned is not None:
            output = next(v for v in self.instance.outputs if v.name == roles.returned)
            line = keeping_result(line, _type(output.dtype), self.places[output.name])
        if roles.in_pieces:
            self.arguments.append(self.extent())
            head, line = _pieces(self.number, line, len(self.arguments) - 1)
        return "\n".join([*head, entry_text(self.number, line)])

    def extent(self) -> int:
        """Return the extent of the range that `begin` and `end` divide."""
        launch = self.kernel.usage.launch
        if launch is None:
            return self.results[0].shape[0] if self.results and self.results[0].ndim else 1
        if isinstance(launch, str):
            return self.sizes[launch]
        return int(ask(launch, self.offers, f"launch= of {self.kernel.title}")) if callable(launch) else int(launch[0])

    def launch(self) -> LaunchConfig:
        if not is_grid(self.kernel):
            return LaunchConfig()
        launch, where = self.kernel.usage.launch, f"launch= of {self.kernel.title}"
        if launch is None:
            raise SignatureError(f"{self.kernel.title} runs over a grid; say with launch=(grid, block) over which one")
        config = ask(launch, self.offers, where) if callable(launch) else launch
        return config_of(config, where, self.kernel.usage.options.get("shared_bytes", 0))


def _pieces(number: int, line: str, place: int) -> tuple[list[str], str]:
    """Return a function that does one thread's piece of the work, and the call that runs it in a team."""
    each = f"*(const long long *)a[{place}] * (noyau_own_number() + {{}}) / noyau_team_size()"
    head = [f"static void {UNSEEN} noyau_piece_{number}(void *given) {{"]
    head += [f"    void **a = (void **)given; const long long begin = {each.format(0)}, end = {each.format(1)};"]
    return [*head, f"    if (begin < end) {line}", "}"], f"noyau_parallel(noyau_piece_{number}, a);"


def _type(dtype: DType) -> str:
    return "_Bool" if dtype is DType.BOOL else TYPES[dtype]
