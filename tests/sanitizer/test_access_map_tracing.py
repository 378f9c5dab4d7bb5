from __future__ import annotations

from array import array

import numpy as np
import pytest

from noyau.errors import BuildError
from noyau.sanitizer import access_map
from noyau.sanitizer.access_map import TracingShadow
from noyau.sanitizer.records import ACCESSES, Access


@pytest.fixture
def traced():
    try:
        return TracingShadow()
    except BuildError as error:
        pytest.skip(str(error))


def test_writes_of_parallel_regions_are_remembered(traced):
    memory = traced.memory(4, is_set=True)
    traced.enter(9)
    traced.touch_many(memory, np.array([0]), Access.WRITE, 0)  # before there is a region
    traced.region()
    traced.enter(1)
    traced.touch_many(memory, np.array([0, 1, 7]), Access.WRITE, 0)
    traced.touch_many(memory, np.array([3]), Access.READ, 0)
    traced.enter(2)
    traced.touch_many(memory, np.array([1]), Access.ATOMIC, 0)
    last, others = traced.writers(memory, 4)
    assert last.tolist() == [1, 2, -1, -1]
    assert others.tolist() == [0, 1, 0, 0]
    assert traced.kept == 4


def test_writes_of_a_batch_of_owners_are_kept(traced):
    memory = traced.memory(6, is_set=True)
    owners, starts = np.array([3, 4, 9]), np.array([0, 2, 2, 5])
    traced.touch_each(owners, starts, False, (memory, np.arange(5), Access.WRITE, 0, None))  # before there is a region
    traced.region()
    traced.touch_each(owners, starts, False, (memory, np.array([1, 2, 2, 5, 8]), Access.WRITE, 0, None))
    traced.touch_each(owners, starts, False, (memory, np.arange(5), Access.READ, 0, None))
    last, others = traced.writers(memory, 6)
    assert last.tolist() == [-1, 3, 9, -1, -1, 9]
    assert others.tolist() == [0, 0, 1, 0, 0, 0]
    assert traced.kept == 5


def test_notes_that_are_played(traced):
    memory = traced.memory(3, is_set=True)
    write = ACCESSES * memory + Access.WRITE
    rows = [
        (write, 0, 5, 0),
        (-1, 0, 0, 0),
        (write, 1, 6, 0),
        (ACCESSES * memory, 2, 6, 0),
        (-1, 1, 0, 0),
        (write, 2, 7, 0),
    ]
    traced.replay(array("q", [each for row in rows for each in row]), len(rows))
    assert traced.writers(memory, 3)[0].tolist() == [-1, 6, -1]
    assert traced.accesses == 4


def test_what_is_too_much_is_left(traced, monkeypatch):
    monkeypatch.setattr(access_map, "MOST", 3)
    memory = traced.memory(8, is_set=True)
    traced.region()
    for _ in range(3):
        traced.touch_many(memory, np.arange(2), Access.WRITE, 0)
    assert traced.kept == 4
