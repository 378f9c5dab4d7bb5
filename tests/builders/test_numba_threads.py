"""Work shared by threads of Python: every item once, in a forked child too; what one raises, the caller raises."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial

import numpy as np
import pytest

from noyau.builders import numba_threads
from noyau.builders.numba_threads import PIECES_A_THREAD, shared


@pytest.mark.parametrize(("items", "threads"), [(1, 2), (7, 2), (1000, 2), (1000, 5), (3, 64)])
def test_every_item_is_run_once(items, threads):
    spans = []
    results = shared(lambda begin, end: spans.append((begin, end)) or end - begin, items, threads)
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

    shared(run, 16, 2)
    assert len(seen) == 2


def test_what_one_raises_the_caller_raises():
    def run(begin, end):
        if begin == 3:
            raise MemoryError("no room")
        return 0

    with pytest.raises(MemoryError, match="no room"):
        shared(run, 16, 2)
    assert shared(lambda begin, end: 0, 16, 2) == [0] * 16


def test_threads_are_as_many_as_were_asked_for_at_most():
    for threads in (2, 5, 3, 4):
        shared(lambda begin, end: 0, 1000, threads)
    assert numba_threads._pool(os.getpid()).threads >= 4
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("noyau-numba")]
    assert len(names) == len(set(names)) == numba_threads._pool(os.getpid()).threads


def test_what_is_done_is_not_kept():
    """Though a thread that comes late still holds the work."""
    array = np.zeros(3)
    there = weakref.ref(array)
    shared(partial(lambda kept, begin, end: 0, array), 16, 2)
    del array
    assert there() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own():
    shared(lambda begin, end: 0, 16, 2)
    child = os.fork()
    if child == 0:
        together = threading.Barrier(2, timeout=20)
        shared(lambda begin, end: together.wait() and 0 if begin < 2 else 0, 16, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
