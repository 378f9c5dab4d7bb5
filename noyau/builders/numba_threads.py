"""Threads of Python that share the work of a launch: what they call lets go of the interpreter's lock while it runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from threading import Thread

Span = tuple[int, int]
PIECES_A_THREAD = 8


class Work:
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


def shared(run: Callable[[int, int], int | None], items: int, threads: int) -> list[int | None]:
    """What `run(begin, end)` returned for pieces of [0, items), run by this thread and `threads - 1` others."""
    size = max(1, -(-items // (threads * PIECES_A_THREAD)))
    work = Work(run, [(begin, min(items, begin + size)) for begin in range(0, items, size)])
    waiting = _queue(os.getpid(), threads - 1)
    for _ in range(min(threads, work.count) - 1):
        waiting.put(work)
    work.take()
    while len(work.results) < work.count:  # another thread is not done with its last one
        work.ended.get()
    for result in work.results:
        if isinstance(result, Exception):
            raise result
    return [result for result in work.results if not isinstance(result, Exception)]


@cache
def _queue(process: int, threads: int) -> SimpleQueue[Work]:
    """What so many threads wait at; `process` keeps a forked child from its parent's threads, which it has not."""
    waiting: SimpleQueue[Work] = SimpleQueue()
    for number in range(threads):
        Thread(target=_serve, args=(waiting,), name=f"noyau-numba-{number}", daemon=True).start()
    return waiting


def _serve(waiting: SimpleQueue[Work]) -> None:
    while True:
        waiting.get().take()
