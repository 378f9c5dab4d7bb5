"""The kernels of an op in processes of their own, for a check: what raises, exits, crashes or hangs is one reason.

A kernel in C goes to a worker by its library. What Python calls is loaded again there from the op's file, or is there
already in a copy of this process. Where neither can be, it runs here."""

from __future__ import annotations

import ctypes
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import CellType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import NoyauError, UnsupportedError
from noyau.kernels.call import SYMBOL, FunctionKernel, built
from noyau.kernels.guarded_run import Call, End, Guards, How
from noyau.kernels.isolated_library import read, write
from noyau.kernels.user_kernel import HandKernel, settled
from noyau.ops.reload import Home, home_of, reloaded, runs_as_script
from noyau.signatures.binding import bind
from noyau.signatures.types import Instance
from noyau.toolchain.c.library import Native
from noyau.workers.fork import ForkedWorker
from noyau.workers.timing_client import Worker

if TYPE_CHECKING:
    from noyau.ops.op import Op

Array = np.ndarray
_FACTORY = f"{__name__}:served"
_LOADING_S = 60.0  # for a file that is loaded again, and for a kernel of numba that compiles itself
_HELD: dict[str, Op[..., Any]] = {}  # what a copy of this process finds there
_IS_YOUNG = [False]  # of this process: whether it only loads ops and checks them
_OPENMP: list[ctypes.CDLL] = []  # libraries of this process that bring the threads of OpenMP
_LEAST_BYTES = 1 << 30
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
class Way:
    """A way to run what Python calls. `source`: what the other end finds the op by; `note`: what a report says."""

    worker: Worker | None
    source: Mapping[str, Any]
    note: str


class Apart:
    """Runs kernels of an op; use it in a `with`. `patience_s`: how long one run may take. After a crash, or a run that
    was ended, a new process begins with the next one."""

    def __init__(self, op: Op[..., Any], patience_s: float) -> None:
        self.op, self.patience_s = op, patience_s
        self.native = self.copy(patience_s) if _IS_YOUNG[0] and not _no_copy(op) else Worker(op.name, patience_s)
        self.way: Way | None = None
        self.triton: Way | None = None
        self.seen: set[tuple[str, Instance, str]] = set()  # what numba has compiled by now

    def __enter__(self) -> Apart:
        self.folder = Path(tempfile.mkdtemp(prefix="noyau-", dir=_memory()))
        _HELD[str(self.folder)] = self.op
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        _HELD.pop(str(self.folder), None)
        self.renew()
        shutil.rmtree(self.folder, ignore_errors=True)

    def renew(self) -> None:
        """End the processes; new ones begin with the next run: a kernel that wrote where it must not may have spoilt
        what others of its process stand on."""
        for worker in (self.native, *(way.worker for way in (self.way, self.triton) if way is not None)):
            if worker is not None:
                worker.end()
        self.seen.clear()

    def run(self, kernel: HandKernel, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        """The results of one run between guards. CheckError where it raises, exits, crashes, takes longer than it may,
        or touches what it may not."""
        constants = self.op.description.reference.constants
        guards = FunctionKernel(kernel, instance, constants).guards(arrays)
        if kernel.language == "c":
            library, symbol = built(kernel, instance, constants)
            source = {"library": str(library), "symbol": symbol, "fills": True}
            return self.asked(self.native, source, guards, arrays, how)
        way = self.chosen_for_triton() if kernel.language == "triton" else self.chosen()
        if way.worker is None:
            with threaded(how.threads):
                return guards.run(arrays, how)
        new = (kernel.name, instance, how.layout)
        compiles = kernel.language in ("numba", "triton") and new not in self.seen
        chosen = {n: v for n, v in kernel.usage.constants.items() if isinstance(v, bool | int | float | str)}
        source = {**way.source, "kernel": kernel.name, "constants": chosen, "fills": guards.fills}
        results = self.asked(way.worker, source, guards, arrays, how, _LOADING_S * compiles)
        self.seen.add(new)
        return results

    def asked(
        self,
        worker: Worker,
        source: Mapping[str, Any],
        guards: Guards,
        arrays: Sequence[Array],
        how: How,
        more_s: float = 0.0,
    ) -> list[Array]:
        """One run in a worker, which may take `more_s` than usual."""
        if not worker.is_running:
            self.opens(worker, source)
        worker.patience_s = self.patience_s + more_s
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            given = [
                {"name": end.name, **write(folder / f"{k}.in", np.asarray(array))}
                for k, (end, array) in enumerate(zip(guards.inputs, arrays, strict=True))
            ]
            made = [{"name": e.name, "dtype": e.dtype.value, "shape": list(e.shape)} for e in guards.outputs]
            worker.ask(
                "open", factory=_FACTORY, source=dict(source), given=given, made=made, folder=name, how=asdict(how)
            )
            return [read(told) for told in worker.ask("tell")["told"]]

    def chosen(self) -> Way:
        """How what Python calls is run, found when it is first asked."""
        if self.way is None:
            self.way = next(way for way in self.ways() if way.worker is None or self.opens(way.worker, way.source))
        return self.way

    def begin(self) -> None:
        """Start the process that takes seconds to begin, before any run is waited for."""
        if any(kernel.language == "triton" for kernel in self.op.kernels.values()):
            with suppress(NoyauError):  # why it cannot be is told of each kernel
                self.chosen_for_triton()

    def chosen_for_triton(self) -> Way:
        """How a kernel in Triton is run: where there is no GPU, in Triton's interpreter, which has to be asked for
        before triton is imported; else on the GPU, of which a kernel that traps takes the process with it.

        UnsupportedError where another process cannot find the op, and this one does not interpret."""
        if self.triton is None:
            from noyau.kernels.triton.arrays import interprets_here, note, variables

            home = home_of(self.op)
            if home is not None:
                way = Way(Worker(self.op.name, environment=variables()), {"home": asdict(home)}, note())
                self.triton = way if way.worker is not None and self.opens(way.worker, way.source) else None
            if self.triton is None and not interprets_here():
                told = "it runs in a process of its own, which finds its op as a global of a file; put it into one"
                raise UnsupportedError(told)
            self.triton = self.triton or Way(None, {}, f"{note()}, in this process, which it could have ended")
        return self.triton

    def ways(self) -> Iterator[Way]:
        """The ways there are, the best first: a script is not run again if that can be avoided."""
        home = home_of(self.op)
        again = [self.again(home)] if home else []
        copied = [] if _no_copy(self.op) else [Way(self.copy(), {"held": str(self.folder)}, "")]
        yield from (*copied, *again) if _IS_YOUNG[0] or runs_as_script(self.op) else (*again, *copied)
        yield Way(None, {}, "it ran in this process, which it could have ended")

    def copy(self, patience_s: float = _LOADING_S) -> Worker:
        """A process that begins as a copy of this one."""
        if _IS_YOUNG[0] and any(kernel.language == "numba" for kernel in self.op.kernels.values()):
            import_module("noyau.toolchain.numba.kernel").begin()
        return ForkedWorker(self.op.name, patience_s)

    def again(self, home: Home) -> Way:
        return Way(Worker(self.op.name), {"home": asdict(home)}, "")

    def opens(self, worker: Worker, source: Mapping[str, Any]) -> bool:
        """Whether a process starts, and finds there what it is to run; it may take its time."""
        worker.patience_s = _LOADING_S
        try:
            worker.ask("open", factory=f"{__name__}:found", source=dict(source))
        except NoyauError:
            worker.end()
            return False
        return True


def found(source: Mapping[str, Any]) -> Served:
    """The other end: that the op is there. InputError where it is not."""
    if "library" not in source:
        op = _op_of(source)
        if any(kernel.language == "triton" for kernel in op.kernels.values()):
            import_module("noyau.kernels.triton.arrays")  # which takes seconds, that no run is waited for
    return Served(Guards(lambda given, made: made, "", (), ()), [], How(), Path())


def served(
    source: Mapping[str, Any],
    given: Sequence[Mapping[str, Any]],
    made: Sequence[Mapping[str, Any]],
    folder: str,
    how: Mapping[str, Any],
) -> Served:
    """The other end: what a worker holds."""
    arrays = [read(told) for told in given]
    inputs, outputs = (
        tuple(End(told["name"], DType(told["dtype"]), tuple(told["shape"])) for told in ends) for ends in (given, made)
    )
    native, way = _native_of(source), How(**how)
    call = _call_of(source, arrays) if native is None else _native_call(native, way.threads)
    guards = Guards(call, source.get("kernel", SYMBOL), inputs, outputs, source["fills"])
    return Served(guards, arrays, way, Path(folder), native)


class Served:
    """A kernel and the inputs of one run."""

    def __init__(
        self, guards: Guards, inputs: Sequence[Array], how: How, folder: Path, native: Native | None = None
    ) -> None:
        self.guards, self.inputs, self.how, self.folder, self.native = guards, inputs, how, folder, native

    def lasts(self, calls: int) -> float:
        raise NoyauError("a kernel that is checked is not timed")

    def tell(self) -> Any:
        """One run between guards; where its outputs lie."""
        with threaded(self.how.threads):
            outputs = self.results()
        return [write(self.folder / f"{k}.out", output) for k, output in enumerate(outputs)]

    def results(self) -> list[Array]:
        if self.native is None or self.how.pieces == 1:
            return self.guards.run(self.inputs, self.how)
        return self.native.call_guarded(*self.inputs, pieces=self.how.pieces, order=last_first)


def last_first(count: int) -> Iterable[int]:
    """The order of pieces that is not the usual one."""
    return reversed(range(count))


@contextmanager
def threaded(threads: int) -> Iterator[None]:
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


def _call_of(source: Mapping[str, Any], arrays: Sequence[Array]) -> Call:
    """A kernel of an op that is bound as a call would be."""
    op = _op_of(source)
    assert op.signature is not None
    constants = op.description.reference.constants
    bound = bind(op.signature, arrays, op.known(constants), op.name)
    name = source["kernel"]
    kernel = op.kernels.get(name) or op.kernels[name.partition(" (")[0]]  # one choice of its constants
    return FunctionKernel(settled(kernel, tuple(source["constants"].items())), bound.instance, constants).run


def _native_of(source: Mapping[str, Any]) -> Native | None:
    return _native(source["library"], source["symbol"]) if "library" in source else None


@lru_cache(maxsize=64)
def _native(library: str, symbol: str) -> Native:
    native, loaded = Native(Path(library), symbol), ctypes.CDLL(library)
    if hasattr(loaded, "omp_set_num_threads"):  # of a library that it was linked with
        _OPENMP.append(loaded)
    return native


def _native_call(native: Native, threads: int) -> Call:
    """A kernel in C, on so many threads where it is called for pieces."""
    return lambda given, made: native(*given, out=made, pieces=2 * max(threads, 1), threads=max(threads, 1))


def _op_of(source: Mapping[str, Any]) -> Op[..., Any]:
    return _HELD[source["held"]] if "held" in source else reloaded(Home(**source["home"]))


def _no_copy(op: Op[..., Any]) -> bool:
    """Whether kernels of an op may hang in a copy of this process: of threads that were started here only one is
    there. Those of a library matter to kernels that may call it, those of numba's OpenMP to kernels of numba."""
    if not hasattr(os, "fork") or any(_may_call(kernel.function, _NOT_COPIED) for kernel in op.kernels.values()):
        return True
    numba = sys.modules.get("numba") if any(k.language == "numba" for k in op.kernels.values()) else None
    try:
        return numba is not None and numba.threading_layer() == "omp"
    except ValueError:  # it has started none yet
        return False


def _may_call(function: Any, packages: Sequence[str]) -> bool:
    """Whether a function is of one of some packages, or sees one by name: in its module or around it."""
    plain = inspect.unwrap(getattr(function, "py_func", function))
    held = [cell.cell_contents for cell in getattr(plain, "__closure__", None) or () if _is_filled(cell)]
    seen = [function, plain, *getattr(plain, "__globals__", {}).values(), *held]
    return any(_package(each) in packages for each in seen)


def _package(value: object) -> str:
    """The package of a module, of a function or a class, or of what a value is one of."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", type(value).__module__)
    return str(name).partition(".")[0]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _memory() -> str | None:
    """A folder in memory, where there is a large one."""
    folder = "/dev/shm"  # noqa: S108  a private folder is made in it
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _LEAST_BYTES else None
