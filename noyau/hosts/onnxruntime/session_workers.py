"""Sessions of onnxruntime in processes of their own, as sides of a comparison."""

import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from noyau.errors import UnsupportedError
from noyau.hosts.onnxruntime.runs import ServedSession, open_job
from noyau.timing.comparison import half, join
from noyau.timing.sides import WorkerSide
from noyau.timing.verdict import FEWEST_PAIRS, Comparison
from noyau.workers.array_files import is_text, write_arrays
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import Request, StateUse, Worker, ask_at_once, pin

Arrays = Mapping[str, np.ndarray]
_NAMES = "the first process", "the second process"
_RUNS = FEWEST_PAIRS + 2  # fewest runs of each side: those that are measured, and in each process one for the shapes


@dataclass(frozen=True, slots=True)
class Job:
    """A session to be timed: a model's bytes, its inputs, the library of its kernels, the folder of its external data;
    on a device, "cpu" or "cuda".

    `cold`: calls rotate over copies of inputs and outputs that take twice the last-level cache, else over two to four
    copies, since places in memory differ by some percent. `whole`: a model as users call it, with new outputs at each
    call if they have few bytes: that costs some models more than others."""

    content: bytes
    arrays: Arrays
    library: Path | None = None
    folder: Path | None = None
    threads: int = 1
    prepacked: bool = True
    cold: bool = False
    whole: bool = False
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Feed:
    """Other inputs for sessions that are open; `cold` as in a Job."""

    arrays: Arrays
    cold: bool = False


def _is_lost(comparisons: Iterable[Comparison | float]) -> bool:
    return any(isinstance(each, Comparison) and each.is_lost for each in comparisons)


class Workers:
    """Two worker processes, for the sides before and after; each serves one session after the other."""

    def __init__(self, patience_s: float = 60.0, names: Sequence[str] = _NAMES) -> None:
        self.workers = tuple(Worker(name, patience_s) for name in names)
        self.folder = Path(tempfile.mkdtemp(prefix="noyau-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sides(self, before: Job, after: Job, swapped: bool = False) -> tuple[WorkerSide, WorkerSide]:
        """Open both sessions at once, each in a process of its own; `swapped`: in the other process. Raises the
        ModelError, InputError and UnsupportedError of the sessions."""
        places = self.workers[::-1] if swapped else self.workers
        with self._write(before) as first, self._write(after) as second:
            ask_at_once(places, [Request(open_job, (), options, StateUse.OPENS) for options in (first, second)])
        return WorkerSide(places[0]), WorkerSide(places[1])

    def compare_each(
        self,
        before: Job,
        after: Job,
        others: Sequence[Feed],
        *,
        limit_s: float = math.inf,
        until_lost: bool = False,
        **options: Any,
    ) -> list[Comparison | float]:
        """Compare `after` with `before`, half of the time with swapped processes: on the inputs of the jobs and then on
        `others`, each by the `options` of `half`; the sessions are opened once for all of them. For a feed whose runs
        would not end within `limit_s` from the start, the result is the seconds that they would take; `until_lost`:
        infinity for the feeds behind one on which `after` is surely slower. CheckError where a timed run was wrong,
        crashed or hung: a failure on any of the inputs fails the whole comparison."""
        threads = max(before.threads, after.threads) if min(before.threads, after.threads) else 0
        end_s = seconds() + limit_s
        halves: list[list[Comparison | float]] = []
        for swapped in (False, True):
            pin(self.workers, 0)
            sides, comparison = self.sides(before, after, swapped), list[Comparison | float]()
            pin(self.workers, threads)
            for number, feed in enumerate((None, *others)):
                if halves and isinstance(late_s := halves[0][number], float):
                    comparison.append(late_s)
                    continue
                is_over = until_lost and not halves and _is_lost(comparison)
                run_s = (math.inf, math.inf) if is_over else self._feed(sides, feed)
                if feed is not None and not halves and _RUNS * sum(run_s) >= end_s - seconds():
                    comparison.append(_RUNS * sum(run_s))
                    continue
                comparison.append(half(*sides, warmed_s=run_s, **options))
                for side in sides:
                    side.tell()  # CheckError where a run was wrong
            halves.append(comparison)
        pairs = zip(*halves, strict=True)
        results = [a if isinstance(a, float) or isinstance(b, float) else join((a, b)) for a, b in pairs]
        if math.inf in results and not _is_lost(results):  # one process made it seem so
            return self.compare_each(before, after, others, limit_s=limit_s, **options)
        return results

    def _feed(self, sides: tuple[WorkerSide, WorkerSide], feed: Feed | None) -> tuple[float, float]:
        """Feed other inputs, if there are any, to both sides; the seconds of a run of each."""
        if feed is not None:
            with self.write(feed.arrays) as (_, inputs):
                for side in sides:
                    side.worker.call(ServedSession.feed, inputs, feed.cold)
        return float(sides[0].tell()["run_s"]), float(sides[1].tell()["run_s"])

    @contextlib.contextmanager
    def write(self, arrays: Arrays) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
        """Write arrays to a folder for another process; yields the folder, and where each array lies."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            for end, array in arrays.items():
                if is_text(array):
                    raise UnsupportedError(f"the input {end!r} holds {array.dtype}, which cannot go to another process")
            yield Path(name), write_arrays(arrays, Path(name))

    @contextlib.contextmanager
    def _write(self, job: Job) -> Iterator[dict[str, Any]]:
        """Write the files from which a process opens a session, and yield the request."""
        with self.write(job.arrays) as (folder, inputs):
            (folder / "model.onnx").write_bytes(job.content)
            paths = {"library": job.library and job.library.absolute(), "folder": job.folder and job.folder.absolute()}
            options = {key: getattr(job, key) for key in ("threads", "prepacked", "cold", "whole", "device")}
            yield {"model": folder / "model.onnx", "inputs": inputs, **paths, **options}
