"""Sessions of onnxruntime in processes of their own, as sides of a comparison."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import CheckError, UnsupportedError
from noyau.hosts.onnxruntime.sessions import BoundRun, bound_run, first_outputs, open_session
from noyau.timing.comparison import FEWEST_PAIRS, NARROW, Comparison, Enough, half, join_halves
from noyau.timing.pairwise import WorkerSide, cold_sets, hot_sets
from noyau.workers.array_files import is_text, read_arrays, write_arrays
from noyau.workers.serve import Request, StateUse
from noyau.workers.tamper_detection import seconds
from noyau.workers.worker import Worker, ask_at_once, pin

if TYPE_CHECKING:
    import onnxruntime

Arrays = Mapping[str, np.ndarray]
Told = dict[str, Any]

MOST_BINDINGS, FEW_BINDINGS = 256, 4
_LEAST_LOOKS = 3
_SHORT_S = 0.03  # below which a run is short: what another process has left of the caches then counts
_LONG_S = 0.1  # from which a run is not repeated just to see whether it gives the same
_RUNS = FEWEST_PAIRS + 2  # of each side, at the least: those measured, and in each place one to see shapes


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


@dataclass(frozen=True, slots=True)
class Feed:
    """Other inputs for sessions that are open; `cold` as in a Job."""

    arrays: Arrays
    cold: bool = False


class Workers:
    """Two processes, for the side before and the side after; each is used for one session after the other."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.workers = tuple(Worker(f"the {number} process", patience_s) for number in ("first", "second"))
        self.folder = Path(tempfile.mkdtemp(prefix="noyau-"))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sides(self, before: Job, after: Job, swapped: bool = False) -> tuple[WorkerSide, WorkerSide]:
        """Both sessions, opened at once, each in a process of its own; `swapped`: in the other one. ModelError,
        InputError and UnsupportedError are those of the sessions."""
        places = self.workers[::-1] if swapped else self.workers
        with self._written(before) as first, self._written(after) as second:
            ask_at_once(places, [Request(open_job, (), options, StateUse.OPENS) for options in (first, second)])
        return WorkerSide(places[0]), WorkerSide(places[1])

    def compare_each(
        self,
        before: Job,
        after: Job,
        others: Sequence[Feed],
        *,
        budget_s: float,
        seed: int = 0,
        limit_s: float = math.inf,
        enough: Enough = NARROW,
    ) -> list[tuple[Comparison, list[Told]] | float]:
        """`after` against `before`, each half of the time in each of the two processes, and what is told of the four
        sides: before, after, then swapped. On the inputs of the jobs and then on others, each for so long or until
        there is `enough`: sessions are opened once for all of them. For one of the others of which the runs would not
        be done within `limit_s` from the start, the seconds that they would take. CheckError where a run that was timed
        was wrong, crashed or hung: what fails on one of the inputs fails altogether."""
        threads = max(before.threads, after.threads) if min(before.threads, after.threads) else 0
        end_s = seconds() + limit_s
        halves: list[list[Comparison | float]] = []
        facts: list[list[Told]] = [[] for _ in (before, *others)]
        for swapped in (False, True):
            pin(self.workers, 0)
            sides, comparison = self.sides(before, after, swapped), list[Comparison | float]()
            pin(self.workers, threads)
            for number, feed in enumerate((None, *others)):
                if halves and isinstance(late_s := halves[0][number], float):
                    comparison.append(late_s)
                    continue
                run_s = self._fed(sides, feed)
                if feed is not None and not halves and _RUNS * sum(run_s) > end_s - seconds():
                    comparison.append(_RUNS * sum(run_s))
                    continue
                comparison.append(half(*sides, budget_s=budget_s, seed=seed, enough=enough, warmed_s=run_s))
                facts[number] += [side.tell() for side in sides]
            halves.append(comparison)
        return [
            first if isinstance(first, float) or isinstance(second, float) else (join_halves(first, second), said)
            for first, second, said in zip(*halves, facts, strict=True)
        ]

    def _fed(self, sides: tuple[WorkerSide, WorkerSide], feed: Feed | None) -> tuple[float, float]:
        """Other inputs for both sides, if there are any; the seconds of a run of each."""
        if feed is not None:
            with self.written(feed.arrays) as (_, inputs):
                for side in sides:
                    side.worker.call(ServedSession.feed, inputs, feed.cold)
        first_s, second_s = (float(side.tell()["run_s"]) for side in sides)
        return first_s, second_s

    @contextlib.contextmanager
    def written(self, arrays: Arrays) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
        """A folder with arrays in it, and where each of them lies, for another process."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            for end, array in arrays.items():
                if is_text(array):
                    raise UnsupportedError(f"the input {end!r} holds {array.dtype}, which cannot go to another process")
            yield Path(name), write_arrays(arrays, Path(name))

    @contextlib.contextmanager
    def _written(self, job: Job) -> Iterator[dict[str, Any]]:
        """Write what a process needs to open a session, and yield the request."""
        with self.written(job.arrays) as (folder, inputs):
            (folder / "model.onnx").write_bytes(job.content)
            yield {
                "model": str(folder / "model.onnx"),
                "inputs": inputs,
                "library": None if job.library is None else str(job.library.absolute()),
                "folder": None if job.folder is None else str(job.folder.absolute()),
                "threads": job.threads,
                "prepacked": job.prepacked,
                "cold": job.cold,
            }


def open_job(
    model: str,
    inputs: Sequence[Mapping[str, Any]],
    library: str | None,
    folder: str | None,
    threads: int,
    prepacked: bool,
    cold: bool,
) -> ServedSession:
    """In the worker: the session, opened and bound."""
    start_s = seconds()
    session = open_session(
        Path(model).read_bytes(),
        None if library is None else Path(library),
        threads=threads,
        folder=Path(folder) if folder is not None else None,
        prepacked=prepacked,
    )
    result = ServedSession([], 0.0, opened=session)
    result.feed(inputs, cold)
    result.open_s = seconds() - start_s
    return result


@dataclass(slots=True)
class ServedSession:
    """Bound runs of one session, taken in turn; now and then, at random, the outputs of a timed run are looked at.
    `run_s`: what a run took on what it is fed, the second one where the first did not take long; `cold`: as in a Job.

    `expected`: what the first run gave, without what is random by nature; `unsure`: that is not known yet, for a run
    takes long."""

    runs: Sequence[Callable[[], None] | BoundRun]
    open_s: float
    run_s: float = 0.0
    turn: int = 0
    looks: int = 0
    samples: int = 0
    wrong: str = ""
    expected: dict[str, bytes] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    opened: onnxruntime.InferenceSession | None = None
    unsure: bool = False
    cold: bool = False

    def feed(self, inputs: Sequence[Mapping[str, Any]], cold: bool) -> None:
        """Run on these inputs from now on; the memory of those before goes first."""
        assert self.opened is not None
        self.runs, self.turn, self.samples, self.looks, self.cold = [], 0, 0, 0, cold
        arrays, start_s = read_arrays(inputs), seconds()
        outputs = first_outputs(self.opened, arrays)
        self.run_s = seconds() - start_s
        taken = sum(array.nbytes for array in (*arrays.values(), *outputs.values()))
        count = min(cold_sets(taken), MOST_BINDINGS) if cold else min(hot_sets(taken), FEW_BINDINGS)
        self.runs = [bound_run(self.opened, arrays, outputs) for _ in range(count)]
        self.expected = {name: array.tobytes() for name, array in outputs.items() if not array.dtype.hasobject}
        self.unsure = self.run_s > _LONG_S
        if not self.unsure:
            self.run_s = _self_timed(self.runs[:1])
            again = _outputs(self.runs[0])
            self.expected = {name: content for name, content in self.expected.items() if again[name] == content}

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls. Before those that are short and not to be cold, one goes on each place that they
        use, to fetch the caches back that another process has had, and to wake the threads."""
        self.samples += 1
        chosen = int(self.rng.integers(calls))
        order = [self.runs[(self.turn + k) % len(self.runs)] for k in range(calls)]
        self.turn += calls
        if not self.cold and self.run_s < _SHORT_S:
            for run in order[: len(self.runs)]:
                run()
        looks = self.samples <= _LEAST_LOOKS or self.rng.random() < 1 / self.samples
        if looks:
            self._poison(order[chosen])
        took_s = _self_timed(order[: chosen + 1])
        if looks:
            self._look(order[chosen])
        return took_s + _self_timed(order[chosen + 1 :])

    def tell(self) -> Told:
        """The seconds of a run (`run_s`), and of the timed runs how many were `verified`. CheckError where one of
        those, chosen at random, gave other outputs than the first run."""
        if self.wrong:
            raise CheckError(self.wrong)
        return {"open_s": self.open_s, "run_s": self.run_s, "verified": self.looks, "bindings": len(self.runs)}

    def _poison(self, run: Callable[[], None] | BoundRun) -> None:
        if isinstance(run, BoundRun):
            run.poison()

    def _look(self, run: Callable[[], None] | BoundRun) -> None:
        self.looks += 1
        outputs = _outputs(run)
        for name, content in list(self.expected.items()):
            if outputs[name] == content:
                continue
            if self.unsure and self._is_random(run, name):  # it cannot be compared
                del self.expected[name]
            else:
                self.wrong = f"a timed run gave another {name[:100]!r} than the first one did"

    def _is_random(self, run: Callable[[], None] | BoundRun, name: str) -> bool:
        """Whether two runs that nobody times differ in an output."""
        results = []
        for _ in "ab":
            self._poison(run)
            run()
            results.append(_outputs(run)[name])
        return results[0] != results[1]


def _outputs(run: Callable[[], None] | BoundRun) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.outputs.items()} if isinstance(run, BoundRun) else {}


def _self_timed(order: Sequence[Callable[[], None]]) -> float:
    if not order:
        return 0.0
    start_s = seconds()
    for run in order:
        run()
    return seconds() - start_s
