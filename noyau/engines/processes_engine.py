"""Spawned processes of this machine as an engine, of one thread each; the part of a crashed process is repeated.

The choice between processes and threads, by a trial on the first rows, whose results are discarded."""

import hashlib
import math
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import Any

from noyau.engines.partitions import Answer, Task
from noyau.engines.reading import Chunk, rows_in, with_ahead
from noyau.engines.work import Work
from noyau.errors import CheckError, FindingKind, RaisedError
from noyau.workers.worker import Worker

ATTEMPTS = 3  # at a part
# Environment variables that libraries of linear algebra read when they are loaded.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

IDLE: dict[int, list[Worker]] = {}  # by process, workers for its next stream, since starting one takes a second


def run(task: Task, parts: Iterable[tuple[int, Any]], address: str, count: int) -> Iterator[Answer]:
    """The answers of all parts, in order, by `count` processes."""
    kept, workers, idle = IDLE.setdefault(os.getpid(), []), list[Worker](), SimpleQueue[Worker]()
    stop = Event()
    with ThreadPoolExecutor(count, "noyau-processes") as pool:
        try:
            for _ in range(count):
                workers.append(kept.pop() if kept else Worker(task.work.engine, math.inf, _ONE_THREAD))
                idle.put(workers[-1])
            answers = (pool.submit(_answer, idle, stop, task, number, part) for number, part in parts)
            for answer in with_ahead(answers, 2 * count):
                yield answer.result()
            kept += workers
        except BaseException:  # nobody would use the results of the remaining parts
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.end()
            raise


def _answer(idle: SimpleQueue[Worker], stop: Event, task: Task, number: int, part: Any) -> Answer:
    """The answer of a part by the worker that has been idle the longest; up to ATTEMPTS times if it crashes."""
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


START_S = 2.0  # to start a process: Python, the packages, the kernels
_STEP_S = 0.003  # least time of a measured step, if the first chunk has enough rows
_ROUNDS, _FIRST = 3, 256  # rounds of which the fastest counts; rows of the first step
_BUSY, _GAIN = 1.5, 1.25
_FREE = bytes(1 << 22)  # hashed without holding the interpreter's lock


def choose(work: Work, parts: Sequence[Any], size: Callable[[], int], workers: int, start_s: float) -> tuple[str, str]:
    """Choose "threads" or "processes", with the reason. `parts`: the first two of the source; `size`: all rows."""
    if workers < 2 or len(parts) < 2:
        return "threads", "one worker" if workers < 2 else "the source is one part"
    if not hasattr(parts[0], "path") or not parts[0].path:
        return "threads", "the source lies in this process"
    try:
        reading = replace(work.reading, counts=Counter())
        chunk: Chunk = next(filter(rows_in, parts[0].chunks(reading)), {})
        return _choose_by_measure(work, chunk, size(), workers, start_s)
    except Exception as fault:  # noqa: BLE001  the work itself will report it with its place
        return "threads", f"the trial failed: {fault}"


def _choose_by_measure(work: Work, chunk: Chunk, size: int, workers: int, start_s: float) -> tuple[str, str]:
    if not chunk:
        return "threads", "the first part has no rows"
    rows, step_s = 0, 0.0
    while step_s < _STEP_S and rows < rows_in(chunk):
        rows = min(max(2 * rows, _FIRST), rows_in(chunk))
        step = partial(work.run, {name: array[:rows] for name, array in chunk.items()})
        step()  # builds kernels
        step_s = _seconds([step])
        steps = size / rows
        if step_s * steps < start_s:
            return "threads", f"all of it takes about {step_s * steps:.2g} s"
    pickle.dumps(work)
    free = partial(hashlib.sha256, _FREE)
    times = [min(_seconds([each] * count) for _ in range(_ROUNDS)) for each in (step, free) for count in (1, workers)]
    together, of_free = times[1] / times[0], times[3] / times[2]
    note = f"{workers} steps at once took {together:.2f} times one"
    if of_free > _BUSY:
        return "threads", f"{note}, and so did {of_free:.2f} times what needs no interpreter: the cores are busy"
    by_threads, by_processes = times[1] * steps / workers, start_s + times[0] * of_free * steps / workers
    return "processes" if by_processes * _GAIN < by_threads else "threads", note


def _seconds(calls: Sequence[Callable[[], Any]]) -> float:
    """The seconds that these calls take together, each in its own thread."""
    with ThreadPoolExecutor(len(calls)) as pool:
        wait([pool.submit(time.sleep, 0) for _ in calls])  # start the threads before the measurement
        begin_s = time.perf_counter()
        for each in [pool.submit(call) for call in calls]:
            each.result()
        return time.perf_counter() - begin_s
