"""The choice between threads and processes of this machine, by a trial on the first rows: steps that hold the
interpreter take turns in threads; processes take a while to start. What the trial computes is thrown away: it takes
about 50 ms on two cores, and nothing where the whole stream would take less than processes take to start."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

from noyau.engines.reading import Chunk
from noyau.engines.work import Work, rows_in

START_S = 2.0  # of a process: Python, the packages, the kernels
_STEP_S = 0.003  # of a measured step at least, where the first chunk has so many rows
_ROUNDS, _FIRST = 3, 256  # the best of these is taken; rows of the first step
_BUSY, _GAIN = 1.5, 1.25
_FREE = bytes(1 << 22)  # hashed without the interpreter


def choose(work: Work, parts: Sequence[Any], size: Callable[[], int], workers: int, start_s: float) -> tuple[str, str]:
    """ "threads" or "processes", and why. `parts`: two of the source, or the only one; `size`: rows in all."""
    if workers < 2 or len(parts) < 2:
        return "threads", "one worker" if workers < 2 else "the source is one part"
    if not hasattr(parts[0], "path") or not parts[0].path:
        return "threads", "the source lies in this process"
    try:
        reading = replace(work.reading, counts=Counter())
        chunk: Chunk = next(filter(rows_in, parts[0].chunks(reading)), {})
        return _measured(work, chunk, size(), workers, start_s)
    except Exception as fault:  # noqa: BLE001  the work itself says where it fails, and how
        return "threads", f"the trial failed: {fault}"


def _measured(work: Work, chunk: Chunk, size: int, workers: int, start_s: float) -> tuple[str, str]:
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
    """Seconds that these calls take, each in a thread."""
    with ThreadPoolExecutor(len(calls)) as pool:
        wait([pool.submit(time.sleep, 0) for _ in calls])  # threads are there before
        begin_s = time.perf_counter()
        for each in [pool.submit(call) for call in calls]:
            each.result()
        return time.perf_counter() - begin_s
