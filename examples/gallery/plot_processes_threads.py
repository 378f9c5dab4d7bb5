"""Sessions 1 and 10: processes against threads
=============================================

Threads share their memory, and one at a time runs Python: they help where the work is done in kernels, which let go of
the lock, and not where it is a loop. Processes run Python side by side; what they work on is sent to them as bytes, and
what they change is their own. So: count what must be sent, and what is computed for it. The twin counts in a variable
of the process, which nobody else sees: it is right with threads, and with processes it is always what it was.

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
# A fold in a kernel, and the same as a loop of Python. Both give sums of integers, which are exact in any order.
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
        # A fork of a process with threads may inherit a lock that nobody opens: start afresh.
        ProcessPoolExecutor(2, get_context("spawn")) as processes,
    ):
        # %%
        # The clock
        # ---------
        # With two cores: threads leave the loop as slow as it was, processes halve it. Of the kernel, what is sent to a
        # process takes longer than what it does there.
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
        # 8 bytes a number there, and 100 bytes back: worth it for a loop of 50 ns a number, for a kernel of 1 ns not.
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
        counts = run(processes, len, parts)  # what a process knows, it returns
        print("returned and added up:", sum(counts) == ROWS)


if __name__ == "__main__":
    main()
