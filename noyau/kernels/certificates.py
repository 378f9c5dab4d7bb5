"""Certificates made in processes of their own, several at once: what crashes or hangs there is a reason here."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from noyau.ir.graph import Constant, Graph
from noyau.kernels.result_cache import certificate_key, keep_certificate, recall_certificate
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import Order
from noyau.verify.adversarial import FULL, Effort, cases
from noyau.verify.certificate import Certificate
from noyau.verify.repeated_rows import Repeated, few_rows
from noyau.verify.values import Case, GuardedKernel, certify_native
from noyau.workers.worker import Worker

Item = TypeVar("Item")
Made = TypeVar("Made")

PATIENCE_S = 180.0  # for one certificate; most take a second or two
MOST_AT_ONCE = 8  # each is a process with arrays of its own


@dataclass(frozen=True, slots=True)
class OriginalInputs:
    """A built kernel that takes the inputs of the original graph: scalars that are constants there are given to it."""

    native: Native
    original: Graph
    graph: Graph

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        known = {n.output: n.kind.value for n in self.original.nodes if isinstance(n.kind, Constant)}
        given = {**known, **{n.output: a for n, a in zip(self.original.inputs, arrays, strict=True)}}
        wanted = [given[node.output] for node in self.graph.inputs]
        return self.native.call_guarded(*wanted, pieces=pieces, order=order)


@dataclass(frozen=True, slots=True)
class CertificateTask:
    """A built kernel to be judged: its library, its graph as spelt and in normal form, activations of a model, usual
    sizes, what draws the awkward inputs, and how many of them are tried."""

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
        repeated = Repeated(kernel, few, np.random.default_rng(task.seed))
        certificate = _judged_by(few.graph, repeated, task, task.effort.few)
        if not certificate.ok or repeated.alike:  # wrong for a few rows is wrong; what mixes rows is seen by all
            return certificate
    return _judged_by(task.original, kernel, task, task.effort)


def _judged_by(graph: Graph, kernel: GuardedKernel, task: CertificateTask, effort: Effort) -> Certificate:
    hints = cases(graph, task.sizes, np.random.default_rng(task.seed), effort)
    tried = [*task.captured, *hints]
    return certify_native(graph, kernel, tried, name=task.name, made_up=task.made_up)


class Certifiers:
    """Processes that make certificates, so many at once: those given, and as many more as are missing. Use it in a
    `with`, which ends the latter."""

    def __init__(self, given: Sequence[Worker], count: int, patience_s: float = PATIENCE_S) -> None:
        self.more = [Worker("its process") for _ in range(count - len(given))]
        self.count, self.patience_s = max(count, 1), patience_s
        self.idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in (*given, *self.more):
            self.idle.put(worker)

    def __enter__(self) -> Certifiers:
        return self

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
        key = task.key
        found = recall_certificate(key, task.name)
        if found is None:
            with self._worker() as worker:
                found = worker.ask(judge, task)
            keep_certificate(key, found)
        return found

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = self.idle.get()
        usual_s, worker.patience_s = worker.patience_s, self.patience_s
        try:
            yield worker
        finally:
            worker.patience_s = usual_s
            self.idle.put(worker)
