"""The kernels of an op in processes of their own, for a check: what raises, exits, crashes or hangs is one reason.

A kernel in C goes to a worker by its library. What Python calls is loaded again there from the op's file, or is there
already in a copy of this process. Where neither can be, it runs here."""

from __future__ import annotations

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
from noyau.sanitizer.triton.kernel import kernel_and_call, plain_values
from noyau.sanitizer.triton.worker import InterpreterWorker, interpreter_of, load
from noyau.signatures.types import Instance
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import End, Guards, How
from noyau.verify.trial import last_first
from noyau.workers.nvml import has_driver
from noyau.workers.resources import wait_factor
from noyau.workers.worker import ForkedWorker, Worker

Array = np.ndarray
Ends = tuple[tuple[End, ...], tuple[End, ...], bool]  # the inputs and the outputs, and whether these are filled
_FEW_CELLS, _FEW_S = 1 << 12, 5.0  # a run on so few has an answer by then, also where Python runs each thread of it
_LOADING_S = 60.0  # for a file that is loaded again, and for a kernel of numba that compiles itself
_IS_YOUNG = [False]  # of this process: whether it only loads ops and checks them
_OPENMP: list[ctypes.CDLL] = []  # libraries of this process that bring the threads of OpenMP
_NOT_COPIED = ("torch", "tensorflow", "jax")  # their threads are not there in a copy, and calls may wait for them


@contextmanager
def young() -> Iterator[None]:
    """Within the block this process does nothing but load ops and check them, so that a copy of it, which is there at
    once, is as good as another process that loads them again."""
    _IS_YOUNG[0] = True
    try:
        yield
    finally:
        _IS_YOUNG[0] = False


@dataclass(frozen=True, slots=True)
class ProcessChoice:
    """A way to run what Python calls. `home`: where its worker loads the op from, or None; `note`: for a report."""

    worker: Worker | None
    home: Home | None
    note: str


class KernelProcesses(AbstractContextManager["KernelProcesses"]):
    """Runs kernels of an op; use it in a `with`. `patience_s`: how long one run may take, at most a few seconds
    on few cells. After a crash, or a run that was ended, a new process begins with the next one."""

    def __init__(self, op: Op[..., Any], patience_s: float) -> None:
        self.op, self.patience_s = op, patience_s
        self.native = self.copy(patience_s) if _IS_YOUNG[0] and not _no_copy(op) else Worker(op.name, patience_s)
        self.way: ProcessChoice | None = None
        self.grids: ProcessChoice | None = None
        self.seen: set[tuple[str, Instance, str]] = set()  # what numba has compiled by now

    def __exit__(self, *fault: object) -> None:
        self.renew(spares=InterpreterWorker)  # which serves all ops of a file

    def renew(self, spares: type[Worker] | tuple[()] = ()) -> None:
        """End the processes, but those of a kind; new ones begin with the next run: a kernel that wrote where it must
        not may have spoilt what others of its process stand on."""
        for worker in (self.native, *(way.worker for way in (self.way, self.grids) if way is not None)):
            if worker is not None and not isinstance(worker, spares):
                worker.end()
        self.seen.clear()

    def run(self, kernel: UserKernel, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        """The results of one run between guards. CheckError where it fails, ends, lasts, or touches what it may not."""
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
        if not way.worker.is_running or isinstance(way.worker, InterpreterWorker):  # which may hold another op
            opens(way.worker, way.home)
        way.worker.patience_s = self.limit_s(guards, arrays) + _LOADING_S * compiles
        ends = guards.inputs, guards.outputs, guards.fills
        results = way.worker.call(run_kernel, kernel.name, chosen, ends, pack(arrays), how)
        self.seen.add(new)
        return results

    def limit_s(self, guards: Guards, arrays: Sequence[Array]) -> float:
        """The longest that a run on these may take: a number may say how much there is to do, as a size does."""
        numbers = (abs(int(each)) for each in arrays if not each.ndim and each.dtype.kind in "iu")
        work = sum(each.size for each in arrays) + sum(math.prod(end.shape) for end in guards.outputs) + sum(numbers)
        # Where others compute, a process may not even have begun by then, which is no fault of its kernel.
        return min(self.patience_s, _FEW_S * wait_factor()) if work < _FEW_CELLS else self.patience_s

    def choose(self) -> ProcessChoice:
        """The way to run what Python calls, chosen with the first run."""
        if self.way is None:
            self.way = next(way for way in self.ways() if way.worker is None or opens(way.worker, way.home))
        return self.way

    def begin(self) -> None:
        """Start the process that takes seconds to begin, before any run is waited for."""
        if any(map(is_launched_here, self.op.kernels.values())):
            with suppress(NoyauError):  # why it cannot be is told of each kernel
                self.choose_for_grids()

    def choose_for_grids(self) -> ProcessChoice:
        """The way to run a kernel of a grid: where there is no GPU, in Triton's interpreter, which has to be asked for
        before triton is imported; else on the GPU, of which a kernel that traps takes the process with it.

        UnsupportedError where another process cannot find the op, and this one does not interpret."""
        if self.grids is None and (home := home_of(self.op)) is not None:
            self.grids = self.beside(home)
        if self.grids is None:
            from noyau.kernels.cuda_grids import note
            from noyau.kernels.triton.calls import interprets_here

            if not interprets_here():
                reason = "it runs in a process of its own, which finds its op as a global of a file; put it into one"
                raise UnsupportedError(reason)
            self.grids = ProcessChoice(None, None, f"{note()}, in this process, which it could have ended")
        return self.grids

    def beside(self, home: Home) -> ProcessChoice | None:
        """Another process for kernels of a grid; None where it does not find the op. Without a driver of a GPU nothing
        here needs torch, which takes seconds to load."""
        place, compiles = INTERPRETED, False
        if has_driver():
            from noyau.kernels.cuda_grids import note, variables

            place, compiles = note(), not variables()
        worker = Worker(self.op.name) if compiles else interpreter_of(home, self.op.name)
        return ProcessChoice(worker, home, place) if opens(worker, home) else None

    def ways(self) -> Iterator[ProcessChoice]:
        """The ways there are, the best first: a script is not run again if that can be avoided."""
        home = home_of(self.op)
        again = [ProcessChoice(Worker(self.op.name), home, "")] if home else []
        copied = [] if _no_copy(self.op) else [ProcessChoice(self.copy(), None, "")]
        yield from (*copied, *again) if _IS_YOUNG[0] or runs_as_script(self.op) else (*again, *copied)
        yield ProcessChoice(None, None, "it ran in this process, which it could have ended")

    def copy(self, patience_s: float = _LOADING_S) -> Worker:
        """A process that begins as a copy of this one."""
        for pool in _thread_pools(self.op) if _IS_YOUNG[0] else ():
            import_module(f"noyau.toolchain.{pool}.kernel").begin()
        return ForkedWorker(self.op.name, patience_s, state=self.op)


def opens(worker: Worker, home: Home | None) -> bool:
    """Whether a process starts, and finds there what it is to run; it may take its time."""
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
    """In the worker: one run between guards of a kernel of an op, bound as a call would be."""
    constants = op.description.reference.constants
    kernel, bound = kernel_and_call(op, name, choice, constants, arrays)
    with limit_threads(how.threads):
        return pack(Guards(FunctionKernel(kernel, bound.instance, constants).run, name, *ends).run(arrays, how))


def run_library(
    library: Path, symbol: str, inputs: Sequence[End], outputs: Sequence[End], arrays: Sequence[Array], how: How
) -> list[Array]:
    """In the worker: one run between guards of a kernel in C."""
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
    """Within the block kernels of numba and of OpenMP in C have so many threads; 0 leaves them as they are."""
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
    if hasattr(loaded, "omp_set_num_threads"):  # of a library that it was linked with
        _OPENMP.append(loaded)
    return native


def _no_copy(op: Op[..., Any]) -> bool:
    """Whether kernels of an op may hang in a copy of this process: of threads that were started here only one is
    there. Those of a library matter to kernels that may call it, those of numba's OpenMP to kernels of numba."""
    if not hasattr(os, "fork") or any(_may_call(kernel.function) for kernel in op.kernels.values()):
        return True
    pools = [sys.modules[name] for name in _thread_pools(op) if name in sys.modules]
    try:
        return any(pool.threading_layer() == "omp" for pool in pools)
    except ValueError:  # it has started none yet
        return False


def _thread_pools(op: Op[..., Any]) -> set[str]:
    """The packages whose threads run kernels of an op."""
    return {LANGUAGES[kernel.language].thread_pool for kernel in op.kernels.values()} - {""}


def _may_call(function: Any) -> bool:
    """Whether a function is of a package that is not copied, or sees one by name: in its module or around it."""
    plain = inspect.unwrap(getattr(function, "py_func", function))
    closure = map(cell_content, getattr(plain, "__closure__", None) or ())
    values = [function, plain, *getattr(plain, "__globals__", {}).values(), *closure]
    return any(_package(each) in _NOT_COPIED for each in values)


def _package(value: object) -> str:
    """The package of a module, of a function or a class, or of what a value is one of."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", type(value).__module__)
    return str(name).partition(".")[0]
