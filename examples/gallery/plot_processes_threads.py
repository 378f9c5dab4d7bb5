"""Sessions 1 and 10: processes against threads
=============================================

Threads share their memory, and only one at a time runs Python. They help if the work is done in kernels, which release
the lock, and not if it is a loop in Python. Processes run Python side by side, but their inputs are sent to them as
bytes, and their changes stay their own. So compare the bytes to be sent with the work that is done on them. The twin
counts in a variable of the process, which no other process sees: it is right with threads, and with processes the count
never changes.

Run it: ``python examples/gallery/plot_processes_threads.py`` (needs a C compiler).
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import noyau

PARTS, ROWS = 4, 400_000


# %%
# Two kinds of work
# -----------------
# A fold in a kernel, and the same fold as a loop in Python. Both sum integers, which is exact in any order.
@noyau.op("i64[n] -> i64")
def total(x):
    return (x * x).sum()


def in_a_kernel(x: np.ndarray) -> int:
    return int(total(x))


def in_a_loop(x: np.ndarray) -> int:
    result = 0
    for value in x.tolist():
        result += value * value
    return result


# %%
# The twin
# --------
# A counter in the memory of the process. The lock makes it right for threads; a process counts in a copy of its own.
done, lock = 0, threading.Lock()


def count(x: np.ndarray) -> None:
    global done  # noqa: PLW0603  the twin is about this
    with lock:
        done += len(x)


def clock(function: Callable[..., Any], *arguments: Any) -> float:
    begin_s = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin_s


def run(executor: Executor, work: Callable[[np.ndarray], Any], parts: list[np.ndarray]) -> list[Any]:
    return list(executor.map(work, parts))


def main() -> None:
    parts = np.array_split(np.random.default_rng(0).integers(0, 1000, ROWS), PARTS)
    with (
        ThreadPoolExecutor(2) as threads,
        # A fork of a process with threads may inherit a lock that is never released: start afresh.
        ProcessPoolExecutor(2, get_context("spawn")) as processes,
    ):
        # %%
        # The clock
        # ---------
        # With two cores: threads leave the loop as slow as it was, processes halve its time. For the kernel, sending
        # the data to a process takes longer than its work there.
        pools: dict[str, Executor] = {"threads": threads, "processes": processes}
        for work in (in_a_loop, in_a_kernel):
            alone = [work(part) for part in parts]
            times = {"alone": clock(lambda work=work: [work(part) for part in parts])}
            for name, pool in pools.items():
                print(f"{work.__name__} by {name}, equal:", run(pool, work, parts) == alone)  # started, and warm
                times[name] = clock(run, pool, work, parts)
            print(f"{work.__name__}:", ", ".join(f"{name} {time_s * 1e3:.1f} ms" for name, time_s in times.items()))

        # %%
        # What is sent
        # ------------
        # Each number costs 8 bytes to send, and 100 bytes come back: worth it for a loop of 50 ns per number, but not
        # for a kernel of 1 ns.
        sent = pickle.dumps(parts[0])
        print("bytes a number:", round(len(sent) / len(parts[0])))
        print(f"to bytes and back: {clock(lambda: pickle.loads(pickle.dumps(parts[0]))) * 1e3:.2f} ms a part")

        # %%
        # The broken twin
        # ---------------
        for name, pool in pools.items():
            before = done
            run(pool, count, parts)
            print(f"counted by {name}: {done - before} of {ROWS}")
        counts = run(processes, len, parts)  # a process returns its count
        print("returned and added up:", sum(counts) == ROWS)


if __name__ == "__main__":
    main()
