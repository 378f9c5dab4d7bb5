"""The kernels of an op in worker processes, for a check: an exception, exit, crash or hang becomes one reason.

A kernel in C goes to a worker by its library. A Python callable is loaded again there from the op's file, or is already
there in a fork of this process. If neither is possible, it runs here."""

import ctypes
import inspect
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError, UnsupportedError
from noyau.kernels.call import INTERPRETED, SYMBOL, FunctionKernel, is_launched_here, library_of
from noyau.kernels.certificates import pack
from noyau.kernels.trust import cell_content
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.ops.op_homes import Home, home_of, runs_as_script
from noyau.sanitizer.triton.kernel import InterpreterWorker, interpreter_of, kernel_and_call, load, plain_values
from noyau.signatures.types import Instance
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import End, Guards, How
from noyau.verify.trial import last_first
from noyau.workers.nvml import has_driver
from noyau.workers.resources import wait_factor
from noyau.workers.worker import ForkedWorker, Worker

Array = np.ndarray
Ends = tuple[tuple[End, ...], tuple[End, ...], bool]  # the inputs and the outputs, and whether these are filled
_FEW_CELLS, _FEW_S = 1 << 12, 5.0  # a run on so few cells ends within so many seconds, even if Python runs each thread
_LOADING_S = 60.0  # the time limit for loading a file again, and for Numba's compilation of a kernel
_IS_YOUNG = [False]  # whether this process does nothing but load ops and check them
_OPENMP: list[ctypes.CDLL] = []  # libraries of this process with threads of OpenMP
_NOT_COPIED = ("torch", "tensorflow", "jax")  # a fork lacks their threads, and calls may wait for these


@contextmanager
def young() -> Iterator[None]:
    """Declare that within the block this process only loads ops and checks them: then a fork, which starts at once, is
    as good as another process that loads them again."""
    _IS_YOUNG[0] = True
    try:
        yield
    finally:
        _IS_YOUNG[0] = False


@dataclass(frozen=True, slots=True)
class ProcessChoice:
    """A way to run Python callables. `home`: where its worker loads the op from, or None; `note`: for a report."""

    worker: Worker | None
    home: Home | None
    note: str


class KernelProcesses(AbstractContextManager["KernelProcesses"]):
    """Runs kernels of an op; use it in a `with`. `patience_s`: the time limit of one run, at most a few seconds on few
    cells. After a crash or a timeout, the next run starts a new process."""

    def __init__(self, op: Op[..., Any], patience_s: float) -> None:
        self.op, self.patience_s = op, patience_s
        self.native = self.copy(patience_s) if _IS_YOUNG[0] and not _no_copy(op) else Worker(op.name, patience_s)
        self.way: ProcessChoice | None = None
        self.grids: ProcessChoice | None = None
        self.seen: set[tuple[str, Instance, str]] = set()  # the specializations that Numba has compiled

    def __exit__(self, *fault: object) -> None:
        self.renew(spares=InterpreterWorker)  # that worker serves all ops of a file

    def renew(self, spares: type[Worker] | tuple[()] = ()) -> None:
        """End the processes, except those of a kind; the next run starts new ones: after an out-of-bounds write a
        process cannot be trusted."""
        for worker in (self.native, *(way.worker for way in (self.way, self.grids) if way is not None)):
            if worker is not None and not isinstance(worker, spares):
                worker.end()
        self.seen.clear()

    def run(self, kernel: UserKernel, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        """The results of one run between guard zones. CheckError if it fails, exits, exceeds its time or its bounds."""
        constants = self.op.description.reference.constants
        guards = FunctionKernel(kernel, instance, constants).guards(arrays)
        language = LANGUAGES[kernel.language]
        if language.is_native:
            if not self.native.is_running:
                opens(self.native, None)
            self.native.patience_s = self.limit_s(guards, arrays)
            library, symbol = library_of(kernel, instance, constants)
            return self.native.ask(run_library, library, symbol, guards.inputs, guards.outputs, pack(arrays), how)
        way = self.choose_for_grids() if language.on_gpu else self.choose()
        if way.worker is None:
            with limit_threads(how.threads):
                return guards.run(arrays, how)
        new, chosen = (kernel.name, instance, how.layout), plain_values(kernel.usage.constants)
        compiles = language.is_jit and new not in self.seen
        if not way.worker.is_running or isinstance(way.worker, InterpreterWorker):  # the latter may hold another op
            opens(way.worker, way.home)
        way.worker.patience_s = self.limit_s(guards, arrays) + _LOADING_S * compiles
        ends = guards.inputs, guards.outputs, guards.fills
        results = way.worker.call(run_kernel, kernel.name, chosen, ends, pack(arrays), how)
        self.seen.add(new)
        return results

    def limit_s(self, guards: Guards, arrays: Sequence[Array]) -> float:
        """The time limit of a run on these arrays: an integer may determine the work, as a size does."""
        numbers = (abs(int(each)) for each in arrays if not each.ndim and each.dtype.kind in "iu")
        work = sum(each.size for each in arrays) + sum(math.prod(end.shape) for end in guards.outputs) + sum(numbers)
        # On a busy machine a process may not even have begun by then, through no fault of its kernel.
        return min(self.patience_s, _FEW_S * wait_factor()) if work < _FEW_CELLS else self.patience_s

    def choose(self) -> ProcessChoice:
        """The way to run Python callables, chosen at the first run."""
        if self.way is None:
            self.way = next(way for way in self.ways() if way.worker is None or opens(way.worker, way.home))
        return self.way

    def begin(self) -> None:
        """Start the process that takes seconds to begin, before the first run."""
        if any(map(is_launched_here, self.op.kernels.values())):
            with suppress(NoyauError):  # each kernel reports the error
                self.choose_for_grids()

    def choose_for_grids(self) -> ProcessChoice:
        """The way to run a kernel of a grid: without a GPU in Triton's interpreter, which must be set before triton is
        imported; otherwise on the GPU, where a kernel that traps takes the process with it. UnsupportedError if another
        process cannot find the op, and this one does not interpret."""
        if self.grids is None and (home := home_of(self.op)) is not None:
            self.grids = self.beside(home)
        if self.grids is None:
            from noyau.kernels.cuda_grids import note
            from noyau.toolchain.triton.module import interprets

            if not interprets():
                reason = "it runs in a process of its own, which finds its op as a global of a file; put it into one"
                raise UnsupportedError(reason)
            self.grids = ProcessChoice(None, None, f"{note()}, in this process, which it could have ended")
        return self.grids

    def beside(self, home: Home) -> ProcessChoice | None:
        """Another process for kernels of a grid; None if it does not find the op. Without a GPU driver nothing there
        needs torch, which takes seconds to load."""
        place, compiles = INTERPRETED, False
        if has_driver():
            from noyau.kernels.cuda_grids import note, variables

            place, compiles = note(), not variables()
        worker = Worker(self.op.name) if compiles else interpreter_of(home, self.op.name)
        return ProcessChoice(worker, home, place) if opens(worker, home) else None

    def ways(self) -> Iterator[ProcessChoice]:
        """Yield the ways, the best first: a script is not run again if that can be avoided."""
        home = home_of(self.op)
        again = [ProcessChoice(Worker(self.op.name), home, "")] if home else []
        copied = [] if _no_copy(self.op) else [ProcessChoice(self.copy(), None, "")]
        yield from (*copied, *again) if _IS_YOUNG[0] or runs_as_script(self.op) else (*again, *copied)
        yield ProcessChoice(None, None, "it ran in this process, which it could have ended")

    def copy(self, patience_s: float = _LOADING_S) -> Worker:
        """A fork of this process."""
        for pool in _thread_pools(self.op) if _IS_YOUNG[0] else ():
            import_module(f"noyau.toolchain.{pool}.kernel").begin()
        return ForkedWorker(self.op.name, patience_s, state=self.op)


def opens(worker: Worker, home: Home | None) -> bool:
    """Whether a process starts and finds the op there; loading may take its time."""
    worker.patience_s = _LOADING_S
    try:
        if home is None:
            worker.ask(os.getpid)
        elif isinstance(worker, InterpreterWorker):
            worker.hold(home)
        else:
            worker.open(load, home)
    except NoyauError:
        worker.end()
        return False
    return True


def run_kernel(
    op: Op[..., Any], name: str, choice: Mapping[str, Any], ends: Ends, arrays: Sequence[Array], how: How
) -> list[Array]:
    """In the worker: one run between guard zones of a kernel of an op, bound as a call would be."""
    constants = op.description.reference.constants
    kernel, bound = kernel_and_call(op, name, choice, constants, arrays)
    with limit_threads(how.threads):
        return pack(Guards(FunctionKernel(kernel, bound.instance, constants).run, name, *ends).run(arrays, how))


def run_library(
    library: Path, symbol: str, inputs: Sequence[End], outputs: Sequence[End], arrays: Sequence[Array], how: How
) -> list[Array]:
    """In the worker: one run between guard zones of a kernel in C."""
    native = _native(library, symbol)
    with limit_threads(how.threads):
        if how.pieces > 1:
            return pack(native.call_guarded(*arrays, pieces=how.pieces, order=last_first))
        threads = max(how.threads, 1)

        def call(arguments: Sequence[Array], results: Sequence[Array]) -> Sequence[Array]:
            return native(*arguments, out=results, pieces=2 * threads, threads=threads)

        return pack(Guards(call, SYMBOL, tuple(inputs), tuple(outputs)).run(arrays, how))


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Set the number of threads of Numba and of OpenMP in C within the block; 0 leaves it unchanged."""
    numba = sys.modules.get("numba") if threads else None
    for library in _OPENMP if threads else ():
        library.omp_set_num_threads(threads)
    before = numba.get_num_threads() if numba else 0
    if numba:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        if numba:
            numba.set_num_threads(before)


@lru_cache(maxsize=64)
def _native(library: Path, symbol: str) -> Native:
    native, loaded = Native(library, symbol), ctypes.CDLL(str(library))
    if hasattr(loaded, "omp_set_num_threads"):  # it is linked with OpenMP
        _OPENMP.append(loaded)
    return native


def _no_copy(op: Op[..., Any]) -> bool:
    """Whether kernels of an op may hang in a fork: it lacks the threads that were started here. A library's threads
    matter to kernels that may call it, those of Numba's OpenMP to kernels of Numba."""
    if not hasattr(os, "fork") or any(_may_call(kernel.function) for kernel in op.kernels.values()):
        return True
    pools = [sys.modules[name] for name in _thread_pools(op) if name in sys.modules]
    try:
        return any(pool.threading_layer() == "omp" for pool in pools)
    except ValueError:  # no threads were started yet
        return False


def _thread_pools(op: Op[..., Any]) -> set[str]:
    """The packages whose threads run kernels of an op."""
    return {LANGUAGES[kernel.language].thread_pool for kernel in op.kernels.values()} - {""}


def _may_call(function: Any) -> bool:
    """Whether a function is of a package that cannot be forked, or can reach one: as a global or in its closure."""
    plain = inspect.unwrap(getattr(function, "py_func", function))
    closure = map(cell_content, getattr(plain, "__closure__", None) or ())
    values = [function, plain, *getattr(plain, "__globals__", {}).values(), *closure]
    return any(_package(each) in _NOT_COPIED for each in values)


def _package(value: object) -> str:
    """The package of a module, a function or class, or of a value's class."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", type(value).__module__)
    return str(name).partition(".")[0]
