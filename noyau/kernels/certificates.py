"""Certificates made in processes of their own, several at once, and kept, as timings are, from one run to the next.

A crash or a hang of such a process is one clear reason here. Results hold until text, machine, versions or code change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph
from noyau.text import from_json
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c.library import Native
from noyau.toolchain.cache import today
from noyau.toolchain.guard_zones import Order
from noyau.verify.adversarial import FULL, Effort, cases
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.verify.repeated_rows import RepeatedRows, few_rows
from noyau.verify.trial import GuardedKernel, certify_native
from noyau.workers.worker import Worker

Item = TypeVar("Item")
Made = TypeVar("Made")

PATIENCE_S = 180.0  # for one certificate; most take a second or two
MOST_AT_ONCE = 8  # each is a process with arrays of its own
Array = np.ndarray
_JUDGES = ("verify", "ir", "toolchain/c/library.py", "toolchain/guard_zones.py", "dtypes.py")
_CLOCKS = ("timing",)


@dataclass(frozen=True, slots=True)
class OriginalInputs:
    """A built kernel that takes the inputs of the original graph: scalars that are constants there are given to it."""

    native: GuardedKernel
    original: Graph
    graph: Graph

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        known = {n.output: n.kind.value for n in self.original.nodes if isinstance(n.kind, Constant)}
        values = {**known, **{n.output: a for n, a in zip(self.original.inputs, arrays, strict=True)}}
        wanted = [values[node.output] for node in self.graph.inputs]
        return self.native.call_guarded(*wanted, pieces=pieces, order=order)


@dataclass(frozen=True, slots=True)
class CertificateTask:
    """A built kernel to be judged: its library, its graph as it is written and in normal form, activations of a model,
    usual sizes, what draws the awkward inputs, and how many of them are tried."""

    operator: str
    library: Path
    original: Graph
    graph: Graph
    captured: Sequence[Case]
    sizes: dict[str, int]
    seed: int
    made_up: bool
    effort: Effort = FULL

    @property
    def key(self) -> str:
        tried = f"{sorted(self.sizes.items())} {self.effort}"
        return certificate_key(f"{self.library.name} {tried}", self.original, self.captured, self.made_up, self.seed)

    @property
    def name(self) -> str:
        return f"{self.operator}[c]"


def judge(task: CertificateTask) -> Certificate:
    """The certificate of a kernel, made in this process."""
    kernel = OriginalInputs(Native(task.library, f"{task.operator}_kernel"), task.original, task.graph)
    few = few_rows(task.original) if task.effort.few and not task.captured else None
    if few is not None and task.effort.few is not None:
        repeated = RepeatedRows(kernel, few, np.random.default_rng(task.seed))
        certificate = _judge(few.graph, repeated, task, task.effort.few)
        if not certificate.ok or repeated.alike:  # wrong for a few rows is wrong; what mixes rows is seen by all
            return certificate
    return _judge(task.original, kernel, task, task.effort)


def _judge(graph: Graph, kernel: GuardedKernel, task: CertificateTask, effort: Effort) -> Certificate:
    hints = cases(graph, task.sizes, np.random.default_rng(task.seed), effort)
    return certify_native(graph, kernel, [*task.captured, *hints], name=task.name, made_up=task.made_up)


class Certifiers(AbstractContextManager["Certifiers"]):
    """Processes that make certificates: those given, and those missing, which the end of its `with` ends."""

    def __init__(self, workers: Sequence[Worker], count: int, patience_s: float = PATIENCE_S) -> None:
        self.more = [Worker("its process") for _ in range(count - len(workers))]
        self.count, self.patience_s = max(count, 1), patience_s
        self.idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in (*workers, *self.more):
            self.idle.put(worker)

    def __exit__(self, *_: object) -> None:
        for worker in self.more:
            worker.end()

    def start(self) -> None:
        """Start the processes that are missing, and do not wait for them."""
        for worker in self.more:
            worker.start()

    def each(self, step: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        """A step with each item, in their order, as many at once as there are processes."""
        pool = ThreadPoolExecutor(self.count)
        try:
            yield from pool.map(step, items)
        finally:
            pool.shutdown(cancel_futures=True)

    def certificate(self, task: CertificateTask) -> Certificate:
        """The certificate of a kernel: the one that is kept, else a new one, which is kept.

        CheckError where the process crashes, or does not answer in time."""
        return recall_certificate(task.key, task.name, lambda: self._judge(task))

    def _judge(self, task: CertificateTask) -> Certificate:
        worker = self.idle.get()
        usual_s, worker.patience_s = worker.patience_s, self.patience_s
        try:
            return worker.ask(judge, task)
        finally:
            worker.patience_s = usual_s
            self.idle.put(worker)


class IsolatedLibrary(AbstractContextManager["IsolatedLibrary"]):
    """A kernel of a built library, run in a process of its own; use it in a `with`.

    `name` is its name in messages; `patience_s`: how long one run may take. After a crash the process starts anew."""

    def __init__(self, library: Path, symbol: str, name: str, patience_s: float = 20.0) -> None:
        self.library, self.symbol, self.worker = library, symbol, Worker(name, patience_s)

    def __exit__(self, *_: object) -> None:
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
    native = Native(library, symbol)
    return native.call_guarded(*arrays, pieces=pieces, order=lambda count: [at for at in indices if at < count])


@dataclass(frozen=True, slots=True)
class CachedTiming:
    """A comparison of an earlier run, and the day that it was made on."""

    comparison: Comparison
    timed_on: str


def certificate_key(library_key: str, graph: Graph, captured: Sequence[Case], made_up: bool, seed: int) -> str:
    """The key of a certificate: what was built, the graph and the cases that judge it, and the code that judges."""
    cases = (part for case in captured for part in (case.label, *map(_digest, case.inputs)))
    judge = _code(_JUDGES), np.__version__, this_machine().cpu
    return toolchain_cache.digest("certificate", *judge, library_key, _graph(graph), str((made_up, seed)), *cases)


def recall_certificate(key: str, name: str, make: Callable[[], Certificate]) -> Certificate:
    """The certificate that was kept, under the name that the kernel has now; else a new one, which is kept."""
    certificate: Certificate | None = toolchain_cache.recall_as(key, partial(from_json, Certificate))
    if certificate is not None:
        return dataclasses.replace(certificate, name=name)
    certificate = make()
    toolchain_cache.keep(key, dataclasses.asdict(certificate))
    return certificate


def timing_key(parts: Iterable[str | bytes], arrays: Mapping[str, np.ndarray], threads: int) -> str:
    """The key of a timing: the texts and models of both sides, the shapes of what they read, the machine and its
    versions, the threads, and the code that times."""
    where = map(str, this_machine().to_json().values())
    shapes = (f"{name}: {array.dtype}{array.shape}" for name, array in sorted(arrays.items()))
    return toolchain_cache.digest("timing", _code(_CLOCKS), *where, str(threads), *parts, *shapes)


def recall_timing(key: str, ambiguous: bool = False) -> CachedTiming | None:
    """The comparison that was kept, unless it is of more than 30 days ago, or AMBIGUOUS because the machine was noisy:
    another moment may tell. `ambiguous`: such a one is taken as well."""
    timing: CachedTiming | None = toolchain_cache.recall_as(key, partial(from_json, CachedTiming))
    if timing is None or not toolchain_cache.is_recent(timing.timed_on):
        return None
    comparison = timing.comparison
    is_noise = comparison.verdict is Verdict.AMBIGUOUS and not comparison.is_nearly_same
    return None if is_noise and not ambiguous else timing


def keep_timing(key: str, comparison: Comparison) -> None:
    """Keep a comparison in place of what the key had; an AMBIGUOUS one too, so that an older verdict goes."""
    toolchain_cache.keep(key, {"timed_on": today(), "comparison": dataclasses.asdict(comparison)})


def recall_late(key: str, limit_s: float) -> bool:
    """Whether what has this key would take longer than so many seconds, as was kept at most 30 days ago."""

    def is_late(record: Any) -> bool:
        return limit_s < float(record["runs_s"]) and toolchain_cache.is_recent(record["timed_on"])

    return bool(toolchain_cache.recall_as(toolchain_cache.digest("late", key), is_late))


def keep_late(key: str, runs_s: float) -> None:
    """Keep that the runs of what has this key would take so many seconds."""
    toolchain_cache.keep(toolchain_cache.digest("late", key), {"timed_on": today(), "runs_s": runs_s})


def _graph(graph: Graph) -> str:
    """A graph in full, with the bits of its constants; of what noyau does not look into, the name alone."""
    nodes = (
        f"{node.output} {_digest(node.kind.value) if isinstance(node.kind, Constant) else node.kind} "
        f"{node.inputs} {node.dtype.value} {tuple(map(str, node.shape))}"
        for node in graph.nodes
    )
    return "\n".join([*nodes, str(graph.outputs), *map(str, graph.demands)])


def _digest(array: np.ndarray) -> str:
    return f"{array.dtype}{array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


def prepare() -> None:
    """Find out what the keys of all certificates and timings hold, once in a process."""
    _code(_JUDGES), _code(_CLOCKS), this_machine()


@cache
def _code(names: tuple[str, ...]) -> str:
    """A digest of the files of noyau that something depends on."""
    total = hashlib.sha256()
    for name in names:
        for path in _files(files("noyau").joinpath(*name.split("/"))):
            total.update(path.read_bytes())
    return total.hexdigest()


def _files(place: Traversable) -> Iterable[Traversable]:
    if place.is_file():
        return [place] if place.name.endswith((".py", ".c")) else []
    return [path for each in sorted(place.iterdir(), key=lambda each: each.name) for path in _files(each)]
