"""Threads of Python that share the work of a launch: what they call lets go of the interpreter's lock while it runs."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

Span = tuple[int, int]
PIECES_A_THREAD = 8


class SharedWork:
    """Spans of items that whoever has time takes, one after the other, and what `run` returned for each: its status,
    or what it raised."""

    def __init__(self, run: Callable[[int, int], int | None], spans: list[Span]) -> None:
        self.run, self.count, self.left = run, len(spans), deque(spans)
        self.results: deque[int | Exception | None] = deque()
        self.ended: SimpleQueue[None] = SimpleQueue()

    def take(self) -> None:
        """Run spans until none is left."""
        while True:
            try:
                begin, end = self.left.popleft()
            except IndexError:
                break
            try:
                result: int | Exception | None = self.run(begin, end)
            except Exception as error:  # noqa: BLE001  whose launch it is raises it
                result = error
            self.results.append(result)
        self.ended.put(None)


def run_shared(run: Callable[[int, int], int | None], items: int, threads: int) -> list[int | None]:
    """Run `run(begin, end)` over pieces of [0, items), and give what it returned, by this thread and `threads - 1`
    others, or as many as can be started. What interrupts this thread is raised, and no piece is begun after it."""
    size = max(1, -(-items // (threads * PIECES_A_THREAD)))
    work = SharedWork(run, [(begin, min(items, begin + size)) for begin in range(0, items, size)])
    try:
        _pool(os.getpid()).give(work, min(threads, work.count) - 1)
        work.take()
        while len(work.results) < work.count:  # another thread is not done with its last one
            work.ended.get()
    finally:
        work.left.clear()  # some are left after a KeyboardInterrupt
        work.run = _nothing  # who comes only now does not keep arrays alive
    for result in work.results:
        if isinstance(result, Exception):
            raise result
    return [result for result in work.results if not isinstance(result, Exception)]


class ThreadPool:
    """Threads that wait for work, as many as one was ever given to."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[SharedWork] = SimpleQueue()
        self.threads = 0
        self.lock = Lock()

    def give(self, work: SharedWork, threads: int) -> None:
        """Have so many threads take part, or as many as there can be."""
        if self.threads < threads:
            with self.lock, contextlib.suppress(RuntimeError):  # beyond a limit, or while the interpreter ends
                while self.threads < threads:
                    Thread(target=self.serve, name=f"noyau-numba-{self.threads}", daemon=True).start()
                    self.threads += 1
        for _ in range(min(threads, self.threads)):
            self.waiting.put(work)

    def serve(self) -> None:
        while True:
            self.waiting.get().take()


_POOLS: dict[int, ThreadPool] = {}


def _pool(process: int) -> ThreadPool:
    """The one of a process, whichever thread asks: a forked child has not its parent's threads."""
    return _POOLS.setdefault(process, ThreadPool())


def _nothing(begin: int, end: int) -> None:
    return None
