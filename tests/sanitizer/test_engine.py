"""The shadow of memory, asked cell by cell: what is ordered, what conflicts, and what each finding names."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.engine import ReplayEvent, Shadow
from noyau.sanitizer.records import Access

READ, WRITE, ATOMIC, SAME = Access.READ, Access.WRITE, Access.ATOMIC, Access.SAME_WRITE


def run(*touches, is_set=True, cells=4):
    """What is seen of touches of cell 0: each an access and the whereabouts of who runs, sites counted from 0."""
    shadow = Shadow()
    memory = shadow.memory(cells, is_set=is_set)
    shadow.region()
    for site, (access, *where) in enumerate(touches):
        shadow.enter(*where)
        assert shadow.touch(memory, 0, access, site)
    return shadow.observations()


def kinds(*touches, **options):
    return [seen.kind for seen in run(*touches, **options)]


def test_a_read_that_a_swap_of_its_owner_proves_is_a_guess():
    guess, swap, check = 0, 1, 2

    def seen(*touches):
        shadow = Shadow()
        memory = shadow.memory(1, is_set=True)
        shadow.region()
        for owner, access, site in touches:
            shadow.enter(owner, owner)
            shadow.touch(memory, 0, access, site)
        return [(str(each.kind), each.access, each.site) for each in shadow.observations()]

    loop = [(0, READ, guess), (0, Access.SWAP, swap)]
    assert seen(*loop, (1, READ, guess), (2, READ, guess), (2, Access.SWAP, swap)) == []
    assert seen((1, READ, guess), *loop) == []  # who guessed first did not swap
    assert seen(*loop, (1, READ, check)) == [("race", READ, check)]
    assert seen(*loop, (1, WRITE, check)) == [("race", WRITE, check)] * 2
    assert seen((0, READ, guess), (0, ATOMIC, swap), (1, READ, guess)) == [("race", READ, guess)]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (READ, READ, []),
        (READ, WRITE, ["race"]),
        (WRITE, READ, ["race"]),
        (WRITE, WRITE, ["race"]),
        (WRITE, SAME, ["written-twice"]),
        (SAME, WRITE, ["race"]),
        (READ, SAME, ["race"]),
        (ATOMIC, ATOMIC, []),
        (ATOMIC, READ, ["race"]),
        (ATOMIC, WRITE, ["race"]),
        (READ, ATOMIC, ["race"]),
        (WRITE, ATOMIC, ["race"]),
    ],
)
def test_two_owners(first, second, found):
    assert kinds((first, 0), (second, 1)) == found
    assert kinds((first, 0), (second, 0)) == []


def test_a_race_names_both_accesses():
    (seen,) = run((READ, 3), (WRITE, 5))
    assert (seen.kind, seen.access, seen.other_access, seen.cell) == ("race", WRITE, READ, 0)
    assert (seen.owner, seen.other_owner, seen.site, seen.other_site, seen.count) == (5, 3, 1, 0, 1)


def test_a_write_after_many_readers_names_one_that_is_not_the_writer():
    (seen,) = run((READ, 3), (READ, 5), (WRITE, 5))
    assert (seen.owner, seen.other_owner) == (5, 3)


@pytest.mark.parametrize("pair", [(WRITE, READ), (READ, WRITE), (WRITE, WRITE), (ATOMIC, READ)])
def test_a_barrier_orders_a_block_and_no_other(pair):
    first, second = pair
    assert kinds((first, 0, 0, 0, 0), (second, 1, 0, 0, 1)) == []
    assert kinds((first, 0, 0, 0, 0), (second, 1, 1, 0, 1)) == ["race"]


def test_a_syncwarp_orders_a_warp_alone():
    assert kinds((WRITE, 0, 0, 0, 0, 0), (READ, 1, 0, 0, 0, 1)) == []
    assert kinds((WRITE, 0, 0, 0, 0, 0), (READ, 40, 0, 1, 0, 1)) == ["race"]
    assert kinds((WRITE, 0, 0, 0, 0, 0), (READ, 1, 0, 0, 0, 0)) == ["race"]


def test_alike_races_are_shown_by_the_owners_that_are_farthest_apart():
    writer, in_warp, in_block, in_grid = (0, 0, 0), (1, 0, 0), (40, 0, 1), (70, 1, 0)

    def shown(*readers):
        shadow = Shadow()
        memory = shadow.memory(1, is_set=True)
        shadow.region()
        for site, (access, *where) in [(0, (WRITE, *writer)), *((1, (READ, *each)) for each in readers)]:
            shadow.enter(*where)
            shadow.touch(memory, 0, access, site)
        (race,) = shadow.observations()
        return race.owner, race.other_owner, race.reach, race.count

    assert shown(in_warp) == (1, 0, 0, 1)
    assert shown(in_warp, in_block, in_warp) == (40, 0, 1, 3)
    assert shown(in_warp, in_grid, in_block) == (70, 0, 2, 3)


def test_readers_before_a_barrier_are_forgotten_unless_they_are_of_another_block():
    assert kinds((READ, 0, 0, 0, 0), (READ, 1, 0, 0, 0), (READ, 0, 0, 0, 1), (WRITE, 0, 0, 0, 1)) == []
    assert kinds((READ, 9, 1, 0, 0), (READ, 0, 0, 0, 1), (WRITE, 0, 0, 0, 1)) == ["race"]
    assert kinds((READ, 0, 0, 0, 0), (READ, 40, 0, 1, 0), (WRITE, 0, 0, 0, 0, 1)) == ["race"]


def test_what_nobody_wrote():
    assert kinds((READ, 0), (WRITE, 0), (READ, 0), is_set=False) == ["uninitialised"]
    assert kinds((ATOMIC, 0), is_set=False) == ["uninitialised"]
    assert kinds((SAME, 0), (READ, 0), is_set=False) == []


def test_regions_are_ordered_and_serial_ones_race_not():
    shadow = Shadow()
    memory = shadow.memory(2, is_set=True)
    for _ in range(2):
        shadow.region()
        shadow.enter(_)
        shadow.touch(memory, 0, WRITE, 0)
    shadow.region(serial=True)
    for owner in range(2):
        shadow.enter(owner)
        shadow.touch(memory, 1, WRITE, 1)
    assert shadow.observations() == []
    assert shadow.accesses == 4


def test_cells_outside_and_cells_unwritten():
    shadow = Shadow()
    memory = shadow.memory(3, is_set=True)
    assert not shadow.touch(memory, 3, WRITE, 7)
    assert not shadow.touch(memory, -1, READ, 8)
    assert not shadow.touch(memory + 1, 0, READ, 9)
    assert [(seen.kind, seen.cell, seen.extent) for seen in shadow.observations()] == [
        ("out-of-bounds", 3, 3),
        ("out-of-bounds", -1, 3),
        ("out-of-bounds", 0, 0),
    ]
    shadow.touch(memory, 0, WRITE, 0)
    assert shadow.unwritten(memory) == (2, 1)
    clear = np.array([[ReplayEvent.CLEAR, memory, 0, 0]])
    shadow.replay(clear, 1)
    assert shadow.unwritten(memory) == (3, 0)
    shadow.forget(memory)
    shadow.replay(clear, 1)
    assert not shadow.touch(memory, 0, READ, 0)
    assert shadow.unwritten(memory) == (0, -1)


def test_many_cells_at_once_and_notes_played_back():
    shadow = Shadow()
    memory = shadow.memory(8, is_set=True)
    shadow.region()
    assert shadow.touch_many(memory, np.arange(4), WRITE, 0) == 4
    shadow.enter(1)
    assert shadow.touch_many(memory, np.array([3, 9]), WRITE, 0, changed=np.array([False, True])) == 1
    assert [(seen.kind, seen.count) for seen in shadow.observations()] == [("written-twice", 1), ("out-of-bounds", 1)]
    again = Shadow()
    memory = again.memory(8, is_set=True)
    rows = [[-1, 0, 0, 0], [memory * 4 + WRITE, 2, 0, 5], [memory * 4 + READ, 2, 6, 6], [-1, 1, 0, 0]]
    again.replay(np.array(rows, np.int64), len(rows))
    assert [(seen.owner, seen.other_owner, seen.site, seen.other_site) for seen in again.observations()] == [
        (6, 0, 6, 5)
    ]


def last_block(*, fenced, barrier):
    """Blocks of two threads write their sum and take a ticket; both threads of the last one read all sums."""
    shadow = Shadow()
    sums, ticket = (shadow.memory(cells, is_set=True) for cells in (3, 1))
    shadow.region()
    for block in range(3):
        shadow.enter(2 * block, block)
        shadow.touch(sums, block, WRITE, 0)
        if fenced:
            shadow.fence()
        shadow.touch(ticket, 0, ATOMIC, 1)
    for thread in range(2):
        shadow.enter(4 + thread, 2, 0, int(barrier))
        for block in range(3):
            shadow.touch(sums, block, READ, 2)
    shadow.enter(4, 2, 0, int(barrier))
    shadow.touch(ticket, 0, WRITE, 3)
    return [(seen.kind, seen.site, seen.owner) for seen in shadow.observations()]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_fence_publishes_what_came_before_it(is_before):
    shadow = Shadow()
    value, lock = (shadow.memory(1, is_set=True) for _ in range(2))
    shadow.region()
    for owner in range(2):
        shadow.enter(owner, owner)
        for _ in range(3):  # it tries again and again
            shadow.fence()
            shadow.touch(lock, 0, ATOMIC, 0)
        shadow.touch(value, 0, WRITE, 1)
        if is_before:
            shadow.fence()
        shadow.touch(lock, 0, ATOMIC, 2)
    races = [] if is_before else [("race", 1, 1)]
    assert [(seen.kind, seen.site, seen.owner) for seen in shadow.observations()] == races


def test_a_fence_behind_the_atomic_publishes_nothing_there():
    shadow = Shadow()
    value, flag = (shadow.memory(1, is_set=True) for _ in range(2))
    shadow.region()
    for owner in range(2):
        shadow.enter(owner, owner)
        shadow.fence()
        shadow.touch(flag, 0, ATOMIC, 0)
        shadow.touch(value, 0, WRITE, 1)
        shadow.touch(flag, 0, ATOMIC, 2)
        shadow.fence()
    assert [(seen.kind, seen.site, seen.owner) for seen in shadow.observations()] == [("race", 1, 1)]


def test_several_owners_at_once_are_as_one_after_the_other():
    results = []
    for at_once in (False, True):
        shadow = Shadow()
        memory = shadow.memory(8, is_set=True)
        shadow.region()
        owners, starts, cells = np.array([3, 4, 7]), np.array([0, 2, 2, 5]), np.array([0, 1, 1, 2, 9])
        changed = np.array([True, True, False, True, True])
        if at_once:
            shadow.touch_each(owners, starts, False, (memory, cells, WRITE, 5, changed))
        for owner, start, end in () if at_once else zip(owners, starts, starts[1:], strict=False):
            shadow.enter(owner, owner)
            shadow.touch_many(memory, cells[start:end], WRITE, 5, changed[start:end])
        results.append(
            (shadow.accesses, shadow.written_cells(memory, 8).tolist(), list(map(str, shadow.observations())))
        )
    assert results[0] == results[1]
    assert len(results[0][2]) == 2


def test_a_fence_and_an_atomic_publish_what_a_block_did():
    assert last_block(fenced=True, barrier=True) == []
    assert last_block(fenced=True, barrier=False) == [("race", 2, 5)]
    assert last_block(fenced=False, barrier=True) == [("race", 2, 4)]


def handed_on(*, fenced, block=None):
    """What is found where three programs, or threads of a block, add to a cell, one after the other, each between two
    atomics on a lock."""
    shadow = Shadow()
    lock, cell = shadow.memory(1, is_set=True), shadow.memory(1, is_set=True)
    shadow.region()
    for program in range(3):
        shadow.enter(program, program if block is None else block)
        for memory, access in ((lock, ATOMIC), (cell, READ), (cell, WRITE), (lock, ATOMIC)):
            if fenced and memory == lock:
                shadow.fence()
            shadow.touch(memory, 0, access, memory)
    return {seen.kind for seen in shadow.observations()}


def test_a_lock_orders_all_who_had_it():
    assert handed_on(fenced=True) == set()
    assert handed_on(fenced=False) == {"race"}
    assert handed_on(fenced=True, block=0) == set()
    assert handed_on(fenced=False, block=0) == {"race"}


def test_what_follows_one_s_own_atomic_is_found_from_the_next_one():
    assert kinds((ATOMIC, 0), (ATOMIC, 1), (WRITE, 1)) == []
    assert kinds((ATOMIC, 0), (WRITE, 0), (ATOMIC, 1)) == ["race"]
    assert kinds((ATOMIC, 0), (READ, 0), (ATOMIC, 1), (READ, 1)) == ["race"]


def test_alike_findings_are_one_and_the_table_is_bounded():
    shadow = Shadow()
    memory = shadow.memory(1, is_set=True)
    shadow.region()
    for owner in range(10):
        shadow.enter(owner)
        shadow.touch(memory, 0, WRITE, 0)
    assert [seen.count for seen in shadow.observations()] == [9]
    for site in range(300):
        shadow.note(FindingKind.DIVERGENT_BARRIER, memory, READ, site)
    assert len(shadow.observations()) == 256
    assert shadow.dropped == 45
    assert shadow.observations()[-1].kind == "divergent-barrier"


def test_a_shadow_that_has_no_room():
    with pytest.raises(MemoryError, match="shadow of -1 cells"):
        Shadow().memory(-1, is_set=True)
