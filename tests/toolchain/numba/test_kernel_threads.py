"""Work shared by threads of Python: every item once, in a forked child too; what one raises, the caller raises."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial

import numpy as np
import pytest

from noyau.toolchain.numba import kernel as numba_threads
from noyau.toolchain.numba.kernel import PIECES_A_THREAD, run_shared


@pytest.mark.parametrize(("items", "threads"), [(1, 2), (7, 2), (1000, 2), (1000, 5), (3, 64)])
def test_every_item_is_run_once(items, threads):
    spans = []
    results = run_shared(lambda begin, end: spans.append((begin, end)) or end - begin, items, threads)
    assert sorted(item for span in spans for item in range(*span)) == list(range(items))
    assert sum(results) == items
    assert len(results) == len(spans) <= threads * PIECES_A_THREAD


def test_others_take_part():
    """Two pieces that wait for each other are run by two threads."""
    together, seen = threading.Barrier(2, timeout=20), set()

    def run(begin, end):
        if begin < 2:
            together.wait()
        seen.add(threading.current_thread().name)

    run_shared(run, 16, 2)
    assert len(seen) == 2


def test_what_one_raises_the_caller_raises():
    def run(begin, end):
        if begin == 3:
            raise MemoryError("no room")
        return 0

    with pytest.raises(MemoryError, match="no room"):
        run_shared(run, 16, 2)
    assert run_shared(lambda begin, end: 0, 16, 2) == [0] * 16


def test_threads_are_as_many_as_were_asked_for_at_most():
    for threads in (2, 5, 3, 4):
        run_shared(lambda begin, end: 0, 1000, threads)
    assert numba_threads._pool(os.getpid()).threads >= 4
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("noyau-numba")]
    assert len(names) == len(set(names)) == numba_threads._pool(os.getpid()).threads


def test_what_is_done_is_not_kept():
    """Though a thread that comes late still holds the work."""
    array = np.zeros(3)
    there = weakref.ref(array)
    run_shared(partial(lambda kept, begin, end: 0, array), 16, 2)
    del array
    assert there() is None


def test_an_interrupted_call_begins_no_more_pieces():
    """Another thread, which has one in hand, ends that one alone: all threads do something else afterwards."""
    run_shared(lambda begin, end: 0, 16, 2)
    interrupted, ran = threading.Event(), []

    def run(begin, end):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        interrupted.wait(20)
        ran.append(begin)

    with pytest.raises(KeyboardInterrupt):
        run_shared(run, 1000, 2)
    interrupted.set()
    count = numba_threads._pool(os.getpid()).threads + 1
    together = threading.Barrier(count, timeout=20)
    run_shared(lambda begin, end: together.wait() and 0 if begin < count else 0, count * PIECES_A_THREAD, count)
    assert len(ran) <= 1


def test_where_no_thread_can_be_started_this_one_does_the_work(monkeypatch):
    class Refused(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(numba_threads, "_POOLS", {})
    monkeypatch.setattr(numba_threads, "Thread", Refused)
    assert sum(run_shared(lambda begin, end: end - begin, 100, 3)) == 100
    pool = numba_threads._pool(os.getpid())
    assert pool.threads == 0 and pool.waiting.empty()


def test_threads_that_ask_first_together_have_one_pool(monkeypatch):
    together, found = threading.Barrier(2, timeout=20), []

    class Slow(numba_threads.ThreadPool):
        def __init__(self):
            super().__init__()
            together.wait()

    monkeypatch.setattr(numba_threads, "_POOLS", {})
    monkeypatch.setattr(numba_threads, "ThreadPool", Slow)
    asking = [threading.Thread(target=lambda: found.append(numba_threads._pool(1))) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(20)
    assert len(found) == 2 and found[0] is found[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own():
    run_shared(lambda begin, end: 0, 16, 2)
    child = os.fork()
    if child == 0:
        together = threading.Barrier(2, timeout=20)
        run_shared(lambda begin, end: together.wait() and 0 if begin < 2 else 0, 16, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
