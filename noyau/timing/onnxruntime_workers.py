"""Sessions of onnxruntime in processes of their own, as sides of a comparison."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, UnsupportedError
from noyau.runtimes.onnxruntime import open_session
from noyau.timing.cheats import seconds
from noyau.timing.comparing import Comparison, compare_swapped
from noyau.timing.fresh import cold_sets, hot_sets
from noyau.timing.onnxruntime_pairs import BoundRun, bound_run
from noyau.timing.workers import Worker, pin

Arrays = Mapping[str, np.ndarray]
Told = dict[str, Any]

MOST_BINDINGS, FEW_BINDINGS = 256, 4
_FACTORY = f"{__name__}:served"
_LEAST_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A session to be timed: a model's bytes, the library of its kernels, where its external data lies, its inputs.

    `cold`: calls go round copies of the ends that take twice the last-level cache, else round two to four of them, for
    places in memory differ by some percent."""

    content: bytes
    arrays: Arrays
    library: Path | None = None
    folder: Path | None = None
    threads: int = 1
    prepacked: bool = True
    cold: bool = False


@dataclass(slots=True)
class WorkerSide:
    """A session in a worker: a side of `compare`. CheckError where it crashes or hangs."""

    worker: Worker

    def lasts(self, calls: int) -> float:
        start_s = seconds()
        took_s = float(self.worker.ask("run", calls=calls))
        if took_s > seconds() - start_s:
            raise CheckError(f"{self.worker.name} says that it ran for {took_s:.3g} s, longer than it was waited for")
        return took_s

    def tell(self) -> Told:
        """`peak_bytes` of the process, and of the timed runs how many were `verified`. CheckError where one of those,
        chosen at random, gave other outputs than the first run."""
        told = self.worker.ask("tell")
        return {"peak_bytes": told["peak_bytes"], **told["told"]}


class Workers:
    """Two processes, for the side before and the side after; each is used for one session after the other."""

    def __init__(self, names: tuple[str, str] = ("the first process", "the second process"), patience_s: float = 60.0):
        self.workers = tuple(Worker(name, patience_s) for name in names)
        self.folder = Path(tempfile.mkdtemp(prefix="noyau-"))

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sides(self, before: Job, after: Job, swapped: bool = False) -> tuple[WorkerSide, WorkerSide]:
        """Both sessions, opened, each in a process of its own; `swapped`: in the other one. ModelError, InputError and
        UnsupportedError are those of the sessions."""
        places = self.workers[::-1] if swapped else self.workers
        first, second = (self._open(worker, job) for worker, job in zip(places, (before, after), strict=True))
        return first, second

    def compare(self, before: Job, after: Job, *, budget_s: float, seed: int = 0) -> tuple[Comparison, list[Told]]:
        """`after` against `before`, each half of the time in each of the two processes, and what is told of the four
        sides: before, after, then swapped. CheckError where a run that was timed was wrong, crashed or hung."""
        pin(self.workers, max(before.threads, after.threads) if min(before.threads, after.threads) else 0)
        told: list[Told] = []
        opened: list[WorkerSide] = []

        def places(swapped: bool) -> tuple[WorkerSide, WorkerSide]:
            told.extend(side.tell() for side in opened)
            opened[:] = self.sides(before, after, swapped)
            return opened[0], opened[1]

        found = compare_swapped(places, budget_s=budget_s, seed=seed)
        told.extend(side.tell() for side in opened)
        return found, told

    def _open(self, worker: Worker, job: Job) -> WorkerSide:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            (folder / "model.onnx").write_bytes(job.content)
            inputs = [_written(folder / f"{k}.bin", *each) for k, each in enumerate(job.arrays.items())]
            worker.ask(
                "open",
                factory=_FACTORY,
                model=str(folder / "model.onnx"),
                inputs=inputs,
                library=None if job.library is None else str(job.library.absolute()),
                folder=None if job.folder is None else str(job.folder.absolute()),
                threads=job.threads,
                prepacked=job.prepacked,
                cold=job.cold,
            )
        return WorkerSide(worker)


def _written(path: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    dtype = from_numpy(array.dtype)
    if dtype is None or array.dtype.hasobject:
        raise UnsupportedError(f"the input {name!r} holds {array.dtype}, which cannot go to another process")
    np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(path)
    return {"name": name, "dtype": dtype.value, "shape": list(array.shape), "path": str(path)}


def _read(told: Mapping[str, Any]) -> np.ndarray:
    flat = np.fromfile(told["path"], np.uint8)
    return flat.view(DType(told["dtype"]).numpy).reshape(told["shape"])


def served(
    model: str,
    inputs: Sequence[Mapping[str, Any]],
    library: str | None,
    folder: str | None,
    threads: int,
    prepacked: bool,
    cold: bool,
) -> Session:
    """In the worker: the session, opened and bound."""
    start_s = seconds()
    session = open_session(
        Path(model).read_bytes(),
        None if library is None else Path(library),
        threads=threads,
        folder=Path(folder) if folder is not None else None,
        prepacked=prepacked,
    )
    arrays = {each["name"]: _read(each) for each in inputs}
    first = bound_run(session, arrays)
    taken = sum(array.nbytes for array in (*arrays.values(), *first.outputs.values()))
    count = min(cold_sets(taken), MOST_BINDINGS) if cold else min(hot_sets(taken), FEW_BINDINGS)
    runs = [first, *(bound_run(session, arrays) for _ in range(count - 1))]
    return Session(runs, seconds() - start_s)


@dataclass(slots=True)
class Session:
    """Bound runs of one session, taken in turn; now and then, at random, the outputs of a timed run are looked at."""

    runs: Sequence[Callable[[], None] | BoundRun]
    open_s: float
    turn: int = 0
    looks: int = 0
    samples: int = 0
    wrong: str = ""
    expected: dict[str, bytes] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        first, again = (self._outputs_of_a_run() for _ in range(2))
        # What is random by nature cannot be compared.
        self.expected = {name: content for name, content in first.items() if again[name] == content}

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls. Where more than one is asked for, and few places are used, one call on each goes
        before them, to fetch the caches back that another process has had."""
        self.samples += 1
        chosen = int(self.rng.integers(calls))
        if calls > 1 and len(self.runs) <= FEW_BINDINGS:
            for run in self.runs:
                run()
        order = [self.runs[(self.turn + k) % len(self.runs)] for k in range(calls)]
        self.turn += calls
        looks = self.samples <= _LEAST_LOOKS or self.rng.random() < 1 / self.samples
        if looks:
            self._poison(order[chosen])
        took_s = _timed(order[: chosen + 1])
        if looks:
            self._look(order[chosen])
        return took_s + _timed(order[chosen + 1 :])

    def tell(self) -> dict[str, Any]:
        if self.wrong:
            raise CheckError(self.wrong)
        return {"open_s": self.open_s, "verified": self.looks, "bindings": len(self.runs)}

    def _poison(self, run: Callable[[], None] | BoundRun) -> None:
        if isinstance(run, BoundRun):
            run.poison()

    def _look(self, run: Callable[[], None] | BoundRun) -> None:
        self.looks += 1
        found = _outputs(run)
        for name, content in self.expected.items():
            if found[name] != content:
                self.wrong = f"a timed run gave another {name[:100]!r} than the first one did"

    def _outputs_of_a_run(self) -> dict[str, bytes]:
        self.runs[0]()
        return _outputs(self.runs[0])


def _outputs(run: Callable[[], None] | BoundRun) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.outputs.items()} if isinstance(run, BoundRun) else {}


def _timed(order: Sequence[Callable[[], None]]) -> float:
    if not order:
        return 0.0
    start_s = seconds()
    for run in order:
        run()
    return seconds() - start_s
