"""A kernel of language `numba` as a Python function of NumPy arrays, and the same between guards.

The text's own function runs its launches in a prange. Here that function only records the calls, once for inputs of the
same shapes: the launches are compiled, and run by Python threads, which Numba lets run in parallel. So a kernel
compiles in half the time and needs none of Numba's threading layers: one of them ends the process if two threads use it
at once, another after a fork. Compiled launches release the interpreter's lock while they run."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from noyau.dtypes import HALVES, DType
from noyau.errors import BuildError, dependency
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.toolchain.cache import file_of
from noyau.toolchain.garbage_collection import without_collections
from noyau.toolchain.guard_zones import SCRATCH_POISONS, ArrayKernel, Arrays, Empty, GuardedArray, Memory, Order
from noyau.workers.import_path import run_text

with dependency("numba", "noyau-kernels[numba]"):
    import numba

Shape = tuple[int, ...]
_KINDS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)] + ["float32", "float64", "bool_"]


class LaunchStep(NamedTuple):
    """A launch: its number, the positions of its operands in `CallPlan.values`, its items; None without threads."""

    launch: int
    places: tuple[int, ...]
    items: int | None


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The launches in order, shapes of outputs, shape and dtype of each scratch; `status`: it refuses the shapes."""

    steps: tuple[LaunchStep, ...]
    outputs: tuple[Shape, ...]
    scratch: tuple[tuple[Shape, Any], ...]
    numbers: tuple[int, ...]
    constants: tuple[int, ...]
    status: int

    def values(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The values that places of steps index: inputs, outputs, scratch, inputs without axes as numbers, sizes."""
        return [*arrays, *(arrays[at][()] for at in self.numbers), *self.constants]


@dataclass(frozen=True, slots=True)
class _End:
    """A stand-in for an array, with the attributes that a kernel's own function uses."""

    place: int
    shape: Shape

    def __getitem__(self, index: tuple[()]) -> _Number:
        return _Number(self.place)


@dataclass(frozen=True, slots=True)
class _Number:
    place: int


def plan(function: Any, launches: Sequence[str], inputs: Sequence[Shape], outputs: Sequence[Shape]) -> CallPlan:
    """The plan of a kernel's own function, run with `launches` and allocations of scratch that only record calls."""
    noted: list[tuple[int, tuple[Any, ...]]] = []
    ends = [_End(at, shape) for at, shape in enumerate((*inputs, *outputs))]
    scratch: list[tuple[Shape, Any]] = []

    def empty(shape: Shape, kind: Any) -> _End:
        scratch.append((tuple(map(int, shape)), kind))
        return _End(len(ends) + len(scratch) - 1, scratch[-1][0])

    def note(number: int, *arguments: Any) -> int:
        noted.append((number, arguments))
        return 0

    names = {
        **{name: partial(note, number) for number, name in enumerate(launches)},
        "prange": range,
        "numba": SimpleNamespace(get_num_threads=lambda: 1),
        "np": SimpleNamespace(empty=empty, **{kind: getattr(np, kind) for kind in _KINDS}),
    }
    status = FunctionType(function.__code__, {**function.__globals__, **names})(*ends)
    numbers = tuple(at for at, shape in enumerate(inputs) if not shape)
    constants: dict[int, int] = {}
    before = len(ends) + len(scratch)
    steps = [_step(*each, function.__globals__[launches[each[0]]], before, numbers, constants) for each in noted]
    return CallPlan(tuple(steps), tuple(outputs), tuple(scratch), numbers, tuple(constants), status or 0)


def _step(
    number: int, arguments: tuple[Any, ...], launch: Any, before: int, numbers: Sequence[int], constants: dict[int, int]
) -> LaunchStep:
    shares = parameters_of(launch.py_func)[-2:] == ("begin", "end")
    operands, items = (arguments[:-2], int(arguments[-1])) if shares else (arguments, None)
    places = []
    for each in operands:
        match each:
            case _End(place):
                places.append(place)
            case _Number(place):
                places.append(before + numbers.index(place))
            case _:
                places.append(before + len(numbers) + constants.setdefault(int(each), len(constants)))
    return LaunchStep(number, tuple(places), items)


def parameters_of(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters, in order."""
    return tuple(function.__code__.co_varnames[: function.__code__.co_argcount])


try:
    from noyau.toolchain.numba.passes import shorten
except ImportError:  # a release without a name imported here: all of Numba's passes compile a text too

    def shorten(function: Any, *, is_launch: bool = False) -> None:
        """Leave a function as it is."""


_AS_BITS = frozenset(dtype.numpy for dtype in DType if dtype in HALVES or dtype.is_float8)
FORM = "shorter"  # part of the cache key: the way a text is compiled
PLANS = 64  # the most cached plans of one kernel
WAKING_BYTES = 1 << 19  # of a call that threads share: waking a thread takes 50 us
PIECE_BYTES = 1 << 15  # the fewest bytes for a thread
_SCRATCH = re.compile(r"^    (\w+) = np\.empty\(\(", re.MULTILINE)
_SCALAR = re.compile(r"^@scalar\ndef (\w+)", re.MULTILINE)
_SCALARS: dict[str, Any] = {}  # the scalar functions of all texts, by their text and that of their callees

Cut = Callable[[Callable[..., int | None], int], Iterable[int | None]]


class NumbaKernel(ArrayKernel):
    """A kernel of a text of language numba, compiled for the layouts of its inputs, unless it is only to be `opened`.

    BuildError where Numba refuses the text."""

    def __init__(self, text: str, kernel: Kernel, *, runs: bool = True) -> None:
        self.kernel, self.name, self.text = kernel, kernel.name, text
        self.path, self._module = load(text)
        self._caller: Any = self._module[kernel.name].py_func
        self._names = [f"{kernel.name}_{number}" for number in range(len(kernel.launches))]
        self._launches = [self._module[name] for name in self._names]
        self.inputs, self.outputs = len(kernel.of(Role.INPUT)), len(kernel.of(Role.OUTPUT))
        self.dtypes = tuple(buffer.dtype for buffer in (*kernel.of(Role.INPUT), *kernel.of(Role.OUTPUT)))
        self.layouts = tuple(buffer.layout for buffer in kernel.of(Role.INPUT))
        self._dtypes = [dtype.numpy for dtype in self.dtypes[self.inputs :]]
        self._is_strided = any(buffer.strides is not None for buffer in kernel.of(Role.INPUT))
        self._as_bits = any(buffer.dtype.numpy in _AS_BITS for buffer in kernel.buffers)
        self._plans: dict[tuple[object, ...], CallPlan] = {}
        # The types of the text's buffers, by their names in it
        begin = text.index(f"\ndef {self.name}(")
        names = [*parameters_of(self._caller), *_SCRATCH.findall(text[begin:].partition("\n\n\n")[0])]
        types = {name: _type(buffer) for name, buffer in zip(names, self.kernel.buffers, strict=True)}
        self._entries = [self._compile(types, launch) for launch in (self._launches if runs else ())]

    def __call__(
        self,
        *arrays: np.ndarray,
        out: Sequence[np.ndarray] | None = None,
        pieces: int = 1,
        order: Order = range,
        threads: int = 1,
        empty: Empty | None = None,
    ) -> list[np.ndarray]:
        """The outputs for these inputs, in memory from `empty`; written to `out` if given.

        Each launch is cut into `pieces` (fewer if it has fewer items), which this thread runs in the order that
        `order(count)` lists; with one piece, if many bytes move, at most `threads` threads take smaller pieces in turn.
        Inputs in another layout than the kernel's are copied. InputError where an array has another dtype, rank or
        shape than the kernel takes, or an index in one is out of bounds."""
        inputs = self._laid_out(arrays)
        planned = self._plan(inputs)
        if out is None:
            outputs = list(map(empty or np.empty, planned.outputs, self._dtypes))
        else:
            outputs = self._accept(out, planned.outputs, inputs)
        moved = sum(array.nbytes for array in (*inputs, *outputs)) if threads > 1 else 0
        threads = min(threads, moved // PIECE_BYTES) if moved >= WAKING_BYTES else 1
        in_pieces = pieces > 1 or threads < 2
        cut = partial(one_by_one, pieces, order) if in_pieces else partial(run_shared, threads=threads)
        self._run(planned, inputs, outputs, cut)
        return outputs

    def open(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The inputs that the text's own function takes for these, halves as bits, and outputs for it to write."""
        inputs = self._laid_out(arrays)
        return list(map(bits_of, inputs)), list(map(np.zeros, self._plan(inputs).outputs, self._dtypes))

    # Building.

    def _compile(self, types: Mapping[str, Any], launch: Any) -> Callable[..., int | None]:
        """A launch as Numba's compiled entry, which does not check the dtypes of arrays."""
        shorten(launch, is_launch=True)
        with contextlib.suppress(RuntimeError):  # no writable folder: it is compiled in each process
            launch.enable_caching()
        try:
            # An OSError is a full disk: it is compiled, and cached in this process alone.
            with without_collections(), contextlib.suppress(OSError):
                launch.compile(tuple(types.get(name, numba.int64) for name in parameters_of(launch.py_func)))
        except numba.core.errors.NumbaError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            reason = next((line for line in lines if line and not line.startswith("Failed in")), type(error).__name__)
            raise BuildError(f"Numba does not compile {self.name} ({self.path}): {reason}") from error
        if not launch.overloads:  # it failed before it compiled anything
            raise BuildError(f"Numba cannot read its cache of {self.name} ({self.path}); noyau cache --clear would do")
        launch.disable_compile()
        (compiled,) = launch.overloads.values()
        entry: Callable[..., int | None] = compiled.entry_point
        return entry

    # Running.

    def _run(self, planned: CallPlan, inputs: Arrays, outputs: Arrays, cut: Cut, empty: Empty = np.empty) -> None:
        """Run the launches in order, their items cut into spans that run one after the other, or shared by threads."""
        self._refuse(planned.status)
        arrays = [*inputs, *outputs]
        if self._as_bits:
            arrays = list(map(bits_of, arrays))
        values = planned.values([*arrays, *(empty(*each) for each in planned.scratch)])
        for launch, places, items in planned.steps:
            call = partial(self._entries[launch], *(values[place] for place in places))
            if items is None:
                self._refuse(call())
            elif items:
                for status in cut(call, items):
                    self._refuse(status)

    def _plan(self, inputs: Sequence[np.ndarray]) -> CallPlan:
        """Plan the call for arrays of these shapes. InputError where they do not fit."""
        strides = (array.strides for array in inputs) if self._is_strided else ()
        key = *(array.shape for array in inputs), *(array.dtype for array in inputs), *strides
        planned = self._plans.get(key)
        if planned is None:
            if len(self._plans) >= PLANS:
                self._plans.clear()
            sizes, buffers = bind_sizes(self.kernel, inputs, {}), self.kernel.of(Role.OUTPUT)
            outputs = self._natural([tuple(int(dim.evaluate(sizes)) for dim in each.shape) for each in buffers])
            planned = self._plans[key] = plan(self._caller, self._names, [array.shape for array in inputs], outputs)
        return planned

    def _run_between(self, inputs: Arrays, pieces: int, order: Order, poison: int) -> Memory:
        planned = self._plan(inputs)
        outputs, scratch = self._poison_outputs(planned.outputs, poison), list[GuardedArray]()

        def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            size = math.prod(shape) * np.dtype(dtype).itemsize  # the text passes np.float32 and the like
            scratch.append(GuardedArray.allocate(f"scratch {len(scratch)}", (size,), DType.U8, SCRATCH_POISONS[poison]))
            viewed: np.ndarray = scratch[-1].array.view(dtype).reshape(shape)
            return viewed

        self._run(planned, inputs, [output.array for output in outputs], partial(one_by_one, pieces, order), empty)
        return outputs, scratch


@cache
def begin() -> None:
    """Compile a trivial function, so that forked copies of this process inherit what Numba initialises at first use."""
    numba.njit(lambda x: x + 1).compile((numba.float32,))


def load(text: str) -> tuple[Path, dict[str, Any]]:
    """The file of a text, beside which Numba stores its compiled code, and the globals of the text."""
    path = path_of(text)
    names = run_text(text, path, f"noyau_numba_{path.parent.name}")
    # Equal scalar functions of several texts are shared, so that each is compiled once a process. They belong to this
    # module: Numba's cache of a launch that calls one imports its module, and the first text's may be gone by then.
    known: dict[str, str] = {}
    for part in text.split("\n\n\n"):
        match = _SCALAR.search(part)
        if match is not None:
            called = [known[name] for name in re.findall(r"\w+(?=\()", part[match.end() :]) if name in known]
            known[match[1]] = "\n".join([part, *dict.fromkeys(called)])
            names[match[1]].py_func.__module__ = __name__
            shorten(names[match[1]])
            names[match[1]] = _SCALARS.setdefault(known[match[1]], names[match[1]])
    return path, names


def path_of(text: str) -> Path:
    """A file that holds the text."""
    return file_of(text, numba.__version__, FORM)


def _type(buffer: Buffer) -> Any:
    """The type that a launch takes for a buffer: an array, or a number for an input without axes."""
    kind = numba.from_dtype(bits_of(np.empty(0, buffer.dtype.numpy)).dtype)
    read = buffer.role is Role.INPUT
    if read and not buffer.shape:
        return kind
    axes = len(buffer.shape) or (1 if buffer.role is Role.SCRATCH else 0)
    return numba.types.Array(kind, axes, "C" if buffer.layout == "packed" else "A", readonly=read)


def bits_of(array: np.ndarray) -> np.ndarray:
    """View float16, bfloat16 and float8 as their bits."""
    return array.view(f"u{array.itemsize}") if array.dtype in _AS_BITS else array


def one_by_one(pieces: int, order: Order, call: Callable[..., int | None], items: int) -> Iterator[int | None]:
    """The status of each of so many pieces of the items, in the order that `order(count)` lists."""
    parts = min(items, max(pieces, 1))
    return (call(part * items // parts, (part + 1) * items // parts) for part in order(parts))


Span = tuple[int, int]
PIECES_A_THREAD = 8


class SharedWork:
    """Spans of items that idle threads take in turn, and for each the status that `run` returned, or its error."""

    def __init__(self, run: Callable[[int, int], int | None], spans: list[Span]) -> None:
        self.run, self.count, self.left = run, len(spans), deque(spans)
        self.results: deque[int | Exception | None] = deque()
        self.ended: SimpleQueue[None] = SimpleQueue()

    def take(self) -> None:
        """Run spans until none is left."""
        with contextlib.suppress(IndexError):  # of popleft, when none is left
            while True:
                begin, end = self.left.popleft()
                try:
                    result: int | Exception | None = self.run(begin, end)
                except Exception as error:  # noqa: BLE001  the caller of the launch raises it
                    result = error
                self.results.append(result)
        self.ended.put(None)


def run_shared(run: Callable[[int, int], int | None], items: int, threads: int) -> list[int | None]:
    """Run `run(begin, end)` over pieces of [0, items), in this thread and `threads - 1` others, or as many as can be
    started; return the results. An interrupt of this thread is raised, and no piece begins after it."""
    size = max(1, -(-items // (threads * PIECES_A_THREAD)))
    work = SharedWork(run, [(begin, min(items, begin + size)) for begin in range(0, items, size)])
    try:
        _pool(os.getpid()).give(work, min(threads, work.count) - 1)
        work.take()
        while len(work.results) < work.count:  # another thread still runs its last span
            work.ended.get()
    finally:
        work.left.clear()  # some are left after a KeyboardInterrupt
        work.run = lambda begin, end: None  # a late thread does not keep arrays alive
    for result in work.results:
        if isinstance(result, Exception):
            raise result
    return [result for result in work.results if not isinstance(result, Exception)]


class ThreadPool:
    """Threads that wait for work, as many as were ever requested at once."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[SharedWork] = SimpleQueue()
        self.threads = 0
        self.lock = Lock()

    def give(self, work: SharedWork, threads: int) -> None:
        """Let so many threads take part, or as many as can be started."""
        if self.threads < threads:
            with self.lock, contextlib.suppress(RuntimeError):  # beyond a limit, or while the interpreter ends
                while self.threads < threads:
                    Thread(target=self.serve, name=f"noyau-numba-{self.threads}", daemon=True).start()
                    self.threads += 1
        for _ in range(min(threads, self.threads)):
            self.waiting.put(work)

    def serve(self) -> None:
        while True:
            self.waiting.get().take()


_POOLS: dict[int, ThreadPool] = {}


def _pool(process: int) -> ThreadPool:
    """The pool of a process, shared by its threads: a forked child does not have its parent's threads."""
    return _POOLS.setdefault(process, ThreadPool())
