"""Raw addresses as cells of the arguments of a launch."""

from __future__ import annotations

import numpy as np

from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Access
from noyau.sanitizer.triton.interpreter_hooks import MemoryExtents


def two_of(whole):
    """The extents of two arrays of 8 int32 of one memory, 128 bytes apart."""
    first, second = whole[:32].view(np.int32), whole[160:192].view(np.int32)
    extents = MemoryExtents(Shadow())
    numbers = extents.add("first", first, is_set=True), extents.add("second", second.reshape(2, 4), is_set=True)
    extents.shadow.region()
    return extents, numbers, first.__array_interface__["data"][0]


def seen(extents):
    return [(each.kind, each.memory, each.cell, each.extent) for each in extents.shadow.observations()]


def test_an_address_outside_counts_for_the_argument_of_its_access_or_the_nearest():
    whole = np.zeros(192, np.uint8)
    extents, (first, second), start = two_of(whole)
    inside = extents.touch(np.array([start, start + 156, start - 8], np.uint64), 4, Access.READ, 0)
    assert inside.tolist() == [True, False, False]
    assert not extents.touch(np.array([start + 156], np.uint64), 4, Access.READ, 1).any()
    assert seen(extents) == [("out-of-bounds", first, 39, 8), ("out-of-bounds", second, -1, 8)]
    assert extents.shadow.accesses == 4


def test_an_access_wider_than_a_cell_touches_all_it_covers():
    whole = np.zeros(192, np.uint8)
    extents, (first, _), start = two_of(whole)
    assert extents.touch(np.array([start], np.uint64), 8, Access.WRITE, 0).all()
    assert not extents.touch(np.array([start + 28], np.uint64), 8, Access.WRITE, 0).any()
    assert extents.shadow.written_cells(first, 8).tolist() == [True, True, False, False, False, False, False, True]
    assert seen(extents) == [("out-of-bounds", first, 8, 8)]


def test_a_write_that_leaves_what_was_there_is_told_from_others():
    whole = np.zeros(192, np.uint8)
    whole[4] = 7
    extents, (first, _), start = two_of(whole)
    addresses = start + 4 * np.arange(2, dtype=np.uint64)
    for owner in range(2):
        extents.shadow.enter(owner, owner)
        extents.touch(addresses, 4, Access.WRITE, 0, np.array([0, 7], np.int32))
    assert {each.kind for each in extents.shadow.observations()} == {"written-twice"}
    extents.shadow.enter(2, 2)
    extents.touch(addresses, 4, Access.WRITE, 1, np.array([0, 8], np.int32))
    assert ("race", first, 0, 0) in seen(extents)  # alike findings are one, and the first of them is told


def test_where_there_are_no_arguments_nothing_is_inside():
    assert not MemoryExtents(Shadow()).touch(np.array([64], np.uint64), 4, Access.READ, 0).any()


def test_cells_are_parted_where_a_narrower_access_comes():
    whole = np.zeros(192, np.uint8)
    extents, (first, _), start = two_of(whole)
    apart = start + 4 * np.arange(8, dtype=np.uint64)
    for owner in range(4):  # a byte each
        extents.shadow.enter(owner, owner)
        extents.touch(apart + np.uint64(owner), 1, Access.WRITE, 0, np.full(8, 1, np.int8))
    assert seen(extents) == []
    assert extents.memories[first].cell_text(9) == "first[2]"
    extents.shadow.enter(4, 4)
    extents.touch(apart[3:], 4, Access.WRITE, 1, np.full(5, 70000, np.int32))
    assert seen(extents)[0][:3] == ("race", first, 12)


def test_what_was_known_of_a_cell_is_known_of_its_parts():
    whole = np.zeros(192, np.uint8)
    extents, (first, _), start = two_of(whole)
    extents.shadow.enter(0, 0)
    extents.touch(np.array([start + 8], np.uint64), 4, Access.WRITE, 0, np.array([70000], np.int32))
    extents.shadow.enter(1, 1)
    extents.touch(np.array([start + 4, start + 11], np.uint64), 1, Access.READ, 1)
    assert seen(extents) == [("race", first, 11, 0)]
