"""A built kernel in a process of its own: what crashes or hangs there is one clear reason here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import NoyauError, UnsupportedError
from noyau.toolchain.c.library import Native, Order
from noyau.workers.timing_client import Worker

Array = np.ndarray
_FACTORY = f"{__name__}:served"


class Isolated:
    """A kernel of a built library, run in a process of its own; use it in a `with`.

    `called` is its name in messages; `patience_s`: how long one run may take. After a crash the process starts anew.
    `worker`: a process that is there already, which outlives this kernel."""

    def __init__(
        self, library: Path, symbol: str, called: str, patience_s: float = 20.0, worker: Worker | None = None
    ) -> None:
        self.library, self.symbol, self.is_shared = library, symbol, worker is not None
        self.worker = worker or Worker(called, patience_s)
        self.folder = Path(tempfile.mkdtemp(prefix="noyau-"))

    def __enter__(self) -> Isolated:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_shared:
            self.worker.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """As Native.call_guarded. CheckError where it crashes, does not answer in time, or touches what it may not."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            self.worker.ask(
                "open",
                factory=_FACTORY,
                library=str(self.library),
                symbol=self.symbol,
                inputs=[write(folder / f"{k}.in", array) for k, array in enumerate(arrays)],
                folder=name,
                pieces=pieces,
                order=[int(piece) for piece in order(pieces)],
            )
            return [read(told) for told in self.worker.ask("tell")["told"]]


def write(path: Path, array: Array) -> dict[str, Any]:
    """Put an array into a file, packed; the result is what `read` needs. UnsupportedError for what has no dtype."""
    dtype = from_numpy(array.dtype)
    if dtype is None or dtype is DType.OTHER:
        raise UnsupportedError(f"an array of {array.dtype} cannot go to another process")
    np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(path)
    return {"dtype": dtype.value, "shape": list(array.shape), "path": str(path)}


def read(told: Mapping[str, Any]) -> Array:
    """The array of a file that `write` made."""
    return np.fromfile(told["path"], np.uint8).view(DType(told["dtype"]).numpy).reshape(told["shape"])


def served(
    library: str, symbol: str, inputs: Sequence[Mapping[str, Any]], folder: str, pieces: int, order: Sequence[int]
) -> Served:
    """The other end: what a worker holds."""
    return Served(Native(Path(library), symbol), [read(told) for told in inputs], Path(folder), pieces, order)


class Served:
    """A kernel and the inputs of one run."""

    def __init__(
        self, native: Native, inputs: Sequence[Array], folder: Path, pieces: int, order: Sequence[int]
    ) -> None:
        self.native, self.inputs, self.folder, self.pieces, self.order = native, inputs, folder, pieces, order

    def lasts(self, calls: int) -> float:
        raise NoyauError("a kernel that is checked is not timed")

    def tell(self) -> Any:
        """One run between guards; where its outputs lie."""

        def order(count: int) -> Sequence[int]:
            return [piece for piece in self.order if piece < count]

        outputs = self.native.call_guarded(*self.inputs, pieces=self.pieces, order=order)
        return [write(self.folder / f"{k}.out", output) for k, output in enumerate(outputs)]
