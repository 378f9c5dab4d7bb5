"""One run of a kernel between guard zones: how its arrays lie, what is around them, and what it must not touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.builders.guards import PLAIN, Guarded, poison_of
from noyau.dtypes import DType
from noyau.errors import CheckError
from noyau.handwritten.layouts import BY_NAME

Array = np.ndarray
Call = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]  # inputs and outputs -> results
ZEROS = -1  # what outputs may hold before, instead of a poison
OTHER = 1  # another poison: of a second run; and around inputs, so that what is copied from there to outputs shows


@dataclass(frozen=True, slots=True)
class How:
    """How a run goes. `layout` of the inputs, by its name; `threads` of a kernel that has any, 0 for as many as it has;
    which poison lies `around` the inputs, and which one the `outputs` hold before, or ZEROS. `pieces`: of a kernel that
    is called for pieces of its work, the last first; a number then is the poison."""

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
    """What is run, and on what. `called` names the kernel in messages; `fills`: each cell of an output is written."""

    call: Call
    called: str
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    fills: bool = True

    def run(self, arrays: Sequence[Array], how: How = How()) -> list[Array]:
        """The results. CheckError where a guard was overwritten, an input was changed, or a cell of an output was never
        written."""
        results, made = self.once(arrays, how)
        suspects = [guarded.still_poisoned() for guarded in made]
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
            told = "never wrote" if kept.sum() == missed.sum() else "reads before it writes"
            if missed.any():
                where = [int(index) for index in np.argwhere(missed)[0]]
                raise CheckError(f"{self.called} {told} {missed.sum()} cells of {second.label}; the first is {where}")

    def once(self, arrays: Sequence[Array], how: How) -> tuple[list[Array], list[Guarded]]:
        """One run; its results and its outputs, once nothing else is found to be touched."""
        layout = BY_NAME[how.layout]
        laid = [
            layout(end.name, np.asarray(array), end.dtype, how.around)
            for end, array in zip(self.inputs, arrays, strict=True)
        ]
        before = [memory.around.tobytes() for memory, _ in laid]
        made = [Guarded.poisoned(end.name, end.shape, end.dtype, _held(end.dtype, how.outputs)) for end in self.outputs]
        results = self.call([view for _, view in laid], [guarded.array for guarded in made])
        for guarded in (*(memory for memory, _ in laid), *made):
            fault = guarded.fault()
            if fault:
                raise CheckError(f"{self.called} {fault}")
        for (memory, _), bits in zip(laid, before, strict=True):
            if memory.around.tobytes() != bits:
                raise CheckError(f"{self.called} changed its input {memory.label}")
        return self.fitting(results), made

    def fitting(self, results: Sequence[Array]) -> list[Array]:
        """The results. CheckError where one is not what the signature says."""
        for end, result in zip(self.outputs, results, strict=True):
            if result.shape != end.shape or result.dtype != end.dtype.numpy:
                found, wanted = f"{result.dtype}{list(result.shape)}", f"{end.dtype.numpy}{list(end.shape)}"
                raise CheckError(f"{self.called} gave {found} as {end.name}, not {wanted}")
        return list(results)


def paired(pieces: int) -> How:
    """How the two runs of a certificate go: whole, or for more than one piece with a number as the poison."""
    return How(around=PLAIN, outputs=PLAIN) if pieces > 1 else How()


def _held(dtype: DType, which: int) -> bytes:
    return bytes(dtype.bytes) if which == ZEROS else poison_of(dtype, which)
