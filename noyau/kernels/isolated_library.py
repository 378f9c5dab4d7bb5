"""A built kernel in a process of its own: what crashes or hangs there is one clear reason here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import Order
from noyau.workers.worker import Worker

Array = np.ndarray


class IsolatedLibrary:
    """A kernel of a built library, run in a process of its own; use it in a `with`.

    `name` is its name in messages; `patience_s`: how long one run may take. After a crash the process starts anew.
    `worker`: a process that is there already, which outlives this kernel."""

    def __init__(
        self, library: Path, symbol: str, name: str, patience_s: float = 20.0, worker: Worker | None = None
    ) -> None:
        self.library, self.symbol, self.is_shared = library, symbol, worker is not None
        self.worker = worker or Worker(name, patience_s)

    def __enter__(self) -> IsolatedLibrary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_shared:
            self.worker.end()

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """As Native.call_guarded. CheckError where it crashes, does not answer in time, or touches what it may not."""
        indices = [int(piece) for piece in order(pieces)]
        return self.worker.ask(call_guarded, self.library, self.symbol, pack(arrays), pieces, indices)


def pack(arrays: Sequence[Array]) -> list[Array]:
    """The arrays for another process, each in C order. UnsupportedError for what has no dtype."""
    for array in arrays:
        if from_numpy(array.dtype) in (None, DType.OTHER):
            raise UnsupportedError(f"an array of {array.dtype} cannot go to another process")
    return [np.asarray(array, order="C") for array in arrays]


def call_guarded(
    library: Path, symbol: str, arrays: Sequence[Array], pieces: int, indices: Sequence[int]
) -> list[Array]:
    """In the worker: one run between guards."""

    def order(count: int) -> Sequence[int]:
        return [piece for piece in indices if piece < count]

    return Native(library, symbol).call_guarded(*arrays, pieces=pieces, order=order)
