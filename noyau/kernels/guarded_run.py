"""One run of a kernel between guard zones: how its arrays lie, what is around them, and what it must not touch.

Ways an array may lie in memory, for kernels that take strided ones: each between guard zones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind
from noyau.toolchain.guard_zones import PLAIN, GuardedArray, changed_input, poison_of, refuse_unwritten

Array = np.ndarray
# a label, an array, its dtype, which poison is around -> the memory, the view
Layout = Callable[..., tuple[GuardedArray, Array]]
Call = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]  # inputs and outputs -> results
ZEROS = -1  # what outputs may hold before, instead of a poison
OTHER = 1  # another poison: of a second run; and around inputs, so that what is copied from there to outputs shows


def _turned(turn: Callable[[Array], Array]) -> Layout:
    """The layout of an array that lies packed once it is turned; turned twice it is as it was."""

    def lay(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
        guarded = GuardedArray.holding(label, turn(array), dtype, poison)
        return guarded, turn(guarded.array)

    return lay


contiguous = _turned(lambda array: array)  # packed, in C order
transpose = _turned(np.transpose)  # the axes in the other order: the first has neighbouring cells
flip = _turned(lambda array: np.flip(array) if array.ndim else array)  # the last cell first: strides are negative


def slice_cells(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """Every second cell along the last axis; what lies between is poison."""
    if not array.ndim:
        return contiguous(label, array, dtype, poison)
    return _viewed(label, array, dtype, poison, (*array.shape[:-1], 2 * array.shape[-1]), (..., slice(None, None, 2)))


def offset(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """Behind a row of poison, and rows are longer than what is seen of them."""
    shape = tuple(extent + 1 for extent in array.shape)
    return _viewed(label, array, dtype, poison, shape, (..., *(slice(1, None),) * array.ndim))


def expand(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[GuardedArray, Array]:
    """One cell with strides of 0, which nobody may write, where all cells are equal; else packed."""
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


def _viewed(
    label: str, array: Array, dtype: DType, poison: int, shape: tuple[int, ...], where: tuple[object, ...]
) -> tuple[GuardedArray, Array]:
    """Memory of a shape, poisoned, and the part of it that is the array."""
    around = GuardedArray.holding(label, np.empty(shape, dtype.numpy), dtype, poison)
    around.array.reshape(-1).view(np.uint8).reshape(-1, dtype.bytes)[:] = np.frombuffer(around.poison, np.uint8)
    view = around.array[where]  # type: ignore[index]
    view[...] = array
    return around, view


@dataclass(frozen=True, slots=True)
class How:
    """The settings of a run. `layout` of the inputs, by its name; `threads` of a kernel that has any, 0 for as many as
    it has; which poison lies `around` the inputs, and which one the `outputs` hold before, or ZEROS. `pieces`: of a
    kernel that is called for pieces of its work, the last first; a number then is the poison."""

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
    """A call between guard zones. `called` names the kernel in messages; `fills`: each cell of an output is written."""

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
        """CheckError for a cell that has the bits of each poison. A right value may have those of one, and a NaN that
        is added to keeps its bits: then the kernel reads what it should write."""
        seconds, thirds = (self.once(arrays, How(how.layout, how.threads, 0, each))[1] for each in (OTHER, PLAIN))
        for suspect, second, third in zip(suspects, seconds, thirds, strict=True):
            missed = suspect & second.still_poisoned()
            kept = missed & third.still_poisoned()
            kind = FindingKind.UNWRITTEN if kept.sum() == missed.sum() else FindingKind.UNINITIALISED
            refuse_unwritten(self.called, second.label, missed, kind)

    def once(self, arrays: Sequence[Array], how: How) -> tuple[list[Array], list[GuardedArray]]:
        """One run; its results and its outputs, once nothing else is found to be touched."""
        layout, pairs = BY_NAME[how.layout], zip(self.inputs, arrays, strict=True)
        laid = [layout(end.name, np.asarray(array), end.dtype, how.around) for end, array in pairs]
        before = [memory.around.tobytes() for memory, _ in laid]
        outputs = []
        for end in self.outputs:
            poison = bytes(end.dtype.bytes) if how.outputs == ZEROS else poison_of(end.dtype, how.outputs)
            outputs.append(GuardedArray.poisoned(end.name, end.shape, end.dtype, poison))
        results = self.call([view for _, view in laid], [guarded.array for guarded in outputs])
        for guarded in (*(memory for memory, _ in laid), *outputs):
            guarded.refuse_writes(self.called)
        for (memory, _), bits in zip(laid, before, strict=True):
            if memory.around.tobytes() != bits:
                raise changed_input(self.called, memory.label)
        return self.fitting(results), outputs

    def fitting(self, results: Sequence[Array]) -> list[Array]:
        """The results. CheckError where one is not what the signature says."""
        for end, result in zip(self.outputs, results, strict=True):
            if result.shape != end.shape or result.dtype != end.dtype.numpy:
                actual, expected = f"{result.dtype}{list(result.shape)}", f"{end.dtype.numpy}{list(end.shape)}"
                raise CheckError(f"{self.called} gave {actual} as {end.name}, not {expected}")
        return list(results)


def how_to_run(pieces: int) -> How:
    """The settings of the two runs of a certificate: whole, or for more than one piece with a number as the poison."""
    return How(around=PLAIN, outputs=PLAIN) if pieces > 1 else How()
