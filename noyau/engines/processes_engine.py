"""Processes of this machine as an engine: spawned ones, of one thread each; what one was at when it ended, another
does again."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import Any

from noyau.engines.partitions import Answer, Task
from noyau.errors import CheckError, FindingKind, RaisedError
from noyau.workers.worker import Worker

ATTEMPTS = 3  # at a part
# Libraries of linear algebra read them when they are loaded.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


IDLE: dict[int, list[Worker]] = {}  # of a process, for its next stream: to start one takes a second


def run(task: Task, parts: Iterable[tuple[int, Any]], address: str, count: int) -> Iterator[Answer]:
    """The answers of all parts by so many processes."""
    kept, workers, idle = IDLE.setdefault(os.getpid(), []), list[Worker](), SimpleQueue[Worker]()
    waiting, stop = deque[Future[Answer]](), Event()
    with ThreadPoolExecutor(count, "noyau-processes") as pool:
        try:
            for _ in range(count):
                workers.append(kept.pop() if kept else Worker(task.work.engine, math.inf, _ONE_THREAD))
                idle.put(workers[-1])
            for number, part in parts:
                waiting.append(pool.submit(_answer, idle, stop, task, number, part))
                if len(waiting) > 2 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            kept += workers
        except BaseException:  # what is left would be done for nobody
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.end()
            raise


def _answer(idle: SimpleQueue[Worker], stop: Event, task: Task, number: int, part: Any) -> Answer:
    """The answer of a part, by the worker that has been idle for longest."""
    worker = idle.get()
    try:
        for _ in range(ATTEMPTS):
            try:
                return worker.ask(task.run, number, part)
            except CheckError as error:
                if error.kind is not FindingKind.CRASH or stop.is_set():
                    raise
                fault = error
        message = f"{task.work.value.name} on {part.label} ended its process {ATTEMPTS} times"
        raise RaisedError(f"{fault}; {message}: with less memory= chunks are smaller") from fault
    finally:
        idle.put(worker)
