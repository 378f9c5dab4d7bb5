"""The parts of a check, shared with a copy of this process on another core.

What the checks of a file need whatever they find, made before a copy of this process takes its share of them.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, Generic, NoReturn, TypeVar

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError
from noyau.jobs.check.generated import begin
from noyau.sanitizer import engine
from noyau.sanitizer.c import build
from noyau.workers.resources import processors
from noyau.workers.serve import Request, StateUse
from noyau.workers.worker import ForkedWorker


def prepare(languages: Collection[str]) -> None:
    """Load Numba, and meanwhile let a compiler build what watches its kernels, and those by hand in C, C++ or CUDA C++,
    where these are among the `languages`. Both are done then, so that a copy of this process finds no thread half-way,
    and none of it is done twice."""
    of_c = {each.is_cpp for each in map(LANGUAGES.__getitem__, languages) if each.is_text}
    jobs = *(partial(build.runtime, in_cpp=in_cpp) for in_cpp in sorted(of_c)), engine.library
    thread = Thread(target=_do, args=jobs, name="noyau-ahead", daemon=True)
    thread.start()
    try:
        begin()
    finally:
        thread.join()


def _do(*jobs: Callable[[], object]) -> None:
    """Why something is not built is told of the first kernel that needs it."""
    for job in jobs:
        with suppress(NoyauError):
            job()


R = TypeVar("R")
Runner = Callable[[Iterable[int]], Iterator[R]]  # the results of parts, by their numbers, one after the other
_THREADED = ("tensorflow", "jax", "cupy")
_ENDS_S = 2.0  # for a copy to end the processes that it has started


def share_work(count: int, runner: Runner[R], name: str, patience_s: float, stay: Collection[int] = ()) -> list[R]:
    """The results of `runner(range(count))`. Where there is another core, a copy of this process takes parts from the
    end, but those that `stay`, while this one takes parts from the front, until none is left; each runs `runner` once.

    Results have to pickle; what a part changes in its process is changed there alone. Where the copy fails, or takes
    `patience_s` longer than this process, its parts are done here, and raise here what they raise."""
    if count < 2 or not is_of_use():
        return list(runner(range(count)))
    work = Shared(count, runner, stay)
    with ForkedWorker(name, patience_s, state=work, grace_s=_ENDS_S) as copy:
        copy.begin(Request(run_share, scope=StateUse.USES))
        results = work.run(range(count))
        with contextlib.suppress(NoyauError):
            results |= copy.reply()
    left = [number for number in range(count) if number not in results]
    results |= zip(left, runner(left), strict=True)
    return [results[number] for number in range(count)]


def is_of_use() -> bool:
    """Whether there is another core, and this process can be copied: of a library that has started threads of its own,
    which are not there in a copy, calls may wait for them. Those of torch do not where they ask for one thread."""
    if sys.platform != "linux" or processors() < 2:
        return False
    loaded = any(package in sys.modules for package in _THREADED)
    return not loaded or len(os.listdir("/proc/self/task")) <= processors()  # those of BLAS, which begins anew


@dataclass(slots=True, eq=False)
class Shared(Generic[R]):
    """Parts of which each is taken by one of two processes. `taken`: a byte for each, in memory that both see; `stay`:
    those that the copy does not take."""

    count: int
    runner: Runner[R]
    stay: Collection[int] = ()
    taken: mmap.mmap = field(init=False)
    lock: Any = field(init=False)

    def __post_init__(self) -> None:
        self.taken, self.lock = mmap.mmap(-1, self.count), multiprocessing.get_context("fork").Lock()

    def run(self, order: Sequence[int]) -> dict[int, R]:
        """The results of the parts that nobody has taken, in this order, by their numbers."""
        mine: list[int] = []

        def numbers() -> Iterator[int]:
            while (number := self.take(order)) is not None:
                mine.append(number)
                yield number

        results = list(self.runner(numbers()))
        return dict(zip(mine, results, strict=True))

    def take(self, order: Sequence[int]) -> int | None:
        """The first part that nobody has taken; None where there is none."""
        with self.lock:
            number = next((number for number in order if not self.taken[number]), None)
            if number is not None:
                self.taken[number] = 1
        return number


def run_share(work: Shared[R]) -> dict[int, R]:
    """In the copy: the results of its parts, which it takes from the end."""
    signal.signal(signal.SIGTERM, _ended)
    return work.run([number for number in reversed(range(work.count)) if number not in work.stay])


def _ended(number: int, frame: object) -> NoReturn:
    raise SystemExit  # through every `with`
