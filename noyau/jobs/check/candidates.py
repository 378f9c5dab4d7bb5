"""Kernels under check, and how each is run: user kernels in a worker process if possible, generated kernels in this
process, in every memory layout of the inputs."""

import importlib.util
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, cached_property, partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from noyau.codegen.language import LANGUAGES, languages_for
from noyau.errors import BuildError, NoyauError, UnansweredError, UnsupportedError
from noyau.jobs.check.attempts import Attempt, Sizes, volume, work_of
from noyau.jobs.check.isolated_kernels import KernelProcesses
from noyau.jobs.check.sanitized_runs import SanitizedRuns, Watch
from noyau.kernels.c.parameters import roles_of
from noyau.kernels.call import CALLERS, SYMBOL, KernelCaller, caller_of, is_launched_here
from noyau.kernels.programs import generate as programs
from noyau.kernels.reference import Reference, bind_sizes
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.trust import note, remember, revoke
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.sanitizer.lint.constants import constants_of
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase, is_watched, missing_extra, watch
from noyau.signatures.instances import Bound, bind
from noyau.signatures.types import Instance
from noyau.text import count_text, sizes_text
from noyau.toolchain.guard_zones import LAYOUTS, End, Guards, How
from noyau.verify.certificate import Certificate
from noyau.verify.trial import last_first
from noyau.workers.nvml import has_driver
from noyau.workers.signals import TimeIsUp, time_limit

Array = np.ndarray
_END = re.compile(r"\b(its )?(input|output) (\d+)")
_CORES = os.cpu_count() or 1
MANY = max(4, _CORES)  # threads; more than the cores of a small machine, so that they take turns
NO_GPU = "there is no CUDA device with triton; TRITON_INTERPRET=1 in the environment has it interpreted"


class ByHand:
    """A user kernel. `called` is its name in messages; `threads`: the numbers of threads that it can run with, none if
    that cannot be chosen; `layouts` that it takes beside packed arrays; `in_pieces`: it can be called for pieces of its
    work; `skipped`: why it cannot be tried here, or an empty text."""

    is_trusted = True  # once checked, it runs on all arrays of the checked ranks
    reason = ""

    def __init__(self, kernel: UserKernel, reference: Reference, apart: KernelProcesses) -> None:
        self.kernel, self.reference, self.apart = kernel, reference, apart
        self.name, self.language, self.called = kernel.name, kernel.language, kernel.title
        self.seen, self.cut = SanitizedRuns(), ""  # from replayed runs, all of which are watched
        note(kernel, reference)

    @property
    def caller(self) -> KernelCaller | None:
        caller = CALLERS.get(self.language)
        return caller if caller is not None and caller.runs_here() else None

    @property
    def place(self) -> str:
        """Its file and line; of a text in C the line of its function."""
        file, line = place_of(self.kernel)
        return self.kernel.place if self.kernel.function or file == "a text" else f"{file}:{line}"

    @property
    def threads(self) -> tuple[int, ...]:
        return (1, 2, MANY) if self.in_pieces or is_parallel(self.kernel) else ()

    @cached_property
    def in_pieces(self) -> bool:
        kernel = self.kernel
        if kernel.prototype is None or not LANGUAGES[kernel.language].is_native:
            return False
        return roles_of(kernel.prototype, kernel.usage, kernel.target, kernel.title).in_pieces

    @property
    def layouts(self) -> tuple[str, ...]:
        return () if self.caller is None else self.caller.layouts(self.kernel)

    @property
    def skipped(self) -> str:
        if caller_of(self.kernel) is not None:
            return ""
        if lacks := missing_extra(self.language):
            return lacks
        if self.caller is not None or is_watched(self.language):
            return ""
        return f"it is in {self.language}, which needs a GPU that noyau cannot use here yet"

    @property
    def is_replayed(self) -> bool:
        """Whether it runs here only with every access watched."""
        return self.caller is None

    def open(self, instance: Instance) -> None:
        """Build it. BuildError if that fails, SignatureError if it does not accept the instance."""
        if self.caller is not None:
            self.caller.prepare(self.kernel, instance, self.reference.constants)
            if self.caller.launch is not None:
                self.apart.choose_for_grids()  # its UnsupportedError leaves the kernel untried, not wrong

    def takes(self, instance: Instance, arrays: Sequence[Array], *, runs: bool = True) -> bool:
        """Whether there is a kernel for these arrays, to run or else to be watched; if not, `reason` says why."""
        return True

    def run(self, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        """The results of one run between guard zones. CheckError if the run fails."""
        try:
            if self.is_replayed:
                return self.replay(instance, arrays)
            return self.apart.run(self.kernel, instance, arrays, how)
        except NoyauError as error:
            raise error.reword(self.reword(_END.sub(lambda match: _name_input(match, instance), str(error)))) from None

    def replay(self, instance: Instance, arrays: Sequence[Array]) -> list[Array]:
        """The results of a run with every access watched, recorded in `seen`. UnsupportedError if it is cut off."""
        sizes = bind_sizes(instance, arrays)
        size = sizes_text(sizes)
        # A text runs in a process with a time limit; a kernel in Python runs in this one and may never return.
        limit = nullcontext() if LANGUAGES[self.language].is_text else time_limit(self.apart.patience_s)
        try:
            with limit:
                watched = watch(KernelCase(self.kernel, instance, arrays, self.reference.constants, size))
        except TimeIsUp:
            waited = f"within {self.apart.patience_s:g} s"
            raise UnansweredError(f"{self.name} did not answer {waited} and was ended") from None
        self.seen.add(watched, size, volume(sizes))
        if watched.is_cut and watched.outputs is None:
            self.cut = f"it made {count_text(watched.accesses)} accesses at {size}, and was ended"
            raise UnsupportedError(self.cut)
        return list(watched.outputs or ())

    def work(self, instance: Instance, sizes: Sizes) -> int:
        """The work of a run at sizes."""
        return work_of(self.kernel, instance, sizes)

    @property
    def points(self) -> Mapping[int, str]:
        """Numbers at which it may begin to behave differently, and their names."""
        return constants_of(self.kernel)

    def watch_run(self) -> Watch | str | None:
        """A run with every access watched, or why there is none; None if watching is not wanted."""
        kernel, constants = self.kernel, self.reference.constants
        if not is_watched(self.language):
            return f"kernels in {self.language} are not watched"
        return lambda attempt, arrays, size: watch(KernelCase(kernel, attempt.instance, arrays, constants, size))

    def reword(self, message: str) -> str:
        """A message without the internal names of the run."""
        names = "|".join(map(re.escape, (self.apart.op.name, self.called, SYMBOL, self.name)))
        return re.sub(rf"^(?:(?:{names}):? )+", "", message)

    def record_pass(self, instances: Sequence[Instance], certificate: Certificate) -> None:
        remember(self.kernel, self.reference, instances, certificate.to_json())

    def record_failure(self, fault: str) -> None:
        revoke(self.kernel, self.reference, fault)

    def notes(self) -> list[str]:
        way = self.apart.grids if is_launched_here(self.kernel) else self.apart.way
        alone = [way.note] if not LANGUAGES[self.language].is_native and way is not None and way.note else []
        packed = ["on packed arrays"] if not self.layouts else []
        configs = len(configs_of(self.kernel.function))
        packed += [f"with each of {configs} configurations in turn"] if configs else []
        threads = [f"with {', '.join(map(str, self.threads))} threads"] if self.threads else []
        build = "as a GPU would, on this machine" if LANGUAGES[self.language].on_gpu else "in its watched build alone"
        return [*alone, *packed, *threads, *([f"run {build}"] if self.is_replayed else [])]


def _name_input(match: re.Match[str], instance: Instance) -> str:
    """`input 0` by its name; `its input x` keeps the word."""
    ends = instance.outputs if match[2] == "output" else instance.inputs
    return f"{'its input ' if match[1] else ''}{ends[int(match[3])].name}"


def place_of(kernel: UserKernel) -> tuple[str, int]:
    """The file and the line of a kernel; of a text the line of its function."""
    file, _, line = kernel.place.rpartition(":")
    if line.isdigit():
        return file, int(line)
    match = re.search(rf"\b{re.escape(kernel.entry.partition('<')[0])}\s*\(", kernel.text)
    return kernel.place, kernel.line + (kernel.text.count("\n", 0, match.start()) if match else 0)


def is_parallel(kernel: UserKernel) -> bool:
    """Whether its number of threads can be chosen: OpenMP in C, or parallel=True of Numba."""
    language = LANGUAGES[kernel.language]
    if language.is_native:
        return any("openmp" in flag for flag in kernel.usage.options.get("flags", ()))
    options: Mapping[str, Any] = getattr(kernel.function, "targetoptions", {})
    return bool(language.thread_pool and options.get("parallel"))


class FromReference:
    """The generated kernels of an op in a language. They run in this process: noyau trusts its own code."""

    threads: tuple[int, ...] = (1, 2, MANY)
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    in_pieces = True
    is_trusted = False
    points: Mapping[int, str] = MappingProxyType({})
    cut = ""

    def __init__(self, op: Op[..., Any], language: str) -> None:
        # Without a GPU it runs only with every access watched.
        self.is_replayed = LANGUAGES[language].on_gpu and bool(WATCHES.get(language)) and not has_driver()
        self.seen = SanitizedRuns()
        self.op, self.language, self.name = op, language, language
        self.called, self.place = f"{op.name}[{language}]", op.description.place
        self.constants: Mapping[str, Any] = op.description.reference.constants
        self.built: dict[tuple[programs.Key, bool], list[programs.BuiltProgram | str]] = {}
        self.texts: dict[programs.Key, list[programs.GeneratedProgram]] = {}
        self.reason = ""  # why the last inputs were refused

    @property
    def skipped(self) -> str:
        language = LANGUAGES[self.language]
        try:
            language.require_compiler()
        except BuildError as error:
            return str(error)
        if language.on_gpu and not self.is_replayed:
            return "" if RUNS[self.language]() else NO_GPU
        return next((f"{name} is not installed" for name in language.packages if not _is_there(name)), "")

    def open(self, instance: Instance) -> None:
        """Accept any instance: sizes decide whether there is a kernel."""

    def work(self, instance: Instance, sizes: Sizes) -> int:
        """The work of a run, as of user kernels."""
        return volume(sizes)

    def takes(self, instance: Instance, arrays: Sequence[Array], *, runs: bool = True) -> bool:
        program = self.program(self.bound(arrays), runs=runs)
        self.reason = program if isinstance(program, str) else self.reason
        return isinstance(program, programs.BuiltProgram)

    def run(self, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        bound = self.bound(arrays)
        if self.is_replayed:
            watched = self.watch_bound(bound, size := sizes_text(bound.sizes))
            self.seen.add(watched, size, volume(bound.sizes))
            if watched.is_cut and watched.outputs is None:
                raise UnsupportedError(f"it made {count_text(watched.accesses)} accesses at {size}, and was ended")
            return list(watched.outputs or ())
        inputs = [End(v.name, v.dtype, a.shape) for v, a in zip(instance.inputs, bound.arrays, strict=True)]
        outputs = [End(v.name, v.dtype, s) for v, s in zip(instance.outputs, bound.shapes, strict=True)]

        def call(arguments: Sequence[Array], results: Sequence[Array]) -> Sequence[Array]:
            return self.call_on(arguments, results, how)

        return Guards(call, self.called, tuple(inputs), tuple(outputs)).run(bound.arrays, how)

    def call_on(self, inputs: Sequence[Array], outputs: Sequence[Array], how: How) -> Sequence[Array]:
        """The results, written to `outputs`: for the arrays' layouts, or for packed copies if no kernel reads these."""
        bound = self.bound(inputs)
        program = self.program(bound)
        if isinstance(program, str):
            bound = self.bound([np.require(array, requirements=["C", "A"]) for array in inputs])
            program = self.program(bound)
        if isinstance(program, str):
            raise UnsupportedError(program)
        arrays = programs.fit_layouts(bound.arrays, program.generated.wanted.layouts)
        if how.pieces > 1 or LANGUAGES[self.language].on_gpu:
            results = program.call_guarded(*arrays, pieces=how.pieces, order=last_first)
            for target, result in zip(outputs, results, strict=True):
                target[...] = result
            return outputs
        return program(*arrays, out=outputs, threads=max(how.threads, 1))

    def bound(self, arrays: Sequence[Array]) -> Bound:
        assert self.op.signature is not None
        return bind(self.op.signature, arrays, self.op.known_sizes(self.constants), self.op.name)

    def program(self, bound: Bound, *, runs: bool = True) -> programs.BuiltProgram | str:
        """The program for arrays like these, built once; or why there is none. Without `runs` it is only watched."""
        assert self.op.signature is not None
        request = programs.specialization_of(self.op.signature, bound, self.constants)
        key = programs.key_of(request)
        for each in self.built.get((key, True), []) + self.built.get((key, runs), []):
            if isinstance(each, str) or each.generated.holds(bound.sizes):
                return each
        program: programs.BuiltProgram | str
        try:
            text = self.generate(request)
            program = programs.BuiltProgram(text, ()) if self.is_replayed else programs.build(text, runs=runs)
        except UnsupportedError as error:
            program = str(error)
        self.built.setdefault((key, runs), []).append(program)
        return program

    def generate(self, request: programs.Specialization) -> programs.GeneratedProgram:
        """The text for arrays like these, generated once: the watched program is the one that runs."""
        texts = self.texts.setdefault(programs.key_of(request), [])
        text = next((each for each in texts if each.holds(request.sizes)), None)
        if text is None:
            text = programs.generate(self.op.description, request, self.language)
            texts.append(text)
        return text

    def watch_run(self) -> Watch | str | None:
        """A watched run, if the language has an interpreter with watched accesses; otherwise None."""
        return self.watch if WATCHES.get(self.language) else None

    def watch(self, attempt: Attempt, arrays: Sequence[Array], size: str) -> WatchedRun:
        return self.watch_bound(self.bound(arrays), size)

    def watch_bound(self, bound: Bound, size: str) -> WatchedRun:
        """A run on the arrays of a call. UnsupportedError if there is no kernel for them."""
        program = self.program(bound, runs=False)
        if isinstance(program, str):
            raise UnsupportedError(program)
        inputs = programs.fit_layouts(bound.arrays, program.generated.wanted.layouts)
        watch = import_module(WATCHES[self.language]).watch_generated
        watched: WatchedRun = watch(program, inputs, self.op.name, self.name, size)
        return watched

    def record_pass(self, instances: Sequence[Instance], certificate: Certificate) -> None:
        """Nothing: generated kernels have a certificate of their own when they are called."""

    def record_failure(self, fault: str) -> None:
        """Nothing, as above."""

    def notes(self) -> list[str]:
        if self.is_replayed:
            return ["generated; run as a GPU would, on this machine"]
        if LANGUAGES[self.language].on_gpu:
            return ["generated; in Triton's interpreter" if is_interpreted() else "generated; on the GPU"]
        return [f"generated; in pieces, and with {', '.join(map(str, self.threads))} threads"]


KernelCandidate: TypeAlias = ByHand | FromReference


def from_reference(op: Op[..., Any], languages: Collection[str] = ()) -> list[FromReference]:
    """The generated kernels of an op with a signature: in `languages`, or else in each that runs here directly."""
    usual = (*languages_for(gpu=False), *(each for each in languages_for(gpu=True) if RUNS[each]()))
    kernels = [FromReference(op, language) for language in languages or usual] if op.signature is not None else []
    return [each for each in kernels if each.name not in op.kernels]


@cache
def begin() -> None:
    """Load Numba and compile with it once, so that forks of this process need not."""
    if _is_there("numba"):
        import_module("noyau.sanitizer.numba.kernel")
        import_module("noyau.toolchain.numba.kernel").begin()


def has_cuda(package: str) -> bool:
    """Whether kernels that a package compiles can run here."""
    return _is_there("torch") and has_driver() and _is_there(package)


def has_gpu() -> bool:
    """Whether kernels in Triton can run: it is installed, and there is a driver, or it interprets."""
    return _is_there("triton") and _is_there("torch") and (is_interpreted() or has_driver())


def is_interpreted() -> bool:
    """Whether Triton is set to interpret kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


# Predicates: whether generated kernels in a language for GPUs can run here; and the modules that watch generated
# kernels, those for GPUs without a GPU.
RUNS: Mapping[str, Callable[[], bool]] = MappingProxyType(
    {"triton": has_gpu, "cuda": partial(has_cuda, "cuda.core"), "numba_cuda": partial(has_cuda, "numba")}
)
WATCHES = {"numba": "noyau.sanitizer.numba.kernel", "numba_cuda": "noyau.sanitizer.numba_cuda.launch"}


def _is_there(package: str) -> bool:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(package) is not None
    return False
