from __future__ import annotations

import os
import sys
import time

import pytest

from noyau.errors import CheckError, InputError
from noyau.jobs.check import run
from noyau.jobs.check.run import is_of_use, share_work

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are not copied here")
PARENT = os.getpid()


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(run, "is_of_use", lambda: True)


def squares(numbers):
    for number in numbers:
        time.sleep(0.01)
        yield number * number, os.getpid()


def dies(numbers):
    for number in numbers:
        if os.getpid() != PARENT:
            os._exit(3)
        time.sleep(0.1)
        yield number


def refuses(numbers):
    for number in numbers:
        if number == 3:
            raise InputError(f"{number} is not taken")
        yield number


def test_two_processes_share_the_parts_and_the_order_is_kept():
    found = share_work(12, squares, "it", 10.0)
    assert [square for square, _ in found] == [number * number for number in range(12)]
    assert len({process for _, process in found}) == 2


def test_what_stays_is_done_in_this_process():
    def slowly(numbers):
        for number in numbers:
            time.sleep(0.05 if os.getpid() == PARENT else 0.0)
            yield number, os.getpid()

    found = share_work(8, slowly, "it", 10.0, stay=(5, 7))
    assert [number for number, _ in found] == list(range(8))
    assert [found[5][1], found[7][1]] == [PARENT, PARENT]
    assert {process for _, process in found} != {PARENT}


def test_what_a_copy_leaves_undone_is_done_here():
    assert share_work(4, dies, "it", 10.0) == [0, 1, 2, 3]


def test_what_a_part_raises_is_raised_wherever_it_was_taken():
    for count in (4, 9):
        with pytest.raises(InputError, match=r"^3 is not taken$"):
            share_work(count, refuses, "it", 10.0)


def test_a_copy_that_takes_too_long_is_ended():
    def hangs(numbers):
        for number in numbers:
            time.sleep(0.0 if os.getpid() == PARENT else 60.0)
            yield number

    assert share_work(3, hangs, "it", 0.2) == [0, 1, 2]


def test_one_part_or_one_core_needs_no_copy(monkeypatch):
    assert share_work(1, squares, "it", 1.0) == [(0, PARENT)]
    monkeypatch.setattr(run, "is_of_use", lambda: False)
    assert {process for _, process in share_work(5, squares, "it", 1.0)} == {PARENT}


def test_threads_of_a_library_speak_against_a_copy(monkeypatch):
    monkeypatch.setattr(run, "processors", lambda: 2)
    monkeypatch.setattr(run, "_THREADED", ("os",))
    monkeypatch.setattr(os, "listdir", lambda folder: ["1", "2"])
    assert is_of_use()
    monkeypatch.setattr(os, "listdir", lambda folder: ["1", "2", "3"])
    assert not is_of_use()
    monkeypatch.setattr(run, "_THREADED", ())
    assert is_of_use()
    monkeypatch.setattr(run, "processors", lambda: 1)
    assert not is_of_use()


def test_the_copy_ends_what_it_has_started(tmp_path):
    class Kept:
        def __enter__(self):
            return self

        def __exit__(self, *fault):
            (tmp_path / "ended").touch()

    def waits(numbers):
        for number in numbers:
            if os.getpid() == PARENT:
                time.sleep(0.2)
                raise CheckError("enough")
            with Kept():
                time.sleep(60.0)
            yield number

    with pytest.raises(CheckError, match="enough"):
        share_work(2, waits, "it", 10.0)
    assert (tmp_path / "ended").exists()
