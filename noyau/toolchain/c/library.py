"""A built kernel as a Python function of NumPy arrays, and between guard zones, to see which memory it touches."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType, extents_and_strides, from_number
from noyau.errors import BuildError, CheckError, FindingKind, InputError, UnsupportedError
from noyau.toolchain.guard_zones import SCRATCH_POISONS, ArrayKernel, Arrays, Empty, GuardedArray, Memory, Order, words

_I64 = ctypes.c_int64
_I32 = ctypes.c_int32
_I64S = ctypes.POINTER(_I64)
Sizes: TypeAlias = "ctypes.Array[_I64]"


class _Call(ctypes.Structure):
    """`noyau_call` of codegen/c/noyau.h."""

    _fields_ = (("buffers", ctypes.POINTER(ctypes.c_void_p)), ("sizes", _I64S), ("launch", _I32))


class _Kernel(ctypes.Structure):
    """`noyau_kernel` of codegen/c/noyau.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        *((count, _I32) for count in ("inputs", "outputs", "scratch", "launches", "sizes")),
        *((each, ctypes.POINTER(_I32)) for each in ("dtypes", "ranks")),
        ("bind", ctypes.CFUNCTYPE(_I32, ctypes.POINTER(_I64S), _I64S)),
        ("shape", ctypes.CFUNCTYPE(None, _I64S, _I32, _I64S)),
        *((each, ctypes.CFUNCTYPE(_I64, _I64S, _I32)) for each in ("scratch_bytes", "extent", "item_bytes")),
        ("run", ctypes.CFUNCTYPE(_I32, ctypes.POINTER(_Call), _I64, _I64)),
    )


class Native(ArrayKernel):
    """A kernel of a built library.

    `name`; `inputs`, `outputs`, `scratch` and `launches` are counts; `dtypes` and `ranks` are of the inputs, then of
    the outputs. `layouts`: of the inputs, as `Buffer.layout` of the kernel that the library was built from; packed by
    default. BuildError where the library or the symbol cannot be loaded."""

    def __init__(self, path: Path, symbol: str, layouts: Sequence[str] = ()) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            self._kernel = _Kernel.in_dll(self._library, symbol)
        except (OSError, ValueError) as error:
            raise BuildError(f"{symbol!r} of {path} cannot be loaded: {error}; noyau cache --clear would do") from error
        kernel = self._kernel
        self.name: str = kernel.name.decode("utf-8", "replace")
        self.inputs, self.outputs = kernel.inputs, kernel.outputs
        self.scratch, self.launches = int(kernel.scratch), int(kernel.launches)
        ends = range(self.inputs + self.outputs)
        self.dtypes: tuple[DType, ...] = tuple(self._dtype(kernel.dtypes[end]) for end in ends)
        self.ranks: tuple[int, ...] = tuple(kernel.ranks[end] for end in ends)
        self.layouts: tuple[str, ...] = (*layouts, *("packed",) * (self.inputs - len(layouts)))

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

        Each launch is cut into `pieces` (fewer if it has fewer items), run in the order that `order(count)` lists, by
        `threads` threads. Inputs in another layout than the kernel's are copied. InputError where an array has another
        dtype, rank or shape than the kernel takes, or an index in one is out of bounds."""
        inputs = self._laid_out(arrays)
        sizes = self._bind(inputs)
        shapes = self._shapes(sizes)
        outputs = self._allocate(shapes, empty) if out is None else self._accept(out, shapes, inputs)
        scratch = [_allocate_aligned(size) for size in self._scratch_bytes(sizes)]
        self._run([*inputs, *outputs, *scratch], sizes, pieces, order, threads)
        return outputs

    def bound(self, *arrays: np.ndarray) -> Callable[[], list[np.ndarray]]:
        """A callable that runs the kernel on these arrays repeatedly, in one piece, into the same outputs, which it
        returns: a call does nothing else, so that it can be timed."""
        inputs = self._laid_out(arrays)
        sizes = self._bind(inputs)
        outputs = self._allocate(self._shapes(sizes))
        buffers = [*inputs, *outputs, *(_allocate_aligned(size) for size in self._scratch_bytes(sizes))]
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.ctypes.data for buffer in buffers))
        calls = [_Call(pointers, ctypes.cast(sizes, _I64S), launch) for launch in range(self.launches)]
        every = [(ctypes.byref(call), 0, self._kernel.extent(sizes, k)) for k, call in enumerate(calls)]
        pieces, run = [piece for piece in every if piece[2]], self._kernel.run

        def again(held: Sequence[np.ndarray] = buffers) -> list[np.ndarray]:
            del held  # the kernel has only addresses: this keeps the arrays alive
            for piece in pieces:
                self._refuse(run(*piece))
            return outputs

        return again

    def _dtype(self, number: int) -> DType:
        dtype = from_number(number)
        if dtype is None or dtype is DType.OTHER:
            raise UnsupportedError(f"{self.name} declares the ONNX element type {number}, which no buffer can have")
        return dtype

    def _laid_out(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Check the inputs' dtypes and ranks; InputError names the first that differs."""
        inputs = super()._laid_out(arrays)
        for number, (array, dtype, rank) in enumerate(zip(inputs, self.dtypes, self.ranks, strict=False)):
            if array.dtype != dtype.numpy or array.ndim != rank:
                kind, expected = f"{array.dtype} of rank {array.ndim}", f"{dtype.numpy} of rank {rank}"
                raise InputError(f"{self.name} wants {expected} as input {number}, got {kind}")
        return inputs

    def _bind(self, inputs: Sequence[np.ndarray]) -> Sizes:
        """The kernel's sizes, from the shapes and strides of the inputs."""
        shapes = [_integers(extents_and_strides(array)) for array in inputs]
        pointers = (_I64S * max(1, len(shapes)))(*(ctypes.cast(shape, _I64S) for shape in shapes))
        sizes = _integers([0] * self._kernel.sizes)
        if wrong := self._kernel.bind(pointers, sizes):
            message = ", ".join(str(array.shape) for array in inputs)
            raise InputError(f"{self.name}: the shape of input {wrong - 1} does not fit, of the shapes {message}")
        return sizes

    def _shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        ranks = self.ranks[self.inputs :]
        dims = [_integers([0] * rank) for rank in ranks]
        for number, each in enumerate(dims):
            self._kernel.shape(sizes, number, each)
        return self._natural([tuple(each[:rank]) for each, rank in zip(dims, ranks, strict=True)])

    def _allocate(self, shapes: Sequence[tuple[int, ...]], empty: Empty | None = None) -> list[np.ndarray]:
        return list(map(empty or _empty, shapes, (dtype.numpy for dtype in self.dtypes[self.inputs :])))

    def _scratch_bytes(self, sizes: Sizes) -> list[int]:
        return [self._kernel.scratch_bytes(sizes, number) for number in range(self.scratch)]

    def _run(
        self, buffers: Arrays, sizes: Sizes, pieces: int, order: Order, threads: int, watch: _Watch | None = None
    ) -> None:
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(buffer.ctypes.data for buffer in buffers))
        for launch in range(self.launches):
            call = _Call(pointers, ctypes.cast(sizes, _I64S), launch)
            spans = _split(self._kernel.extent(sizes, launch), max(pieces, threads), order)
            for status in _each(partial(self._piece, call), spans, threads):
                self._refuse(status)
                if watch is not None:
                    watch.look()
            if watch is not None:
                watch.forget()

    def _piece(self, call: _Call, span: tuple[int, int]) -> int:
        status: int = self._kernel.run(ctypes.byref(call), *span)
        return status

    def _run_between(self, inputs: Arrays, pieces: int, order: Order, poison: int) -> Memory:
        sizes = self._bind(inputs)
        outputs = self._poison_outputs(self._shapes(sizes), poison)
        scratch = [
            GuardedArray.allocate(f"scratch {number}", (size,), DType.U8, SCRATCH_POISONS[poison])
            for number, size in enumerate(self._scratch_bytes(sizes))
        ]
        watch = _Watch(self.name, [output.array for output in outputs]) if pieces > 1 else None
        self._run([*inputs, *(guarded.array for guarded in (*outputs, *scratch))], sizes, pieces, order, 1, watch)
        return outputs, scratch


class _Watch:
    """A watchdog for the output cells that pieces of a launch change: two pieces on one would race on two threads."""

    def __init__(self, name: str, outputs: Sequence[np.ndarray]) -> None:
        self.name, self.outputs = name, outputs
        self.before = [_bits(output) for output in outputs]
        self.forget()

    def forget(self) -> None:
        """Begin another launch: all pieces of the previous one have ended."""
        self.changed = [np.zeros(output.size, bool) for output in self.outputs]

    def look(self) -> None:
        """Check after a piece. CheckError if it changed a cell that another piece had changed."""
        for number, (output, changed) in enumerate(zip(self.outputs, self.changed, strict=True)):
            bits = _bits(output)
            now, self.before[number] = bits != self.before[number], bits
            if (now & changed).any():
                where = [int(index) for index in np.unravel_index(np.argmax(now & changed), output.shape)]
                message = f"two pieces of its work change output {number} at {where}"
                raise CheckError(f"{self.name}: {message}: on two threads they would race", FindingKind.RACE)
            changed |= now


def _bits(array: np.ndarray) -> np.ndarray:
    """A copy of the cells, each as one unsigned integer."""
    return words(np.array(array, order="C").reshape(-1), array.itemsize)


def _each(run: Callable[[tuple[int, int]], int], spans: Sequence[tuple[int, int]], threads: int) -> Iterable[int]:
    """The status of each piece; with one thread, the caller can stop at the first bad one."""
    if threads <= 1:
        return map(run, spans)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, spans))


def _integers(values: Sequence[int]) -> Sizes:
    """An int64 array for C, never of length 0."""
    return (_I64 * max(1, len(values)))(*values)


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return _allocate_aligned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _allocate_aligned(size: int) -> np.ndarray:
    """`size` bytes, aligned to 64."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


def _split(extent: int, pieces: int, order: Order) -> list[tuple[int, int]]:
    """[0, extent) in pieces of nearly equal length, none empty, in this order."""
    count = min(max(pieces, 1), extent)
    spans = [(extent * piece // count, extent * (piece + 1) // count) for piece in range(count)]
    return [spans[piece] for piece in order(count)]
