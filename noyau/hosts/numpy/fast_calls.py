"""Calls of kernels from Python: arguments that fit the call's key go through C, and all others miss.

A result of LEAST_BYTES or more lies in a block of its own, since a fresh page costs more than its cells. When the last
array on a block is gone, views included, the block waits for the next result of its size. Waiting blocks are bounded by
an eighth of the memory that this process may have (the machine's, or that of its control group where that is less), at
least 64 MiB; the oldest go back to the system first. `clear()` gives all of them back."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from noyau.compiler.lowering.input_layouts import PACKED, Layout, Order, layout_of
from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, InputError, OutsideError
from noyau.hosts.numpy.c_library import Library, library
from noyau.toolchain.c.library import Native
from noyau.workers.resources import memory_bytes

LEAST_BYTES = 1 << 20  # a block costs 4 us more than np.empty, which C libraries serve well below this
_LEAST_LIMIT_BYTES = 64 << 20
_SHARE = 8  # waiting blocks may have one part in so many of the memory
_LARGE_PAGES_BYTES = 4 << 20  # from here on, a block contains a large page of 2 MiB, wherever it begins
_STEPS = 8  # sizes of blocks between a power of two and the next: at most an eighth of a block is idle


class Block:
    """Pages of this process alone. `stamp`: the pool's count when the block came back."""

    __slots__ = ("address", "pages", "size_bytes", "stamp")

    def __init__(self, pages: mmap.mmap, size_bytes: int) -> None:
        self.pages, self.size_bytes, self.stamp = pages, size_bytes, 0
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(pages))


class _Lease:
    """A block in use. Every array on it keeps the lease alive; the block goes back when the lease is deleted."""

    __slots__ = ("__array_interface__", "block", "pool")

    def __init__(self, pool: Pool, block: Block, size_bytes: int) -> None:
        self.pool, self.block = pool, block
        data = (block.address, False)
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": data, "version": 3}

    def __del__(self) -> None:
        self.pool.give_back(self.block)


class Pool:
    """Blocks that wait for reuse, at most `limit_bytes` in all. Threads may share the pool."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = Lock()
        self._returned = deque[Block]()  # not counted yet: a block may come back at any moment
        self._waiting: dict[int, list[Block]] = {}  # by size, each in the order in which they came back
        self._bytes, self._clock = 0, 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A packed array of any values, whose memory begins at a page. MemoryError where there is not enough memory."""
        size_bytes = math.prod(shape) * dtype.itemsize
        return np.ndarray(shape, dtype, np.asarray(_Lease(self, self.take(block_bytes(size_bytes)), size_bytes)))

    def take(self, size_bytes: int) -> Block:
        """A block of this size: the block that came back last, or a new one."""
        with self._lock:
            self._admit()
            waiting = self._waiting.get(size_bytes)
            if waiting:
                self._bytes -= size_bytes
                return waiting.pop()
        return self._new(size_bytes)

    def give_back(self, block: Block) -> None:
        """Return a block to the pool. Safe at any time, also while this very thread is inside the pool."""
        self._returned.append(block)
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._admit()
            finally:
                self._lock.release()

    def clear(self) -> int:
        """Give all waiting blocks back to the system; the result is their number of bytes."""
        with self._lock:
            self._admit()
            freed, self._bytes = self._bytes, 0
            self._waiting = {}
        return freed

    def forget_threads(self) -> None:
        """Reset the pool in a forked child, where no other thread holds the lock or ends its operation."""
        self._lock = Lock()
        self._bytes = sum(size * len(blocks) for size, blocks in self._waiting.items())

    @property
    def waiting_bytes(self) -> int:
        with self._lock:
            self._admit()
            return self._bytes

    def _admit(self) -> None:
        """Count the blocks that came back; the oldest make room."""
        while self._returned:
            block = self._returned.popleft()
            block.stamp = self._clock = self._clock + 1
            self._waiting.setdefault(block.size_bytes, []).append(block)
            self._bytes += block.size_bytes
        while self._bytes > self.limit_bytes:
            oldest = min((blocks for blocks in self._waiting.values() if blocks), key=lambda blocks: blocks[0].stamp)
            self._bytes -= oldest.pop(0).size_bytes

    def _new(self, size_bytes: int) -> Block:
        with contextlib.suppress(OSError):
            return _map(size_bytes)
        self.clear()
        try:
            return _map(size_bytes)
        except OSError as error:
            raise MemoryError(f"there is no room for a result of {size_bytes} bytes: {error.strerror}") from None


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """np.empty; a result of LEAST_BYTES or more lies in a block, maybe a used one. MemoryError as in np.empty."""
    return np.empty(shape, dtype) if math.prod(shape) * dtype.itemsize < LEAST_BYTES else pool().empty(shape, dtype)


@cache
def pool() -> Pool:
    """The pool of this process."""
    new = Pool(max(memory_bytes() // _SHARE, _LEAST_LIMIT_BYTES))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=new.forget_threads)
    return new


def clear() -> int:
    """Give the memory that waits for results back to the system; the result is its number of bytes."""
    return pool().clear()


def block_bytes(size_bytes: int) -> int:
    """The size of a block for so many bytes: whole pages, and one of a few sizes, so that blocks can be reused."""
    step = max(mmap.PAGESIZE, (1 << (size_bytes - 1).bit_length()) // (2 * _STEPS))
    return -(-size_bytes // step) * step


def _map(size_bytes: int) -> Block:
    """Map pages that no child shares, large ones if possible: a new 48 MB result costs 4 ms instead of 16."""
    own: dict[str, Any] = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    pages = mmap.mmap(-1, size_bytes, **own)
    if size_bytes >= _LARGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return Block(pages, size_bytes)


def reads_scalars(dtype: np.dtype) -> bool:
    """Whether the bytes of a NumPy scalar of this dtype lie right behind the head of the object."""
    scalar = np.frombuffer(bytes(range(1, 1 + dtype.itemsize)), np.uint8).view(dtype)[0]
    if type(scalar).__basicsize__ < object.__basicsize__ + dtype.itemsize or dtype == np.bool_:
        return bool(dtype == np.bool_) and all(_payload(each) == each.tobytes() for each in (np.True_, np.False_))
    return bool(_payload(scalar) == scalar.tobytes())


def _payload(scalar: np.generic) -> bytes:
    return ctypes.string_at(id(scalar) + object.__basicsize__, scalar.dtype.itemsize)


def threads(count: int | None = None) -> int:
    """Set the number of threads of a call, its own among them, and return it; without a count, the current number.

    At first, as many as the process may use processors. With 1, no thread of noyau's works. InputError for less.
    """
    c_library = library()
    if count is not None:
        if type(count) is not int or count < 1:
            raise InputError(f"a call runs on at least 1 thread, and threads({count!r}) asks for something else")
        if c_library is not None:
            c_library.code.noyau_threads_limit(min(count, 1 << 20))
    return 1 if c_library is None else int(c_library.code.noyau_threads_wanted())


_ORDERS = (Order.PACKED, Order.PERMUTED, Order.INNER, Order.STRIDED)  # in the order of arguments.c
_ARRAYS, _NUMBERS = 1, {bool: 2, int: 4, float: 8}
_PATIENCE: Any = 10_000  # attempts to find a cell that two arrays share
_FAILURES = (
    (CheckError, "returned the status 0"),
    (OutsideError, "an index is outside the axis that it looks into"),
    (MemoryError, "there is not enough memory for its scratch"),
    (CheckError, "returned a status that has no meaning"),
)


class _Miss:
    """The class of MISS, which is the result for arguments that do not fit the fast call's key."""

    def __repr__(self) -> str:
        return "MISS"

    def __bool__(self) -> bool:
        return False


MISS: Final = _Miss()


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a compiled call.

    `arrays`: whether it takes NumPy arrays, and for rank 0 NumPy's scalars, of exactly this dtype; `numbers`: the types
    of Python numbers, in range, that it takes for rank 0; `ones`: which axes have one cell, if the kernel is
    specialised for that; `equals`: the only value that it may have, for rank 0."""

    dtype: DType
    rank: int
    layout: Layout = PACKED
    arrays: bool = True
    numbers: tuple[type, ...] = ()
    ones: tuple[bool, ...] | None = None
    equals: int | None = None


class LibraryCall:
    """A kernel of a built library, and the arguments of a fast call of it. `called`: its name in messages; `results`:
    the number of results that the caller describes, or 0. BuildError and CheckError as for a FastCall."""

    def __init__(self, path: Path, symbol: str, arguments: Sequence[Argument], called: str, results: int = 0) -> None:
        self.path, self.symbol, self.native = path, symbol, Native(path, symbol)
        self.arguments, self.called = tuple(arguments), called or self.native.name
        expected = list(zip(self.native.dtypes, self.native.ranks, strict=True))[: self.native.inputs]
        if [(end.dtype, end.rank) for end in self.arguments] != expected or results not in (0, self.native.outputs):
            message = "its fast call has other arguments or results than its kernel"
            raise CheckError(f"{self.called}: {message}, {self.native.name}")

    @property
    def results(self) -> tuple[DType, ...]:
        return self.native.dtypes[self.native.inputs :]


class FastCall(LibraryCall):
    """A kernel of a built library as `fast_call(arguments, out=None)`: from a tuple of arguments to a result, or to a
    tuple of several; MISS where the values do not fit `arguments`, or the kernel refuses their sizes.

    `scalars`: which results are NumPy scalars; `constants`: the last arguments, which no caller passes. `call` is the
    same function without a frame of Python, `out` by position. With `out`, an array or a tuple of them, of exactly the
    dtypes and shapes, results are written there, and `out` is returned. Where an array of it is not packed, the kernel
    writes to memory of its own, which is then copied.

    A call raises InputError where `out` does not fit, shares memory with an argument or may not be written,
    OutsideError where an index is out of bounds; MemoryError; CheckError for a status without a meaning. Construction
    raises BuildError where the library cannot be loaded, CheckError where the kernel has other arguments or results."""

    def __init__(
        self,
        path: Path,
        symbol: str,
        arguments: Sequence[Argument],
        scalars: Sequence[bool] = (),
        name: str = "",
        constants: Sequence[np.ndarray] = (),
    ) -> None:
        self.constants = tuple(np.require(each, requirements=["C", "A"]) for each in constants)
        fixed = [Argument(dtype, each.ndim) for each in self.constants if (dtype := from_numpy(each.dtype))]
        super().__init__(path, symbol, [*arguments, *fixed], name, len(scalars))
        self.scalars = tuple(scalars) or (False,) * self.native.outputs
        c_library = library()
        reads = c_library if c_library is not None and c_library.fast_calls else None
        self.in_c = reads is not None
        self.call: Callable[..., Any] = in_python(self) if reads is None else in_c(self, reads)

    def __call__(self, arguments: tuple[Any, ...], out: Any = None) -> Any:
        return self.call(arguments, out)


class ArgumentEnd(ctypes.Structure):
    """`argument_end` of arguments.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("descr", "scalar", "convert", "equals", "axes")),
        ("ones", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("onnx", "item", "rank", "layout", "takes")),
    )


class ResultEnd(ctypes.Structure):
    """`result_end` of arguments.c."""

    _fields_ = (("descr", ctypes.c_void_p), ("item", ctypes.c_int32), ("scalar", ctypes.c_int32))


class FastCallEnds(ctypes.Structure):
    """`fast_call` of arguments.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("kernel", "arguments", "results", "constants")),
        *((name, ctypes.c_int64) for name in ("dims", "most_dims", "made_apart")),
    )


def in_c(fast_call: FastCall, library: Library) -> Callable[..., Any]:
    """The function in C of a fast call."""
    pairs = zip(fast_call.results, fast_call.scalars, strict=True)
    results = [ResultEnd(id(dtype.numpy), dtype.bytes, scalar) for dtype, scalar in pairs]
    ends, alive = ends_of(fast_call, results, fast_call.constants)
    alive.append([dtype.numpy for dtype in fast_call.results])
    state = (ctypes.addressof(ends), MISS, empty, partial(write, fast_call.called), failures(fast_call.called), alive)
    return library.fast_call(state)


def ends_of(
    fast_call: LibraryCall, results: Sequence[ResultEnd], constants: tuple[np.ndarray, ...] = ()
) -> tuple[FastCallEnds, list[Any]]:
    """The description of a kernel for the compiled call, and the objects that must live as long as the description."""
    native, arguments = fast_call.native, fast_call.arguments
    alive, kernel = list[Any](), ctypes.CDLL(str(fast_call.path))
    argument_ends = (ArgumentEnd * max(1, len(arguments)))(*(_argument(end, alive) for end in arguments))
    ends = (argument_ends, (ResultEnd * max(1, len(results)))(*results))
    dims = sum(2 * end.rank for end in arguments)
    most = max(native.ranks[native.inputs :], default=0)
    addresses = (ctypes.addressof(each) for each in (ctypes.c_char.in_dll(kernel, fast_call.symbol), *ends))
    fast_call_ends = FastCallEnds(*addresses, id(constants), dims, most, LEAST_BYTES)
    return fast_call_ends, [*alive, fast_call_ends, *ends, kernel, constants]


def failures(name: str) -> tuple[tuple[type[Exception], str], ...]:
    """The error for each status of a kernel."""
    return tuple((kind, f"{name}: {message}") for kind, message in _FAILURES)


def in_python(fast_call: FastCall) -> Callable[..., Any]:
    """The function in Python of a fast call, for a process without the C library."""
    call = partial(call_kernel, fast_call.native, fast_call.arguments, fast_call.scalars)

    def called(arguments: tuple[Any, ...], out: Any = None) -> Any:
        result = call((*arguments, *fast_call.constants) if type(arguments) is tuple else arguments)
        if result is None:
            return MISS
        return result if out is None else write(fast_call.called, result, out, arguments)

    return called


def _argument(end: Argument, alive: list[Any]) -> ArgumentEnd:
    """The description of an argument for C; objects that it points to are appended to `alive`."""
    dtype, integral = end.dtype.numpy, end.dtype.kind in ("int", "uint", "bool")
    axes = (ctypes.c_int32 * max(1, end.rank))(*(end.layout.axes or range(end.rank)))
    equals = None if end.equals is None else np.array(end.equals, dtype)
    by_python = None if integral or end.dtype in (DType.F32, DType.F64) else partial(cell_of_number, dtype)
    alive += [dtype, axes, equals, by_python]
    return ArgumentEnd(
        id(dtype),
        id(dtype.type) if end.rank == 0 and reads_scalars(dtype) else None,
        None if by_python is None else id(by_python),
        None if equals is None else equals.ctypes.data,
        ctypes.addressof(axes),
        -1 if end.ones is None else sum(one << axis for axis, one in enumerate(end.ones)),
        end.dtype.onnx,
        dtype.itemsize,
        end.rank,
        _ORDERS.index(end.layout.order),
        _ARRAYS * end.arrays + sum(_NUMBERS[kind] for kind in end.numbers),
    )


def write(label: str, value: Any, out: Any, arguments: Sequence[Any]) -> Any:
    """Copy results to the arrays of `out`, and return it. InputError where an array does not fit, or shares memory."""
    results, targets = (each if isinstance(each, tuple) else (each,) for each in (value, out))
    if len(targets) != len(results):
        counts = f"has {len(results)} result{'' if len(results) == 1 else 's'}, and out= has {len(targets)}"
        raise InputError(f"{label} {counts}; give an array, or a tuple of one for each result")
    for at, (result, target) in enumerate(zip(results, targets, strict=True)):
        name = "out" if len(results) == 1 else f"out[{at}]"
        fault = misfit(np.asarray(result), target)
        if fault is not None:
            raise InputError(f"{label}: {name} {fault}")
        if any(shares_memory(target, other) for other in (*arguments, *targets[:at])):
            raise InputError(f"{label}: {name} shares memory with an argument or another result; give it its own")
    for result, target in zip(results, targets, strict=True):
        target[...] = result
    return out


def misfit(result: np.ndarray, target: object) -> str | None:
    """The reason, as text, why a result cannot be written to a target, or None."""
    if not isinstance(target, np.ndarray):
        return f"is {type(target).__name__}, and results are written to NumPy arrays"
    if target.dtype != result.dtype or target.shape != result.shape:
        return f"is {target.dtype}{list(target.shape)}, and the result is {result.dtype}{list(result.shape)}"
    return None if target.flags.writeable else "may not be written; give an array that may"


def shares_memory(target: np.ndarray, other: object) -> bool:
    """Whether two arrays share a cell; True where an exact answer would take too long."""
    if not isinstance(other, np.ndarray) or not np.may_share_memory(target, other):
        return False
    try:
        return np.shares_memory(target, other, max_work=_PATIENCE)
    except np.exceptions.TooHardError:
        return True


def call_kernel(native: Native, arguments: Sequence[Argument], scalars: Sequence[bool], values: object) -> Any:
    """Run a kernel: its result, or a tuple of several; None where the values do not fit `arguments`."""
    if type(values) is not tuple or len(values) != len(arguments):
        return None
    arrays = [array for array in map(read_argument, arguments, values) if array is not None]
    if len(arrays) != len(values):
        return None
    try:
        run = native.bound(*arrays)
    except InputError:  # shapes that the kernel refuses
        return None
    return in_caller_form(run(), scalars)


def in_caller_form(results: Sequence[np.ndarray], scalars: Sequence[bool]) -> Any:
    """Results in the form of a call: one, or a tuple; those of `scalars` as NumPy scalars."""
    values = tuple(result[()] if scalar else result for result, scalar in zip(results, scalars, strict=True))
    return values[0] if len(values) == 1 else values


def read_argument(end: Argument, value: Any) -> np.ndarray | None:
    """A value in the form that the kernel takes, or None where it does not fit the argument."""
    if type(value) is np.ndarray:
        array = value if end.arrays and _fits(end, value) else None
    elif end.rank:
        array = None
    elif type(value) is end.dtype.numpy.type:
        array = np.asarray(value) if end.arrays else None
    else:
        array = cell_of_number(end.dtype.numpy, value) if type(value) in end.numbers else None
    if array is None or (end.equals is not None and array != np.array(end.equals, array.dtype)):
        return None
    return end.layout.in_memory(array)


def cell_of_number(dtype: np.dtype, value: bool | int | float) -> np.ndarray | None:
    """A Python number cast to a dtype, as NumPy does beside arrays of that dtype; None where it is out of range."""
    if (type(value) is bool) != (dtype.kind == "b") or (type(value) is float and dtype.kind in "iu"):
        return None
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    if type(value) is int and not limits.min <= value <= limits.max:
        return None
    with np.errstate(over="ignore"):
        return np.array(value).astype(dtype)


def _fits(end: Argument, array: np.ndarray) -> bool:
    if array.ndim != end.rank or array.dtype != end.dtype.numpy:
        return False
    layout = layout_of(array)
    if layout is not end.layout and layout != end.layout:  # most are the same object, PACKED
        return False
    return end.ones is None or end.ones == tuple([extent == 1 for extent in array.shape])
