"""Where no garbage is collected."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import nullcontext, suppress
from threading import Barrier, Thread

import pytest

from noyau.toolchain.garbage_collection import without_collections


@pytest.mark.parametrize("collects", [True, False])
def test_collections_are_as_they_were_afterwards(collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with suppress(KeyError), without_collections():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_the_last_of_two_threads_restores():
    assert gc.isenabled()
    inside, left, seen = Barrier(2, timeout=10), Barrier(2, timeout=10), []

    def first():
        with without_collections():
            inside.wait()
        seen.append(gc.isenabled())  # the other is inside
        left.wait()

    thread = Thread(target=first)
    thread.start()
    with without_collections():
        inside.wait()
        left.wait()
        seen.append(gc.isenabled())
    thread.join(10)
    assert seen == [False, False]
    assert gc.isenabled()


@pytest.mark.skipif(sys.platform == "win32", reason="no process is forked there")
@pytest.mark.parametrize("holds", [False, True])
def test_a_forked_child_collects_unless_its_own_thread_holds(holds):
    inside, left = Barrier(2, timeout=10), Barrier(2, timeout=10)

    def other():
        with without_collections():
            inside.wait()
            left.wait()

    thread = Thread(target=other)
    thread.start()
    inside.wait()
    with without_collections() if holds else nullcontext():
        child = os.fork()
        if not child:
            before = gc.isenabled()
            with without_collections():
                during = gc.isenabled()
            os._exit(2 * before + during)
    left.wait()
    thread.join(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if holds else 2)
    assert gc.isenabled()
