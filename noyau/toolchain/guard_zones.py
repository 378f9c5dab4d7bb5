"""Kernels as functions of NumPy arrays, and memory between poisoned zones: writes outside, and missing writes, show.

One run of a kernel between guard zones: the layouts of its arrays, the zones around them, and untouchable memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind, InputError, OutsideError

Shape = tuple[int, ...]
Arrays = Sequence[np.ndarray]
Order = Callable[[int], Iterable[int]]
Empty = Callable[[Shape, np.dtype], np.ndarray]  # allocates memory for a result

_STATUSES = {1: "an index is outside the axis that it looks into", 2: "there is not enough memory for its scratch"}
GUARD_BYTES = 4096
_ALIGNMENT = 64
SCRATCH_POISONS = (b"\xff", b"\x7f", b"\x5a")  # bytes for any type; the first is NaN in every float type
PLAIN = 2  # the poison that is a number: a NaN keeps its bits through divisions and additions

# Three poisons for each type, all different: for floats two quiet NaNs, so that a read beyond a buffer spreads, and a
# number, so that a cell there that is read and written back changes.
_POISONS = {
    DType.F16: (b"\xad\xfe", b"\x5a\x7f", b"\x5a\x5a"),
    DType.BF16: (b"\xed\xff", b"\xda\x7f", b"\x5a\x45"),
    DType.F8E4M3FN: (b"\xff", b"\x7f", b"\x5a"),
    DType.F8E4M3FNUZ: (b"\x80", b"\x7f", b"\x5a"),
    DType.F8E5M2: (b"\xfe", b"\x7e", b"\x5a"),
    DType.F8E5M2FNUZ: (b"\x80", b"\x7f", b"\x5a"),
    DType.F32: (b"\xad\xde\xc0\xff", b"\x5a\x5a\xda\x7f", b"\x5a\x5a\x5a\x45"),
    DType.F64: (b"\xad\xde\xc0\xad\xde\xc0\xff\xff", b"\x5a\x5a\x5a\x5a\x5a\x5a\xfa\x7f", b"\x5a" * 7 + b"\x40"),
}


@dataclass(frozen=True, slots=True)
class GuardedArray:
    """An array in memory of its own: `label` names it in messages, `around` is its memory with both zones, in bytes;
    `gaps`: the cells between the zones that are not the array's, if there are any."""

    label: str
    array: np.ndarray
    around: np.ndarray
    poison: bytes
    gaps: np.ndarray | None = None

    @classmethod
    def allocate(cls, label: str, shape: tuple[int, ...], dtype: DType, poison: bytes) -> GuardedArray:
        """An array whose cells, and those of both zones, all have this poison."""
        count = int(np.prod(shape, dtype=np.int64))
        room = np.empty(count * dtype.bytes + 2 * GUARD_BYTES + _ALIGNMENT, np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        around = room[start : start + count * dtype.bytes + 2 * GUARD_BYTES]
        words(around, dtype.bytes)[:] = np.frombuffer(poison, f"u{dtype.bytes}")
        array = around[GUARD_BYTES : len(around) - GUARD_BYTES].view(dtype.numpy).reshape(shape)
        return cls(label, array, around, poison)

    @classmethod
    def holding(cls, label: str, array: np.ndarray, dtype: DType, poison: int = 0) -> GuardedArray:
        """A packed copy of an array, between zones of one of its type's poisons."""
        guarded = cls.allocate(label, array.shape, dtype, poison_of(dtype, poison))
        guarded.array[...] = array
        return guarded

    @classmethod
    def alike(cls, label: str, array: np.ndarray, dtype: DType, poison: int = 0) -> GuardedArray:
        """A copy of an array with the same strides, which are whole elements; the gaps between cells are poisoned."""
        if array.flags.c_contiguous or not array.size:
            return cls.holding(label, array, dtype, poison)
        steps = [stride // array.itemsize for stride in array.strides]
        ends = [step * (extent - 1) for extent, step in zip(array.shape, steps, strict=True)]
        first, count = -sum(end for end in ends if end < 0), 1 + sum(map(abs, ends))
        room = cls.allocate(label, (count,), dtype, poison_of(dtype, poison))
        copy, gaps = as_strided(room.array[first:], array.shape, array.strides), np.ones(count, bool)
        copy[...] = array
        as_strided(gaps[first:], array.shape, steps)[...] = False
        return cls(label, copy, room.around, room.poison, gaps)

    def refuse_writes(self, kernel: str) -> None:
        """CheckError if anything outside the array was written."""
        zones = {"before": self.around[:GUARD_BYTES], "after": self.around[len(self.around) - GUARD_BYTES :]}
        for side, zone in zones.items():
            changed = np.flatnonzero(~self._is_poison(zone))
            if changed.size:
                cells = changed[0] + 1 if side == "after" else GUARD_BYTES // len(self.poison) - changed[-1]
                end = "end" if side == "after" else "start"
                kind = FindingKind.OUT_OF_BOUNDS if side == "after" else FindingKind.NEGATIVE_INDEX
                raise CheckError(f"{kernel} wrote outside {self.label}, {cells} cells {side} its {end}", kind)
        between = self.around[GUARD_BYTES : len(self.around) - GUARD_BYTES]
        if self.gaps is not None and (self.gaps & ~self._is_poison(between)).any():
            raise CheckError(f"{kernel} wrote outside {self.label}, between its cells", FindingKind.OUT_OF_BOUNDS)

    def still_poisoned(self) -> np.ndarray:
        """A mask of the cells that still have the exact bits of the poison."""
        return self._is_poison(self.around[GUARD_BYTES : len(self.around) - GUARD_BYTES]).reshape(self.array.shape)

    def _is_poison(self, zone: np.ndarray) -> np.ndarray:
        """Compare each cell of these bytes with the poison."""
        size = len(self.poison)
        equal: np.ndarray = words(zone, size) == np.frombuffer(self.poison, f"u{size}")
        return equal


Memory = tuple[list[GuardedArray], list[GuardedArray]]  # outputs and scratch


def refuse_unwritten(kernel: str, output: str, missed: np.ndarray, kind: FindingKind = FindingKind.UNWRITTEN) -> None:
    """CheckError if a kernel missed cells of an output: it never wrote them, or reads them before it writes."""
    if missed.any():
        verb = "never wrote" if kind is FindingKind.UNWRITTEN else "reads before it writes"
        first = [int(index) for index in np.argwhere(missed)[0]]
        raise CheckError(f"{kernel} {verb} {missed.sum()} cells of {output}; the first is {first}", kind)


def changed_input(kernel: str, label: object) -> CheckError:
    """The error for a kernel that wrote to an input, by its number or its name."""
    return CheckError(f"{kernel} changed its input {label}", FindingKind.MUTATED_INPUT)


def words(content: np.ndarray, size: int) -> np.ndarray:
    """Bytes, u8[count * size], as one unsigned integer for each cell, so that cells compare fast."""
    return content.view(f"u{size}")


def poison_of(dtype: DType, which: int) -> bytes:
    """The bytes of one cell of the type's first (0) or second (1) poison, or of its number (PLAIN)."""
    return _POISONS.get(dtype, (b"\xa5" * dtype.bytes, b"\x5a" * dtype.bytes, b"\x3c" * dtype.bytes))[which]


class ArrayKernel(ABC):
    """A kernel as a function of NumPy arrays.

    `inputs` and `outputs` are counts; `dtypes` are of the inputs, then of the outputs; `layouts`: of the inputs, as in
    `Buffer.layout`."""

    name: str
    inputs: int
    outputs: int
    dtypes: tuple[DType, ...]
    layouts: tuple[str, ...]

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        """As a call, on copies between guard zones, with outputs and scratch poisoned before.

        As a whole, the poison of floats is NaN, in pieces a number: a read beyond a buffer shows in one, a change there
        in the other. CheckError where a guard was overwritten, an input was changed, a cell of an output was never
        written, or, in a library, two pieces of a launch changed the same cell."""
        inputs = self._laid_out(arrays)
        first = self._run_guarded(inputs, pieces, order, PLAIN if pieces > 1 else 0)
        suspects = [output.still_poisoned() for output in first]
        if any(suspect.any() for suspect in suspects):
            # A correct value may equal one poison; it cannot equal two.
            second = self._run_guarded(inputs, pieces, order, 1)
            for number, (suspect, output) in enumerate(zip(suspects, second, strict=True)):
                refuse_unwritten(self.name, f"output {number}", suspect & output.still_poisoned())
        return [output.array for output in first]

    @abstractmethod
    def _run_between(self, inputs: Arrays, pieces: int, order: Order, poison: int) -> Memory:
        """Run once; return the outputs and the scratch, which were poisoned before."""

    def _run_guarded(self, inputs: Sequence[np.ndarray], pieces: int, order: Order, poison: int) -> list[GuardedArray]:
        """Run once between guards; return the outputs, after checks that nothing else was touched."""
        around = PLAIN if poison == PLAIN else 0  # never that of a second run's outputs, for reads there may be copied
        ends = enumerate(zip(inputs, self.dtypes, strict=False))
        copies = [GuardedArray.alike(f"input {number}", *end, around) for number, end in ends]
        outputs, scratch = self._run_between([copy.array for copy in copies], pieces, order, poison)
        for guarded in [*copies, *outputs, *scratch]:
            guarded.refuse_writes(self.name)
        for number, (copy, array) in enumerate(zip(copies, inputs, strict=True)):
            if copy.array.tobytes() != array.tobytes():
                raise changed_input(self.name, number)
        return outputs

    def _refuse(self, status: int | None) -> None:
        """OutsideError, InputError or CheckError for a launch's status, unless it is None or 0."""
        if status in _STATUSES:
            raise (OutsideError if status == 1 else InputError)(f"{self.name}: {_STATUSES[status]}")
        if status:
            raise CheckError(f"{self.name} returned the status {status}, which has no meaning")

    def _poison_outputs(self, shapes: Sequence[Shape], poison: int) -> list[GuardedArray]:
        return [
            GuardedArray.allocate(f"output {number}", shape, dtype, poison_of(dtype, poison))
            for number, (shape, dtype) in enumerate(zip(shapes, self.dtypes[self.inputs :], strict=True))
        ]

    def _laid_out(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays themselves, or packed copies, which fit every layout."""
        if len(arrays) != self.inputs:
            raise InputError(f"{self.name} takes {self.inputs} inputs, got {len(arrays)}")
        inputs = list(map(np.asarray, arrays))
        for number, array in enumerate(inputs):
            if not has_layout(array, self.layouts[number]):
                inputs[number] = np.require(array, requirements=["C", "A"])
        return inputs

    def _natural(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the outputs. InputError where an extent is negative."""
        for number, shape in enumerate(shapes):
            if min(shape, default=0) < 0:
                raise InputError(f"{self.name}: output {number} would have the shape {shape}; give larger inputs")
        return list(shapes)

    def _accept(self, out: Arrays, shapes: Sequence[Shape], inputs: Arrays) -> list[np.ndarray]:
        """The arrays to write to; InputError if one does not fit."""
        if len(out) != self.outputs:
            raise InputError(f"{self.name} has {self.outputs} outputs, got {len(out)} to write to")
        for number, (array, shape) in enumerate(zip(out, shapes, strict=True)):
            dtype = self.dtypes[self.inputs + number].numpy
            if array.shape != shape or array.dtype != dtype or not array.flags.carray:
                raise InputError(f"{self.name} wants a writable, packed {dtype} of shape {shape} for output {number}")
            if any(np.may_share_memory(array, other) for other in (*inputs, *out[:number])):
                raise InputError(f"{self.name} cannot write output {number} over another array; give it its own memory")
        return list(out)


def has_layout(array: np.ndarray, layout: str) -> bool:
    """Whether a kernel can read an array in place, as an input of this layout: packed, inner or strided."""
    if not array.flags.aligned or array.flags.c_contiguous or layout == "packed":
        return bool(array.flags.aligned and array.flags.c_contiguous)
    axes = [stride for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1]
    side_by_side = layout == "strided" or array.shape[-1] <= 1 or array.strides[-1] == array.itemsize
    return side_by_side and not any(stride % array.itemsize for stride in axes)


Array = np.ndarray
# from a label, an array, its dtype and the poison around it to the memory and the view
Layout = Callable[..., tuple[GuardedArray, Array]]
Call = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]  # inputs and outputs -> results
ZEROS = -1  # initial value of outputs, instead of a poison
OTHER = 1  # another poison: of a second run; and around inputs, so that copies from there to outputs show


def _by_turn(turn: Callable[[Array], Array]) -> Layout:
    """A layout in which an array is packed after `turn`, which is its own inverse."""

    def lay(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
        guarded = GuardedArray.holding(label, turn(array), dtype, poison)
        return guarded, turn(guarded.array)

    return lay


contiguous = _by_turn(lambda array: array)  # packed, in C order
transpose = _by_turn(np.transpose)  # the axes reversed: the first is contiguous
flip = _by_turn(lambda array: np.flip(array) if array.ndim else array)  # the last cell first, by negative strides


def slice_cells(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """Every second cell along the last axis; the gaps are poison."""
    if not array.ndim:
        return contiguous(label, array, dtype, poison)
    return _view(label, array, dtype, poison, (*array.shape[:-1], 2 * array.shape[-1]), (..., slice(None, None, 2)))


def offset(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """A part of an array that starts after a row of poison, with rows longer than the part."""
    shape = tuple(extent + 1 for extent in array.shape)
    return _view(label, array, dtype, poison, shape, (..., *(slice(1, None),) * array.ndim))


def expand(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """One cell with strides of 0, not writable, if all cells are equal; else packed."""
    flat = array.reshape(-1)
    if flat.size < 2 or any(cell.tobytes() != flat[0].tobytes() for cell in flat[1:]):
        return contiguous(label, array, dtype, poison)
    guarded = GuardedArray.holding(label, flat[:1], dtype, poison)
    return guarded, np.broadcast_to(guarded.array[0], array.shape)


LAYOUTS: dict[str, Layout] = {
    "transposed": transpose,
    "sliced": slice_cells,
    "offset": offset,
    "flipped": flip,
    "expanded": expand,
}
BY_NAME: dict[str, Layout] = {"contiguous": contiguous, **LAYOUTS}


def _view(
    label: str, array: Array, dtype: DType, poison: int, shape: tuple[int, ...], where: tuple[object, ...]
) -> tuple[GuardedArray, Array]:
    """Poisoned memory of a shape, and the part of it that is the array."""
    around = GuardedArray.holding(label, np.empty(shape, dtype.numpy), dtype, poison)
    around.array.reshape(-1).view(np.uint8).reshape(-1, dtype.bytes)[:] = np.frombuffer(around.poison, np.uint8)
    view = around.array[where]  # type: ignore[index]
    view[...] = array
    return around, view


@dataclass(frozen=True, slots=True)
class How:
    """The settings of a run. `layout`: of the inputs, by name; `threads`: of a multi-threaded kernel, 0 for its
    default; `around`: the number of the poison around the inputs, `outputs`: that of the outputs, or ZEROS. `pieces`:
    of a kernel that is called for pieces of its work, the last first; the poison is then a number."""

    layout: str = "contiguous"
    threads: int = 0
    around: int = 0
    outputs: int = 0
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class End:
    """An input or an output of a run."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Guards:
    """A call between guard zones. `called` names the kernel in messages; `fills`: it writes each cell of an output."""

    call: Call
    called: str
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    fills: bool = True

    def run(self, arrays: Sequence[Array], how: How = How()) -> list[Array]:
        """The results. CheckError for a guard overwritten, an input changed, or a cell of an output never written."""
        results, outputs = self.once(arrays, how)
        suspects = [guarded.still_poisoned() for guarded in outputs]
        if self.fills and how.outputs != ZEROS and any(suspect.any() for suspect in suspects):
            self.require_written(arrays, how, suspects)
        return results

    def require_written(self, arrays: Sequence[Array], how: How, suspects: Sequence[Array]) -> None:
        """CheckError for a cell that has the bits of each poison. A correct value may have those of one, and a NaN
        keeps its bits through additions: then the kernel reads a cell that it should write."""
        seconds, thirds = (self.once(arrays, How(how.layout, how.threads, 0, each))[1] for each in (OTHER, PLAIN))
        for suspect, second, third in zip(suspects, seconds, thirds, strict=True):
            missed = suspect & second.still_poisoned()
            kept = missed & third.still_poisoned()
            kind = FindingKind.UNWRITTEN if kept.sum() == missed.sum() else FindingKind.UNINITIALISED
            refuse_unwritten(self.called, second.label, missed, kind)

    def once(self, arrays: Sequence[Array], how: How) -> tuple[list[Array], list[GuardedArray]]:
        """Run once; return its results and its outputs, after checks that nothing else was touched."""
        layout, pairs = BY_NAME[how.layout], zip(self.inputs, arrays, strict=True)
        laid = [layout(end.name, np.asarray(array), end.dtype, how.around) for end, array in pairs]
        before = [memory.around.tobytes() for memory, _ in laid]
        outputs = []
        for end in self.outputs:
            poison = bytes(end.dtype.bytes) if how.outputs == ZEROS else poison_of(end.dtype, how.outputs)
            outputs.append(GuardedArray.allocate(end.name, end.shape, end.dtype, poison))
        results = self.call([view for _, view in laid], [guarded.array for guarded in outputs])
        for guarded in (*(memory for memory, _ in laid), *outputs):
            guarded.refuse_writes(self.called)
        for (memory, _), bits in zip(laid, before, strict=True):
            if memory.around.tobytes() != bits:
                raise changed_input(self.called, memory.label)
        return self.fitting(results), outputs

    def fitting(self, results: Sequence[Array]) -> list[Array]:
        """The results. CheckError where one does not match the signature."""
        for end, result in zip(self.outputs, results, strict=True):
            if result.shape != end.shape or result.dtype != end.dtype.numpy:
                actual, expected = f"{result.dtype}{list(result.shape)}", f"{end.dtype.numpy}{list(end.shape)}"
                raise CheckError(f"{self.called} gave {actual} as {end.name}, not {expected}")
        return list(results)


def how_to_run(pieces: int) -> How:
    """The settings of the two runs of a certificate: as a whole, or in pieces, with a number as the poison."""
    return How(around=PLAIN, outputs=PLAIN) if pieces > 1 else How()
